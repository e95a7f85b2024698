#!/usr/bin/env bash
# tensorboard-reducer averages a random part of the steps, and leaves diverged runs out of it.
#
# Versions: tensorboard-reducer 0.4.0, tensorboard 2.21.0, numpy 2.4.6, pandas 3.1.1, torch 2.13.0.
# Guess before the run: runs have a mean at each step that all of them have logged, others are an
#     error ("Unequal number of steps"), and the reductions are "numpy operations", so that the mean
#     with a NaN is NaN. (That none of it might hold was suspected after reading the source.)
# Seen: of a run of 15,000 steps, 10,000 are read, a random choice; with another of 20,000 steps, it
#     has 7,515 of its 15,000 in common, without an error: both have 10,000 for the check. The
#     smallest loss of a run may be missing. A run that is NaN from some step on is not in the mean,
#     its minimum and its deviation: the curve of two runs goes on as that of three. The deviation
#     is pandas' with n - 1, which is 1.22 times numpy's for three runs. No warning.
# For gyre: it averages its seeds itself. There, log at most 10,000 values.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile torch==2.13.0 tensorboard==2.21.0 numpy==2.4.6 \
    pandas==3.1.1 tqdm==4.70.1
env/bin/pip install --quiet --no-compile --no-deps tensorboard-reducer==0.4.0
env/bin/python -W ignore - <<'PYTHON'
import numpy as np
from tensorboard_reducer import load_tb_events, reduce_events
from torch.utils.tensorboard import SummaryWriter


def write(name, losses):
    with SummaryWriter(name) as writer:
        for step, loss in enumerate(losses):
            writer.add_scalar("loss", loss, step)
    return name


generator = np.random.default_rng(0)
losses = [generator.normal(size=15000) for _ in range(3)]
runs = [write(f"run{i}", values) for i, values in enumerate(losses)]
frame = load_tb_events(runs)["loss"]
print(f"three runs of 15,000 steps: {len(frame)} steps are read, {list(frame.index[:6])} first")
smallest = [(values.min(), float(frame.iloc[:, i].min())) for i, values in enumerate(losses)]
print("smallest losses, logged and read:", ", ".join(f"{a:.3f} {b:.3f}" for a, b in smallest))
assert len(frame) == 10000 and list(frame.index) != list(range(10000))
assert any(a < b - 0.01 for a, b in smallest)

longer = write("longer", generator.normal(size=20000))
frame = load_tb_events([runs[0], longer])["loss"]
print(f"runs of 15,000 and 20,000 steps, strict_steps=True: no error, {len(frame)} steps")
assert 7000 < len(frame) < 8000

values = np.ones((3, 20)) * [[1], [2], [6]]
values[2, 10:] = np.nan
small = [write(f"small{i}", row) for i, row in enumerate(values)]
reduced = reduce_events(load_tb_events(small), ["mean", "max", "std"])
for step in [9, 10]:
    seen = [float(reduced[name]["loss"][step]) for name in ["mean", "max", "std"]]
    print(f"step {step}: losses {values[:, step]}; mean, maximum and deviation are "
          f"{' '.join(f'{x:.3f}' for x in seen)}, and numpy's "
          f"{values[:, step].mean():.3f} {values[:, step].max():.3f} {values[:, step].std():.3f}")
    assert np.allclose(seen, [3, 6, np.std([1, 2, 6], ddof=1)] if step == 9
                       else [1.5, 2, np.std([1, 2], ddof=1)])
PYTHON
