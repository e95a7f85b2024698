#!/usr/bin/env bash
# torchtnt's average of weights is replaced by the current weights after a resumption.
#
# Versions: torchtnt 0.2.4, torch 2.13.0.
# Guess before the run: `AveragedModel(use_lit=True)`, whose decay grows with the number of updates, goes
#     on after `load_state_dict` as if nothing had happened: the number of updates is in the state. (That
#     another number decides was suspected after reading the source.)
# Seen: the state has PyTorch's `n_averaged`; the decay comes from a second count, which starts at 0 in a
#     new object. The first update after a resumption has a decay of 2/11: the average of the last 100
#     weights is thrown away, and the noise in it is 12 times what it was, 3 times after 100 updates.
# For gyre: it averages no weights. There, save `_num_updates`, or `use_lit=False`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchtnt==0.2.4
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sys
import types

import torch

# The package imports loggers and profilers, which the average does not need.
place = importlib.util.find_spec("torchtnt").submodule_search_locations[0]
for name, path in [("torchtnt", place), ("torchtnt.utils", f"{place}/utils")]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from torchtnt.utils.swa import AveragedModel

N_UPDATES, WIDTH = 2000, 1000
torch.set_num_threads(1)


def start(model):
    """Return a new average with a decay that grows to 0.99."""
    return AveragedModel(model, averaging_method="ema", ema_decay=0.99, use_lit=True)


def errors(resumed):
    """Average noisy weights around 3. Return the error of the average after each later update."""
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(WIDTH, 1, bias=False)
    average = start(model)
    rows = []
    for update in range(N_UPDATES + 300):
        if resumed and update == N_UPDATES:
            state = average.state_dict()
            average = start(model)
            average.load_state_dict(state)
        with torch.no_grad():
            model.weight.copy_(3 + torch.randn(1, WIDTH, generator=generator))
        average.update_parameters(model)
        if update >= N_UPDATES:
            rows.append((average.module.weight - 3).square().mean().sqrt().item())
    return rows


kept, resumed = errors(False), errors(True)
print("updates after the resumption: error of the average without it, with it (of the weights: 1)")
for update in [0, 9, 99, 299]:
    print(f"{update + 1:3}: {kept[update]:.3f}, {resumed[update]:.3f}")
assert max(kept) < 0.1 and resumed[0] > 0.7 and resumed[9] > 3 * kept[9]
PYTHON
