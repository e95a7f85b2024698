#!/usr/bin/env bash
# Quantus' weighted localisation depends on the batch size; no object counts as found.
#
# Versions: quantus 0.6.0, torch 2.13.0, scikit-image 0.26.0.
# Guess before the run: `AttributionLocalisation(weighted=True)` weights a sample by its own size
#     and that of its object, as in the paper, where small objects gain: the share of the
#     attribution inside, divided by that of the area. `PointingGame` gives NaN where no object is
#     marked, as its source says. (That they do not was suspected after reading the source.)
# Seen: the size of the data is that of all samples of the batch from the third one on: `x[2:]`
#     where `x.shape[2:]` is meant. So one and the same sample has infinity in a batch of 1 or 2,
#     0.027 in one of 3, and 0.0004 in one of 64, the default, and those of a last, smaller batch
#     have more than others. And it is multiplied by the share of the area: uniform maps, which have
#     1 for all objects in the paper, gain with the square of the object's size. A sample without an
#     object counts as a hit of the pointing game: NaN is stored as True. With `weighted` it raises
#     an error.
# For gyre: it does not explain images. There, take both without weights, and divide by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6 scipy==1.17.1 pandas==3.1.1 \
    scikit-image==0.26.0 scikit-learn==1.9.1 matplotlib==3.11.2 tqdm==4.70.1 \
    opencv-python-headless==5.0.0.93
env/bin/pip install --quiet --no-compile --no-deps quantus==0.6.0
env/bin/python -W ignore - <<'PYTHON'
import numpy as np
import quantus
import torch
from torch import nn

N_SAMPLES, CHANNELS, SIZE = 66, 3, 8
torch.set_num_threads(1)
generator = np.random.default_rng(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(CHANNELS * SIZE * SIZE, 2)).eval()
images = generator.normal(size=(N_SAMPLES, CHANNELS, SIZE, SIZE)).astype(np.float32)
maps = generator.uniform(size=(N_SAMPLES, 1, SIZE, SIZE)).astype(np.float32)
objects = np.zeros((N_SAMPLES, 1, SIZE, SIZE), dtype=int)
objects[:, :, 2:6, 2:6] = 1
labels = np.zeros(N_SAMPLES, dtype=int)


def measure(metric, attributions, masks, batch_size=64):
    return np.array(metric(model=model, x_batch=images, y_batch=labels, a_batch=attributions,
                           s_batch=masks, batch_size=batch_size), dtype=float)


def localise(attributions, masks, batch_size=64, weighted=True):
    metric = quantus.AttributionLocalisation(weighted=weighted, disable_warnings=True)
    return measure(metric, attributions, masks, batch_size)


shares = (maps * objects).sum((1, 2, 3)) / maps.sum((1, 2, 3))
assert np.allclose(localise(maps, objects, weighted=False), shares, atol=1e-5)
due = shares / objects.mean((1, 2, 3))
print(f"the first sample, without weights: {shares[0]:.3f}; weighted, {due[0]:.3f} is due")
for size in [1, 2, 3, 4, 16, 64]:
    seen = localise(maps, objects, size)
    with np.errstate(divide="ignore"):
        counted = shares[0] * objects[0].sum() / np.float64((size - 2) * CHANNELS * SIZE * SIZE)
    print(f"    in batches of {size}: {seen[0]:.5f}")
    assert np.isinf(seen[0]) if size <= 2 else np.isclose(seen[0], counted, rtol=1e-4)
print(f"    in batches of 64, the last two of {N_SAMPLES} samples have {seen[-2:]}")
assert np.isinf(seen[-2:]).all() and np.isfinite(seen[:-2]).all()

small = np.zeros_like(objects)
small[:, :, 2:4, 2:4] = 1  # a fourth of the others
flat = maps.copy()
flat[0] = 0.5
both = localise(flat, objects)[0], localise(flat, small)[0]
print(f"a uniform map, weighted: an object of 16 pixels has {both[0] / both[1]:.1f} times as much "
      "as one of 4, and the same is due")
assert np.isclose(both[0] / both[1], 16, rtol=1e-3)

empty = objects.copy()
empty[:3] = 0
hits = measure(quantus.PointingGame(disable_warnings=True), maps, empty)
print(f"pointing game: three samples without an object have {hits[:3]}; of the others, "
      f"{hits[3:].mean():.0%} are hits")
assert (hits[:3] == 1).all() and hits[3:].mean() < 0.5
try:
    measure(quantus.PointingGame(weighted=True, disable_warnings=True), maps, objects)
    raise SystemExit("the weighted pointing game works")
except (TypeError, ValueError) as error:
    print(f"weighted: {type(error).__name__}")
PYTHON
