#!/usr/bin/env bash
# All copies of an input go through one member of torch-uncertainty's LP-BNN ensemble.
#
# Versions: torch-uncertainty 0.13.0, torch 2.13.0. The two files of layers are loaded alone: the
#     package imports Lightning.
# Guess before the run: with num_estimators=4, a batch is repeated 4 times, and each copy of an
#     input goes through another member: its 4 outputs are those of 4 members. (The opposite was
#     suspected after reading the source.)
# Seen: lpbnn_resnet repeats whole batches, copy behind copy, and the layers hand out their members
#     in turn, 0, 1, 2, 3, 0, 1 ... If the batch size is a multiple of the number of members, as
#     64 of 4, the member is the remainder of the position: all copies of an input have the same
#     one, and their outputs are equal bit for bit but for the noise of the layers, which is off
#     here. The spread between members, which is the uncertainty, is 0, and outputs depend on the
#     place in the batch. With 63 inputs each has four members; BatchLinear of the same package
#     hands them out right.
# For gyre: it has no ensembles. There, repeat each input 4 times in a row, and sort the outputs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torch-uncertainty==0.13.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
from importlib.metadata import distribution

import torch

N_MEMBERS = 4
WIDTH = 8
torch.set_num_threads(1)
torch.manual_seed(0)


def load(path):
    """Return a file of the package as a module."""
    file = distribution("torch-uncertainty").locate_file(f"torch_uncertainty/{path}")
    spec = importlib.util.spec_from_file_location("loaded", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(layer, inputs):
    """Return the outputs of all copies as (inputs, copies), as lpbnn_resnet and its routine do."""
    with torch.no_grad():
        return layer(inputs.repeat(N_MEMBERS, 1)).view(N_MEMBERS, len(inputs)).T


lpbnn = load("layers/bayesian/lpbnn.py").LPBNNLinear(
    WIDTH, 1, num_estimators=N_MEMBERS, std_factor=0.0, bias=False)
batched = load("layers/batch_ensemble.py").BatchLinear(
    WIDTH, 1, num_estimators=N_MEMBERS, bias=False)
members = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
lpbnn.gamma.data.copy_(members)
batched.s_group.data.copy_(members)
for name, layer in [("LPBNNLinear", lpbnn), ("BatchLinear", batched)]:
    for size in [64, 63]:
        one = torch.ones(size, WIDTH) + torch.arange(size)[:, None]
        values = outputs(layer, one)
        n_members = torch.tensor([len(set(row.tolist())) for row in values])
        print(f"{name}, {size} inputs: an input has {n_members.min()} to {n_members.max()} "
              "different outputs; the first and the third one:",
              [[f"{x:.3g}" for x in values[index].tolist()] for index in [0, 2]])
        assert (n_members == (1 if layer is lpbnn and size == 64 else N_MEMBERS)).all()
same = torch.ones(64, WIDTH)
first_copy = outputs(lpbnn, same)[:, 0]
print("64 equal inputs, first copy:", [f"{x:.3g}" for x in first_copy[:6].tolist()])
assert len(set(first_copy.tolist())) == N_MEMBERS
PYTHON
