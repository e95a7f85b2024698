#!/usr/bin/env bash
# The epistemic uncertainty of lightning-uq-box of a target around 300 is NaN, 0 or many times too large.
#
# Versions: lightning-uq-box 0.2.0, lightning 2.6.6, torch 2.13.0.
# Guess before the run: the epistemic uncertainty of MCDropoutRegression is the deviation of the means of
#     its samples, whatever constant is added to all of them. (That it is not was suspected after
#     reading the source.)
# Seen: where the model also predicts variances, it is the root of E[x^2] - E[x]^2 in float32. For
#     temperatures in kelvin, around 300, a deviation of 0.01 is NaN for a third of the inputs, 0 for a
#     quarter, and 7 to 40 times too large for the rest; so is the whole uncertainty. One of 0.1 is NaN
#     or 0 for two fifths, and up to 3.7 times itself. Around 0, and for models without variances, it is
#     right.
# For gyre: it predicts no distributions. There, standardize the targets.
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
from lightning_uq_box.uq_methods import NLL, MCDropoutRegression

INPUTS, SAMPLES, HIDDEN = 500, 20, 64
torch.manual_seed(0)
inputs = torch.randn(INPUTS, 8)


class Network(nn.Module):
    """Mean and log variance, with dropout; the mean is around `level`, and its deviation `size`."""

    def __init__(self, level, size, outputs):
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(8, HIDDEN), nn.Tanh(), nn.Dropout(0.5),
                                 nn.Linear(HIDDEN, outputs))
        with torch.no_grad():
            self.net[3].weight[0].mul_(size / 0.3)
            self.net[3].weight[1:].zero_()
            self.net[3].bias[0] = level
            self.net[3].bias[1:] = -20.0  # a variance of 2e-9

    def forward(self, rows):
        return self.net(rows)


print("level, deviation, outputs: NaN, 0, smallest and largest ratio to the deviation of the samples")
for level, size, outputs in [(0.0, 0.01, 2), (300.0, 0.1, 2), (300.0, 0.01, 2), (300.0, 0.01, 1)]:
    loss = NLL() if outputs == 2 else nn.MSELoss()
    method = MCDropoutRegression(Network(level, size, outputs), num_mc_samples=SAMPLES, loss_fn=loss)
    torch.manual_seed(2)
    seen = method.predict_step(inputs)
    means = seen["samples"][:, 0].double() if "samples" in seen else None
    if means is None:
        torch.manual_seed(2)
        method.activate_dropout()
        with torch.no_grad():
            means = torch.stack([method.model(inputs) for _ in range(SAMPLES)], dim=-1)[:, 0].double()
    due = means.std(-1, correction=0 if outputs == 2 else 1)
    ratio = seen["epistemic_uct"].double().flatten() / due
    missing, zero = ratio.isnan(), ratio == 0
    left = ratio[~missing & ~zero]
    print(f"{level:3.0f}, {due.mean():.4f}, {outputs}: {missing.double().mean():.3f}, "
          f"{zero.double().mean():.3f}, {left.min():.3f}, {left.max():.3f}")
    if (level, size, outputs) == (300.0, 0.01, 2):
        assert missing.double().mean() > 0.15 and left.max() > 4
        assert seen["pred_uct"].isnan().float().mean() > 0.15
    elif level == 0 or outputs == 1:
        assert not missing.any() and not zero.any() and (left - 1).abs().max() < 0.01
    else:
        assert (missing | zero).double().mean() > 0.2 and left.max() > 1.5
PYTHON
