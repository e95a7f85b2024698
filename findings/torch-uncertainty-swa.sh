#!/usr/bin/env bash
# torch-uncertainty's SWA counts the first model twice.
#
# Versions: torch-uncertainty 0.13.0, torch 2.13.0. The file of SWA is loaded alone: the package
#     imports Lightning.
# Guess before the run: the averaged model is the mean of the models that were collected, as in
#     torch.optim.swa_utils.AveragedModel. (The opposite was suspected after reading the source.)
# Seen: the counter is 2 after the first model. The second has a weight of a third instead of a
#     half, and of n models each has 1 / (n + 1), the first 2 / (n + 1). That is the oldest one, the
#     farthest from the end: weights that go from 0 to 3 have a mean of 1.2 for 1.5.
# For gyre: it averages no weights. There, take AveragedModel.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torch-uncertainty==0.13.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
from importlib.metadata import distribution

import torch
from torch.optim.swa_utils import AveragedModel

torch.set_num_threads(1)
file = distribution("torch-uncertainty").locate_file("torch_uncertainty/methods/swa.py")
spec = importlib.util.spec_from_file_location("loaded", file)
loaded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loaded)


def average(n_models):
    """Return the mean by both of weights 0, 1 ... n_models - 1."""
    model = torch.nn.Linear(1, 1, bias=False).double()
    swa = loaded.SWA(model, cycle_start=0, cycle_length=1)
    averaged = AveragedModel(model)
    for epoch in range(n_models):
        model.weight.data.fill_(epoch)
        swa.update_wrapper(epoch)
        averaged.update_parameters(model)
    return swa.swa_model.weight.item(), averaged.module.weight.item()


for n_models in [1, 2, 4, 10]:
    by_package, by_torch = average(n_models)
    due = (n_models - 1) / 2
    print(f"weights 0 to {n_models - 1}: mean {due:.3f}, AveragedModel {by_torch:.3f}, "
          f"SWA {by_package:.3f}")
    assert abs(by_torch - due) < 1e-12
    assert abs(by_package - sum(range(n_models)) / (n_models + 1)) < 1e-12
PYTHON
