#!/usr/bin/env bash
# river's incremental Kolmogorov-Smirnov statistic of two equal streams is 1 for constants.
#
# Versions: river 0.26.1, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: it is the largest distance of the two distribution functions, as in the
#     docstring and by scipy: 0 for two streams with the same values, whatever the values are, and
#     counts, grades and rounded numbers have it too. (That it might not was suspected after reading
#     the source.)
# Seen: of equal values, those of the first stream are counted before those of the second, and the
#     distance in between counts too: it is at least the share of the commonest value. Two streams
#     with the same values have 1 if they are constant, 0.51 with two values and 0.22 with five, by
#     Kuiper's statistic too. Independent normal numbers that are rounded to integers have 0.36,
#     three times the critical value for p = 0.001. Without ties it is right.
# For gyre: it watches no data. There, add a little noise to both streams.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile river==0.26.1 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from river import stats
from scipy.stats import ks_2samp

SAMPLES = 500
generator = np.random.default_rng(0)


def measure(first, second, statistic="ks"):
    """Return the statistic of river after both streams were read pair by pair."""
    incremental = stats.KolmogorovSmirnov(statistic=statistic)
    for pair in zip(first, second):
        incremental.update(*map(float, pair))
    return incremental.get()


def distances(first, second):
    """Return the distances of the two distribution functions at all values."""
    values = np.unique(np.concatenate([first, second]))
    return np.array([np.mean(first <= value) - np.mean(second <= value) for value in values])


for count in [1, 2, 5, 20]:
    first = generator.integers(count, size=SAMPLES)
    same = generator.permutation(first)
    other = generator.integers(count, size=SAMPLES)
    share = np.bincount(first).max() / SAMPLES
    print(f"{count} different values: river {measure(first, same):.3f} for two streams with the "
          f"same values, Kuiper {measure(first, same, 'kuiper'):.3f}, 0 is due; independent ones "
          f"{measure(first, other):.3f}, scipy {ks_2samp(first, other).statistic:.3f}; share of "
          f"the commonest value {share:.3f}")
    assert abs(np.abs(distances(first, same)).max()) < 1e-12
    assert abs(ks_2samp(first, other).statistic - np.abs(distances(first, other)).max()) < 1e-12
    assert abs(measure(first, same) - share) < 1e-9
    assert abs(measure(first, same, "kuiper") - share) < 1e-9
    assert measure(first, other) > 1.5 * ks_2samp(first, other).statistic

first, other = generator.normal(size=(2, SAMPLES))
rounded = first.round(), other.round()
print(f"normal numbers: river {measure(first, other):.3f}, scipy "
      f"{ks_2samp(first, other).statistic:.3f}; rounded to integers {measure(*rounded):.3f} "
      f"and {ks_2samp(*rounded).statistic:.3f}")
assert abs(measure(first, other) - ks_2samp(first, other).statistic) < 1e-9
assert measure(*rounded) > 0.3
# The critical value of the test for p = 0.001.
critical = np.sqrt(-np.log(0.001 / 2) / 2) * np.sqrt(2 / SAMPLES)
print(f"critical value for p = 0.001: {critical:.3f}")
assert ks_2samp(*rounded).statistic < critical < 0.3
PYTHON
