#!/usr/bin/env bash
# The rows of torch_cka are in the order in which layers end, their names in another.
#
# Versions: torch_cka 0.21, torch 2.13.0, numpy 2.4.6.
# Guess before the run: `export()` names the layer of each row and column of the CKA matrix. (That
#     it might not was suspected after reading the source.)
# Seen: of a transformer of two blocks, 6 of 7 rows belong to another layer than the one they are
#     named after. Rows come in the order in which the forward hooks are called, in which a block
#     is behind all its parts; names in that of named_modules(), in which it is before them. The
#     order in which one lists the layers changes neither. The layers of a flat Sequential are
#     right.
# For gyre: it does not compare layers. There, take the names from `model1_features`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch-cka==0.21 torch==2.13.0 numpy==2.4.6 \
    matplotlib==3.11.2 tqdm==4.70.1
TQDM_DISABLE=1 "$folder/env/bin/python" - <<'PYTHON'
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_cka import CKA

warnings.simplefilter("ignore")  # that one loader is used for both models


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 16)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def similarity(x, y):
    """Return the unbiased CKA of two (n, d) tensors, without the package."""
    def covariance(x, y):
        n = len(x)
        k = (x @ x.T).fill_diagonal_(0)
        l = (y @ y.T).fill_diagonal_(0)
        return (k * l).sum() + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2 * (k @ l).sum() / (n - 2)
    return covariance(x, y) / (covariance(x, x) * covariance(y, y)).sqrt()


def compare(model, layers, data):
    comparison = CKA(model, model, "model", "the same", layers, layers)
    comparison.compare(DataLoader(TensorDataset(data), batch_size=len(data)))
    exported = comparison.export()
    return exported["model1_layers"], exported["CKA"]


torch.manual_seed(0)
data = torch.randn(200, 16)
model = Model()
layers = ["blocks.0.norm", "blocks.0.mlp", "blocks.0", "blocks.1.norm", "blocks.1.mlp", "blocks.1",
          "head"]
outputs = {}
for layer in layers:
    model.get_submodule(layer).register_forward_hook(
        lambda module, args, output, layer=layer: outputs.update({layer: output.detach()}))
model(data)

names, matrix = compare(model, layers, data)
print("names of the rows:", names)
right = torch.stack([torch.stack([similarity(outputs[first], outputs[second])
                                  for second in layers]) for first in layers])
print("order in which the layers end:", layers)
print(f"of the matrix in this order, it differs by {(matrix - right).abs().max():.6f} at most")
assert (matrix - right).abs().max() < 1e-3
assert sorted(names) == sorted(layers)
n_wrong = sum(name != layer for name, layer in zip(names, layers))
print(f"{n_wrong} of {len(layers)} rows have the name of another layer")
assert n_wrong == 6
pair = "blocks.0", "blocks.0.norm"
seen = matrix[names.index(pair[0]), names.index(pair[1])]
right = similarity(outputs[pair[0]], outputs[pair[1]])
print(f"{pair[0]} and {pair[1]}: exported as {seen:.3f}, is {right:.3f}")
assert abs(seen - right) > 0.1

reversed_names, reversed_matrix = compare(model, layers[::-1], data)
assert reversed_names == names and torch.allclose(reversed_matrix, matrix)

flat = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 8))
names, matrix = compare(flat, ["0", "1", "2"], data)
assert names == ["0", "1", "2"]
assert abs(matrix[0, 2] - similarity(flat[0](data), flat(data))) < 1e-3
PYTHON
