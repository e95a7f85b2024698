#!/usr/bin/env bash
# The adaptive gradient clipping of agc-optims makes small gradients as large as its threshold.
#
# Versions: agc-optims 0.0.2, torch 2.13.0.
# Guess before the run: a gradient that is smaller than 1 % of the weights stays as it is, a larger
#     one is scaled down (Brock et al. 2021, arXiv:2102.06171). (The opposite was suspected after
#     reading the source.)
# Seen: every gradient is scaled to 1 % of the weights, those far below it, too: with SGD, gradients
#     from 1e-6 to 100 make one and the same step. The scaling is done in place before the choice
#     between the gradient and the scaled one, so that both are the same tensor. A training by the
#     squared error, which ends at the minimum without it, goes around it at the distance of a step
#     with AGC. (SGD_AGC of the package calls the same function, but fails with this torch.)
# For gyre: it clips by the norm of all gradients. Elsewhere, take timm's adaptive_clip_grad.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile agc-optims==0.0.2 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from agc_optims.clipper import AGC

CLIPPING = 0.01
SIZE = 8
torch.set_num_threads(1)
makers = {
    "SGD": lambda weights, rate: torch.optim.SGD(weights, lr=rate),
    "AGC(SGD)": lambda weights, rate: AGC(torch.optim.SGD(weights, lr=rate), clipping=CLIPPING),
}


def step_length(make, gradient):
    """Return how far weights of 1 move with a learning rate of 1."""
    weight = torch.nn.Parameter(torch.ones(SIZE, SIZE, dtype=torch.float64))
    optimizer = make([weight], 1.0)
    weight.grad = torch.full_like(weight, gradient)
    optimizer.step()
    return (1 - weight.detach()).mean().item()


for gradient in [1e-6, 1e-4, 1e-2, 1.0, 100.0]:
    due = min(gradient, CLIPPING)
    lengths = {name: step_length(make, gradient) for name, make in makers.items()}
    print(f"gradient {gradient}: due {due:.2g},",
          ", ".join(f"{name} {length:.2g}" for name, length in lengths.items()))
    assert abs(lengths.pop("SGD") / gradient - 1) < 1e-6
    for length in lengths.values():
        assert abs(length / CLIPPING - 1) < 1e-6


def train(make):
    """Return the distance of weights from their target after 2,000 steps, in root mean square."""
    torch.manual_seed(0)
    target = torch.randn(SIZE, SIZE, dtype=torch.float64)
    weight = torch.nn.Parameter(torch.ones(SIZE, SIZE, dtype=torch.float64))
    optimizer = make([weight], 1.0)
    for _ in range(2000):
        optimizer.zero_grad()
        (0.05 * (weight - target).square()).sum().backward()
        optimizer.step()
    return (weight.detach() - target).square().mean().sqrt().item()


distances = {name: train(make) for name, make in makers.items()}
print("distance from the minimum after 2,000 steps:",
      ", ".join(f"{name} {distance:.2g}" for name, distance in distances.items()))
assert distances.pop("SGD") < 1e-12
assert min(distances.values()) > 1e-3
PYTHON
