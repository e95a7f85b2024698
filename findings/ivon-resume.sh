#!/usr/bin/env bash
# A training with IVON that is resumed begins with a step ten times too long.
#
# Versions: ivon-opt 0.1.3, torch 2.13.0.
# Guess before the run: state_dict() holds all that a step needs: a run that is saved and loaded
#     takes the steps of the uninterrupted one. (The opposite was suspected after reading the
#     source.)
# Seen: momentum and Hessian are in the state, the number of steps that divides out the zeros at
#     the start of the momentum is not. After loading it is 1, so that a full momentum is divided
#     by 1 - 0.9: the first step is 10 times as long as the last one before, the second 5 times,
#     and together the resumed run goes 27 steps too far. Nothing is said. With debias=False both
#     runs are equal.
# For gyre: its optimizers save their counters. There, set optimizer.current_step after loading.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ivon-opt==0.1.3 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import copy

import ivon
import torch

N_STEPS = 140
SAVED = 40
RATE = 0.001
torch.set_num_threads(1)


def train(is_resumed, **options):
    """Return the mean length of each step along a constant gradient of 1."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(1000))

    def make():
        return ivon.IVON([weight], lr=RATE, ess=1e6, weight_decay=0.0, beta1=0.9, **options)

    optimizer = make()
    lengths = []
    for step in range(N_STEPS):
        if is_resumed and step == SAVED:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = make()
            optimizer.load_state_dict(state)
        before = weight.detach().clone()
        with optimizer.sampled_params(train=True):
            weight.grad = torch.ones_like(weight)
        optimizer.step()
        lengths.append((before - weight.detach()).mean().item() / RATE)
    return lengths


whole, resumed = train(False), train(True)
print("steps around the resumption, in learning rates: uninterrupted",
      [round(x, 2) for x in whole[SAVED - 2:SAVED + 4]], "resumed",
      [round(x, 2) for x in resumed[SAVED - 2:SAVED + 4]])
too_far = sum(resumed) - sum(whole)
print(f"the resumed run goes {too_far:.1f} steps too far")
assert whole[:SAVED] == resumed[:SAVED]
assert abs(resumed[SAVED] / whole[SAVED] - 10) < 0.5
assert abs(resumed[SAVED + 1] / whole[SAVED + 1] - 5.3) < 0.3
assert 20 < too_far < 30
assert train(False, debias=False) == train(True, debias=False)
PYTHON
