#!/usr/bin/env bash
# Adan and DAdaptAdan of pytorch_optimizer do not climb as they descend.
#
# Versions: pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: maximize=True with the negated loss takes the steps of the loss without it, in
#     each optimizer that has the option; Adan's first difference of gradients is 0. (The scan of all
#     optimizers was made without reading the source.)
# Seen: 106 optimizers do. Adan's weights are off by 14 % of their way after 8 steps and by 10 % after
#     50, and lag behind. DAdaptAdan estimates another learning rate once and for all: its weights go
#     11 % of the way after 50 and after 200 steps.
# Cause: the gradient before the first is stored in `init_group`, before the gradients are negated, so
#     that the first difference is twice the gradient, which the averages keep (adan.py, dadapt.py).
# For gyre: it climbs nowhere. There, negate the loss instead.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps pytorch_optimizer==4.1.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import inspect

import pytorch_optimizer
import torch

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(1)
INPUTS = torch.randn(40, 6, generator=generator)
TARGETS = torch.randn(40, 3, generator=generator)


def train(optimizer_class, n_steps, maximize):
    """Return the way of the weights, and the last loss."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    start = torch.cat([p.detach().flatten() for p in model.parameters()])
    optimizer = optimizer_class(model.parameters(), maximize=maximize)
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss = ((model(INPUTS) - TARGETS) ** 2).mean()
        (-loss if maximize else loss).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]) - start, loss.item()


def compare(optimizer_class, n_steps):
    way, _ = train(optimizer_class, n_steps, maximize=False)
    climbed, _ = train(optimizer_class, n_steps, maximize=True)
    return ((climbed - way).norm() / way.norm()).item()


differing, n_equal = [], 0
for name in sorted(pytorch_optimizer.get_supported_optimizers()):
    optimizer_class = pytorch_optimizer.load_optimizer(name)
    if "maximize" not in inspect.signature(optimizer_class.__init__).parameters:
        continue
    try:
        difference = compare(optimizer_class, 8)
    except Exception:
        continue  # needs other arguments, a closure, or a package that is not installed
    if difference > 1e-3:
        differing.append(name)
    elif difference <= 1e-3:  # a NaN is neither
        n_equal += 1
print(f"after 8 steps, {n_equal} optimizers climb as they descend, not so {differing}")
assert differing == ["adan", "dadaptadan"] and n_equal > 60

for name, n_steps in [("adan", 8), ("adan", 50), ("dadaptadan", 50), ("dadaptadan", 200)]:
    optimizer_class = pytorch_optimizer.load_optimizer(name)
    way, loss = train(optimizer_class, n_steps, maximize=False)
    climbed, climbed_loss = train(optimizer_class, n_steps, maximize=True)
    print(f"{name}, {n_steps} steps: off by {(climbed - way).norm() / way.norm():.1%} of the way, a way "
          f"{climbed.norm() / way.norm():.2f} times as long, losses {loss:.3f} and {climbed_loss:.3f}")
    if name == "adan":
        assert 0.05 < (climbed - way).norm() / way.norm() < 0.2
    else:
        assert climbed.norm() < 0.2 * way.norm()
PYTHON
