#!/usr/bin/env bash
# The standard error of the variance between seeds depends on the unit of the loss.
#
# Version: statsmodels 0.15.0.
# Guess before the run: MixedLM's summary gives the variance between 50 seeds with a standard error
#     of about variance * sqrt(2 / 49), a fifth of it. In another unit both change alike.
# Seen: for losses in nats, with a deviation of 0.1 between seeds and 0.02 within, the standard
#     error is nearly 80 times too large: 0.15 for a variance of 0.01. For losses in thousandths of
#     a nat it is 13 times too small. The variance is right in any unit, and so are the standard
#     errors of the effects. (What is fitted is the variance over the residual variance, the scale.
#     The summary, and bse_re, multiply its standard error by the root of the scale, not by the
#     scale. That would be right to a factor of 1.6: the ratio has the error of the scale as well.)
# For gyre: its report pairs the seeds, and does not use this. With statsmodels, resample the seeds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile statsmodels==0.15.0 numpy==2.4.6 \
    pandas==3.1.1 scipy==1.17.1
"$folder/env/bin/python" - <<'PYTHON'
import warnings

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

warnings.simplefilter("ignore")  # statsmodels says that the variance may be 0, which it is not

N_SEEDS = 50
SEED_DEVIATION = 0.1
RESIDUAL_DEVIATION = 0.02


def simulate(generator):
    """Return the losses of two models, each trained with the same seeds."""
    seeds = generator.normal(size=N_SEEDS) * SEED_DEVIATION
    residuals = generator.normal(size=2 * N_SEEDS) * RESIDUAL_DEVIATION
    return pd.DataFrame({"seed": np.repeat(np.arange(N_SEEDS), 2),
                         "model": np.tile([0, 1], N_SEEDS),
                         "loss": 3 + np.repeat(seeds, 2) + residuals})


def fit(losses):
    """Return the fitted model of an effect of the model and a random one of the seed."""
    return smf.mixedlm("loss ~ model", losses, groups="seed").fit()


generator = np.random.default_rng(0)
fits = [fit(simulate(generator)) for _ in range(50)]
variances = [result.cov_re.iloc[0, 0] for result in fits]
reported = np.mean([result.bse_re.iloc[0] for result in fits])
rescaled = np.mean([result.bse_re.iloc[0] * np.sqrt(result.scale) for result in fits])
print(f"the variance between seeds: true {SEED_DEVIATION**2:.4f}; 50 estimates have a mean of "
      f"{np.mean(variances):.4f} and a standard deviation of {np.std(variances):.5f}; the mean of "
      f"the standard errors is {reported:.5f}, and times sqrt(scale) {rescaled:.5f}")
assert 0.0015 < np.std(variances) < 0.0028
assert reported > 50 * np.std(variances)
assert 0.5 < rescaled / np.std(variances) < 2

losses = simulate(generator)
errors = {}
for unit in [1, 100, 1000]:
    result = fit(losses.assign(loss=losses.loss * unit))
    row = result.summary().tables[1].loc["seed Var"]
    variance = float(row["Coef."]) / unit**2
    errors[unit] = float(row["Std.Err."]) / unit**2
    effect_error = result.bse_fe["model"] / unit
    print(f"losses in 1/{unit} of a nat, in the summary, in nats: variance {variance:.4f}, its "
          f"standard error {errors[unit]:.6f}; that of the effect {effect_error:.5f}")
    assert 0.005 < variance < 0.02
    assert 0.002 < effect_error < 0.008
assert errors[1] > 0.05
assert errors[1000] < 0.0005
PYTHON
