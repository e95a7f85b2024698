#!/usr/bin/env bash
# bitlinear divides biases by the scales of weights and inputs: they are 3,000 times too small.
#
# Versions: bitlinear 2.4.6, torch 2.13.0.
# Guess before the run: `bitlinearize(model)`, which copies weights and biases, makes layers that
#     multiply by rounded weights and then add the bias. (That the bias is scaled was suspected
#     after reading the source.)
# Seen: the bias is added to the product of integers, and the sum is divided by the scales of the
#     weights and of the inputs. So a bias of 1 adds 0.0003, other amounts for other tokens, and
#     other amounts when weights are scaled. A converted model has lost its biases; a layer trained
#     from the start can hardly learn one, since its gradient is as small. Nothing is said.
# For gyre: it has no biases. There, take bias=False and add a bias behind the layer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile bitlinear==2.4.6 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import copy

import torch
from bitlinear import bitlinearize
from torch import nn

WIDTH = 256

torch.manual_seed(0)
x = torch.randn(64, WIDTH)
for deviation in [0.02, 0.06]:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH))
    nn.init.normal_(model[0].weight, std=deviation)
    nn.init.normal_(model[0].bias)
    layer = bitlinearize(model)[0]
    assert torch.equal(layer.bias, model[0].bias)
    without = copy.deepcopy(layer)
    without.bias.data.zero_()
    with torch.no_grad():
        effects = (layer(x) - without(x)) @ layer.bias / layer.bias.square().sum()
    layer(x).sum().backward()
    gradient = layer.bias.grad.mean().item() / len(x)
    print(f"weights with a deviation of {deviation}: a bias of 1 adds {effects.min():.5f} to "
          f"{effects.max():.5f}; its gradient is {gradient:.5f} of a bias's")
    assert effects.max() < 0.05 * deviation and effects.max() > 1.2 * effects.min()
    assert gradient < 0.002
PYTHON
