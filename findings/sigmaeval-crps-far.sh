#!/usr/bin/env bash
# sigmaeval's CRPS of quantiles does not see how far off a forecast is: the sharpest one wins.
#
# Versions: sigmaeval 0.1.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: with 99 levels, `crps_quantile` is near the CRPS, a proper scoring rule: of
#     standard normal values, the right forecast has 0.56, and one at 5 with a deviation of 0.1 has
#     4.97. (That it might not was suspected after reading the source.)
# Seen: the integral ends at the outer quantiles, so that an observation outside has the same score
#     at any distance. The right forecast has 0.557; the one at 5 has 0.175, and so has one at 50.
#     Among forecasts of any mean, narrower is better: a deviation of 0.01 has 0.018 at the right
#     mean, where 0.795 is due, and equal quantiles have 0. With the nine levels of the README it is
#     so too. `crps_gaussian` is right.
# For gyre: it predicts no distributions. There, take twice the mean quantile loss.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile sigmaeval==0.1.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from scipy.stats import norm
from sigmaeval.sigmaeval import crps_gaussian, crps_quantile

N_VALUES = 2000
FORECASTS = {"right": (0, 1), "too narrow": (0, 0.1), "far too narrow": (0, 0.01),
             "wrong and narrow": (5, 0.1), "more wrong": (50, 0.1)}
values = np.random.default_rng(0).normal(size=N_VALUES)


def compute_quantile_loss(quantiles, levels):
    """Return twice the mean quantile loss, which tends to the CRPS."""
    errors = values - quantiles
    weights = levels[:, None]
    return 2 * np.maximum(weights * errors, (weights - 1) * errors).mean()


for n_levels in (99, 9):
    levels = np.arange(1, n_levels + 1) / (n_levels + 1)
    scores = {}
    for name, (mean, deviation) in FORECASTS.items():
        quantiles = np.repeat(norm.ppf(levels, mean, deviation)[:, None], N_VALUES, axis=1)
        scores[name] = crps_quantile(quantiles, levels, values, normalization=False)
        by_loss = compute_quantile_loss(quantiles, levels)
        exact = crps_gaussian(values, np.full(N_VALUES, mean), np.full(N_VALUES, deviation))
        print(f"{n_levels} levels, {name}, N({mean}, {deviation}): {scores[name]:.3f}; quantile "
              f"loss {by_loss:.3f}, CRPS {exact:.3f}")
        if n_levels == 99:
            assert abs(by_loss - exact) < 0.05
    assert scores["right"] > 2 * scores["wrong and narrow"] > 4 * scores["far too narrow"]
    assert abs(scores["more wrong"] - scores["wrong and narrow"]) < 1e-9
equal = crps_quantile(np.full((99, N_VALUES), 1000.0), np.arange(1, 100) / 100, values)
print(f"all quantiles at 1000, normalized: {equal:.1e}")
assert equal < 1e-6
PYTHON
