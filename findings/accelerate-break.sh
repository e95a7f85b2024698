#!/usr/bin/env bash
# An evaluation that breaks at its last batch switches accelerate's gradient accumulation off.
#
# Versions: accelerate 1.15.0, torch 2.13.0.
# Guess before the run: an evaluation that ends by `break` leaves nothing behind. accumulate() goes
#     on with one update in four micro-batches.
# Seen: that holds if the break comes before the last batch. At the last one, every micro-batch is
#     an update until the training epoch ends: four times as many updates, each of the gradient of
#     one micro-batch, and the learning-rate schedule runs four times as fast. gather_for_metrics
#     cuts training batches to the number of rows in the last evaluation batch. `next(iter(loader))`
#     of a loader with a single batch does the same. A loader puts itself on a stack when its loop
#     starts, and sets end_of_dataloader when it gives out its last batch. It leaves the stack only
#     after its loop (data_loader.py), and accumulate() asks the loader on top.
# For gyre: it counts micro-batches by itself. With accelerate, let an evaluation run to its end, or
#     keep a loader of which you take a few batches out of prepare().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
HF_HOME="$folder" "$folder/env/bin/python" - <<'PYTHON'
import math

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

N_TRAIN = 16
N_EVAL = 3
N_MICRO = 4
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=N_MICRO)


def train(n_evaluated):
    """Train for an epoch; in its middle, take so many of N_EVAL batches, then break.

    Return which micro-batches ended in an update, how many rows gather_for_metrics left of each,
    and the last learning rate.
    """
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    model, optimizer, schedule, train_loader, eval_loader = accelerator.prepare(
        model, optimizer, schedule, DataLoader(torch.ones(N_TRAIN * 2, 1), batch_size=2),
        DataLoader(torch.ones(N_EVAL * 2 - 1, 1), batch_size=2))
    updates = ""
    n_rows = ""
    for index, batch in enumerate(train_loader):
        if index == N_TRAIN // 2:
            for n_batches, _ in enumerate(eval_loader, 1):
                if n_batches == n_evaluated:
                    break
        n_rows += str(len(accelerator.gather_for_metrics(batch)))
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).mean())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        updates += "u" if accelerator.sync_gradients else "."
    return updates, n_rows, schedule.get_last_lr()[0]


seen = {}
for n_evaluated in [None, N_EVAL - 1, N_EVAL]:
    updates, n_rows, rate = train(n_evaluated)
    name = "no break" if n_evaluated is None else f"break at batch {n_evaluated} of {N_EVAL}"
    print(f"{name}: updates {updates}, rows {n_rows}, learning rate 2 ** {math.log2(rate):.0f}")
    seen[n_evaluated] = updates, n_rows

assert seen[None] == ("...u...u...u...u", "2222222222222222")
assert seen[N_EVAL - 1] == seen[None]
assert seen[N_EVAL] == ("...u...uuuuuuuuu", "2222222211111111")
PYTHON
