#!/usr/bin/env bash
# pychop's symmetric integers clip at half of the range; its others use half of their levels.
#
# Versions: pychop 0.6.1, numpy 2.4.6.
# Guess before the run: `Chopi(bits=8)` has 256 levels from the smallest to the largest value;
#     with `symmetric=True`, the scale is that of the largest magnitude, so that nothing is clipped.
#     (That neither holds was suspected after reading the source.)
# Seen: with `symmetric`, the step is the range divided by 255 around a zero point of 0: values
#     farther from 0 than half of the range are clipped, in silence. Of values between 0 and 1, as
#     behind a softmax or a ReLU, half become 0.498; of normal ones with a mean of 2, 4 % are
#     clipped, and the error is 9 times the one due. More bits do not help. Without `symmetric`,
#     the default, integers go from 0 to 127: 8 bits have 128 levels, and the error of 7.
# For gyre: its exports are not quantized. There, give one bit more, and centred values to
#     `symmetric`.
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
from pychop import Chopi

pychop.backend("numpy")


def quantize(values, bits, symmetric):
    """Return the dequantized values, and the smallest and the largest integer."""
    chop = Chopi(bits=bits, symmetric=symmetric)
    integers = chop.quantize(values)
    return chop.dequantize(integers), int(integers.min()), int(integers.max())


def round_symmetric(values, bits):
    step = np.abs(values).max() / (2 ** (bits - 1) - 1)
    return np.round(values / step) * step


def round_affine(values, levels):
    step = np.ptp(values) / (levels - 1)
    return np.round((values - values.min()) / step) * step + values.min()


def error(seen, values):
    return np.sqrt(np.mean((seen - values) ** 2))


generator = np.random.default_rng(0)
cases = {"uniform from 0 to 1": np.linspace(0, 1, 10_001),
         "normal with a mean of 2": generator.normal(2, 1, 10_000),
         "symmetric": np.linspace(-1, 1, 10_001)}
for name, values in cases.items():
    for bits in [8, 16]:
        seen, low, high = quantize(values, bits, True)
        due = round_symmetric(values, bits)
        clipped = np.mean(np.abs(seen - values) > 2 * np.abs(values).max() / 2 ** (bits - 1))
        print(f"{name}, {bits} bits, symmetric: integers from {low} to {high}, largest value "
              f"{seen.max():.3f} for {values.max():.3f}, {clipped:.1%} clipped, error "
              f"{error(seen, values):.1e}; {error(due, values):.1e} is due")
        ratio = error(seen, values) / error(due, values)
        if name == "symmetric":
            assert ratio < 1.1
        else:
            assert ratio > 5 and clipped > 0.01
assert 0.49 < quantize(cases["uniform from 0 to 1"], 16, True)[0].max() < 0.5

for name, values in cases.items():
    for bits in [4, 8]:
        seen, low, high = quantize(values, bits, False)
        print(f"{name}, {bits} bits, affine: integers from {low} to {high}, error "
              f"{error(seen, values):.1e}; by hand "
              f"{error(round_affine(values, 2 ** bits), values):.1e} with {bits} bits and "
              f"{error(round_affine(values, 2 ** bits // 2), values):.1e} with {bits - 1}")
        assert (low, high) == (0, 2 ** (bits - 1) - 1)
        assert error(seen, values) > 1.8 * error(round_affine(values, 2 ** bits), values)
PYTHON
