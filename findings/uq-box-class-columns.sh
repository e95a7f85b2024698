#!/usr/bin/env bash
# In the predictions that lightning-uq-box saves, the probability of each class is that of class 1.
#
# Versions: lightning-uq-box 0.2.0, lightning 2.6.6, torchmetrics 1.9.0, torch 2.13.0.
# Guess before the run: `trainer.test` of a classifier writes preds.csv, whose columns class_prob_0,
#     class_prob_1 and so on are the probabilities of the classes; they add up to 1, and the largest is
#     that of the column "pred". (That they are not was suspected after reading the source.)
# Seen: all of the columns have the probability of class 1: with ten classes, they are equal in each
#     row, and add up to ten times that number. The column "pred" is right. Each classifier of the
#     package writes its file by this function.
# For gyre: it classifies nothing. There, keep what `predict_step` returns.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 lightning==2.6.6 \
    torchmetrics==1.9.0 numpy==2.4.6 scipy==1.17.1 pandas==3.1.1 h5py==3.16.0 einops==0.8.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lightning-uq-box==0.2.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.abc
import importlib.machinery
import logging
import sys
import tempfile
import types

import torch
from lightning import Trainer
from torch import nn

# Other methods of the package import these. Empty classes stand for theirs.
UNUSED = {"torchvision", "kornia", "timm", "torchseg", "gpytorch", "laplace", "sklearn", "matplotlib",
          "uncertainty_toolbox", "ema_pytorch", "linear_operator"}


class Unused(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in UNUSED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Unused(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
import pandas
from lightning_uq_box.uq_methods import MCDropoutClassification
from torch.utils.data import DataLoader, TensorDataset

CLASSES, WIDTH, ROWS = 10, 8, 200
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, CLASSES))
with torch.no_grad():
    net[3].weight.mul_(10)
method = MCDropoutClassification(net, num_mc_samples=10, loss_fn=nn.CrossEntropyLoss())
rows, labels = torch.randn(ROWS, WIDTH), torch.arange(ROWS) % CLASSES


def collate(pairs):
    return {"input": torch.stack([row for row, _ in pairs]),
            "target": torch.stack([label for _, label in pairs])}


returned = []
predict = method.predict_step


def predict_and_keep(inputs, *args, **kwargs):
    predicted = predict(inputs, *args, **kwargs)
    returned.append(predicted["pred"].clone())
    return predicted


method.predict_step = predict_and_keep
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, accelerator="cpu", default_root_dir=folder)
    trainer.test(method, DataLoader(TensorDataset(rows, labels), batch_size=50, collate_fn=collate),
                 verbose=False)
    saved = pandas.read_csv(f"{folder}/preds.csv")

names = [f"class_prob_{number}" for number in range(CLASSES)]
columns = torch.from_numpy(saved[names].to_numpy())
probabilities = torch.cat(returned).double()
print("saved:   ", [round(value, 3) for value in columns[0].tolist()])
print("returned:", [round(value, 3) for value in probabilities[0].tolist()])
print(f"sums of the saved rows: from {columns.sum(1).min():.4f} to {columns.sum(1).max():.2f}")
assert torch.allclose(probabilities.sum(1), torch.ones(ROWS, dtype=torch.float64), atol=1e-4)
assert (torch.tensor(saved["pred"].to_numpy()) == probabilities.argmax(1)).all()
for number in range(CLASSES):
    assert torch.allclose(columns[:, number], probabilities[:, 1], atol=1e-6)
assert columns.sum(1).min() < 0.5 and columns.sum(1).max() > 2
PYTHON
