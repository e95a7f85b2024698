#!/usr/bin/env bash
# fastdigest's `cdf` leaves out the values that are equal: all stars from 1 to 5 have a probability of 0.80.
#
# Versions: fastdigest 0.12.0, numpy 2.4.6.
# Guess, written after a first run had shown a `cdf` of 0 for zeros: `cdf(x)` is the share of the values
#     up to x, as numpy counts them, to 1 %; `probability(x1, x2)`, "of finding a value in the interval
#     [x1, x2]", counts values at both ends, and is 1 from the smallest value to the largest one.
# Seen: with 1,000 ratings from 1 to 5 in equal numbers, `cdf(5)` is 0.80 and `probability(1, 5)` is 0.80;
#     that of 4 or 5 stars is 0.20 for 0.40, and that of exactly 3 is 0. Where 90 % of the values are 0,
#     `cdf(0)` is 0, and `cdf(1e-9)` is 0.90. The largest value has a `cdf` of 1 if it is there once, and
#     of 0.80 if it is a fifth of all. Values without repetitions are right, quantiles too.
# Cause: equal values are centroids at one place, and `cdf` ends at the first of them: it is P(X < x) for
#     repeated values (the extension is compiled).
# For gyre: it keeps no sketches. There, ask for a value a little above x.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile fastdigest==0.12.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from fastdigest import TDigest

ratings = np.random.default_rng(0).permutation(np.repeat(np.arange(1.0, 6.0), 200))
digest = TDigest.from_values(ratings)
for value in range(1, 6):
    print(f"ratings up to {value}: cdf {digest.cdf(value):.3f}, a little above {digest.cdf(value + 1e-9):.3f}, "
          f"numpy {np.mean(ratings <= value):.3f}")
    assert abs(digest.cdf(value) - np.mean(ratings < value)) < 0.01
    assert abs(digest.cdf(value + 1e-9) - np.mean(ratings <= value)) < 0.01
found = {pair: digest.probability(*pair) for pair in [(1, 5), (4, 5), (3, 3)]}
due = {(low, high): float(np.mean((low <= ratings) & (ratings <= high))) for low, high in found}
print("probability of closed intervals:", {pair: round(share, 2) for pair, share in found.items()}, "numpy", due)
assert abs(found[1, 5] - 0.8) < 0.01 and abs(found[4, 5] - 0.2) < 0.01 and found[3, 3] == 0
assert [digest.quantile(share) for share in (0.1, 0.3, 0.5, 0.7, 0.9)] == [1, 2, 3, 4, 5]
assert digest.min() == 1 and digest.max() == 5

zeros = TDigest.from_values(np.r_[np.zeros(900), np.arange(1.0, 101.0)])
print(f"90 % zeros: cdf(0) {zeros.cdf(0):.2f}, cdf(1e-9) {zeros.cdf(1e-9):.2f}; median {zeros.median()}; "
      f"cdf of the largest value {zeros.cdf(100)}")
assert zeros.cdf(0) == 0 and zeros.cdf(1e-9) > 0.89 and zeros.median() == 0 and zeros.cdf(100) == 1

values = np.random.default_rng(1).normal(size=50_000)
distinct = TDigest.from_values(values)
error = max(abs(distinct.cdf(x) - np.mean(values <= x)) for x in np.linspace(-3, 3, 61))
print(f"normal values: largest error of the cdf {error:.1e}")
assert error < 0.001
PYTHON
