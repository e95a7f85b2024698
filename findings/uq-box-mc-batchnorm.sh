#!/usr/bin/env bash
# In lightning-uq-box, MC dropout predicts with the batch norms and the dropout of the training.
#
# Versions: lightning-uq-box 0.2.0, lightning 2.6.6, torch 2.13.0.
# Guess before the run: `predict_step` of MCDropoutRegression switches on the dropout layers that are
#     named, or all of them, and nothing else: batch norms use their running statistics, as a comment in
#     the source says. (That they do not was suspected after reading the source.)
# Seen: the whole network is put into training mode, and the branch that puts batch norms back is never
#     reached. A prediction depends on the other inputs of its batch: by more than the targets' own
#     deviation if these are all shifted. Predicting changes the running statistics for good. With
#     `dropout_layer_names=["2"]`, the dropout of layer 4 is on as well.
# For gyre: it has no dropout. There, call `eval()`, and `train()` of the dropout layers, by hand.
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
import sys
import types

import torch
import lightning  # noqa: F401
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
torch.set_num_threads(1)
from lightning_uq_box.uq_methods import MCDropoutRegression

torch.manual_seed(0)
rows = torch.randn(2000, 4)
targets = rows.sum(1, keepdim=True)


def train(*layers):
    """Return a network with these layers behind its first one, trained on the sum of 4 inputs."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 64), *layers, nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(300):
        chosen = torch.randint(len(rows), (200,))
        optimizer.zero_grad()
        nn.functional.mse_loss(net(rows[chosen]), targets[chosen]).backward()
        optimizer.step()
    return net.eval()


net = train(nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.05))
method = MCDropoutRegression(net, num_mc_samples=500, loss_fn=nn.MSELoss())
statistics = net[1].running_mean.clone(), net[1].running_var.clone()
first = torch.tensor([[0.5, 0.5, 0.5, 0.5]])
with torch.no_grad():
    plain = net(first).item()
print(f"target 2, without dropout {plain:.3f}")
predicted = {}
for shift in [0.0, 1.0, 2.0]:
    net[1].running_mean.copy_(statistics[0])
    net[1].running_var.copy_(statistics[1])
    batch = torch.cat([first, rows[:99] + shift])
    predicted[shift] = method.predict_step(batch)["pred"][0].item()
    moved = (net[1].running_mean - statistics[0]).norm() / statistics[0].norm()
    print(f"beside 99 inputs shifted by {shift}: {predicted[shift]:.3f}; running means move by "
          f"{100 * moved.item():.0f} %")
    assert shift == 0 or moved > 0.5
assert abs(plain - 2) < 0.4 and abs(predicted[0.0] - 2) < 0.5
assert predicted[1.0] < predicted[0.0] - 2 and predicted[2.0] < predicted[0.0] - 4

net = train(nn.ReLU(), nn.Dropout(0.0), nn.Linear(64, 64), nn.Dropout(0.5))
method = MCDropoutRegression(net, num_mc_samples=200, loss_fn=nn.MSELoss(), dropout_layer_names=["2"])
deviation = method.predict_step(first)["epistemic_uct"].item()
print(f"layer 2 named, which drops nothing: deviation {deviation:.3f}, for 0")
assert deviation > 0.05
PYTHON
