#!/usr/bin/env bash
# The temperature of lightning-uq-box stays near 1.5, its start, whatever the calibration data say.
#
# Versions: lightning-uq-box 0.2.0, lightning 2.6.6, torch 2.13.0.
# Guess before the run: TempScaling finds the temperature with the lowest loss on the calibration data: 3
#     for logits that are 3 times too large. A problem with one parameter needs a few steps of LBFGS.
#     (That it does not was suspected after reading the source.)
# Seen: with the default rate of 0.01, each of the 50 steps goes a hundredth of the way: temperatures are
#     1.8 for 3, 1.9 for 10, and 1.4 for 0.3, where logits are too small; more than half of the excess of
#     the loss is left. With `optim_lr=1`, 3 and 10 are found, and for 0.3 the temperature is negative,
#     so that the least likely class becomes the most likely one.
# For gyre: it scales no logits. There, take scipy's `minimize_scalar`.
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
from lightning_uq_box.uq_methods import TempScaling
from torch.utils.data import DataLoader, TensorDataset

CLASSES, WIDTH, ROWS = 10, 20, 4000
torch.manual_seed(0)
weights = 0.5 * torch.randn(WIDTH, CLASSES)
rows = torch.randn(ROWS, WIDTH)
labels = torch.distributions.Categorical(logits=rows @ weights).sample()


def collate(pairs):
    return {"input": torch.stack([row for row, _ in pairs]),
            "target": torch.stack([label for _, label in pairs])}


def loss(scale, temperature):
    """Return the loss of logits that are `scale` times those that drew the labels."""
    return nn.functional.cross_entropy(scale * rows @ weights / temperature, labels).item()


def fit(scale, **options):
    """Return the temperature for logits that are `scale` times those that drew the labels."""
    net = nn.Sequential(nn.Linear(WIDTH, CLASSES, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(scale * weights.T)
    method = TempScaling(net, **options)
    trainer = Trainer(max_epochs=1, logger=False, enable_checkpointing=False, accelerator="cpu",
                      enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(method, train_dataloaders=DataLoader(TensorDataset(rows, labels), batch_size=500,
                                                     collate_fn=collate))
    return method.temperature.item()


grid = torch.logspace(-1, 1.3, 2000).tolist()
print("scale: temperature, with optim_lr=1, best of 2,000; losses at 1.5, and at these three")
for scale in [0.3, 3.0, 10.0]:
    found, fast = fit(scale), fit(scale, optim_lr=1.0)
    best = min(grid, key=lambda temperature: loss(scale, temperature))
    start, seen, due = [loss(scale, temperature) for temperature in (1.5, found, best)]
    print(f"{scale:4}: {found:.3f}, {fast:.3f}, {best:.3f}; {start:.4f}, {seen:.4f}, "
          f"{loss(scale, fast):.4f}, {due:.4f}")
    assert abs(best / scale - 1) < 0.06 and 1.3 < found < 2.1
    assert (seen - due) > 0.5 * (start - due) > 0.1
    assert fast < -10 if scale < 1 else abs(fast / best - 1) < 0.02
PYTHON
