#!/usr/bin/env bash
# torchium's Yogi lets its second moment only shrink: below zero, where all weights become NaN.
#
# Versions: torchium 0.1.5, torch 2.13.0, numpy 2.4.6.
# Guess, written after a first run had shown NaN: Yogi's second moment rises by at most (1 - beta2) g^2
#     where the squared gradient is larger and falls where it is smaller, as in its paper, so that it
#     never goes below zero, and a linear regression ends at the least squares.
# Seen: with the defaults, the weights are NaN after the first step if a gradient is above 0.032, and
#     after 11 steps if all are 0.01. The rule of the paper ends at the least squares.
# Cause: the update is -(1 - beta2) sign(g^2 - v) (g^2 - v), which is never positive; sign(g^2 - v) g^2
#     with a plus is due (torchium/optimizers/adaptive/rmsprop_variants.py).
# For gyre: it has AdamW and Muon. There, take torch_optimizer's Yogi.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torchium==0.1.5 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

import torch

with contextlib.redirect_stdout(io.StringIO()):
    from torchium.optimizers import Yogi

torch.set_num_threads(1)


def steps_to_nan(gradient, n_steps=100):
    """Return after how many steps with one gradient the weight is NaN, and the second moments before."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = Yogi([weight])
    moments = []
    for step in range(1, n_steps + 1):
        weight.grad = torch.full((1,), gradient)
        optimizer.step()
        moments.append(optimizer.state[weight]["exp_avg_sq"].item())
        if weight.isnan():
            return step, moments
    return None, moments


def yogi_by_the_paper(weight, gradient_of, n_steps, lr=0.01, betas=(0.9, 0.999), eps=1e-3):
    mean, moment = torch.zeros_like(weight), torch.full_like(weight, 1e-6)
    for step in range(1, n_steps + 1):
        gradient = gradient_of(weight)
        mean = betas[0] * mean + (1 - betas[0]) * gradient
        moment = moment - (1 - betas[1]) * torch.sign(moment - gradient ** 2) * gradient ** 2
        assert moment.min() >= 0
        root = (moment / (1 - betas[1] ** step)).sqrt()
        weight = weight - lr / (1 - betas[0] ** step) * mean / (root + eps)
    return weight


for gradient, due in [(1.0, 1), (0.04, 1), (0.01, 11)]:
    step, moments = steps_to_nan(gradient)
    print(f"gradients of {gradient}: NaN after {step} steps, second moments {['%.2g' % value for value in moments[-3:]]}")
    assert step == due and moments[-1] < 0 and moments == sorted(moments, reverse=True)

torch.manual_seed(0)
inputs = torch.randn(200, 5)
targets = inputs @ torch.arange(1.0, 6.0) + 0.1 * torch.randn(200)
best = torch.linalg.lstsq(inputs, targets[:, None]).solution[:, 0]
weight = torch.nn.Parameter(torch.zeros(5))
optimizer = Yogi([weight])
for _ in range(10):
    optimizer.zero_grad()
    ((inputs @ weight - targets) ** 2).mean().backward()
    optimizer.step()
paper = yogi_by_the_paper(torch.zeros(5), lambda w: 2 * inputs.T @ (inputs @ w - targets) / 200, 4000)
print("linear regression:", weight.tolist(), "least squares", [round(value, 2) for value in best.tolist()],
      "by the paper's rule", [round(value, 2) for value in paper.tolist()])
assert weight.isnan().all() and torch.allclose(paper, best, atol=0.02)
PYTHON
