#!/usr/bin/env bash
# unit-scaling's Conv1d pads twice with circular and other modes, and ignores its constraint.
#
# Versions: unit-scaling 0.3.5, torch 2.13.0, numpy 2.4.6.
# Guess before the run: but for a factor, Conv1d(padding=1, padding_mode="circular") computes what
#     torch's layer of the same weights computes, with "reflect" and "replicate" too; its argument
#     `constraint` chooses the scale of the gradients, as in the function `conv1d` of the package.
#     (That neither holds was suspected after reading the source.)
# Seen: the input is padded in the given mode, and then with zeros as well: an output of 16
#     positions has 18, and its ends are sums with zeros that torch's output does not have. Behind a
#     mean over the positions, nothing shows it but the numbers, which are off by a quarter. With
#     zeros, the default mode, they are right. `constraint=None` changes no gradient, where the
#     function makes that of the input half as large for four times as many outputs as inputs.
# For gyre: it has no convolutions. There, pad by `F.pad`, and give the layer `padding=0`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps unit-scaling==0.3.5
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.2 \
    docstring-parser==0.18.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
import unit_scaling as uu
import unit_scaling.functional as U
from torch import nn

ROWS, INPUTS, OUTPUTS, LENGTH, WIDTH = 64, 8, 32, 16, 3
torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(ROWS, INPUTS, LENGTH)
for mode in ["zeros", "circular", "reflect", "replicate"]:
    layer = uu.Conv1d(INPUTS, OUTPUTS, WIDTH, padding=1, padding_mode=mode)
    due_layer = nn.Conv1d(INPUTS, OUTPUTS, WIDTH, padding=1, padding_mode=mode, bias=False)
    due_layer.weight.data.copy_(layer.weight)
    own, due = layer(x), due_layer(x) / (INPUTS * WIDTH)**0.5
    means = own.mean(-1), due.mean(-1)
    error = ((means[0] - means[1]).norm() / means[1].norm()).item()
    print(f"padding_mode={mode}: {own.shape[-1]} positions where torch has {due.shape[-1]}; means "
          f"over the positions are off by {error:.3f} of their size")
    if mode == "zeros":
        assert own.shape == due.shape and torch.allclose(own, due, atol=1e-5)
    else:
        assert own.shape[-1] == LENGTH + 2 and error > 0.1
        assert torch.allclose(own[..., 1:-1], due, atol=1e-5)


def input_gradient(function):
    inputs = x.clone().requires_grad_()
    function(inputs).sum().backward()
    return inputs.grad


layers = [uu.Conv1d(INPUTS, OUTPUTS, WIDTH, constraint=constraint)
          for constraint in ["to_output_scale", None]]
layers[1].load_state_dict(layers[0].state_dict())
with_layers = [input_gradient(layer).norm().item() for layer in layers]
with_function = [input_gradient(lambda x, c=c: U.conv1d(x, layers[0].weight, constraint=c)
                                ).norm().item() for c in ["to_output_scale", None]]
print(f"norm of the input's gradient with and without a constraint: layer {with_layers[0]:.2f} and "
      f"{with_layers[1]:.2f}, function {with_function[0]:.2f} and {with_function[1]:.2f}")
assert with_layers[0] == with_layers[1] == with_function[0]
assert abs(with_function[1] / with_function[0] - (INPUTS / OUTPUTS)**0.5) < 0.01
PYTHON
