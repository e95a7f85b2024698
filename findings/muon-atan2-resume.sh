#!/usr/bin/env bash
# A resumed MuonAdamAtan2 gives the moments of one parameter to another of the same shape.
#
# Versions: adam-atan2-pytorch 0.4.1, torch 2.13.0.
# Guess before the run: a state that is saved and loaded again by the same code goes to the same
#     parameters, and training goes on as without a break. (That it might not was suspected after
#     reading the source.)
# Seen: of six resumed runs none is the run without a break: two steps later, norms differ by up to
#     three times the learning rate. The constructor leaves the parameters of Muon out of the rest
#     by sets of tensors, and a set orders tensors by their addresses, which are others each time.
#     A state_dict counts parameters, so the moments of one norm are loaded into another of the same
#     shape, and nothing fails. (Where shapes differ, as with an embedding among them, a later step
#     raises an error.) With remove_muon_params_from_params=False the order is kept.
# For gyre: its groups are lists. There, pass disjoint lists, and that option.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile adam-atan2-pytorch==0.4.1 torch==2.13.0 \
    einops==0.8.2 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import io

import torch
from adam_atan2_pytorch import MuonAdamAtan2

WIDTH = 16
N_NORMS = 9
RATE = 1e-2


def begin(keeps_order):
    """Return norms, matrices, their optimizer, and the order of the norms in it."""
    generator = torch.Generator().manual_seed(0)
    norms = [torch.nn.Parameter(torch.randn(WIDTH, generator=generator)) for _ in range(N_NORMS)]
    matrices = [torch.nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator))
                for _ in range(4)]
    if keeps_order:
        optimizer = MuonAdamAtan2(matrices, norms, lr=RATE, remove_muon_params_from_params=False)
    else:
        optimizer = MuonAdamAtan2(matrices, norms + matrices, lr=RATE)
    number_of = {id(norm): i for i, norm in enumerate(norms)}
    order = [number_of[id(norm)] for norm in optimizer.param_groups[0]["params"]]
    return norms + matrices, optimizer, order


def train(parameters, optimizer, steps):
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for i, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = gradient * 10.0 ** (i % 3 - 1)
        optimizer.step()


def resume(keeps_order):
    """Train two steps, save, load into new objects, train two more; return these and orders."""
    parameters, optimizer, order = begin(keeps_order)
    train(parameters, optimizer, [0, 1])
    saved = io.BytesIO()
    torch.save([optimizer.state_dict(), [p.data for p in parameters]], saved)
    saved.seek(0)
    state, weights = torch.load(saved)
    new, new_optimizer, new_order = begin(keeps_order)
    new_optimizer.load_state_dict(state)
    for parameter, weight in zip(new, weights):
        parameter.data.copy_(weight)
    train(new, new_optimizer, [2, 3])
    return new, order, new_order


runs = []  # keeps all objects, so that no address is used twice
for keeps_order in [False, True]:
    whole, optimizer, _ = begin(keeps_order)
    train(whole, optimizer, range(4))
    distances = []
    n_moved = []
    for i in range(6):
        resumed, order, new_order = resume(keeps_order)
        runs.append(resumed)
        n_moved.append(sum(a != b for a, b in zip(order, new_order)))
        distances.append(max((a - b).abs().max().item() for a, b in zip(whole, resumed)) / RATE)
        print(f"keeps_order={keeps_order}, norms in the saved order {order}, in the loaded one "
              f"{new_order}: up to {distances[-1]:.2f} learning rates from the whole run")
    if keeps_order:
        assert max(distances) == 0 and max(n_moved) == 0
    else:
        assert sum(distance > 1 for distance in distances) >= 4 and sum(n_moved) > 12
PYTHON
