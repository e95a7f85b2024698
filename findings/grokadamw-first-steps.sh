#!/usr/bin/env bash
# The later a parameter is in GrokAdamW's list, the longer its first steps are: up to ten times.
#
# Versions: grokadamw 0.1.2, torch 2.13.0.
# Guess before the run: as in AdamW, the first step is as long as the learning rate for every
#     parameter; gamma only shortens the memory of later ones. (The opposite was suspected after
#     reading the source.)
# Seen: the i-th parameter averages gradients with beta1 * (1 - gamma)^i, and its average is
#     corrected by the beta1 of the first one. With the defaults, the first step of the 24th
#     parameter is 9.2 times the learning rate, and after a hundred steps of one gradient it is 35
#     learning rates ahead of the first. Most models have more tensors than 24, and most of these
#     begin with ten times the rate. With gamma=0, the first step is one learning rate for all.
# For gyre: it does not use it. There, give gamma=0, or warm up.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile grokadamw==0.1.2 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from grokadamw import GrokAdamW

RATE = 1e-3
N_PARAMETERS = 24
N_STEPS = 100
torch.set_num_threads(1)


def train(**options):
    """Return the first step of each parameter, and the way of all steps, in learning rates."""
    weights = [torch.nn.Parameter(torch.zeros(4, 4)) for _ in range(N_PARAMETERS)]
    optimizer = GrokAdamW(weights, lr=RATE, weight_decay=0.0, **options)
    for step in range(N_STEPS):
        for weight in weights:
            weight.grad = torch.full_like(weight, 0.01)
        optimizer.step()
        if step == 0:
            first = [-weight.mean().item() / RATE for weight in weights]
    return first, [-weight.mean().item() / RATE for weight in weights]


first, way = train()
print("first steps, in learning rates:", [round(x, 2) for x in first])
print(f"after {N_STEPS} steps of one gradient: the first parameter {way[0]:.0f}, "
      f"the last {way[-1]:.0f} learning rates")
for index, length in enumerate(first):
    due_here = (1 - 0.9 * 0.9 ** index) / (1 - 0.9)
    assert abs(length / due_here - 1) < 0.01
assert 30 < way[-1] - way[0] < 40
first, _ = train(gamma=0.0)
print(f"with gamma=0: from {min(first):.2f} to {max(first):.2f}")
assert abs(min(first) - 1) < 0.01 and abs(max(first) - 1) < 0.01
PYTHON
