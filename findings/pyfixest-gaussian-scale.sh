#!/usr/bin/env bash
# pyfixest's Gaussian GLM has standard errors that do not depend on the noise: 1 is its deviation.
#
# Versions: pyfixest 0.60.0, statsmodels 0.15.0, numpy 2.4.6, pandas 2.3.3, scipy 1.17.1.
# Guess, written after a first run of a comparison with statsmodels had shown it: `feglm(...,
#     family="gaussian")` has the standard errors of `feols`, which fits the same line, and of
#     statsmodels' GLM, and they scale with the unit of the outcome.
# Seen: its default errors are one number in any unit: 0.074, where 0.00075, 0.075 and 7.5 are due. One
#     effect has p = 0.94 in hundreds, 3e-12 in ones and 0 in hundredths, where each is 8e-11. 95 %
#     intervals hold an effect in all samples if the deviation of the noise is 0.1, and in fewer than 25
#     % if it is 10. With fixed effects, too; robust and clustered errors are right.
# Cause: `_vcov_iid` returns the inverse of X'X, which for logit and probit is all, and leaves out the
#     variance of the residuals (pyfixest/estimation/models/feglm_.py). Issue 1077 there has an error
#     that was 8 % too small, in an older version.
# For gyre: its report has paired intervals of its own. There, take `feols`, or `vcov="hetero"`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pyfixest==0.60.0 statsmodels==0.15.0 numpy==2.4.6 pandas==2.3.3 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
import pyfixest as pf
import statsmodels.api as sm

N, N_SAMPLES = 200, 100


def draw(seed, deviation):
    """Return a frame whose outcome rises by 0.3 times the deviation of the noise for each unit of x."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=N)
    group = generator.integers(0, 5, N)
    y = 0.65 * x * deviation + generator.normal(size=N) * deviation + 0.1 * group
    return pd.DataFrame({"x": x, "y": y, "group": group})


frame = draw(0, 1.0)
errors = {}
for unit in [0.01, 1, 100]:
    frame["scaled"] = frame.y * unit
    glm = pf.feglm("scaled ~ x", frame, family="gaussian")
    ols = pf.feols("scaled ~ x", frame)
    reference = sm.GLM(frame.scaled, sm.add_constant(frame[["x"]]), family=sm.families.Gaussian()).fit()
    assert np.isclose(glm.coef()["x"], ols.coef()["x"])
    assert np.isclose(ols.se()["x"], reference.bse["x"], rtol=1e-6)
    errors[unit] = glm.se()["x"], ols.se()["x"]
    effects = pf.feglm("scaled ~ x | group", frame, family="gaussian").se()["x"], pf.feols("scaled ~ x | group",
                                                                                          frame).se()["x"]
    robust = pf.feglm("scaled ~ x", frame, family="gaussian", vcov="hetero").se()["x"]
    assert np.isclose(robust, pf.feols("scaled ~ x", frame, vcov="hetero").se()["x"], rtol=1e-3)
    print(f"outcome times {unit}: effect {glm.coef()['x']:.4g}, error {glm.se()['x']:.4f} by feglm, p = "
          f"{glm.pvalue()['x']:.2g}; {ols.se()['x']:.4g} by feols and statsmodels, p = {ols.pvalue()['x']:.2g}; "
          f"with fixed effects {effects[0]:.4f} for {effects[1]:.4g}")
    assert unit == 1 or not np.isclose(effects[0], effects[1], rtol=0.5)
assert np.allclose([error for error, _ in errors.values()], errors[1][0], rtol=1e-9)
assert np.isclose(errors[100][1], 1e4 * errors[0.01][1])

for deviation, low, high in [(0.1, 1, 1), (1, 0.9, 0.99), (10, 0, 0.25)]:
    held, held_ols = [], []
    for seed in range(N_SAMPLES):
        sample = draw(seed, deviation)
        for fit, into in [(pf.feglm("y ~ x", sample, family="gaussian"), held), (pf.feols("y ~ x", sample), held_ols)]:
            bounds = fit.confint().loc["x"]
            into.append(bounds.iloc[0] < 0.65 * deviation < bounds.iloc[1])
    print(f"noise with a deviation of {deviation}: 95 % intervals hold the effect in {np.mean(held):.0%} of samples, "
          f"those of feols in {np.mean(held_ols):.0%}")
    assert low <= np.mean(held) <= high and 0.9 < np.mean(held_ols) < 0.99
PYTHON
