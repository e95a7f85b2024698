#!/usr/bin/env bash
# qsparse's quantizers never saturate: "2 bits" have as many levels as the input asks for.
#
# Versions: qsparse 2.0.1, torch 2.13.0.
# Guess before the run: with n bits there are at most 2^n levels, the nearest one is taken, and
#     use_uint has none below 0; the gradient is passed where the input is in the range, and is 0
#     elsewhere. (That the clamp works on a copy was suspected after reading the source.)
# Seen: `q.float().clamp_(...)` cuts a copy, and the uncut numbers are used: of 81 numbers in
#     [-4, 4] with a scale of 1, 1, 2 and 3 bits make 9 levels each, and so does use_uint. Layers
#     take the mean of the largest magnitudes for their scale, so with 8 bits activations get -149
#     to 155. A power of two as the scale cuts towards 0 instead of rounding, so that the error is
#     4 times as large as due. The backward pass cuts the gradient at the range of the input: with
#     a scale of 0.001, each gradient above 0.127 is 0.127, for inputs in the range and outside.
#     `quantize_with_line` has the right levels.
# For gyre: it trains without quantization. There, take AdaptiveQuantizer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile qsparse==2.0.1 torch==2.13.0 numpy==2.4.6 \
    scipy==1.17.1 scikit-learn==1.9.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from qsparse import quantize, set_qsparse_options
from qsparse.quantize import (ScalerQuantizer, quantize_with_decimal, quantize_with_line,
                              quantize_with_scaler)

set_qsparse_options(log_on_created=False)
torch.set_num_threads(1)
torch.manual_seed(0)

x = torch.linspace(-4, 4, 81)
for bits in [1, 2, 3]:
    scaled = quantize_with_scaler(x, bits, 1.0).unique()
    shifted = quantize_with_decimal(x, bits, 0).unique()
    line = quantize_with_line(x, bits, (-4.0, 4.0)).unique()
    print(f"{bits} bits: {2 ** bits} levels are due; {len(scaled)} with a scale of 1, "
          f"{len(shifted)} with no bits behind the point, {len(line)} between two ends")
    assert len(scaled) == len(shifted) == 9 and len(line) == 2 ** bits
unsigned = quantize_with_scaler(x, 2, 1.0, use_uint=True).unique().tolist()
print(f"2 bits, use_uint: {unsigned}")
assert unsigned == list(range(-4, 5))

x = torch.rand(10_000) * 6 - 3  # in the range of 8 bits, with 2^-5 as the unit
truncated = quantize_with_decimal(x, 8, 5)
rounded = (x * 32).round() / 32
errors = [(y - x).square().mean().sqrt().item() for y in [truncated, rounded]]
print(f"units of 2^-5: error {errors[0]:.5f}, by rounding {errors[1]:.5f}; 0.99 units become "
      f"{quantize_with_decimal(torch.tensor([0.99 / 32]), 8, 5).item():.0f}")
assert (errors[0] / errors[1]) ** 2 > 3.5

layer = quantize(bits=8, channelwise=-1, timeout=1, callback=ScalerQuantizer())
for _ in range(20):
    layer(torch.randn(100, 20))
layer.eval()
for size in [1, 10]:
    integers = (layer(torch.randn(1000, 20) * size) / layer.weight).round()
    print(f"a layer of 8 bits, inputs with a deviation of {size}: integers from "
          f"{integers.min().item():.0f} to {integers.max().item():.0f}")
    assert integers.min() < -128 and integers.max() > 127
assert integers.max() > 1000

for gradient in [0.05, 0.5, 5.0]:
    x = torch.tensor([-1.0, -0.1, 0.0, 0.1, 1.0], requires_grad=True)
    quantize_with_scaler(x, 8, 0.001).backward(torch.full((5,), gradient))
    print(f"scale 0.001, gradient {gradient}: {[round(g, 3) for g in x.grad.tolist()]} is passed "
          f"to {[round(v, 1) for v in x.tolist()]}")
    assert torch.allclose(x.grad, torch.full((5,), min(gradient, 0.127)))
PYTHON
