#!/usr/bin/env bash
# pychop's "ties to zero" rounds negative ties away from it; its "round to odd" moves exact numbers.
#
# Versions: pychop 0.6.1, numpy 2.4.6.
# Guess before the run: `rmode=7`, "nearest, ties to zero", is 8, "ties to away", with ties in the
#     other direction, both alike for x and -x; `rmode=9`, "round to odd", leaves a number that the
#     format has as it is, and takes the neighbour with an odd last bit for others. (That they do
#     not was suspected after reading the source.)
# Seen: the sign is looked at where magnitudes are rounded. So 7 is "ties downwards" and 8 "ties
#     upwards": all negative ties go the wrong way, and sums of rounded ties have a bias of half of
#     a step, where both modes of symmetric data have none. With 9, numbers that the format has
#     change if their last bit is 0, 1 to 1.125 with three bits: whatever is rounded twice differs,
#     and half of all exact sums are wrong. Others are right.
# For gyre: it does not emulate formats. There, take modes 1 to 6.
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
from pychop import Chop

pychop.backend("numpy")
BITS = 3


def chop(numbers, mode):
    return Chop(exp_bits=5, sig_bits=BITS, rmode=mode)(numbers)


# All numbers from 1 to 8 with three bits behind the first, and the middles between them.
exact = np.concatenate([2.0 ** e * (1 + np.arange(8) / 8) for e in range(3)] + [[8.0]])
ties = (exact[:-1] + exact[1:]) / 2
for sign in [1, -1]:
    inner, outer = sign * exact[:-1], sign * exact[1:]
    for mode, name, due in [(7, "to zero", inner), (8, "away from zero", outer)]:
        seen = chop(sign * ties, mode)
        print(f"ties {name}, {'positive' if sign > 0 else 'negative'}: {(seen == due).sum()} of "
              f"{len(ties)} are right")
        assert np.isin(seen, np.concatenate([inner, outer])).all()
        assert (seen == due).all() if sign > 0 else (seen != due).all()
        rest = sign * np.random.default_rng(0).uniform(1, 8, 1000)
        assert np.array_equal(chop(rest, mode), chop(rest, 1))  # no ties
both = np.concatenate([ties, -ties])
for mode in [1, 7, 8]:
    print(f"mode {mode}: {len(both)} ties of both signs have a mean of "
          f"{chop(both, mode).mean():+.3f} after rounding, {both.mean():.3f} before")
assert chop(both, 1).mean() == both.mean() == 0
assert chop(both, 7).mean() < -0.1 and chop(both, 8).mean() > 0.1

numbers = np.concatenate([exact[:-1], -exact[:-1]])
assert all(np.array_equal(chop(numbers, mode), numbers) for mode in [1, 2, 3, 4, 5, 6, 7, 8])
odd = chop(numbers, 9)
print(f"round to odd: of {len(numbers)} numbers that the format has, {(odd != numbers).sum()} "
      f"change, such as {numbers[0]} to {odd[0]} and {numbers[10]} to {odd[10]}")
even = np.tile(np.arange(8) % 2 == 0, 6)
assert np.array_equal(odd != numbers, even)
rest = np.random.default_rng(1).uniform(1, 8, 1000)
below = np.searchsorted(exact, rest) - 1
due = np.where(below % 2, exact[below], exact[below + 1])
print(f"of 1,000 that it does not have, {(chop(rest, 9) == due).sum()} are right")
assert np.array_equal(chop(rest, 9), due)
sums = np.add.outer(exact[:8], exact[:8]).ravel()
sums = sums[np.isin(sums, exact)]
print(f"of {len(sums)} sums that are exact in the format, {(chop(sums, 9) != sums).sum()} are "
      "rounded")
assert (chop(sums, 9) != sums).mean() > 0.4
PYTHON
