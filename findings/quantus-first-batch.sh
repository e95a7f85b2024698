#!/usr/bin/env bash
# ROAD and Sensitivity-n of Quantus measure the first batch of 64 samples, and ignore the others.
#
# Versions: quantus 0.6.0, torch 2.13.0, scikit-image 0.26.0.
# Guess before the run: `ROAD()(model, x_batch, y_batch, a_batch)` gives the accuracy over all
#     samples for each percentage of removed pixels, and `SensitivityN` a correlation over all;
#     `batch_size=64`, the default, is about memory. (That they do not was suspected after reading
#     the source.)
# Seen: both collect a result for each batch, and read the first one alone. Of 192 samples, of which
#     the first 64 are classified right and the others wrong, the accuracy without 2 % of the pixels
#     is 0.94, and 0.32 over all; with all other maps inverted it is the same. So errors are those
#     of 64 samples, whatever the size of the data, and where data are sorted by class, one class is
#     measured. `batch_size=len(x_batch)` is right.
# For gyre: it does not explain images. There, give that batch size.
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

N_SAMPLES, SIZE = 192, 8
torch.set_num_threads(1)
torch.manual_seed(0)
generator = np.random.default_rng(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, 2)).eval()
images = generator.normal(size=(N_SAMPLES, 1, SIZE, SIZE)).astype(np.float32)
maps = generator.uniform(size=(N_SAMPLES, 1, SIZE, SIZE)).astype(np.float32)
with torch.no_grad():
    labels = model(torch.from_numpy(images)).argmax(1).numpy()
labels[64:] = 1 - labels[64:]


def measure(metric, attributions, n_samples=N_SAMPLES, **options):
    np.random.seed(0)  # for the noise of ROAD
    return metric(model=model, x_batch=images[:n_samples], y_batch=labels[:n_samples],
                  a_batch=attributions[:n_samples], softmax=False, **options)


def make_road():
    return quantus.ROAD(percentages=[2, 10, 50], disable_warnings=True)


def make_sensitivity():
    return quantus.SensitivityN(disable_warnings=True, return_aggregate=False)


spoilt = maps.copy()
spoilt[64:] = 1 - maps[64:]
seen = measure(make_road(), maps)
due = measure(make_road(), maps, batch_size=N_SAMPLES)
print(f"ROAD of {N_SAMPLES} samples: {({p: round(float(v), 3) for p, v in seen.items()})}; in one "
      f"batch: {({p: round(float(v), 3) for p, v in due.items()})}")
assert seen == measure(make_road(), maps, n_samples=64) == measure(make_road(), spoilt)
assert seen[2] > 0.9 and due[2] < 0.4
small = measure(make_road(), maps, batch_size=16)
print(f"in batches of 16: accuracies are multiples of 1/16: "
      f"{[float(value * 16) for value in small.values()]}")
assert all(float(value * 16).is_integer() for value in small.values())

seen = measure(make_sensitivity(), maps)
due = measure(make_sensitivity(), maps, batch_size=N_SAMPLES)
print(f"Sensitivity-n: {np.round(seen[:4], 3)}...; in one batch {np.round(due[:4], 3)}...")
assert np.allclose(seen, measure(make_sensitivity(), maps, n_samples=64))
assert np.allclose(seen, measure(make_sensitivity(), spoilt))
assert not np.allclose(seen, due, atol=0.02)
PYTHON
