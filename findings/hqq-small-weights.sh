#!/usr/bin/env bash
# HQQ rounds weights to steps of 0.00005 at the finest: small weights have fewer bits than asked for.
#
# Versions: hqq 0.2.8.post1, torch 2.13.0.
# Guess before the run: each group has a scale of its own, so the relative error of a quantized matrix
#     does not depend on its scale: multiplied by 0.001, it has the same. (That the scale is bounded was
#     seen in the source before.)
# Seen: the number of steps per unit is bounded by 20,000, and groups whose range is below 0.0001 become
#     one number each. With 8 bits, the error grows as soon as weights have a deviation below 0.003: it
#     is 3 times as large at 0.001, 9 times at 0.0003, and at 0.0001 it is more than that of 4 bits;
#     at 0.00002, the error is 89 % of the matrix. With 4 bits, it begins between 0.0003 and 0.0001. The
#     packed matrix takes 8 bits all the same. Nothing is said.
# For gyre: it does not write HQQ. There, multiply small matrices before, and their outputs after.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 termcolor==3.3.0 \
    tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps hqq==0.2.8.post1
cd "$folder"
env/bin/python - <<'PYTHON'
import torch
from hqq.core.quantize import Quantizer

DEVIATIONS = [1, 0.01, 0.003, 0.001, 0.0003, 0.0001, 0.00002]

torch.manual_seed(0)
matrix = torch.randn(256, 256)


def measure(n_bits):
    """Return the relative error of the quantized matrix by the deviation of its weights."""
    errors = {}
    for deviation in DEVIATIONS:
        weight = matrix * deviation
        packed, meta = Quantizer.quantize(weight, nbits=n_bits, group_size=64, axis=1, device="cpu")
        meta["compute_dtype"] = torch.float32
        unpacked = Quantizer.dequantize(packed, meta)
        errors[deviation] = ((unpacked - weight).norm() / weight.norm()).item()
    cells = [f"{deviation:g}: {error:.4f}" for deviation, error in errors.items()]
    print(f"{n_bits} bits, error by deviation: {', '.join(cells)}")
    return errors


eight = measure(8)
four = measure(4)
assert eight[1] < 0.006 and abs(eight[0.01] / eight[1] - 1) < 0.05
assert eight[0.001] > 2.5 * eight[1]
assert eight[0.0003] > 8 * eight[1]
assert eight[0.0001] > four[1]
assert eight[0.00002] > 0.8
assert abs(four[0.0003] / four[1] - 1) < 0.05
PYTHON
