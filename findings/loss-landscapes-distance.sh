#!/usr/bin/env bash
# The larger the distance that loss-landscapes is given, the less far it goes.
#
# Versions: loss-landscapes 3.0.6, torch 2.13.0.
# Guess before the run: distance, "maximum distance in parameter space from the start point", is how
#     far a random line goes, perhaps in norms of the model: 10 is ten times as far as 1. (The
#     opposite was suspected after reading the source.)
# Seen: steps are the norm of the model divided by the distance. With 10, the line ends a tenth of
#     the norm away, with 1 one norm, and with the default of 0.1, which reads like a small
#     neighbourhood, ten norms away, where nothing is left of the model. random_plane divides, too;
#     there the default is 1.
# For gyre: it draws no landscapes. There, give 1 / d for a distance of d norms.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile loss-landscapes==3.0.6 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import loss_landscapes
import torch
from loss_landscapes.metrics.metric import Metric

torch.set_num_threads(1)
torch.manual_seed(0)


class Way(Metric):
    """How far the model is from its start, in norms of the model."""

    def __init__(self, start):
        super().__init__()
        self.start = start

    def __call__(self, model_wrapper):
        weight = model_wrapper.modules[0].weight
        return ((weight - self.start).norm() / self.start.norm()).item()


model = torch.nn.Linear(30, 20, bias=False).double()
way = Way(model.weight.detach().clone())
for distance in [None, 0.1, 0.5, 1.0, 2.0, 10.0]:
    options = {} if distance is None else {"distance": distance}
    line = loss_landscapes.random_line(model, way, steps=10, deepcopy_model=True, **options)
    plane = loss_landscapes.random_plane(model, way, steps=10, deepcopy_model=True, **options)
    name = "by default" if distance is None else distance
    print(f"distance {name}: the line ends {line[-1]:.3g} norms away, the first point of the plane "
          f"is {plane[0, 0]:.3g} norms away")
    due_here = 1 / (distance or 0.1)
    assert abs(line[-1] / due_here - 1) < 1e-9
    corner = 1 / (distance or 1.0)
    assert 0.4 * corner < plane[0, 0] < corner
PYTHON
