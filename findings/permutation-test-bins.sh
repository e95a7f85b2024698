#!/usr/bin/env bash
# permutation-test gives p = 0 to 8 % of the pairs of samples from one distribution.
#
# Versions: permutation-test 0.18, numpy 1.23.5.
# Guess before the run: with all divisions of the samples enumerated, p is the share of those with a
#     difference as extreme as the observed one, on its side: 1/20 at least for three values against
#     three. benjamini_hochberg_procedure rejects up to the last p-value under the line. (That neither
#     might hold was suspected after reading the source.)
# Seen: p is read from a histogram of the differences. What lies in the upper half of its last bin has
#     p = 0: three values above three others have 0, and three below them 0.1. Of 100 pairs of four values
#     from one distribution, 8 have p = 0, where 0.014 is the smallest. The procedure of Benjamini
#     and Hochberg stops at the first p-value above the line: of 0.02, 0.03 and 0.04, it rejects none
#     instead of all.
# For gyre: its report does not use it. There, take scipy.stats.permutation_test.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==1.23.5
"$folder/env/bin/pip" install --quiet --no-compile --no-deps permutation-test==0.18
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io
import itertools

import numpy as np
from permutation_test.functions import benjamini_hochberg_procedure, permutationtest

SIZE, PAIRS = 4, 100
generator = np.random.default_rng(0)


def measure(first, second):
    """Return the p-value of permutation-test."""
    with contextlib.redirect_stdout(io.StringIO()):
        return permutationtest(first, second, verbose=False)


def enumerate_divisions(first, second):
    """Return the smaller one of the two exact p-values."""
    values, observed = np.array(first + second), np.mean(first) - np.mean(second)
    differences = []
    for chosen in itertools.combinations(range(len(values)), len(first)):
        mask = np.isin(np.arange(len(values)), chosen)
        differences.append(values[mask].mean() - values[~mask].mean())
    differences = np.array(differences)
    return min((differences >= observed - 1e-9).mean(), (differences <= observed + 1e-9).mean())


low, high = [1.0, 2.0, 3.0], [7.0, 8.0, 9.0]
print(f"three values above three others: p {measure(high, low):.3f}, below them "
      f"{measure(low, high):.3f}; exact {enumerate_divisions(high, low):.3f} and "
      f"{enumerate_divisions(low, high):.3f}")
assert measure(high, low) < 1e-9 and measure(low, high) > 0.09
assert enumerate_divisions(high, low) == enumerate_divisions(low, high) == 1 / 20

zeros, smallest = 0, 1.0
for _ in range(PAIRS):
    first, second = generator.normal(size=(2, SIZE)).tolist()
    zeros += measure(first, second) < 1e-9
    smallest = min(smallest, enumerate_divisions(first, second))
print(f"pairs of {SIZE} values from one distribution with p = 0: {zeros} of {PAIRS}; smallest exact p "
      f"{smallest:.3f}")
assert zeros > 0.04 * PAIRS and smallest > 0.014

p = np.array([0.02, 0.03, 0.04])
rejected = benjamini_hochberg_procedure(p, alpha=0.05)
last = max(k for k in (1, 2, 3) if p[k - 1] <= 0.05 * k / 3)
print(f"of {p.tolist()}, {rejected.sum()} are rejected, where {last} are due")
assert last == 3 and not rejected.any()
PYTHON
