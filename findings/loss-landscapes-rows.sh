#!/usr/bin/env bash
# Every second row of a plane by loss-landscapes is one step off.
#
# Versions: loss-landscapes 3.0.6, torch 2.13.0.
# Guess before the run: a plane is a grid: in each row, a column has the same distance along the
#     second direction. (The opposite was suspected after reading the source.)
# Seen: rows are walked to and fro, and each point is measured after the step. Rows 0, 2, 4 ... hold
#     the distances 1 to n, rows 1, 3, 5 ... 0 to n - 1: a straight valley is a zigzag, the
#     minimum of a bowl is in columns 9 and 10 in turn, and a neighbour differs by a whole step.
#     planar_interpolation and random_plane both have it.
# For gyre: it draws no landscapes. There, move every second row by one column.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile loss-landscapes==3.0.6 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import loss_landscapes
import numpy as np
import torch
from loss_landscapes.metrics.metric import Metric

torch.set_num_threads(1)
torch.manual_seed(0)


def make(values):
    """Return a model whose only weights are these."""
    model = torch.nn.Linear(len(values), 1, bias=False).double()
    model.weight.data.copy_(torch.tensor([values]))
    return model


class Coordinate(Metric):
    """One of the two weights."""

    def __init__(self, index):
        super().__init__()
        self.index = index

    def __call__(self, model_wrapper):
        return model_wrapper.modules[0].weight[0, self.index].item()


N_STEPS = 4
planes = []
for index in [0, 1]:
    models = [make([0.0, 0.0]), make([float(N_STEPS), 0.0]), make([0.0, float(N_STEPS)])]
    planes.append(loss_landscapes.planar_interpolation(
        *models, Coordinate(index), steps=N_STEPS, deepcopy_model=True))
print("steps along the first direction:")
print(planes[0])
print("steps along the second direction:")
print(planes[1])
assert np.array_equal(planes[0], np.repeat(np.arange(4.0)[:, None], 4, axis=1))
assert np.array_equal(planes[1][0::2], [[1, 2, 3, 4]] * 2)
assert np.array_equal(planes[1][1::2], [[0, 1, 2, 3]] * 2)


class Bowl(Metric):
    """The squared distance from the weights that the plane has in its middle."""

    def __init__(self, centre):
        super().__init__()
        self.centre = centre

    def __call__(self, model_wrapper):
        return (model_wrapper.modules[0].weight - self.centre).square().sum().item()


model = torch.nn.Linear(100, 100, bias=False).double()
bowl = loss_landscapes.random_plane(
    model, Bowl(model.weight.detach().clone()), steps=20, deepcopy_model=True)
lowest = bowl.argmin(axis=1)
print("random plane of a bowl, column of the lowest value in each row:", lowest.tolist())
steps = np.diff(lowest)
assert (steps[0::2] > 0).all() and (steps[1::2] < steps[0::2].min()).all()
PYTHON
