#!/usr/bin/env bash
# A warm-up by LinearLR in ignite's LRScheduler stays at a tenth of the learning rate for ever.
#
# Versions: pytorch-ignite 0.5.5, torch 2.13.0.
# Guess before the run: LRScheduler sets the rate that the wrapped scheduler gives in a loop of
#     one's own, for each of torch's schedulers. (That it does not for ExponentialLR had been seen
#     before.)
# Seen: it undoes the first step and computes it again, but the schedulers of this torch ask whether
#     they are being made, not whether it is step 0. LinearLR and ConstantLR multiply by their first
#     factor twice: from a factor of 0.1 at 0.01, up to 0.1, and there it stays. ExponentialLR,
#     MultiplicativeLR, PolynomialLR and warm restarts are one step ahead, and a cosine begins at
#     1.025. Those that need no state, such as StepLR and OneCycleLR, are right; so is
#     `use_legacy=True`.
# For gyre: its schedule is its own. There, warm up by `create_lr_scheduler_with_warmup`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pytorch-ignite==0.5.5 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from ignite.engine import Engine, Events
from ignite.handlers.param_scheduler import LRScheduler, create_lr_scheduler_with_warmup
from torch.optim import lr_scheduler

N_STEPS = 14


def make_optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def rates_by_torch(make):
    optimizer = make_optimizer()
    scheduler = make(optimizer)
    rates = []
    for _ in range(N_STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def rates_by_ignite(make, wrap=LRScheduler, event=Events.ITERATION_STARTED):
    optimizer = make_optimizer()
    scheduler = wrap(make(optimizer))
    rates = []

    def update(engine, batch):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()

    engine = Engine(update)
    engine.add_event_handler(event, scheduler)
    engine.run(range(N_STEPS), max_epochs=1)
    return rates


def legacy(scheduler):
    return LRScheduler(scheduler, use_legacy=True)


schedulers = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1.0, 20, cycle_momentum=False),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, 1.0, 5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.1, 5),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 8, 1.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5),
}
wrong = {}
for name, make in schedulers.items():
    expected, found = rates_by_torch(make), rates_by_ignite(make)
    print(f"{name}: torch {[round(rate, 3) for rate in expected[:7]]}, "
          f"ignite {[round(rate, 3) for rate in found[:7]]}")
    if max(abs(a - b) for a, b in zip(expected, found)) > 1e-9:
        wrong[name] = found
    old = rates_by_ignite(make, legacy, Events.ITERATION_COMPLETED)
    assert max(abs(a - b) for a, b in zip(expected, old)) < 1e-9
assert set(wrong) == set(schedulers) - {"StepLR", "LambdaLR", "OneCycleLR"}
for name in ["LinearLR", "ConstantLR"]:
    assert abs(wrong[name][0] - 0.01) < 1e-9 and abs(wrong[name][-1] - 0.1) < 1e-9
for name in ["ExponentialLR", "MultiplicativeLR", "CosineAnnealingWarmRestarts"]:
    late = rates_by_torch(schedulers[name])[1:]
    assert all(abs(a - b) < 1e-9 for a, b in zip(late, wrong[name]))
assert abs(wrong["CosineAnnealingLR"][0] - 1.025) < 0.001

warmed = rates_by_ignite(lambda o: create_lr_scheduler_with_warmup(
    lr_scheduler.StepLR(o, 100), warmup_start_value=0.1, warmup_duration=6), wrap=lambda s: s)
print(f"create_lr_scheduler_with_warmup: {[round(rate, 3) for rate in warmed[:7]]}")
assert abs(warmed[-1] - 1) < 1e-9
PYTHON
