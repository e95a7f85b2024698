#!/usr/bin/env bash
# changepoint_online's NUNC has a minus for a plus: shifts of the mean cancel out.
#
# Versions: changepoint_online 1.2.1, numpy 2.4.6, scipy 1.17.1, sortedcontainers 2.4.0.
# Guess before the run: the statistic is twice the log-likelihood ratio of the binary data below and
#     above each quantile, as in the paper: never negative at a split, and far above its values for
#     noise behind a shift of the mean by three deviations. (That it might not be was suspected
#     after reading the source.)
# Seen: the cost of a segment is F log F - (1 - F) log(1 - F), where both terms should be added:
#     what the quantiles below the median gain, those above it lose. In windows of 100, a shift by 3
#     has a statistic of 35, where noise has up to 24, and 187 is due. With a threshold that noise
#     does not reach in ten streams, a shift by 1.5 is found in 2 of 10, where 10 are due.
# For gyre: it watches no data. There, take NPFocus.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile changepoint_online==1.2.1 numpy==2.4.6 \
    scipy==1.17.1 sortedcontainers==2.4.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from changepoint_online.nunc import nunc, nunc_default_quantiles
from scipy.special import xlogy

WINDOW, QUANTILES, STREAMS, CHANGE, LENGTH = 100, 8, 10, 200, 260


def statistics(window):
    """Return the largest statistic of all splits of a window, with a plus and with a minus."""
    quantiles = np.array(nunc_default_quantiles(sorted(window), QUANTILES))
    values = np.array(window)[:, None]
    below = (values < quantiles) + 0.5 * (values == quantiles)
    left = np.arange(1, WINDOW)[:, None]
    sums = below.cumsum(axis=0)[:-1]
    found = []
    for sign in [1, -1]:
        def cost(shares, count):
            inside = (shares > 1e-12) & (shares < 1 - 1e-12)
            terms = xlogy(shares, shares) + sign * xlogy(1 - shares, 1 - shares)
            return count * np.where(inside, terms, 0)

        total = below.sum(axis=0)
        split = cost(sums / left, left) + cost((total - sums) / (WINDOW - left), WINDOW - left)
        found.append(2 * (split - cost(total / WINDOW, WINDOW)).sum(axis=1).max())
    return found


def measure(shift):
    """Return the largest statistics behind the change: of NUNC, and due, a row per stream."""
    largest = []
    for seed in range(STREAMS):
        stream = np.random.default_rng(seed).normal(size=LENGTH)
        stream[CHANGE:] += shift
        detector, rows = nunc(WINDOW, QUANTILES), []
        for number, value in enumerate(stream):
            detector.update(float(value))
            if number >= CHANGE:
                due, reversed_sign = statistics(stream[number - WINDOW + 1:number + 1])
                assert abs(detector.statistic() - reversed_sign) < 1e-6
                rows.append((detector.statistic(), due))
        largest.append(np.max(rows, axis=0))
    return np.array(largest)


limits = measure(0).max(axis=0)
print(f"noise: NUNC up to {limits[0]:.0f}, with a plus up to {limits[1]:.0f}")
counts = {}
for shift in [1, 1.5, 3, -3]:
    found = measure(shift)
    counts[shift] = (found > limits).sum(axis=0)
    print(f"mean shifted by {shift}: NUNC {found[:, 0].mean():.0f}, {found[:, 1].mean():.0f} is "
          f"due; above all noise in {counts[shift][0]} of {STREAMS} streams, {counts[shift][1]} "
          "are due")
    if abs(shift) == 3:
        assert found[:, 0].mean() < 0.4 * found[:, 1].mean()
assert counts[1.5][0] <= 3 and counts[1.5][1] >= 9
PYTHON
