#!/usr/bin/env bash
# On a CPU, avalanche's Synaptic Intelligence does nothing: its old weights are the new ones.
#
# Versions: avalanche-lib 0.6.0, torch 2.13.0, numpy 2.4.6, dill 0.4.1, tqdm 4.70.1.
# Guess before the run: SynapticIntelligencePlugin remembers the weights of the first task and how
#     important they are, so that with a large `si_lambda` the second task changes the model less,
#     and the first one is remembered better than without the plugin. (That it does nothing on a
#     CPU was suspected after reading the source.)
# Seen: on a CPU, the stored weights are views of the parameters, which move with them. A step is
#     the difference of a tensor and itself, all importances are 0, and so is the penalty: for a
#     `si_lambda` of 1 and of a million, the weights are bit for bit those of training without the
#     plugin. With copies of the weights in their place, as a GPU makes them, importances are not 0,
#     and the weights are others.
# For gyre: it trains one task. There, compare with the strategy Naive before a study.
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
from avalanche.training.plugins import SynapticIntelligencePlugin
from torch import nn

ROWS, WIDTH, EPOCHS, BATCH = 512, 20, 10, 32
torch.set_num_threads(1)


def make_task(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, WIDTH, generator=generator)
    return x, (x @ torch.randn(WIDTH, generator=generator) > 0).long()


def train(plugin):
    """Train on two tasks, with the hooks in the order of avalanche's strategies.

    Return the weights, the accuracy on the first task and the largest penalty.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    clock = types.SimpleNamespace(train_exp_counter=0)
    strategy = types.SimpleNamespace(model=model, clock=clock, device="cpu", loss=None)
    tasks = [make_task(seed) for seed in [1, 2]]
    penalty = 0
    for clock.train_exp_counter, (x, y) in enumerate(tasks):
        if plugin:
            plugin.before_training_exp(strategy)
        for _ in range(EPOCHS):
            for start in range(0, ROWS, BATCH):
                if plugin:
                    plugin.before_training_iteration(strategy)
                optimizer.zero_grad()
                output = model(x[start:start + BATCH])
                strategy.loss = nn.functional.cross_entropy(output, y[start:start + BATCH])
                before = strategy.loss.item()
                if plugin:
                    plugin.before_backward(strategy)
                penalty = max(penalty, strategy.loss.item() - before)
                strategy.loss.backward()
                optimizer.step()
                if plugin:
                    plugin.after_training_iteration(strategy)
        if plugin:
            plugin.after_training_exp(strategy)
    x, y = tasks[0]
    accuracy = (model(x).argmax(1) == y).float().mean().item()
    return nn.utils.parameters_to_vector(model.parameters()).detach(), accuracy, penalty


def report(name, plugin):
    weights, accuracy, penalty = train(plugin)
    importance = max(data.data.abs().max().item() for data in plugin.ewc_data[1].values())
    print(f"{name}: accuracy on the first task {accuracy:.3f}, largest penalty {penalty:.2g}, "
          f"largest importance {importance:.2g}, weights as without the plugin: "
          f"{torch.equal(weights, naive)}")
    return weights, importance, penalty


naive, accuracy, _ = train(None)
print(f"without the plugin: accuracy on the first task {accuracy:.3f}")
for strength in [1.0, 1e6]:
    weights, importance, penalty = report(f"si_lambda={strength:.0f}",
                                          SynapticIntelligencePlugin(strength))
    assert torch.equal(weights, naive) and importance == 0 and penalty == 0


def extract_copies(model, target, excluded):
    """What the plugin's own method does, with a copy of each parameter."""
    for name, parameter in SynapticIntelligencePlugin.allowed_parameters(model, excluded):
        target[name].data = parameter.detach().clone().flatten()


SynapticIntelligencePlugin.extract_weights = staticmethod(extract_copies)
weights, importance, penalty = report("si_lambda=100 with copies",
                                      SynapticIntelligencePlugin(100.0))
assert not torch.equal(weights, naive) and importance > 0 and penalty > 0.001
PYTHON
