#!/usr/bin/env bash
# In lightning-uq-box, the coverage of RAPS is the accuracy, its set size 1, and neither is ever reset.
#
# Versions: lightning-uq-box 0.2.0, lightning 2.6.6, torchmetrics 1.9.0, torch 2.13.0.
# Guess before the run: `trainer.test` of RAPS reports coverage and size of its prediction sets, about
#     90 % for `alpha=0.1`. `reset()` of EmpiricalCoverage starts anew, as in each metric of torchmetrics.
#     (That neither holds was suspected after reading the source.)
# Seen: the metrics get the probabilities, of which they take the most likely class: sets that hold 93 %
#     of the labels, with 4 classes each, are reported as sets of size 1 that hold 56 %, which is the
#     accuracy, for every `alpha`. The counts are plain attributes: a second epoch in which all is
#     right, after a first in which all was wrong, has a coverage of 0.5.
# For gyre: it classifies nothing. There, count over `predict_step(...)["pred_set"]`, and make a new
#     metric for each epoch.
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
from lightning_uq_box.uq_methods import RAPS
from lightning_uq_box.uq_methods.metrics import EmpiricalCoverage, SetSize
from torch.utils.data import DataLoader, TensorDataset

CLASSES, WIDTH, ROWS = 10, 20, 2000
torch.manual_seed(0)
weights = 0.5 * torch.randn(WIDTH, CLASSES)


class Model(nn.Module):
    """The model that draws the labels."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, CLASSES, bias=False))
        self.net[0].weight.data = weights.T.clone()

    def forward(self, rows):
        return self.net(rows)


def draw():
    """Return inputs and labels."""
    rows = torch.randn(ROWS, WIDTH)
    return rows, torch.distributions.Categorical(logits=rows @ weights).sample()


def load(rows, labels):
    """Return a loader of dictionaries with batches of 200."""
    def collate(pairs):
        return {"input": torch.stack([row for row, _ in pairs]),
                "target": torch.stack([label for _, label in pairs])}

    return DataLoader(TensorDataset(rows, labels), batch_size=200, collate_fn=collate)


calibration, (rows, labels) = draw(), draw()
print("alpha: reported coverage and set size; counted; accuracy")
for alpha in [0.05, 0.1, 0.3]:
    method = RAPS(Model(), alpha=alpha, kreg=1, lamda_param=0.001)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(max_epochs=1, logger=False, enable_checkpointing=False, accelerator="cpu",
                          enable_progress_bar=False, enable_model_summary=False, inference_mode=False,
                          default_root_dir=folder)
        trainer.fit(method, train_dataloaders=load(*calibration))
        reported = trainer.test(method, load(rows, labels), verbose=False)[0]
    sets = method.predict_step(rows)["pred_set"]
    coverage = sum(int(label) in chosen for chosen, label in zip(sets, labels)) / ROWS
    size = sum(len(chosen) for chosen in sets) / ROWS
    accuracy = ((rows @ weights).argmax(1) == labels).double().mean().item()
    print(f"{alpha}: {reported['testEmpirical Coverage']:.3f}, {reported['testSet Size']}; "
          f"{coverage:.3f}, {size:.2f}; {accuracy:.3f}")
    assert abs(reported["testEmpirical Coverage"] - accuracy) < 1e-6 and reported["testSet Size"] == 1
    assert coverage > 1 - alpha - 0.03 > accuracy + 0.05 and size > 1.5

metrics = {"coverage": EmpiricalCoverage(), "set size": SetSize(topk=None)}
probabilities = torch.eye(4)
for epoch, shift in enumerate([1, 0, 0]):
    targets = (torch.arange(4) + shift) % 4  # all wrong in the first epoch, then all right
    values = {}
    for name, metric in metrics.items():
        metric.update(probabilities, targets)
        values[name] = metric.compute().item()
        metric.reset()
    print(f"epoch {epoch}: accuracy {1 - shift}, {values}")
    assert abs(values["coverage"] - [0, 1 / 2, 2 / 3][epoch]) < 1e-6
PYTHON
