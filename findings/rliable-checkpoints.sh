#!/usr/bin/env bash
# rliable draws other runs for each checkpoint: intervals of a mean over checkpoints are several times too short.
#
# Versions: rliable 1.2.0, arch 7.2.0, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3, statsmodels 0.15.0.
# Guess before the run: scores of the shape (runs, tasks, checkpoints), as `get_interval_estimates` takes
#     them, give a mean over the checkpoints, as the area under the training curve, the interval that the
#     means of each run over its checkpoints give. (Suspected after reading the source.)
# Seen: with 20 checkpoints, at which a run is about as good as at the others, the interval of the mean is
#     4.2 times shorter, and that of the interquartile mean 4.1 times. 95 % intervals hold the true mean in
#     38 % of experiments of 10 runs, where those of the runs' means hold it in 90 %. So it is with
#     episodes in place of checkpoints. At each checkpoint by itself, intervals are right.
# Cause: `update_indices` draws runs of the shape of the scores, so that each checkpoint of a task has runs
#     of its own, and a resampled curve is put together from all runs (rliable/library.py). Noise that a
#     run has at all checkpoints is averaged out.
# For gyre: its report takes one score of each seed. There, average over checkpoints first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile rliable==1.2.0 arch==7.2.0 numpy==2.4.6 scipy==1.17.1 \
    pandas==2.3.3 statsmodels==0.15.0 matplotlib==3.10.8
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from rliable import metrics
from rliable import library

N_TASKS, N_CHECKPOINTS = 4, 20


def draw(seed, n_runs, noise):
    """Return scores (runs, tasks, checkpoints): a run has its own quality at a task, and noise at each checkpoint."""
    generator = np.random.default_rng(seed)
    quality = generator.normal(size=(n_runs, N_TASKS, 1))
    return quality + noise * generator.normal(size=(n_runs, N_TASKS, N_CHECKPOINTS))


def interval(scores, function, reps):
    points, intervals = library.get_interval_estimates({"a": scores}, lambda x: np.array([function(x)]), reps=reps)
    return points["a"][0], intervals["a"][:, 0]


# rliable draws from numpy's global generator
np.random.seed(0)
scores = draw(0, 10, 0.1)
for name, function in [("mean", metrics.aggregate_mean), ("interquartile mean", metrics.aggregate_iqm)]:
    point, whole = interval(scores, lambda x: function(x.mean(axis=-1)), 2000)
    point_due, due = interval(scores.mean(axis=-1), function, 2000)
    assert np.isclose(point, point_due)
    ratio = np.diff(due)[0] / np.diff(whole)[0]
    print(f"{name} over checkpoints: {point:.2f}, interval {whole.round(2)}, of the runs' means {due.round(2)}: "
          f"{ratio:.1f} times as long")
    assert ratio > 3

# at one checkpoint, both are the same
_, third = library.get_interval_estimates({"a": scores}, lambda x: x.mean(axis=(0, 1)), reps=2000)
_, alone = interval(scores[:, :, 3], metrics.aggregate_mean, 2000)
print(f"checkpoint 3: {third['a'][:, 3].round(2)}, alone {alone.round(2)}")
assert np.allclose(third["a"][:, 3], alone, atol=0.05)

held, held_due = [], []
for seed in range(60):
    scores = draw(seed + 1, 10, 0.3)
    for values, into in [(scores, held), (scores.mean(axis=-1), held_due)]:
        low, high = interval(values, np.mean, 300)[1]
        into.append(low < 0 < high)
print(f"95 % intervals hold the true mean in {np.mean(held):.0%} of experiments, those of the runs' means in "
      f"{np.mean(held_due):.0%}")
assert np.mean(held) < 0.6 and np.mean(held_due) > 0.85
PYTHON
