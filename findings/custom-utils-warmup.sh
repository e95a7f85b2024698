#!/usr/bin/env bash
# A warm-up over 1,000 steps in pytorch-custom-utils divides all later learning rates by 1,000.
#
# Versions: pytorch-custom-utils 0.0.21, pytorch-warmup 0.2.0, accelerate 1.15.0, torch 2.13.0.
# Guess before the run: OptimizerWithWarmupSchedule with `lr=1e-3` and `warmup_steps=100` reaches a
#     rate of 1e-3 with step 100, and follows its schedule from there, whatever the schedule. (That
#     it stays far below was suspected after reading the source.)
# Seen: without a schedule, which is the default, and with LambdaLR, it reaches 1e-5 and stays
#     there: the warm-up is made before the schedule, which takes the rate of the first step for its
#     base. pytorch-warmup's documentation forbids that order. Schedules that multiply the last
#     rate, such as ExponentialLR and LinearLR, reach 1e-3. After 1,000 steps a weight has gone a
#     hundredth of the way that it goes without a warm-up.
# For gyre: its schedule has its own warm-up. There, give a LinearLR from 1 to 1 as the schedule.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pytorch-custom-utils==0.0.21 \
    pytorch-warmup==0.2.0 accelerate==1.15.0 optree==0.20.0 beartype==0.23.1 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import functools

import torch
from accelerate import Accelerator
from pytorch_custom_utils import OptimizerWithWarmupSchedule
from torch.optim import lr_scheduler

LR = 1e-3
N_STEPS = 1000

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)


def train(warmup_steps, scheduler):
    """Return the highest and the last rate, and the way of a weight whose gradient is one."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=LR)
    wrapped = OptimizerWithWarmupSchedule(
        accelerator, optimizer, scheduler=scheduler, warmup_steps=warmup_steps)
    rates = []
    for _ in range(N_STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        weight.grad = torch.ones(1)
        wrapped.step()
    return max(rates), rates[-1], -weight.item()


schedules = {
    "none": None,
    "LambdaLR": functools.partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: 1.0),
    "ExponentialLR": functools.partial(lr_scheduler.ExponentialLR, gamma=1.0),
    "CosineAnnealingLR": functools.partial(lr_scheduler.CosineAnnealingLR, T_max=N_STEPS),
    "LinearLR": functools.partial(lr_scheduler.LinearLR, start_factor=1.0, total_iters=N_STEPS),
}
for name, scheduler in schedules.items():
    _, _, plain = train(0, scheduler)
    for warmup_steps in (100, 1000):
        highest, last, way = train(warmup_steps, scheduler)
        print(f"schedule {name}, warm-up of {warmup_steps}: highest rate {highest:.2e}, last "
              f"{last:.2e}, {way / plain:.2%} of the way without a warm-up")
        if name in ("none", "LambdaLR"):
            assert abs(highest * warmup_steps / LR - 1) < 1e-6 and way / plain < 0.01
        elif name != "CosineAnnealingLR":
            assert abs(highest / LR - 1) < 1e-6 and way / plain > 0.4
        elif warmup_steps == 100:
            assert highest > 0.9 * LR
PYTHON
