#!/usr/bin/env bash
# peerannot's weighted votes with sparse=True give each worker the weight of the one before.
#
# Versions: peerannot 0.0.1.post43, numpy 2.4.6.
# Guess before the run: the labels of IWMV and Wawa, whose votes are weighted by the worker's accuracy,
#     are the same with sparse=True, up to ties; they are right more often than a majority's.
#     (That they might not be was suspected after reading the source.)
# Seen: in the sparse branch, the weight of worker w is that of w - 1, and that of worker 0 is the last
#     one's. Workers are numbered from 0 everywhere else. With ten workers, of which every second is right
#     in 95 % of tasks and the others in 30 %, IWMV is right in 98 %, with sparse=True in 75 %, and
#     Wawa in 98 and 67 %, where a plain majority is right in 87 %.
# For gyre: it combines no answers of workers. There, leave sparse=False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 tqdm==4.70.1 pydantic==2.14.4
"$folder/env/bin/pip" install --quiet --no-compile --no-deps peerannot==0.0.1.post43
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sys
import types
from pathlib import Path

import numpy as np

# The package of all models, whose __init__ needs torch and torchvision, without it.
models = types.ModuleType("peerannot.models")
models.__path__ = [str(Path(importlib.util.find_spec("peerannot").origin).parent / "models")]
sys.modules["peerannot.models"] = models
from peerannot.models.aggregation.iwmv import IWMV
from peerannot.models.aggregation.wawa import Wawa

WORKERS, TASKS, CLASSES = 10, 1000, 4
generator = np.random.default_rng(0)
np.random.seed(0)
truth = generator.integers(0, CLASSES, TASKS)


def draw(accuracies):
    """Return the answers of five workers to each task."""
    answers = {}
    for task in range(TASKS):
        answers[task] = {}
        for worker in generator.choice(WORKERS, 5, replace=False):
            right = generator.random() < accuracies[worker]
            error = 0 if right else generator.integers(1, CLASSES)
            answers[task][int(worker)] = int((truth[task] + error) % CLASSES)
    return answers


def vote(answers, weights):
    """Return the labels with the highest sum of weights, by the formula in the docstring."""
    sums = np.zeros((TASKS, CLASSES))
    for task, labels in answers.items():
        for worker, label in labels.items():
            sums[task, label] += weights[worker]
    return sums


def share(answers, cls, sparse):
    """Return the share of right labels of a model, and the model."""
    model = cls(answers, n_classes=CLASSES, sparse=sparse, n_workers=WORKERS)
    model.run()
    return np.mean(model.get_answers() == truth), model


answers = draw(np.where(np.arange(WORKERS) % 2, 0.95, 0.3))
majority = np.mean(vote(answers, np.ones(WORKERS)).argmax(1) == truth)
for cls in (IWMV, Wawa):
    dense, sparse = share(answers, cls, False)[0], share(answers, cls, True)[0]
    print(f"{cls.__name__}: right in {dense:.0%}, with sparse=True in {sparse:.0%}", end="")
    print(f"; a majority in {majority:.0%}")
    assert dense > 0.95 and sparse < majority - 0.05

model = share(answers, IWMV, True)[1]
weights = generator.random(WORKERS)
model.MV(weight=weights)
for shift in (0, 1):
    equal = np.mean(vote(answers, np.roll(weights, shift)).argmax(1) == model.get_answers())
    print(f"labels as with the weights moved on by {shift}: {equal:.0%}")
    assert (equal == 1) == (shift == 1)
PYTHON
