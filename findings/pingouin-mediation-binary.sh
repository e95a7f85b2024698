#!/usr/bin/env bash
# pingouin's indirect effect through a mediator of zeros and ones is in log-odds: six times the total effect.
#
# Versions: pingouin 0.7.0, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3.
# Guess before the run: with a binary mediator, `mediation_analysis` gives what its documentation says, "the
#     estimated difference in Y resulting from a one-unit change in X" through the mediator, and the
#     total effect is the sum of direct and indirect ones within a few percent. (Suspected after reading
#     the source.)
# Seen: the slope of a logistic regression, in log-odds, is multiplied by that of a linear one, in Y to
#     a unit. Where X acts through the mediator only, the total effect is 0.59, the direct one 0.02, and
#     the indirect one 3.4, with an interval of 3.2 to 3.7. The more surely X decides the mediator, the
#     larger: 5 times the total effect, 6 times, and 16 times. With a continuous mediator it is right.
# For gyre: nothing. There, take total minus direct.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pingouin==0.7.0 numpy==2.4.6 scipy==1.17.1 pandas==2.3.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
import pingouin

N = 4000
EFFECT = 2.0
generator = np.random.default_rng(0)
documentation = " ".join(pingouin.mediation_analysis.__doc__.split())
assert "quantifies the estimated difference in Y resulting from a one-unit change in X" in documentation
assert "is the sum of both the indirect and direct effect" in documentation


def measure(x, mediator, y):
    """Return the indirect effect, its interval, the total and the direct effect."""
    data = pd.DataFrame({"X": x, "M": mediator, "Y": y})
    result = pingouin.mediation_analysis(data, x="X", m="M", y="Y", n_boot=200, seed=0).set_index("path")
    low, high = result.loc["Indirect", ["CI2.5", "CI97.5"]]
    return result.loc["Indirect", "coef"], low, high, result.loc["Total", "coef"], result.loc["Direct", "coef"]


x = generator.normal(size=N)
for noise in (2.0, 1.0, 0.3):
    latent = x + noise * generator.normal(size=N)
    mediator = (latent > 0).astype(int)
    y = EFFECT * mediator + generator.normal(size=N)
    seen, low, high, total, direct = measure(x, mediator, y)
    # A unit of X moves the share of ones by the density of the latent values at 0, on average.
    true = EFFECT / np.sqrt(2 * np.pi * (1 + noise**2))
    print(f"noise {noise}: indirect {seen:.2f} ({low:.2f} to {high:.2f}), true {true:.2f}; "
          f"total {total:.2f}, direct {direct:.2f}, difference {total - direct:.2f}")
    assert abs(direct) < 0.1 and abs(total - true) < 0.1
    assert low > 3 * true and seen > 3 * total

    # With a continuous mediator, the sum is exact.
    seen, low, high, total, direct = measure(x, latent, EFFECT * latent + generator.normal(size=N))
    assert abs(seen + direct - total) < 1e-9
PYTHON
