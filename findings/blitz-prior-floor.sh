#!/usr/bin/env bash
# BLiTZ's prior lets go of weights beyond five deviations: it has no gradient there.
#
# Versions: blitz-bayesian-pytorch 0.2.8, torch 2.13.0, numpy 2.4.6.
# Guess before the run: with `prior_pi=1`, the default, the prior is a normal distribution with
#     `prior_sigma_1`, 0.1, and the complexity cost is the KL divergence from it, which pulls a mean
#     m with a gradient of m / 0.01: the farther away, the stronger. (That far ones are not pulled
#     was suspected after reading the source.)
# Seen: 1e-6 is added to the density of the prior before the logarithm. A mean of 0.6 is pulled with
#     11 where 60 is due, and one of 1 with nothing where 100 is due; it costs 15 nats, not 50.
#     Without data, means that begin at 0.4 are near 0 after 300 steps, and those that begin at 1
#     are where they were, until the deviations have grown so far that samples meet the prior. So the
#     largest weights, as those of a pretrained network, are the ones that no prior holds.
# For gyre: its weights have no distributions. There, give a larger `prior_sigma_1`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps blitz-bayesian-pytorch==0.2.8
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import torch
from blitz.losses import kl_divergence_from_nn
from blitz.modules import BayesianLinear

PRIOR, SIGMA, WIDTH = 0.1, 0.05, 64
torch.set_num_threads(1)


def make_layer(mean, sigma):
    """Return a layer whose weights all have this mean and standard deviation."""
    torch.manual_seed(0)
    layer = BayesianLinear(WIDTH, WIDTH, bias=False)
    torch.nn.init.constant_(layer.weight_mu, mean)
    torch.nn.init.constant_(layer.weight_rho, math.log(math.expm1(sigma)))
    return layer


def divergence(layer):
    layer(torch.zeros(1, WIDTH))
    return kl_divergence_from_nn(layer)


seen = {}
for mean in [0.1, 0.3, 0.45, 0.6, 1.0]:
    layer = make_layer(mean, SIGMA)
    cost = divergence(layer)
    cost.backward()
    seen[mean] = cost.item() / WIDTH**2, layer.weight_sampler.mu.grad.mean().item()
    due = math.log(PRIOR / SIGMA) + (SIGMA**2 + mean**2) / (2 * PRIOR**2) - 0.5
    print(f"mean {mean:4.2f}: {seen[mean][0]:6.2f} nats a weight where {due:6.2f} are due; "
          f"gradient {seen[mean][1]:6.2f} where {mean / PRIOR**2:6.2f} is due")
    if mean <= 0.3:
        assert abs(seen[mean][0] - due) < 0.1
assert seen[0.6][1] < 20 and abs(seen[1.0][1]) < 0.01 and 14 < seen[1.0][0] < 17

for start in [0.4, 1.0]:
    layer = make_layer(start, 0.001)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        divergence(layer).backward()
        optimizer.step()
    mean = layer.weight_mu.mean().item()
    sigma = torch.nn.functional.softplus(layer.weight_rho).mean().item()
    print(f"without data, from mean {start}: after 300 steps mean {mean:.3f}, deviation "
          f"{sigma:.3f}")
    assert abs(mean) < 0.05 if start < 0.5 else abs(mean - start) < 0.001
PYTHON
