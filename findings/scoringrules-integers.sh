#!/usr/bin/env bash
# scoringrules cuts scores to whole numbers if the observations are integers.
#
# Versions: scoringrules 0.10.0, numpy 2.4.6, scipy 1.17.1, numba 0.68.1.
# Guess before the run: counts, which are integers, have the scores that they have as floats, with
#     every score. (That they might not was suspected after reading the source.)
# Seen: where numba is installed, `crps_quantile` and `weighted_interval_score` write into an array
#     of the observations' dtype, by default: each score is cut to a whole number, in silence. Of
#     Poisson counts, a mean of 0.90 becomes 0.40, and a forecast with all quantiles at 3.9 is
#     perfect for a count of 3. With `backend="numba"`, the error-spread and the Gaussian kernel
#     score are cut too, the latter to 0 always. `crps_ensemble` and the numpy backend are right.
# For gyre: it predicts no counts. There, give observations as floats.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scoringrules==0.10.0 numpy==2.4.6 scipy==1.17.1 \
    numba==0.68.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import scoringrules
from scipy.stats import gamma

LEVELS = (np.arange(19) + 1) / 20
ALPHA = np.array([0.1, 0.5])
generator = np.random.default_rng(0)
means = generator.uniform(1, 4, size=2000)
counts = generator.poisson(means)
ensembles = generator.poisson(means[:, None], size=(2000, 20)).astype(float)


def predict(levels):
    """Return quantiles of a gamma distribution, whose variance is its mean."""
    return gamma.ppf(levels, means[:, None])


def compute_quantile_crps(observed, quantiles):
    """Return twice the mean quantile loss."""
    errors = observed[:, None] - quantiles
    return 2 * np.maximum(LEVELS * errors, (LEVELS - 1) * errors).mean(1)


def score_intervals(observed, backend):
    return scoringrules.weighted_interval_score(
        observed, predict([0.5])[:, 0], predict(ALPHA / 2), predict(1 - ALPHA / 2), ALPHA,
        backend=backend)


CASES = {
    "crps_quantile": (None, lambda observed, backend: scoringrules.crps_quantile(
        observed, predict(LEVELS), LEVELS, backend=backend)),
    "weighted_interval_score": (None, score_intervals),
    "error_spread_score": ("numba", lambda observed, backend: scoringrules.error_spread_score(
        observed, ensembles, backend=backend)),
    "gksuv_ensemble": ("numba", lambda observed, backend: scoringrules.gksuv_ensemble(
        observed, ensembles, backend=backend)),
}
for name, (backend, score) in CASES.items():
    cut, due = score(counts, backend), score(counts.astype(float), backend)
    print(f"{name}, backend {backend}: mean {cut.mean():.3f}, as floats {due.mean():.3f}")
    assert cut.dtype == np.int64 and np.array_equal(cut, np.trunc(due))
    assert (due > 0).mean() > 0.9 and cut.mean() < due.mean() - 0.1
right = scoringrules.crps_ensemble(counts, ensembles)
assert np.allclose(right, scoringrules.crps_ensemble(counts.astype(float), ensembles))
by_numpy = CASES["crps_quantile"][1](counts, "numpy")
assert np.allclose(by_numpy, compute_quantile_crps(counts, predict(LEVELS)))

for value in (3.0, 3.9):
    quantiles = np.full((1, len(LEVELS)), value)
    cut = scoringrules.crps_quantile(np.array([3]), quantiles, LEVELS)
    due = compute_quantile_crps(np.array([3]), quantiles)
    print(f"all quantiles at {value} for a count of 3: {cut[0]}, where {due[0]:.2f} is due")
    assert cut[0] == 0 and abs(due[0] - (value - 3)) < 1e-9
PYTHON
