#!/usr/bin/env bash
# In pytorch_optimizer, BSAM goes uphill: with its default options, a loss of 0.05 becomes 370.
#
# Versions: pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: BSAM perturbs the weights, takes the gradient there, and goes downhill from
#     where it was (Möllenhoff and Khan 2023, arXiv:2210.01620). The decay is added to the gradient, so
#     that the default of 0.0001 hardly matters. (That neither holds was suspected after reading the
#     source.)
# Seen: the perturbation of sharpness-aware minimization, rho times the gradient uphill, is never taken
#     back, and neither is the noise. The gradient of the step downhill is multiplied by `weight_decay`:
#     with 0.0001, a step of 0.00005 times the gradient is left of the rate of 0.5, against one of 0.05
#     uphill. With `weight_decay=0`, no gradient counts at all. With `weight_decay=1`, the optimizer
#     minimizes.
# For gyre: it has no SAM. There, take SAM of the same package, or IVON.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pytorch_optimizer==4.1.0 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from pytorch_optimizer import BSAM, SAM

WIDTH, ROWS = 10, 1_000_000
torch.set_num_threads(1)
target = torch.linspace(-1, 1, WIDTH, dtype=torch.float64)


def train(make, steps=100):
    """Return the losses every 20 steps, from weights that are 0.1 above their targets."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(target + 0.1)
    optimizer = make([weight])

    def closure():
        optimizer.zero_grad()
        loss = 0.5 * (weight - target).square().sum()
        loss.backward()
        return loss

    losses = []
    for step in range(steps + 1):
        if step % 20 == 0:
            losses.append(0.5 * (weight.detach() - target).square().sum().item())
        closure()
        optimizer.step(closure)
    return losses


runs = {
    "BSAM": lambda weights: BSAM(weights, num_data=ROWS),
    "BSAM, weight_decay=0": lambda weights: BSAM(weights, num_data=ROWS, weight_decay=0.0),
    "BSAM, lr=0": lambda weights: BSAM(weights, num_data=ROWS, lr=0.0),
    "BSAM, weight_decay=1": lambda weights: BSAM(weights, num_data=ROWS, weight_decay=1.0),
    "SAM": lambda weights: SAM(weights, torch.optim.SGD, lr=0.1),
}
losses = {name: train(make) for name, make in runs.items()}
for name, values in losses.items():
    print(f"{name:21}", " ".join(f"{value:.3g}" for value in values))
for name in ["BSAM", "BSAM, weight_decay=0", "BSAM, lr=0"]:
    assert losses[name][-1] > 200 and losses[name] == sorted(losses[name])
assert abs(losses["BSAM"][-1] / losses["BSAM, weight_decay=0"][-1] - 1) < 0.05
assert losses["BSAM, weight_decay=1"][-1] < 0.02 and losses["SAM"][-1] < 0.01

# One step, with the noise of a million rows: from 0.1 above the target, the weight goes up by
# rho * 0.1, although the only step downhill begins there.
weight = torch.nn.Parameter(target + 0.1)
optimizer = BSAM([weight], num_data=ROWS, rho=0.05)


def closure():
    optimizer.zero_grad()
    loss = 0.5 * (weight - target).square().sum()
    loss.backward()
    return loss


closure()
optimizer.step(closure)
move = (weight.detach() - target - 0.1).mean().item()
print(f"first step: {move:.5f}, uphill; rho times the gradient is {0.05 * 0.1:.5f}")
assert abs(move - 0.005) < 2e-5
PYTHON
