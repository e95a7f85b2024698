#!/usr/bin/env bash
# In torch-optimizer, SWATS walks at a ninth of its speed after it has switched to SGD.
#
# Versions: torch-optimizer 0.3.0, torch 2.13.0.
# Guess before the run: SWATS estimates the rate at which SGD takes the steps of Adam, and goes on
#     at that rate with the paper's momentum: with a steady gradient, its steps are as long as
#     before the switch. (That they are not was suspected after reading the source.)
# Seen: the momentum buffer itself is multiplied by 1 - beta1 in each step, not only the update. A
#     steady gradient moves the weight by 0.11 of Adam's step for ever, where the paper's update
#     returns to 1: with beta1 = 0.9 there is a memory of one step and a tenth of the rate.
# For gyre: it has no SWATS. There, take Adam, then torch's SGD with `dampening` equal to the
#     momentum.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch-optimizer==0.3.0 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from torch_optimizer import SWATS

LR, BETA1, GRADIENT = 0.01, 0.9, 2.0
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.zeros(3))
optimizer = SWATS([weight], lr=LR, betas=(BETA1, 0.999), eps=1e-8)
velocity = 0.0  # of the paper: v = beta1 * v + g, w = w - (1 - beta1) * rate * v
print("step  phase  rate    step length  due")
for step in range(1, 61):
    before = weight[0].item()
    phase = optimizer.param_groups[0]["phase"]
    rate = optimizer.param_groups[0]["lr"]
    weight.grad = torch.full((3,), GRADIENT)
    optimizer.step()
    length = before - weight[0].item()
    if phase == "ADAM":
        due = LR
    else:
        velocity = BETA1 * velocity + GRADIENT
        due = (1 - BETA1) * rate * velocity
    if step in (1, 2, 3, 4, 5, 10, 30, 60):
        print(f"{step:4}  {phase:5}  {rate:.4f}  {length:.5f}      {due:.5f}")
    if phase == "ADAM":
        assert abs(length - LR) < 1e-5
assert phase == "SGD" and abs(rate * GRADIENT - LR) < 1e-5
assert abs(due - LR) < 1e-4
assert abs(length - LR * (1 - BETA1) / (1 - BETA1 * (1 - BETA1))) < 1e-5
PYTHON
