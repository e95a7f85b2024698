#!/usr/bin/env bash
# mps-bitsandbytes' FP8 halves the largest weights of each row.
#
# Versions: mps-bitsandbytes 0.7.0, torch 2.13.0.
# Guess before the run: E4M3 with a scale for each row has the error of torch.float8_e4m3fn, 2.6 %, and `LinearFP8`
#     is at least as good as `Linear8bit`: "Better precision than INT8".
# Seen: rows are scaled so that their largest magnitude is 448, and all values from 256 to 448 become 240: the largest
#     is 0.54 of itself. Values that should be rounded up to a power of two get the number below it, and those below
#     2**-6 become 0. The error of normal weights is 16 %; the outputs
#     of a layer are off by 32 %, and by 0.4 % with int8.
# Cause: exponents of 15 count as an overflow, which becomes exponent 14, mantissa 7 (`_float_to_fp8_e4m3_vectorized`,
#     mps_bitsandbytes/functional.py); E4M3 has no infinities, so that 256 to 448 have exponent 15. The mantissa is
#     clamped to 7 instead of being carried. The kernel for Apple's GPUs has the same lines
#     (kernels/fp8_matmul.metal); this script runs on a CPU, which the package supports.
# For gyre: its exports are not quantized. There, take `Linear8bit`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 mps-bitsandbytes==0.7.0
export OMP_NUM_THREADS=1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from mps_bitsandbytes import Linear8bit, LinearFP8
from mps_bitsandbytes.functional import dequantize_fp8_e4m3, quantize_fp8_e4m3


def measure(found, due):
    return ((found - due).norm() / due.norm()).item()


def convert(values):
    return dequantize_fp8_e4m3(*quantize_fp8_e4m3(values), dtype=torch.float32)


torch.manual_seed(0)
weight = torch.randn(256, 512)
scales = weight.abs().amax(1, keepdim=True) / 448
due = (weight / scales).to(torch.float8_e4m3fn).float() * scales
found = convert(weight)
largest = weight.abs().argmax(1, keepdim=True)
share = (found / weight).gather(1, largest)
print(f"error of the weights: {measure(found, weight):.3f}, of torch.float8_e4m3fn {measure(due, weight):.3f}")
print(f"the largest of each row is {share.min():.3f} to {share.max():.3f} of itself")
assert measure(found, weight) > 0.15 and measure(due, weight) < 0.03
assert torch.allclose(share, torch.full_like(share, 240 / 448), atol=1e-3)

# all are numbers of E4M3, or nearest to one; 448 makes the scale 1
row = torch.tensor([[448.0, 256.0, 240.0, 127.0, 15.8, 2.0**-7, 2.0**-9]])
print("values:", row[0].tolist())
print("due:   ", row.to(torch.float8_e4m3fn).float()[0].tolist())
print("found: ", convert(row)[0].tolist())
assert convert(row)[0].tolist() == [240.0, 240.0, 240.0, 120.0, 15.0, 0.0, 0.0]

linear = torch.nn.Linear(512, 256)
inputs = torch.randn(64, 512)
with torch.no_grad():
    errors = [measure(layer.from_linear(linear)(inputs.half()).float(), linear(inputs)) for layer in [Linear8bit, LinearFP8]]
print(f"error of a layer's outputs: {errors[0]:.4f} with Linear8bit, {errors[1]:.4f} with LinearFP8")
assert errors[0] < 0.01 and errors[1] > 0.2
PYTHON
