#!/usr/bin/env bash
# torch-uncertainty's EMA keeps the batch norm statistics of the untrained model.
#
# Versions: torch-uncertainty 0.13.0, torch 2.13.0. The file of EMA is loaded alone: the package
#     imports Lightning.
# Guess before the run: after a long training, the averaged model predicts nearly what the trained
#     one does, with batch normalization, too. (The opposite was suspected after reading the
#     source.)
# Seen: parameters are averaged and buffers are not: a running mean of 0 and a variance of 1 are
#     those of the start, for ever. The routines evaluate that model, and compute statistics anew
#     for SWA and SWAG only. On inputs with a mean of 5, a classifier finds 98 % of the classes, and
#     the averaged model half of them, which is chance, with the same weights to 1e-4. With the
#     buffers of the trained model it finds 98 %.
# For gyre: it averages no weights. There, copy the buffers before each evaluation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torch-uncertainty==0.13.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
from importlib.metadata import distribution

import torch
from torch import nn

N_STEPS = 300
torch.set_num_threads(1)
torch.manual_seed(0)
file = distribution("torch-uncertainty").locate_file("torch_uncertainty/methods/ema.py")
spec = importlib.util.spec_from_file_location("loaded", file)
loaded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loaded)


def sample(n_samples):
    """Return inputs around 5, and their classes: the first input is around 3 or around 7."""
    inputs = 5 + torch.randn(n_samples, 4)
    classes = torch.randint(2, (n_samples,))
    inputs[:, 0] += 4.0 * classes - 2.0
    return inputs, classes


core = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
model = loaded.EMA(core, momentum=0.9)
rates = [0.1] * (N_STEPS - 200) + [0.0] * 200
optimizer = torch.optim.SGD(core.parameters(), lr=0.1)
model.train()
for rate in rates:
    optimizer.param_groups[0]["lr"] = rate
    optimizer.zero_grad()
    inputs, classes = sample(256)
    nn.functional.cross_entropy(model(inputs), classes).backward()
    optimizer.step()
    model.update_wrapper()
model.eval()
inputs, classes = sample(4000)


def accuracy(network):
    with torch.no_grad():
        return (network(inputs).argmax(1) == classes).float().mean().item()


averaged = model.ema_model
error = max((a - b).abs().max().item()
            for a, b in zip(averaged.parameters(), core.parameters(), strict=True))
trained, before = accuracy(core), accuracy(model)
print(f"largest difference of weights {error:.2g}; running means: trained",
      [round(x, 2) for x in core[0].running_mean.tolist()],
      "averaged", averaged[0].running_mean.tolist())
averaged[0].load_state_dict(core[0].state_dict())
after = accuracy(model)
print(f"right classes: trained {trained:.3f}, averaged {before:.3f}, "
      f"averaged with the trained buffers {after:.3f}")
assert error < 1e-4
assert trained > 0.9 and after > 0.9 and before < 0.7
PYTHON
