#!/usr/bin/env bash
# pytorch_optimizer's linear schedule goes on below zero, where training climbs the loss.
#
# Versions: pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: past t_max, LinearScheduler, CosineScheduler and PolyScheduler stay at
#     min_lr, as torch's LinearLR stays at its end. They have a state_dict to resume from.
# Seen: each is a formula of the step that nothing bounds. One step past t_max, the linear one is
#     below zero: an optimizer of torch takes that from a schedule without a word, and the loss
#     rises. The cosine rises again. The polynomial one knows no t_max: it exceeds max_lr after one
#     step and grows for ever. There is no state_dict to resume from.
# For gyre: a run of gyre ends where its schedule does. Take torch.optim.lr_scheduler beside
#     optimizers of this package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pytorch_optimizer==4.1.0 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from pytorch_optimizer.lr_scheduler import CosineScheduler, LinearScheduler, PolyScheduler

T_MAX = 10
MAX_LR = 0.1
MIN_LR = 0.01
rates = {}
losses = {}
for scheduler_class in [LinearScheduler, CosineScheduler, PolyScheduler]:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=MAX_LR)
    scheduler = scheduler_class(optimizer, t_max=T_MAX, max_lr=MAX_LR, min_lr=MIN_LR,
                                init_lr=0.001, warmup_steps=3)
    name = scheduler_class.__name__
    losses[name] = []
    rates[name] = []
    for _ in range(2 * T_MAX):
        optimizer.zero_grad()
        loss = weight.square().sum() / 2
        loss.backward()
        scheduler.step()
        optimizer.step()
        losses[name].append(loss.item())
        rates[name].append(round(float(optimizer.param_groups[0]["lr"]), 3))
    print(f"{name}: state_dict {hasattr(scheduler, 'state_dict')}; {rates[name]}")
    assert not hasattr(scheduler, "state_dict")

end = losses["LinearScheduler"][T_MAX + 2]
print(f"LinearScheduler, loss w*w/2: {end:.3f} after {T_MAX + 2} steps, "
      f"{losses['LinearScheduler'][-1]:.3f} after {2 * T_MAX - 1}")

for name in ["LinearScheduler", "CosineScheduler"]:
    assert rates[name][T_MAX] == MIN_LR
assert rates["LinearScheduler"][T_MAX + 1] < 0
assert losses["LinearScheduler"][-1] > end
assert rates["CosineScheduler"][T_MAX + 5] > 5 * MIN_LR
assert rates["PolyScheduler"][T_MAX] > 2 * MAX_LR
PYTHON
