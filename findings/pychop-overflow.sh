#!/usr/bin/env bash
# pychop's Chop makes zeros of numbers that overflow: in half precision, of those from 65,536 on.
#
# Versions: pychop 0.6.1, numpy 2.4.6.
# Guess before the run: `Chop(exp_bits=5, sig_bits=10)` gives what a cast to float16 gives, for
#     every number. (That it might not was suspected after reading the source, after a first guess
#     from the documentation.)
# Seen: numbers with the exponent that a format keeps for infinity, from 65,536 up to 131,072,
#     become 0; only larger ones become infinite. Those from 65,520 on, which round up, become
#     65,536, which the format does not have. With E4M3 (the largest number is 240 here), 256 to 511
#     become 0. So do all modes but the two stochastic ones: also "toward zero", whose largest
#     result is 65,504. So an overflow is not seen where it happens: the norm of (300, 300) is 0,
#     where float16 says inf. `FaultChop("h")` is right.
# For gyre: it does not emulate formats. There, take FaultChop, or look at the largest value first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile numpy==2.4.6
env/bin/pip install --quiet --no-compile --no-deps pychop==0.6.1
env/bin/python -W ignore - <<'PYTHON'
import numpy as np
import pychop
from pychop import Chop, FaultChop

pychop.backend("numpy")
generator = np.random.default_rng(0)
half = Chop(exp_bits=5, sig_bits=10, rmode=1)
fault = FaultChop("h")

numbers = generator.normal(size=10_000) * 2.0 ** generator.integers(-26, 12, 10_000)
assert (np.abs(numbers) < 65504).all()
due = numbers.astype(np.float16).astype(float)
print(f"of 10,000 numbers below 65,504, {(half(numbers) == due).sum()} are those of float16")
assert np.array_equal(half(numbers), due)

numbers = np.array([65504, 65519, 65520, 65535, 65536, 70000, -100000, 131071, 131072.0])
due = numbers.astype(np.float16).astype(float)
seen = half(numbers)
for number, value, right, other in zip(numbers, seen, due, fault(numbers)):
    print(f"{number:.0f}: {value:.0f}; float16 has {right:.0f}, FaultChop {other:.0f}")
assert np.array_equal(fault(numbers), due)
assert seen.tolist() == [65504, 65504, 65536, 65536, 0, 0, 0, 0, np.inf]
assert due.tolist() == [65504, 65504, np.inf, np.inf, np.inf, np.inf, -np.inf, np.inf, np.inf]

numbers = generator.uniform(65536, 131071, 1000)
for mode in [1, 2, 3, 4, 7, 8, 9]:
    assert (Chop(exp_bits=5, sig_bits=10, rmode=mode)(numbers) == 0).all()
    assert (Chop(exp_bits=5, sig_bits=10, rmode=mode)(-numbers) == 0).all()
for mode in [5, 6]:
    assert (Chop(exp_bits=5, sig_bits=10, rmode=mode)(numbers) == np.inf).all()
print("1,000 numbers between 65,536 and 131,071 and their negatives: all 0 in modes 1 to 4 and 7 "
      "to 9, infinite in the stochastic modes 5 and 6")

numbers = np.array([240, 250, 256, 300, 448, 511, 512.0])
eight = Chop(exp_bits=4, sig_bits=3, rmode=1)(numbers)
print(f"E4M3: {numbers.tolist()} become {eight.tolist()}; FaultChop: "
      f"{FaultChop('q43')(numbers).tolist()}")
assert eight.tolist() == [240, 256, 0, 0, 0, 0, np.inf]
assert FaultChop("q43")(numbers).tolist() == [240] + 6 * [np.inf]

vector = np.array([300.0, 300.0])
squares = half.add(*half.multiply(vector, vector)[:, None])
with np.errstate(over="ignore"):
    right = np.sqrt(np.sum(vector.astype(np.float16) ** 2))
print(f"norm of (300, 300): {half.sqrt(squares)[0]:.0f}; float16 has {right}")
assert half.sqrt(squares)[0] == 0 and np.isinf(right)
PYTHON
