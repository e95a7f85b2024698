#!/usr/bin/env bash
# BAdam replaces the weight decay of the parameter groups by the optimizer's default.
#
# Versions: badam 1.4, transformers 5.24.0, torch 2.13.0.
# Guess before the run: BlockOptimizer wraps an optimizer and keeps what it was made with: matrices
#     decay at the rate of their group, and biases and norms, which are in a group without decay, do
#     not. (The opposite was suspected after reading the source.)
# Seen: every block is trained with new groups, and the weight decay of all of them is that of the
#     optimizer's constructor. If the rates are given in the groups, as usual, it is AdamW's default
#     of 0.01, for norms and biases too. With a decay of 0.1 for matrices, these are at 0.90 instead
#     of 0.37 after 1,000 steps at a learning rate of 0.01; norms without decay are at 0.90 instead
#     of 1, and so is all of a model whose groups have no decay at all.
# For gyre: it has its own groups. There, give the decay to the constructor, weight_decay=0 for
#     none; norms and biases have it, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile badam==1.4 transformers==5.24.0 torch==2.13.0 \
    numpy==2.4.6
HF_HOME="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import torch
from badam import BlockOptimizer
from torch import nn

RATE = 0.01
N_STEPS = 1000
WIDTH = 8
torch.set_num_threads(1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.linear(self.norm(x))


def train(decay, wrap):
    """Return what share of a matrix, a norm's weight and a bias is left after zero gradients."""
    torch.manual_seed(0)
    model = nn.Module()
    model.layers = nn.ModuleList([Layer()])
    layer = model.layers[0]
    nn.init.ones_(layer.linear.bias)
    names = {"matrix": layer.linear.weight, "norm": layer.norm.weight, "bias": layer.linear.bias}
    before = {name: weight.norm().item() for name, weight in names.items()}
    matrices = [weight for weight in model.parameters() if weight.ndim == 2]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    if wrap:
        optimizer = BlockOptimizer(optimizer, list(model.named_parameters()),
                                   switch_block_every=N_STEPS + 1)
    for _ in range(N_STEPS):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        optimizer.step()
    return {name: weight.norm().item() / before[name] for name, weight in names.items()}


for decay in [0.1, 0.0]:
    due = {"matrix": math.exp(-RATE * decay * N_STEPS), "norm": 1.0, "bias": 1.0}
    for name, wrap in [("AdamW", False), ("AdamW in BlockOptimizer", True)]:
        shares = train(decay, wrap)
        text = ", ".join(f"{key} {share:.2f} (due {due[key]:.2f})" for key, share in shares.items())
        print(f"{name}, decay of matrices {decay}: {text}")
        for key, share in shares.items():
            wanted = math.exp(-RATE * 0.01 * N_STEPS) if wrap else due[key]
            assert abs(share - wanted) < 0.02
PYTHON
