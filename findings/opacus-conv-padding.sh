#!/usr/bin/env bash
# In Opacus, a convolution with circular or reflected borders is trained as if they were zeros.
#
# Versions: opacus 1.6.0, torch 2.13.0.
# Guess before the run: without clipping and noise, Opacus's gradients are torch's, for every
#     convolution that its validator accepts. (That `padding_mode` is ignored was suspected after
#     reading the source.)
# Seen: gradients per sample are computed from the image with a border of zeros, whatever
#     `padding_mode` is: on images of 6 by 6 they are off by a quarter to a third of their size, and
#     so are the norms by which they are clipped. With zeros the gradients are torch's.
# For gyre: it has no convolutions. There, pad by `nn.CircularPad2d` in front of the layer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile opacus==1.6.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from opacus.grad_sample import GradSampleModule
from opacus.validators import ModuleValidator
from torch import nn

torch.set_num_threads(1)


class Padded(nn.Sequential):
    """A convolution behind a layer that makes the circular border."""

    def __init__(self):
        super().__init__(nn.CircularPad2d(1), nn.Conv2d(2, 3, 3))


def make_layer(name):
    torch.manual_seed(0)
    return Padded() if name == "CircularPad2d" else nn.Conv2d(2, 3, 3, padding=1, padding_mode=name)


def compare(name):
    """Return how far the sum of Opacus's gradients per sample is from torch's gradient."""
    layer = make_layer(name)
    assert not ModuleValidator.validate(layer, strict=False)
    images, targets = torch.randn(16, 2, 6, 6), torch.randn(16, 3, 6, 6)
    (layer(images) - targets).square().sum().backward()
    private = GradSampleModule(make_layer(name), loss_reduction="sum")
    (private(images) - targets).square().sum().backward()
    weight, other = (next(p for p in module.parameters() if p.ndim == 4)
                     for module in (layer, private))
    return ((other.grad_sample.sum(0) - weight.grad).norm() / weight.grad.norm()).item()


for name in ("zeros", "CircularPad2d", "circular", "reflect", "replicate"):
    error = compare(name)
    print(f"{name}: gradients are off by {error:.3f} of their size")
    assert error < 1e-5 if name in ("zeros", "CircularPad2d") else error > 0.1
PYTHON
