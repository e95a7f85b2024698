#!/usr/bin/env bash
# DAdaptLion has no momentum: its steps follow the sign of the last gradient.
#
# Versions: dadaptation 3.2, torch 2.13.0.
# Guess before the run: a step is that of Lion at the rate that is found: the sign of 0.9 m + 0.1 g, with m a mean of
#     gradients. With noise, it often differs from the sign of the last gradient, and weights in another unit make
#     the same steps in that unit. (That m is scaled by the rate was read in the source before the run.)
# Seen: where gradients are noise for the most part, Lion's steps have the sign of the last gradient in 87 % of
#     all cases. DAdaptLion's have it in 98 % for weights around 1, in 99.98 % for weights around 0.01, and in
#     all of 400,000 for weights around 0.0001, the size of adapters: from `betas=(0.9, 0.99)` to
#     `(0.0, 0.99)`, nothing changes. Then it is sign descent without momentum, in the authors' own package.
# Cause: the average takes the gradients times d * lr, which begins at 1e-6, and is added to the gradient as it is:
#     `exp_avg.clone().mul_(beta1).add_(grad, alpha=(1-beta1))` (dadapt_lion.py). adv-lion 0.1.1 has copied
#     it (read).
# For gyre: it has no Lion. There, take Lion and tune its rate.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 setuptools==80.9.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps dadaptation==3.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from dadaptation import DAdaptLion

torch.set_num_threads(1)
N_WEIGHTS, N_STEPS = 400, 1000


class Lion:
    """Lion as in its paper, with a given rate for each step."""

    def __init__(self, weights, beta1, rates):
        self.weights, self.beta1, self.rates = weights, beta1, iter(rates)
        self.mean = torch.zeros_like(weights)

    @torch.no_grad()
    def step(self):
        gradient = self.weights.grad
        self.weights -= next(self.rates) * (self.beta1 * self.mean + (1 - self.beta1) * gradient).sign()
        self.mean = 0.99 * self.mean + 0.01 * gradient


def train(unit, beta1, rates=None):
    """Return the share of steps with the sign of the last gradient, the error in units, and the rates."""
    torch.manual_seed(0)
    target, noise = torch.randn(N_WEIGHTS), torch.Generator().manual_seed(1)
    weights = torch.nn.Parameter(torch.zeros(N_WEIGHTS))
    if rates is None:
        optimizer = DAdaptLion([weights], lr=1.0, betas=(beta1, 0.99), d0=1e-6 * unit)
    else:
        optimizer = Lion(weights, beta1, rates)
    n_same, used = 0, []
    for _ in range(N_STEPS):
        before = weights.detach().clone()
        weights.grad = before / unit - target + 3 * torch.randn(N_WEIGHTS, generator=noise)
        if rates is None:
            used.append(optimizer.param_groups[0]["d"])
        optimizer.step()
        n_same += ((before - weights.detach()).sign() == weights.grad.sign()).sum().item()
    error = (weights.detach() / unit - target).square().mean().sqrt().item()
    return n_same / (N_STEPS * N_WEIGHTS), error, used


shares = []
for unit in [1.0, 1e-2, 1e-4]:
    share, error, used = train(unit, 0.9)
    lion_share, lion_error, _ = train(unit, 0.9, used)
    without, error_without, _ = train(unit, 0.0)
    shares.append(share)
    print(f"weights around {unit}: rates up to {used[-1]:.1e}; steps with the sign of the last gradient {share:.4%}, "
          f"with Lion at these rates {lion_share:.1%}; error {error:.4f}, with beta1 = 0 {error_without:.4f}")
    assert lion_share < 0.95 and without == 1
assert shares[0] < 0.999 < shares[1] < shares[2]
assert abs(error - error_without) < 1e-3 * error
PYTHON
