#!/usr/bin/env bash
# The burn-in of torch-uncertainty's SGHMC counts tensors, not steps.
#
# Versions: torch-uncertainty 0.13.0, torch 2.13.0. The file of the sampler is loaded alone: the
#     package imports Lightning.
# Guess before the run: with burn_in_steps=200, the default, the squared gradients by which each
#     step is scaled are estimated for 200 steps, whatever the number of tensors. (The opposite was
#     suspected after reading the source.)
# Seen: the counter grows by one with each tensor of each step. With 100 tensors, burn-in is over
#     after two steps. With 300 it ends within the first one, and a hundred tensors never have an
#     estimate: with gradients of 0.001, these are scaled by 1 for ever, those of the tensors in
#     front of them by nearly 600. Nothing is said. With one tensor, burn-in has 200 steps.
# For gyre: it does not sample. There, give the number of steps times that of tensors.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torch-uncertainty==0.13.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
from importlib.metadata import distribution

import torch

BURN_IN = 200  # the default
GRADIENT = 1e-3
torch.set_num_threads(1)
torch.manual_seed(0)
file = distribution("torch-uncertainty").locate_file("torch_uncertainty/optim/sghmc.py")
spec = importlib.util.spec_from_file_location("loaded", file)
loaded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loaded)


def sample(n_tensors, n_steps):
    """Return how many steps of burn-in each tensor has, and the scale of its steps."""
    weights = [torch.nn.Parameter(torch.zeros(4)) for _ in range(n_tensors)]
    optimizer = loaded.SGHMC(weights, lr=0.01, noise_factor=1e-6)
    n_burn_in = [0] * n_tensors
    for step in range(n_steps):
        for weight in weights:
            # Another gradient in each step, so that an estimate that goes on changes.
            weight.grad = torch.full_like(weight, GRADIENT * (1 + 0.1 * (step % 2)))
        before = [dict(optimizer.state[weight]).get("v_hat", torch.ones(4)).clone()
                  for weight in weights]
        optimizer.step()
        for index, weight in enumerate(weights):
            n_burn_in[index] += not torch.equal(before[index], optimizer.state[weight]["v_hat"])
    return n_burn_in, [optimizer.state[weight]["v_hat"].mean().item() ** -0.5 for weight in weights]


counts = {}
for n_tensors, n_steps in [(1, 210), (100, 10), (300, 10)]:
    counts[n_tensors], scales = sample(n_tensors, n_steps)
    print(f"{n_tensors} tensors, {n_steps} steps: the estimate changes in {counts[n_tensors][0]} "
          f"steps for the first, in {counts[n_tensors][-1]} for the last; gradients are scaled by "
          f"{scales[0]:.3g} and {scales[-1]:.3g}")
    assert sum(counts[n_tensors]) == BURN_IN
assert counts[1] == [200] and counts[100] == [2] * 100
assert counts[300] == [1] * 200 + [0] * 100
assert scales[0] > 500 and scales[-1] == 1
PYTHON
