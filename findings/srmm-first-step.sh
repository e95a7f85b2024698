#!/usr/bin/env bash
# In pytorch_optimizer, SRMM's first step makes all weights 29 % smaller, whatever rate and gradient are.
#
# Versions: pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: a step of SRMM goes from an average of the last weights by `lr` times an average
#     of the gradients: with a gradient of zero, or with `lr=0`, weights stay where they are.
#     `memory_length=None`, documented as no refreshing, averages over the whole training. (That neither
#     holds was suspected after reading the source.)
# Seen: the average of the weights starts at zero and has a weight of 1 - 0.71 in the first step: a
#     pretrained model loses 29 % of each weight, and a stack of four linear layers has outputs of a
#     quarter. With `memory_length=None`, nothing is ever averaged: the optimizer is SGD without
#     momentum.
# For gyre: it has no SRMM. There, scale the weights by the root of 2 before the first step.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pytorch_optimizer==4.1.0 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from pytorch_optimizer import SRMM

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16, bias=False) for _ in range(4)])
rows = torch.randn(8, 16)
before, start = model(rows).detach(), [weight.detach().clone() for weight in model.parameters()]
optimizer = SRMM(model.parameters(), lr=0.0)
for step in range(1, 4):
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)
    optimizer.step()
    ratio = (next(model.parameters()) / start[0]).mean().item()
    size = (model(rows).norm() / before.norm()).item()
    print(f"lr=0, step {step}: weights are {ratio:.4f} of their start, outputs {size:.4f}")
    assert abs(ratio - 0.5 ** 0.5) < 1e-5 and abs(size - 0.25) < 1e-4

weight = torch.nn.Parameter(torch.ones(5))
optimizer = SRMM([weight], lr=0.01)
weight.grad = torch.zeros(5)
optimizer.step()
print(f"gradient of zero: {weight[0].item():.4f} after the first step, for 1")
assert abs(weight[0].item() - 0.5 ** 0.5) < 1e-6


def steps(memory, count):
    """Return the steps with gradients that alternate between 1 and -1."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = SRMM([weight], lr=0.01, memory_length=memory)
    moves = []
    for step in range(count):
        old = weight.item()
        weight.grad = torch.full_like(weight, 1.0 if step % 2 == 0 else -1.0)
        optimizer.step()
        moves.append(weight.item() - old)
    return moves


for memory in [None, 1000]:
    moves = steps(memory, 300)
    print(f"memory_length={memory}: steps", [round(move, 5) for move in moves[:3] + moves[-3:]])
    if memory is None:
        assert all(abs(abs(move) - 0.01) < 1e-12 for move in moves)  # SGD with a rate of 0.01
    else:
        assert all(abs(move) < 0.001 for move in moves[-20:])
PYTHON
