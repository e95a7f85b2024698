#!/usr/bin/env bash
# With avalanche's RWalk and LFL, a model trains in evaluation mode: no dropout, and batch norms asleep.
#
# Versions: avalanche-lib 0.6.0, torch 2.13.0.
# Guess before the run: a plugin that takes gradients of its own before each iteration leaves the model in
#     the mode in which it finds it, as EWC does. (That it does not was suspected after reading the
#     source.)
# Seen: RWalkPlugin calls `eval()` before each iteration, and nobody calls `train()` after it: each
#     forward pass of the training is in evaluation mode. Dropout never drops, and running means and
#     variances stay at 0 and 1, so that batch norms do not normalize. LFLPlugin does so from the first
#     iteration of the second experience on. The training without a plugin, and with EWC, is in
#     training mode.
# For gyre: it trains one task. There, call `train()` in a plugin's `before_forward`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 dill==0.4.1 \
    tqdm==4.70.1 packaging==26.4 pillow==13.0.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps avalanche-lib==0.6.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.abc
import importlib.machinery
import sys
import types

# The package imports these for data sets, plots and logs. Empty classes stand for theirs.
UNUSED = {"torchvision", "pytorchcv", "gdown", "GPUtil", "wandb", "matplotlib", "sklearn", "psutil",
          "qpsolvers", "torchmetrics", "torch.utils.tensorboard"}


class Unused(types.ModuleType):
    __version__ = "99.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name in UNUSED or name.split(".")[0] in UNUSED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Unused(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_taskaware_classification_dataset
from avalanche.models import BaseModel
from avalanche.training.plugins import EWCPlugin, LFLPlugin, RWalkPlugin
from avalanche.training.plugins.strategy_plugin import SupervisedPlugin
from avalanche.training.supervised import Naive
from torch import nn

ROWS, WIDTH, EPOCHS, BATCH = 512, 20, 5, 32
torch.set_num_threads(1)
torch.manual_seed(0)
rows = torch.randn(ROWS, WIDTH) + 5
data = torch.utils.data.TensorDataset(rows, (rows.sum(1) > 5 * WIDTH).long())
data.targets = data.tensors[1].tolist()
data = as_taskaware_classification_dataset(data)
experiences = list(benchmark_from_datasets(train=[data, data]).train_stream)


class Network(nn.Module, BaseModel):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.dropout = nn.Dropout(0.5)
        self.features = nn.Sequential(nn.Linear(WIDTH, 64), self.norm, self.dropout)
        self.head = nn.Linear(64, 2)

    def get_features(self, rows):
        return self.features(rows)

    def forward(self, rows):
        return self.head(self.features(rows))


class BackToTraining(SupervisedPlugin):
    """Put the model into training mode before its forward pass."""

    def before_forward(self, strategy, *args, **kwargs):
        strategy.model.train()


def train(*plugins):
    """Return the numbers of passes in training mode and of all, and the norm of the running means."""
    torch.manual_seed(0)
    model = Network()
    strategy = Naive(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
                     criterion=nn.CrossEntropyLoss(), train_mb_size=BATCH, train_epochs=EPOCHS,
                     plugins=list(plugins), evaluator=None)
    modes = []
    model.register_forward_hook(lambda module, inputs, output: modes.append(module.training))
    for experience in experiences:
        strategy.train(experience)
    return sum(modes), len(modes), model.norm.running_mean.norm().item()


runs = {
    "no plugin": train(),
    "EWC": train(EWCPlugin(ewc_lambda=0.1)),
    "RWalk": train(RWalkPlugin()),
    "LFL": train(LFLPlugin(0.1)),
    "RWalk, and train() before each pass": train(RWalkPlugin(), BackToTraining()),
}
for name, (training, passes, norm) in runs.items():
    print(f"{name}: {training} of {passes} passes in training mode, running means with norm {norm:.2f}")
steps = 2 * EPOCHS * ROWS // BATCH
assert runs["no plugin"][:2] == (steps, steps)
assert runs["EWC"][:2] == (steps, steps + 2 * ROWS // BATCH)  # the importances are taken at the end
assert runs["RWalk"] == (0, 2 * steps, 0)  # one pass of its own for each iteration
assert runs["LFL"][:2] == (steps // 2 + 1, steps)
assert runs["RWalk, and train() before each pass"][:2] == (steps, 2 * steps)
assert all(norm > 1 for name, (_, _, norm) in runs.items() if name != "RWalk")
PYTHON
