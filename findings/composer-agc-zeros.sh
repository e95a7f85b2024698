#!/usr/bin/env bash
# Composer's adaptive gradient clipping never trains a parameter that starts at zero.
#
# Versions: mosaicml 0.32.1 (composer), timm 1.0.31, torch 2.7.0.
# Guess before the run: GradientClipping("adaptive", 0.1) limits a gradient to a tenth of its
#     weight, where a weight counts as 0.001 at least, as in the paper and in timm, so that a bias
#     that starts at zero trains. (That composer has no such minimum was suspected after reading the
#     source.)
# Seen: it has none. The limit of a bias of zeros is zero, and so is its gradient for ever: with
#     SGD, the biases of a linear regression are still 0 after 3,000 steps, and the loss is that of
#     a model without biases. So for each row of a matrix of zeros. The biases of all norms start at
#     zero, and so do many output projections. With timm's clipping, all train.
# For gyre: it clips the norm of all gradients together. There, give "norm", or start nothing at
#     zero.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mosaicml==0.32.1 timm==1.0.31 torch==2.7.0 \
    torchvision==0.22.0 numpy==2.2.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from composer.algorithms.gradient_clipping import apply_gradient_clipping
from timm.utils.agc import adaptive_clip_grad
from torch import nn

CLIP = 0.1
BIAS = torch.tensor([1.0, 2.0, -3.0])
torch.set_num_threads(1)


def clip_composer(model):
    apply_gradient_clipping(model, "adaptive", CLIP, fsdp_enabled=False)


def clip_timm(model):
    adaptive_clip_grad(model.parameters(), CLIP)


def train(clip, zero_row):
    """Fit a linear function with a bias that starts at 0. Return loss, bias and weights."""
    torch.manual_seed(0)
    inputs = torch.randn(256, 4)
    targets = inputs @ torch.randn(4, 3) + BIAS
    model = nn.Linear(4, 3)
    nn.init.zeros_(model.bias)
    if zero_row:
        nn.init.zeros_(model.weight[0])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3000):
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        clip(model)
        optimizer.step()
    return loss.item(), model.bias.detach(), model.weight[0].detach()


for zero_row in [False, True]:
    start = "zero" if zero_row else "random numbers"
    print(f"first row of the weights starts at {start}; due: loss 0.000, bias {BIAS.tolist()}")
    for name, clip in [("timm", clip_timm), ("composer", clip_composer)]:
        loss, bias, row = train(clip, zero_row)
        print(f"    {name}: loss {loss:.3f}, bias {[round(b, 3) for b in bias.tolist()]}, "
              f"first row {[round(w, 3) for w in row.tolist()]}")
        if clip is clip_composer:
            assert (bias == 0).all() and loss > 3
            assert (row == 0).all() == zero_row
        else:
            assert (bias - BIAS).abs().max() < 0.05 and loss < 0.01
            assert (row != 0).all()
PYTHON
