#!/usr/bin/env bash
# In streamhist, a sum of two histograms changes them when it is updated: a mean of 2 becomes 52.
#
# Versions: streamhist 0.1.0, sortedcontainers 2.4.0.
# Guess before the run: `total = a + b` and `a.copy()` are histograms of their own, and
#     `from_dict(h.to_dict())` is h. (That neither might hold was suspected after reading the source.)
# Seen: a copy has a list of its own with the same bins. If a value arrives that has a bin, its count
#     grows in the copy and in the original, whose number of values stays as it is: after 100 values of
#     2 in the sum, the mean of a is 52 for values from 1 to 3, its variance 65,000, and b is changed as
#     well. Values without a bin of their own, such as most floats, do no harm.
#     A histogram from a dictionary has its bins and no values: count 0, mean None.
# For gyre: it has no streaming histograms. There, begin with an empty one and `merge` deep copies.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile streamhist==0.1.0 sortedcontainers==2.4.0
"$folder/env/bin/python" - <<'PYTHON'
from copy import deepcopy

from streamhist import StreamHist


def describe(name, histogram):
    """Print count, mean, variance and bounds, and return the first three."""
    seen = histogram.count(), histogram.mean(), histogram.var()
    print(f"{name}: {seen[0]} values, mean {seen[1]}, variance {seen[2]}, bounds "
          f"{histogram.bounds()}")
    return seen


a, b = StreamHist(), StreamHist()
a.update([1, 2, 2, 3])
b.update([3, 4, 4, 5])
assert describe("a", a) == (4, 2.0, 0.5) and describe("b", b) == (4, 4.0, 0.5)
independent = deepcopy(a)

total = a + b
assert describe("a + b", total) == (8, 3.0, 1.5)
total.update([2] * 100 + [4] * 100)
describe("a + b with 100 values of 2 and of 4", total)
seen_a, seen_b = describe("a", a), describe("b", b)
assert seen_a[0] == seen_b[0] == 4
assert seen_a[1] == (1 + 2 * 102 + 3) / 4 == 52.0 and seen_a[2] > 60_000
assert seen_b[1] == (3 + 4 * 102 + 5) / 4 and a.bounds() == (1, 3)

copy = independent.copy()
copy.update([1] * 40)
assert describe("a histogram whose copy got 40 values of 1", independent)[:2] == (4, 12.0)

restored = StreamHist.from_dict(b.to_dict())
print(f"from_dict(to_dict()): {sum(bin.count for bin in restored.bins)} values in its bins, count "
      f"{restored.count()}, mean {restored.mean()}, bounds {restored.bounds()}")
assert (restored.count(), restored.mean(), restored.bounds()) == (0, None, (None, None))
PYTHON
