#!/usr/bin/env bash
# In pytorch_optimizer's DAdaptAdan, weights with larger gradients make smaller steps.
#
# Versions: pytorch_optimizer 4.1.0, dadaptation 3.2, torch 2.13.0.
# Guess before the run: with constant gradients of 0.01 to 10, all weights move equally far, as with
#     Adan and with DAdaptAdan of dadaptation, the authors' package; a constant factor of the loss
#     changes nothing. (That the gradient is squared twice was suspected after reading the source.)
# Seen: the moves are 100, 10, 1 and 0.1 for gradients of 0.01, 0.1, 1 and 10, as steps are divided
#     by squared gradients. A logistic regression learns with its loss as it is, and with a 1000th
#     of it; with 1000 times the loss, the estimated rate d never leaves its start of 1e-6, and
#     after 2,000 steps the loss is still that of the first. dadaptation learns all three alike.
# For gyre: it has no such optimizer. Elsewhere, take DAdaptAdan from dadaptation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pytorch_optimizer==4.1.0 dadaptation==3.2 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import dadaptation
import pytorch_optimizer
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

GRADIENTS = torch.tensor([0.01, 0.1, 1.0, 10.0])
N_STEPS = 2000
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(200, 8, generator=generator)
weight = torch.randn(8, generator=generator)
noise = torch.randn(200, generator=generator)
labels = (inputs @ weight + noise > 0).float()


def moves(optimizer_class, **options):
    """Return how far weights with constant GRADIENTS move in 100 steps, that of 1.0 being 1."""
    weights = torch.nn.Parameter(torch.zeros(4))
    optimizer = optimizer_class([weights], **options)
    for _ in range(100):
        weights.grad = GRADIENTS.clone()
        optimizer.step()
    return weights.detach() / weights.detach()[2]


def train(optimizer_class, scale):
    """Return the last loss, without its scale, and the estimated d."""
    weights = torch.nn.Parameter(torch.zeros(8))
    optimizer = optimizer_class([weights], growth_rate=1.02)
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        (scale * binary_cross_entropy_with_logits(inputs @ weights, labels)).backward()
        optimizer.step()
    loss = binary_cross_entropy_with_logits(inputs @ weights, labels).item()
    return loss, float(optimizer.param_groups[0]["d"])


for name, optimizer_class, options in [
        ("pytorch_optimizer's Adan", pytorch_optimizer.Adan, {}),
        ("dadaptation's DAdaptAdan", dadaptation.DAdaptAdan, {"growth_rate": 1.0}),
        ("pytorch_optimizer's DAdaptAdan", pytorch_optimizer.DAdaptAdan, {"growth_rate": 1.0})]:
    relative = moves(optimizer_class, **options)
    print(f"{name}: gradients of {[round(x, 2) for x in GRADIENTS.tolist()]} move weights by "
          f"{[round(x, 2) for x in relative.tolist()]}")
    if name == "pytorch_optimizer's DAdaptAdan":
        assert torch.allclose(relative, 1 / GRADIENTS, rtol=0.01)
    else:
        assert torch.allclose(relative, torch.ones(4), rtol=0.01)

for name, optimizer_class in [
        ("dadaptation's DAdaptAdan", dadaptation.DAdaptAdan),
        ("pytorch_optimizer's DAdaptAdan", pytorch_optimizer.DAdaptAdan)]:
    for scale in [1e-3, 1.0, 1e3]:
        loss, d = train(optimizer_class, scale)
        print(f"{name}, loss times {scale:g}: {loss:.4f} after {N_STEPS} steps, d={d:.2g}; the "
              f"first loss is {math.log(2):.4f}")
        if name == "pytorch_optimizer's DAdaptAdan" and scale == 1e3:
            assert loss > math.log(2) - 1e-3 and d < 2e-6
        else:
            assert loss < 0.25
PYTHON
