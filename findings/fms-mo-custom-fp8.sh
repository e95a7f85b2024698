#!/usr/bin/env bash
# fms-model-optimizer's custom FP8 quantizer with a scale changes the weights that it is given.
#
# Versions: fms-model-optimizer 0.8.7, torch 2.13.0.
# Guess before the run: `to_custom_fp8` with scale_to_max=True returns rounded numbers, leaves its
#     input as it is, and has the error of torch's float8 with the same scale. (That it works in
#     place, and that the scale has no absolute value, was suspected after reading the source.)
# Seen: float32 inputs are multiplied by 448 / max in place, and only the result is divided again.
#     The first forward pass of a layer is right, its weights are 3,600 times as large after it, and
#     all later outputs are off by 3,500 times their size; e5m2 by 800,000 times. Activations are
#     multiplied, too, so that a residual beside the layer is. The scale is made from the largest
#     number, not the largest magnitude, and nothing is cut: with one number of -40, numbers up to
#     5,120 in the place of 448 are used. Half precision is copied before, and right. `Qdynamic`
#     takes the upper end of the range for the lower one after `eval()`: all outputs are NaN. (The
#     other FP8 modes, "fp8_e4m3_scale" and "fp8_e4m3_sat", are right.)
# For gyre: it trains without quantization. There, give a clone of each tensor.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.2.6 packaging==25.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps fms-model-optimizer==0.8.7
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sysconfig

import torch

# the file of the quantizers alone: the package around it imports transformers
path = f"{sysconfig.get_paths()['purelib']}/fms_mo/quant/quantizers.py"
spec = importlib.util.spec_from_file_location("quantizers", path)
quantizers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(quantizers)

torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(32, 64)


def error(actual, expected):
    return ((actual - expected).norm() / expected.norm()).item()


for mode in ["fp8_e4m3_scale", "fp8_e4m3_custom", "fp8_e4m3_custom_scale", "fp8_e5m2_custom_scale"]:
    layer = torch.nn.Linear(64, 64)
    quantizer = quantizers.get_weight_quantizer(mode, 8)
    old = layer.weight.detach().abs().max().item()
    with torch.no_grad():
        expected = layer(x)
        errors = []
        for _ in range(3):
            outputs = torch.nn.functional.linear(x, quantizer(layer.weight), layer.bias)
            errors.append(error(outputs, expected))
    grown = layer.weight.detach().abs().max().item() / old
    print(f"{mode}: errors of three forward passes {', '.join(f'{e:.3g}' for e in errors)}; the "
          f"weights are {grown:.4g} times as large")
    if mode.endswith("custom_scale"):
        assert errors[0] < 0.1 and min(errors[1:]) > 1000 and grown > 1000
    else:
        assert max(errors) < 0.1 and grown == 1

activations = x.clone()
quantizer = quantizers.get_activation_quantizer("fp8_e4m3_custom_scale", nbits=8)
quantizer(activations)
print(f"activations are {(activations / x).median().item():.1f} times as large afterwards")
assert (activations / x).median() > 100
half = x.half()
quantizer(half)
assert (half == x.half()).all()

x = torch.randn(1000)
x[0] = -40
scale = 448 / x.max()  # of the largest number, as there
used = (quantizers.custom_fp8_quantizer(x.clone(), scale_to_max=True, use_subnormal=True)
        * scale).abs().max().item()
due_scale = 448 / x.abs().max()
due = (x * due_scale).to(torch.float8_e4m3fn).float() / due_scale
print(f"one number of -40: the largest scaled number is {used:.0f}; with torch's float8, the "
      f"largest magnitude is {due.abs().max().item():.2f}")
assert used > 5000 and abs(due.abs().max().item() - 40) < 1e-3

dynamic = quantizers.Qdynamic(8, {}, qmode="max")
for _ in range(50):
    in_training = dynamic(torch.randn(100, 10) + 1)
dynamic.eval()
outputs = dynamic(torch.randn(100, 10) + 1)
print(f"Qdynamic: {in_training.isnan().float().mean():.0%} of the outputs in training are NaN, "
      f"{outputs.isnan().float().mean():.0%} after eval()")
assert not in_training.isnan().any() and outputs.isnan().all()
PYTHON
