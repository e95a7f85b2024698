#!/usr/bin/env bash
# GrokAdamW saves its moments, and begins with empty ones after they are loaded.
#
# Versions: grokadamw 0.1.2, torch 2.13.0.
# Guess before the run: a run that is saved by state_dict() and loaded takes the steps of the
#     uninterrupted one, bit for bit. (The opposite was suspected after reading the source.)
# Seen: moments are kept in the parameter group, in a dictionary whose keys are the parameters
#     themselves. torch.save writes them all; after loading, the keys are copies of the parameters,
#     under which no parameter is found. Each starts again with step 1 and empty moments, in
#     silence, and the old ones stay in memory and in the next file beside the new ones. After 20
#     more steps, weights are off by up to 13 steps. AdamW's are equal bit for bit.
# For gyre: it does not use it. There, do not stop a run.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile grokadamw==0.1.2 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import io

import torch
from grokadamw import GrokAdamW

N_STEPS = 60
SAVED = 40
RATE = 1e-3
torch.set_num_threads(1)


def train(make, is_resumed):
    """Return the weights after N_STEPS noisy gradients, and the optimizer."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(100))
    optimizer = make([weight], lr=RATE, weight_decay=0.0)
    for step in range(N_STEPS):
        if is_resumed and step == SAVED:
            file = io.BytesIO()
            torch.save({"weight": weight.detach(), "optimizer": optimizer.state_dict()}, file)
            file.seek(0)
            saved = torch.load(file, weights_only=False)
            weight = torch.nn.Parameter(saved["weight"])
            optimizer = make([weight], lr=RATE, weight_decay=0.0)
            optimizer.load_state_dict(saved["optimizer"])
        weight.grad = 0.1 * torch.randn(100)
        optimizer.step()
    return weight.detach(), optimizer


for make in [torch.optim.AdamW, GrokAdamW]:
    whole, _ = train(make, False)
    resumed, optimizer = train(make, True)
    error = (resumed - whole).abs().max().item() / RATE
    print(f"{make.__name__}: resumed and uninterrupted weights differ by {error:.1f} steps")
    if make is torch.optim.AdamW:
        assert error == 0
    else:
        assert error > 3
states = optimizer.param_groups[0]["state"]
steps = [state["step"] for state in states.values()]
print(f"GrokAdamW has moments for {len(states)} parameters, of steps {steps}; the model has 1")
assert steps == [SAVED, N_STEPS - SAVED]
PYTHON
