#!/usr/bin/env bash
# fxpmath chooses the word for the smallest number of an array, and cuts the large ones off.
#
# Versions: fxpmath 0.4.10, numpy 2.4.6.
# Guess before the run: without sizes, "bit sizes are calculated to just satisfy the value you want
#     to save", as its page says: where the word is too short, fractions are rounded. (None was
#     suspected: it came out of a comparison of constructors.)
# Seen: bits go to fractions first, and what is left is for integers. With 8, 16, 32 bits and by
#     default, 1,000 standard normal numbers end at 2 and -2: an error of 13 % with 32 bits, where
#     1e-9 is due. [255, 0.01] becomes [16, 0.01], and the mean of log-normal numbers 1 for 42.
#     Single numbers are right, and so are those with few digits, in eighths. `status` says
#     "overflow"; nothing else does.
# For gyre: it has no such numbers. There, give `n_int`, and look at `status`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile fxpmath==0.4.10 numpy==2.4.6
"$folder/env/bin/python" -W error - <<'PYTHON'
import numpy as np
from fxpmath import Fxp

BITS_DEFAULT = 64


def measure_error(x, fixed):
    return np.linalg.norm(fixed - x) / np.linalg.norm(x)


def round_exactly(x, n_bits):
    """Return x (N,), rounded to words of `n_bits` in which the largest number fits."""
    n_int = int(np.floor(np.log2(abs(x).max()))) + 1
    step = 2.0**-(n_bits - 1 - n_int)
    return np.trunc(x / step) * step


def compare(name, x, n_bits):
    fixed = Fxp(x, signed=True, n_word=n_bits)
    seen, due = fixed.get_val(), round_exactly(x, n_bits or BITS_DEFAULT)
    errors = measure_error(x, seen), measure_error(x, due)
    print(f"{name}, {n_bits or 'default'} bits: {fixed.dtype}, largest {abs(seen).max():.4g} for "
          f"{abs(x).max():.4g}, mean {seen.mean():.4g} for {x.mean():.4g}, error {errors[0]:.2g}, "
          f"{errors[1]:.1g} due, overflow {fixed.status['overflow']}")
    return seen, errors, fixed.status["overflow"]


normal = np.random.default_rng(0).normal(size=1000)
for n_bits in (None, 32, 16, 8):
    seen, (error, due), overflow = compare("1000 normal numbers", normal, n_bits)
    assert abs(normal).max() > 3 and abs(seen).max() <= 2 and overflow
    assert due < 0.02 and 0.08 < error < 0.2
    # All that are wrong are those beyond 2.
    inside = abs(normal) < 1.9
    assert measure_error(normal[inside], seen[inside]) <= 2 * due + 1e-15
    assert compare("in eighths", np.round(8 * normal) / 8, n_bits)[1][0] == 0

for x in ([255, 0.01], [100, 0.001], [20.5, 0.003]):
    seen, (error, due), overflow = compare(f"{x}", np.array(x), None)
    assert error > 0.5 and due < 1e-15 and overflow
    for value in x:
        assert abs(Fxp(value).get_val() / value - 1) < 1e-12
    assert np.allclose(Fxp(x, signed=True, n_int=8, n_word=32).get_val(), x, rtol=0, atol=1e-6)

large = np.random.default_rng(0).lognormal(0, 3, 1000)
seen = compare("log-normal numbers", large, None)[0]
assert large.mean() > 40 and seen.mean() < 1.1
PYTHON
