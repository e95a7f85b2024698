#!/usr/bin/env bash
# In nine optimizers of pytorch_optimizer, weight decay does nothing with weight_decouple=False.
#
# Versions: pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: with weight_decouple=False, weight decay is added to the gradient, as in
#     torch's Adam, so that a training with weight_decay=0.1 differs from one with 0 in each
#     optimizer that has both options. (For SGDSaI, the source was read before; the others were
#     found by comparing all.)
# Seen: in AdamP, AdamWSN, Grams, LaProp, Prodigy, RAdam, SGDP, SGDSaI and TAM the weights after ten
#     steps are the same bit for bit with a decay of 0.1 and of 0, where torch's Adam and SGD differ
#     by 80 and 26 % of the way. With weight_decouple=True, which is the default, decay works there;
#     in 67 others it works both ways.
# Cause: `apply_weight_decay` adds to the gradient after the moments have taken it, and nothing reads
#     it any more (sgd.py, radam.py, adamp.py and so on). Issue 517 of the project reports another
#     way for SignSGD, which ignored the option, and is fixed.
# For gyre: its weight decay is decoupled. There, leave weight_decouple at True.
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
EXPECTED = ["adamp", "adamwsn", "grams", "laprop", "prodigy", "radam", "sgdp", "sgdsai", "tam"]


def train(optimizer_class, **options):
    """Return the weights before and after ten steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    start = torch.cat([p.detach().flatten() for p in model.parameters()])
    optimizer = optimizer_class(model.parameters(), **options)
    for _ in range(10):
        optimizer.zero_grad()
        ((model(INPUTS) - TARGETS) ** 2).mean().backward()
        optimizer.step()
    return start, torch.cat([p.detach().flatten() for p in model.parameters()])


def compare(optimizer_class, **options):
    """Return how far weights with decay are from those without, relative to their way."""
    start, without = train(optimizer_class, weight_decay=0.0, **options)
    _, decayed = train(optimizer_class, weight_decay=0.1, **options)
    return ((decayed - without).norm() / (without - start).norm()).item()


for name, optimizer_class in [("torch's Adam", torch.optim.Adam), ("torch's SGD", torch.optim.SGD)]:
    effect = compare(optimizer_class, lr=0.01)
    print(f"{name}: {effect:.4f}")
    assert effect > 0.001

without_effect, with_effect = [], 0
for name in sorted(pytorch_optimizer.get_supported_optimizers()):
    optimizer_class = pytorch_optimizer.load_optimizer(name)
    options = inspect.signature(optimizer_class.__init__).parameters
    if not {"weight_decay", "weight_decouple"} <= set(options):
        continue
    try:
        coupled = compare(optimizer_class, weight_decouple=False)
        decoupled = compare(optimizer_class, weight_decouple=True)
    except Exception:
        continue  # needs other arguments, a closure, or a package that is not installed
    if coupled > 0:
        with_effect += 1
        continue
    without_effect.append(name)
    print(f"{name}: {coupled} coupled, {decoupled:.4f} decoupled, the default is weight_decouple="
          f"{options['weight_decouple'].default}")
print(f"{len(without_effect)} without an effect, {with_effect} with one")
assert set(EXPECTED) <= set(without_effect) and with_effect > 30
PYTHON
