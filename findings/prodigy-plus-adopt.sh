#!/usr/bin/env bash
# ProdigyPlus' ADOPT moves by the square of its rate, and its FOCUS pulls weights to zero.
#
# Versions: prodigy-plus-schedule-free 2.0.1, torch 2.13.0.
# Guess before the run: use_adopt=True learns at about the pace of the plain optimizer, with
#     schedule-free and without. use_focus=True pulls weights towards their running average, so
#     that weights without a gradient, which are their own average, stand still. (That a factor d is
#     wrong in both was suspected after reading the source.)
# Seen: d, the estimated rate, is 1e-6 at first; moments are kept with factors of d. Without
#     schedule-free, ADOPT's normalized gradient lacks one: it is 1 / d, clipped to about 1, and
#     then multiplied by d, and once more in the step. Each step is d * d, and as d grows with
#     progress, it does not grow: after 1,000 steps, the loss is what it was. With schedule-free it
#     is right. FOCUS' average of the weights has a factor of d * d, and is 0 for it: each weight is
#     pulled to zero by a tenth of each step, with schedule-free too. The README says of FOCUS that
#     changes of d "may limit the benefits"; here d does not change.
# For gyre: it does not use it. There, take ADOPT with schedule-free only, and no FOCUS.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile prodigy-plus-schedule-free==2.0.1 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

import torch
from prodigyplus.prodigy_plus_schedulefree import ProdigyPlusScheduleFree

N_STEPS = 1000
torch.set_num_threads(1)
target = torch.tensor([1.0, -1.0, 2.0, -2.0])


def run(weight, gradient, **options):
    """Take N_STEPS steps, and return the optimizer."""
    with contextlib.redirect_stdout(io.StringIO()):
        optimizer = ProdigyPlusScheduleFree([weight], **options)
        for _ in range(N_STEPS):
            weight.grad = gradient(weight.detach())
            optimizer.step()
        optimizer.eval()
    return optimizer


losses = {}
for is_adopt in [False, True]:
    for is_free in [False, True]:
        weight = torch.nn.Parameter(torch.zeros(4))
        optimizer = run(weight, lambda w: 2 * (w - target), use_adopt=is_adopt,
                        use_schedulefree=is_free)
        losses[is_adopt, is_free] = (weight - target).square().sum().item()
        print(f"use_adopt={is_adopt}, use_schedulefree={is_free}: the loss goes from "
              f"{target.square().sum():.0f} to {losses[is_adopt, is_free]:.1e}, "
              f"d from 1e-06 to {optimizer.param_groups[0]['d']:.1e}")
assert losses[True, False] > 9.99
assert max(loss for key, loss in losses.items() if key != (True, False)) < 0.05

RATE = 1e-3
weights = torch.tensor([1.0, -1.0, 3.0])
for is_focus in [False, True]:
    for is_free in [False, True]:
        weight = torch.nn.Parameter(weights.clone())
        optimizer = run(weight, torch.zeros_like, use_focus=is_focus, use_schedulefree=is_free,
                        d0=RATE, use_stableadamw=False)
        moved = (weights - weight.detach()) * weights.sign()
        print(f"use_focus={is_focus}, use_schedulefree={is_free}: without gradients, weights of "
              f"{weights.tolist()} move towards zero by {[round(x, 3) for x in moved.tolist()]}")
        assert optimizer.param_groups[0]["d"] == RATE
        if is_focus:
            average = optimizer.state[weight]["exp_avg_sq"] / (1 - 0.99**N_STEPS)
            print(f"    their average, as FOCUS has it: {['%.0e' % x for x in average.tolist()]}")
            assert average.abs().max() < 1e-5
            assert torch.allclose(moved, torch.full((3,), 0.05 if is_free else 0.1), atol=0.002)
        else:
            assert moved.abs().max() < 1e-6
PYTHON
