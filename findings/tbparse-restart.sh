#!/usr/bin/env bash
# Steps that a resumed run took back are gone in TensorBoard, and tbparse reads them.
#
# Versions: tbparse 0.0.9, tensorboard 2.21.0, tensorboardX 2.6.5, pandas 2.3.3, numpy 2.3.5.
# Guess before the run: `SummaryReader(folder).scalars` has what TensorBoard shows of the folder. A
#     run that is resumed at step 60 with `purge_step=60` has one value for each step. (That it
#     might have more was suspected, because it reads file by file.)
# Seen: it has both values of each step that was done again, in silence, without a column that
#     tells them apart; TensorBoard's own reader removes the first ones. A run whose lowest loss is
#     on the part that was given up has that loss as its minimum. With `pivot=True`, such steps
#     have lists in place of numbers. With `extra_columns={"wall_time"}` one can keep the later
#     ones.
# For gyre: its own lines are the record, and a resumed run cuts them. There, read the folder with
#     tensorboard's EventAccumulator.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tbparse==0.0.9 tensorboard==2.21.0 \
    tensorboardX==2.6.5 pandas==2.3.3 numpy==2.3.5
cd "$folder"
"$folder/env/bin/python" - <<'PYTHON'
import time

from tbparse import SummaryReader
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter


def write(losses, **options):
    writer = SummaryWriter("run", **options)
    for step, loss in losses.items():
        writer.add_scalar("loss", loss, step)
    writer.close()


# Training to step 100 overfits; it is resumed from step 60 with another rate.
first = {0: 4.0, 20: 3.0, 40: 2.5, 60: 2.0, 80: 1.0, 100: 9.0}
second = {60: 2.4, 80: 2.3, 100: 2.2, 120: 2.1}
write(first)
time.sleep(1.1)  # The name of the second file has another second.
write(second, purge_step=60)

accumulator = EventAccumulator("run")
accumulator.Reload()
shown = [(event.step, round(event.value, 3)) for event in accumulator.Scalars("loss")]
print("TensorBoard's reader:", shown)
assert shown == [(0, 4.0), (20, 3.0), (40, 2.5), (60, 2.4), (80, 2.3), (100, 2.2), (120, 2.1)]

scalars = SummaryReader("run").scalars
print("tbparse:", list(zip(scalars.step, scalars.value.round(3))))
assert list(scalars.columns) == ["step", "tag", "value"]
assert sorted(zip(scalars.step.tolist(), scalars.value.round(3).tolist())) == sorted(
    [*first.items(), *second.items()])
print(f"lowest loss: {min(loss for _, loss in shown)} in TensorBoard, "
      f"{scalars.value.min():.3f} in tbparse")
assert scalars.value.min() == 1.0

pivot = SummaryReader("run", pivot=True).scalars
print("pivot:", dict(zip(pivot.step, pivot.loss)))
assert [isinstance(value, list) for value in pivot.loss] == [False] * 3 + [True] * 3 + [False]

timed = SummaryReader("run", extra_columns={"wall_time"}).scalars
latest = timed.sort_values("wall_time").groupby("step").value.last()
assert [(step, round(value, 3)) for step, value in latest.items()] == shown
PYTHON
