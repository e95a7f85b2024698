#!/usr/bin/env bash
# lightning-uq-box's SWAG counts the first weights twice, and takes a model that stands still for unsure.
#
# Versions: lightning-uq-box 0.2.0, lightning 2.6.6, torch 2.13.0.
# Guess before the run: SWAG samples weights around the mean of its snapshots. If all snapshots are the
#     same, as with a learning rate of 0 or at a minimum, all samples are those weights, and the
#     uncertainty is 0. (That this fails was suspected after reading the source.)
# Seen: the buffer of the mean begins with the weights, and the first snapshot is added to it: with n
#     snapshots of the same weights, the mean is 1 + 1/n times the weights, and it takes part in the
#     deviations. For a line through (0, 1) and (1, 3), ten snapshots predict 3.3 at 1, with a standard
#     deviation of 0.9; five predict 3.6, and 1.3. The variances are negative, are clamped, and add
#     nothing. In deeper networks, the factor is there once for each layer.
# For gyre: it averages no weights. There, set the buffers that end in `_mean` to zero before the fit.
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
from lightning_uq_box.uq_methods import SWAGRegression

SAMPLES = 2000
points = torch.linspace(-1, 1, 64)[:, None]
data = [{"input": points, "target": 2 * points + 1}] * 20


def fit(snapshots, clear):
    """Return mean and deviation at 0 and 1 of a fit of y = 2 x + 1 that is perfect before it begins."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 1))
    with torch.no_grad():
        net[0].weight.fill_(2.0)
        net[0].bias.fill_(1.0)
    method = SWAGRegression(net, max_swag_snapshots=snapshots, snapshot_freq=20 // snapshots,
                            num_mc_samples=SAMPLES, swag_lr=0.001, loss_fn=nn.MSELoss())
    if clear:
        for name, buffer in net.named_buffers():
            if name.endswith("_mean"):
                buffer.data.zero_()
    trainer = Trainer(max_epochs=1, logger=False, enable_checkpointing=False, accelerator="cpu",
                      enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(method, train_dataloaders=torch.utils.data.DataLoader(data, batch_size=None))
    assert method.num_tracked == snapshots
    predicted = method.predict_step(torch.tensor([[0.0], [1.0]]))
    return net.get_buffer("0_weight_mean").item(), predicted["pred"].flatten(), predicted["pred_uct"]


for snapshots in [5, 10, 20]:
    # The deviation of snapshot k (k = 1, 2, ...) from the mean of those before it, in units of the
    # weight, is -1 / k, because that mean is 1 + 1 / k. SWAG's low-rank term adds up their squares.
    squares = sum(1 / k ** 2 for k in range(1, snapshots)) / (2 * (snapshots - 1))
    for clear in [False, True]:
        mean, predicted, deviation = fit(snapshots, clear)
        print(f"{snapshots} snapshots{', mean cleared' if clear else ''}: weight {mean:.3f} for 2; at 1 "
              f"{predicted[1].item():.3f} +- {deviation[1].item():.3f} for 3 +- 0; at 0 "
              f"{predicted[0].item():.3f} +- {deviation[0].item():.3f} for 1 +- 0")
        if clear:
            assert abs(mean - 2) < 1e-5 and deviation.max() < 1e-3
            assert (predicted - torch.tensor([1.0, 3.0])).abs().max() < 1e-3
        else:
            factor = 1 + 1 / snapshots
            assert abs(mean / 2 - factor) < 1e-5
            assert abs(deviation[1].item() / (3 * squares ** 0.5) - 1) < 0.1
            assert abs(predicted[1].item() / (3 * factor) - 1) < 0.03
PYTHON
