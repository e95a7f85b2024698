#!/usr/bin/env bash
# Ranger21 decays the last parameter only, and its norm loss pulls at that one only.
#
# Versions: ranger21 0.1.0, torch 2.13.0.
# Guess before the run: stable weight decay, which is on by default, makes all weights smaller, and
#     norm loss, too, moves all matrices towards unit norm. (That the loop over the parameters
#     begins behind both was suspected after reading the source.)
# Seen: they are computed once for each group of parameters, with the parameter that the loop before
#     has ended with: in a network of three layers, all weights and biases are those without decay,
#     bit for bit, except for the last bias, which shrinks. Norm loss changes the last bias only.
#     With two groups, it is the last bias of each.
# For gyre: it has its own groups and decay. There, take Ranger21 of pytorch_optimizer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ranger21==0.1.0 pytorch_optimizer==4.1.0 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

import torch

with contextlib.redirect_stdout(io.StringIO()):  # it prints its settings
    from ranger21 import Ranger21
from pytorch_optimizer import Ranger21 as OtherRanger21

N_STEPS = 50
torch.set_num_threads(1)


def train(optimizer_class, n_groups=1, **options):
    """Return the parameters of three layers after N_STEPS steps with the same random gradients."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8),
                                torch.nn.Tanh(), torch.nn.Linear(8, 4))
    parameters = list(model.parameters())
    groups = [{"params": parameters[:2]}, {"params": parameters[2:]}] if n_groups == 2 \
        else parameters
    with contextlib.redirect_stdout(io.StringIO()):
        optimizer = optimizer_class(groups, lr=1e-3, **options)
        for _ in range(N_STEPS):
            for parameter in parameters:
                parameter.grad = torch.randn(parameter.shape)
            optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def changed(first, second):
    return [name for name in first if not torch.equal(first[name], second[name])]


settings = {"num_epochs": 10, "num_batches_per_epoch": 10, "lookahead_active": False}
plain = train(Ranger21, weight_decay=0.0, normloss_active=False, **settings)
decayed = train(Ranger21, weight_decay=0.1, normloss_active=False, **settings)
grouped = train(Ranger21, n_groups=2, weight_decay=0.1, normloss_active=False, **settings)
pulled = train(Ranger21, weight_decay=0.0, normloss_active=True, **settings)
other_plain = train(OtherRanger21, num_iterations=N_STEPS, weight_decay=0.0)
other = train(OtherRanger21, num_iterations=N_STEPS, weight_decay=0.1)
print(f"parameters: {list(plain)}")
print(f"changed by weight decay: {changed(plain, decayed)}, whose norm is "
      f"{decayed['4.bias'].norm():.4f} for {plain['4.bias'].norm():.4f}")
print(f"changed by weight decay with two groups: {changed(plain, grouped)}")
print(f"changed by norm loss: {changed(plain, pulled)}")
print(f"changed by weight decay with pytorch_optimizer: {changed(other_plain, other)}")
assert changed(plain, decayed) == changed(plain, pulled) == ["4.bias"]
assert changed(plain, grouped) == ["0.bias", "4.bias"]
assert decayed["4.bias"].norm() < plain["4.bias"].norm()
assert changed(other_plain, other) == list(plain)
PYTHON
