#!/usr/bin/env bash
# In BackPACK, the gradient norms of single samples are too large for grouped convolutions.
#
# Versions: backpack-for-pytorch 1.7.1, torch 2.13.0.
# Guess before the run: `BatchL2Grad` gives the squared norms of what `BatchGrad` gives, for Conv2d with each
#     of its options, or such a layer is refused (KFAC refuses groups).
# Seen: it does for strides and dilations. With groups, each output channel is multiplied with the inputs of
#     all groups: for a depthwise convolution, with eight channels, squared norms are 8 times too
#     large, so that clipping makes gradients 3 times too small, while `BatchGrad` is right. With `padding_mode`
#     "circular" or "reflect", all extensions take zeros for the borders: `BatchGrad`, whose sum is to be the
#     gradient, is off by more than half of its largest entry.
# For gyre: it has no convolutions. There, sum up the squares of `BatchGrad`, and pad by a layer of its own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.2 packaging==26.4
"$folder/env/bin/pip" install --quiet --no-compile --no-deps backpack-for-pytorch==1.7.1 unfoldNd==0.2.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from backpack import backpack, extend
from backpack.extensions import BatchGrad, BatchL2Grad
from torch import nn

CHANNELS, SIDE, N_SAMPLES = 8, 6, 16
torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(N_SAMPLES, CHANNELS, SIDE, SIDE)
labels = torch.arange(N_SAMPLES) % 3


def measure(options):
    """Return the weight's largest relative error of BatchGrad, and the quotients of squared norms."""
    torch.manual_seed(1)
    convolution = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, **options)
    width = convolution(inputs).flatten(1).shape[1]
    model = nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), nn.Linear(width, 3))
    loss = nn.CrossEntropyLoss(reduction="sum")
    right = torch.stack([
        torch.autograd.grad(loss(model(inputs[i:i + 1]), labels[i:i + 1]), convolution.weight)[0]
        for i in range(N_SAMPLES)])
    with backpack(BatchGrad(), BatchL2Grad()):
        extend(loss)(extend(model)(inputs), labels).backward()
    weight = convolution.weight
    error = (weight.grad_batch - right).abs().max() / right.abs().max()
    return error.item(), weight.batch_l2 / right.square().flatten(1).sum(1)


cases = {"plain": {}, "stride": {"stride": 2}, "dilation": {"dilation": 2}, "two groups": {"groups": 2},
         "depthwise": {"groups": CHANNELS}, "circular": {"padding_mode": "circular"},
         "reflect": {"padding_mode": "reflect"}}
print("convolution: error of BatchGrad; BatchL2Grad by the squared norm, mean, smallest, largest")
numbers = {}
for name, options in cases.items():
    error, quotients = measure(options)
    numbers[name] = error, quotients.mean().item(), (quotients - 1).abs().max().item()
    print(f"{name}: {error:.6f}; {quotients.mean():.2f}, {quotients.min():.2f}, {quotients.max():.2f}")
for name in ["plain", "stride", "dilation"]:
    assert numbers[name][0] < 1e-4 and numbers[name][2] < 1e-4
for name in ["two groups", "depthwise"]:
    assert numbers[name][0] < 1e-4
assert numbers["two groups"][1] > 1.5 and numbers["depthwise"][1] > 3
for name in ["circular", "reflect"]:
    assert numbers[name][0] > 0.2
PYTHON
