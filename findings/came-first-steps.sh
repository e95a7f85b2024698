#!/usr/bin/env bash
# CAME's clipped steps are 11 learning rates long at first, and 50 if the gradient is steady.
#
# Versions: came-pytorch 0.1.3, torch 2.13.0, numpy 2.4.6.
# Guess before the run: `clip_threshold=1.0` bounds the root mean square of the final update, as the
#     docstring says, so that no step is longer than the learning rate, for matrices as for vectors,
#     and a warm-up is as it is for Adafactor. (That steps might be longer was suspected after
#     reading the source.)
# Seen: for matrices, the clipped update is divided by a running mean of its instability that starts
#     at zero and has a decay of 0.9999, without a correction. The first step is 11 learning rates
#     long, for a vector 0.1; with a gradient that does not change, step 100 is 49 long, and step
#     5000 62, for a vector 1. With gradients that are noise only, it takes 1,000 steps until they
#     are below one learning rate.
# For gyre: it has no CAME. There, take a third beta of 0.99 or a longer warm-up, and give biases
#     and norms a rate of their own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile came-pytorch==0.1.3 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from came_pytorch import CAME

RATE = 1e-3
SHAPE = (64, 64)
torch.set_num_threads(1)


def steps(shape, noise, n_steps):
    """Return the root mean square of each step, in learning rates."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(shape))
    signal = torch.randn(shape)
    optimizer = CAME([weight], lr=RATE)
    sizes = []
    for _ in range(n_steps):
        before = weight.detach().clone()
        weight.grad = signal * (1 - noise) + noise * torch.randn(shape)
        optimizer.step()
        sizes.append(((weight.detach() - before) / RATE).square().mean().sqrt().item())
    return sizes


for name, shape in [("matrix", SHAPE), ("vector", (4096,))]:
    for label, noise in [("noise", 1.0), ("steady gradient", 0.0)]:
        sizes = steps(shape, noise, 5000)
        shown = ", ".join(f"{n}: {sizes[n - 1]:.2f}" for n in [1, 10, 100, 1000, 5000])
        print(f"{name}, {label}: steps in learning rates at step {shown}; largest {max(sizes):.1f}")
        if name == "vector":
            assert max(sizes) < 1.01 and abs(sizes[0] - 0.1) < 0.01
        else:
            assert 11 < sizes[0] < 11.3
            assert sizes[999] < 1 if label == "noise" else 45 < sizes[99] < 52 and sizes[-1] > 60
PYTHON
