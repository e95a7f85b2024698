#!/usr/bin/env bash
# GrokFastAdamW shrinks all weights by `weight_decay` itself in each step, and not times the rate.
#
# Versions: grokfast-pytorch 0.0.11, torch 2.13.0.
# Guess before the run: with the README's `lr=1e-4, weight_decay=1e-2`, weights decay as with AdamW,
#     by a millionth in a step, and 4,000 steps learn what AdamW learns. (That the decay is of
#     another size was suspected after reading the source.)
# Seen: by a hundredth in a step. As a step is about lr / 3 at most, weights stay below 0.0034:
#     after 4,000 steps, a linear layer whose weights should be 0.05 has 0.0033 and 87 % of the loss
#     of zeros, where AdamW has none left. A group with a rate of its own is not divided by 3 as the
#     constructor's is, and decays by three hundredths.
# For gyre: it has no such optimizer. There, give `weight_decay` times the rate.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile grokfast-pytorch==0.0.11 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from grokfast_pytorch import GrokFastAdamW

DIM = 16
LR = 1e-4
DECAY = 1e-2
N_STEPS = 4000
TARGET = 0.05

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(256, DIM, generator=generator)
targets = TARGET * inputs.sum(dim=1, keepdim=True)
zeros = targets.square().mean().item()


def shrinkage(make):
    """Return by which share a weight without gradient shrinks in one step."""
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    weight.grad = torch.zeros_like(weight)
    make([weight]).step()
    return 1 - weight.mean().item()


def fit(make):
    """Return the mean weight of a linear layer after training, and its loss relative to zeros."""
    torch.manual_seed(0)
    model = torch.nn.Linear(DIM, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = make(model.parameters())
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
    return model.weight.mean().item(), loss.item() / zeros


def adamw(params):
    return torch.optim.AdamW(params, lr=LR, weight_decay=DECAY)


def grokfast(params):
    return GrokFastAdamW(params, lr=LR, weight_decay=DECAY)


def grokfast_scaled(params):
    return GrokFastAdamW(params, lr=LR, weight_decay=DECAY * LR)


def grokfast_group(params):
    return GrokFastAdamW([{"params": params, "lr": LR}], lr=LR, weight_decay=DECAY)


rates = {}
results = {}
for make in (adamw, grokfast, grokfast_scaled):
    rates[make] = shrinkage(make)
    results[make] = fit(make)
    mean, loss = results[make]
    print(f"{make.__name__}: shrinks by {rates[make]:.2e} in a step; mean weight {mean:.4f}, loss "
          f"{loss:.2e} of that of zeros")
group = shrinkage(grokfast_group)
print(f"with the same rate in a group: shrinks by {group:.2e} in a step")
assert abs(rates[adamw] / (LR * DECAY) - 1) < 1e-6
assert abs(rates[grokfast] / DECAY - 1) < 1e-6
assert abs(group / (3 * DECAY) - 1) < 1e-6
assert results[adamw][1] < 1e-3 and results[grokfast_scaled][1] < 1e-3
assert results[grokfast][0] < 0.0035 and results[grokfast][1] > 0.85
PYTHON
