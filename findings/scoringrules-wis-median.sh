#!/usr/bin/env bash
# scoringrules's weighted interval score has the median itself for the error of the median.
#
# Versions: scoringrules 0.10.0, numpy 2.2.6, scipy 1.15.3, numba 0.61.2.
# Guess before the run: the score is that of its docstring, with all backends: it is twice the mean
#     quantile loss, never negative, and does not change if forecast and observation are shifted
#     alike. (That it might not was suspected after reading the source.)
# Seen: with numpy, the default where numba is not installed, w0 * m is added where w0 * |y - m| is
#     due. A constant of 100 on forecasts and observations turns a score of 0.32, where 0.50 is due,
#     into 20.3, and one of -100 into -19.7; of two forecasts, the one whose median is 2 too low is
#     better. With numba all is right: installing it changes the scores. (torch, jax and tensorflow
#     share the code of numpy, and were not run.)
# For gyre: it predicts no intervals. There, install numba, or add up quantile losses by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scoringrules==0.10.0 numpy==2.2.6 scipy==1.15.3 \
    numba==0.61.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import scoringrules
from scipy.stats import norm

ALPHA = np.array([0.1, 0.5])
generator = np.random.default_rng(0)
samples = 2000
centre = 3 * generator.normal(size=samples)
observed = centre + generator.normal(size=samples)


def reference(observed, median, lower, upper):
    """Return twice the mean quantile loss, which the score is by Bracher et al. (2021)."""
    levels = np.concatenate([ALPHA / 2, [0.5], 1 - ALPHA / 2])
    quantiles = np.concatenate([lower, median[:, None], upper], axis=1)
    errors = observed[:, None] - quantiles
    return 2 * np.maximum(levels * errors, (levels - 1) * errors).mean(axis=1)


def score(shift, bias, backend):
    """Return the scores of a normal forecast whose median is off by a bias."""
    median = centre + shift + bias
    spread = norm.ppf(1 - ALPHA / 2)
    lower, upper = (centre + shift)[:, None] - spread, (centre + shift)[:, None] + spread
    arguments = observed + shift, median, lower, upper
    found = scoringrules.weighted_interval_score(*arguments, ALPHA, backend=backend)
    return np.asarray(found), reference(*arguments), median


for shift in [0, 100, -100]:
    results = {}
    for backend in ["numpy", "numba"]:
        found, due, median = score(shift, 0, backend)
        results[backend] = found.mean()
        if backend == "numba":
            assert np.allclose(found, due)
        else:
            excess = 0.5 * (median - np.abs(observed + shift - median)) / (len(ALPHA) + 0.5)
            assert np.allclose(found, due + excess)
    print(f"shifted by {shift}: numpy {results['numpy']:.3f}, numba {results['numba']:.3f}, "
          f"{due.mean():.3f} is due")
    assert abs(results["numba"] - due.mean()) < 1e-9
    if shift:
        assert abs(results["numpy"] - due.mean() - 0.2 * shift) < 1
means = {}
for bias in [0, -2]:
    for backend in ["numpy", "numba"]:
        means[bias, backend] = score(0, bias, backend)[0].mean()
    print(f"median off by {bias}: numpy {means[bias, 'numpy']:.3f}, "
          f"numba {means[bias, 'numba']:.3f}")
assert means[-2, "numba"] > means[0, "numba"] and means[-2, "numpy"] < means[0, "numpy"]
PYTHON
