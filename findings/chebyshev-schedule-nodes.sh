#!/usr/bin/env bash
# The Chebyshev schedule of pytorch_optimizer takes its longest step three times and leaves out two.
#
# Versions: pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: get_chebyshev_schedule(optimizer, 8) gives each of the 8 Chebyshev steps once
#     (Agarwal et al. 2021, arXiv:2103.01338): on a quadratic with eigenvalues from 0.05 to 1, gradient
#     descent multiplies each error by 0.053 at most, where the best constant rate has 0.45. (That it
#     does not was suspected after reading the source.)
# Seen: epochs 0, 1 and 2 have one rate, the longest, which is 17 times the shortest, and two of the
#     others never come. With 8 epochs, errors grow 64 times, with 4 epochs 2,283 times and with 16
#     epochs 4.7 times, where 0.001 is due. With 10 epochs, the rates are 8 of the 16 steps that
#     belong to 16 epochs.
# For gyre: it has no such schedule. There, set the rates 1 / (c - r cos(pi (i + 0.5) / n)) by a
#     LambdaLR of one's own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pytorch_optimizer==4.1.0 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
from pytorch_optimizer import get_chebyshev_schedule

SMALLEST, LARGEST = 0.05, 1.0  # the bounds of the spectrum that the schedule assumes
eigenvalues = np.linspace(SMALLEST, LARGEST, 1001)
torch.set_num_threads(1)


def train(epochs):
    """Return the rates, and the largest factor of an error over the spectrum, by real steps."""
    weight = torch.nn.Parameter(torch.ones(len(eigenvalues), dtype=torch.float64))
    curvature = torch.from_numpy(eigenvalues)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = get_chebyshev_schedule(optimizer, epochs)
    rates = []
    for _ in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        (0.5 * curvature * weight.square()).sum().backward()
        optimizer.step()
        schedule.step()
    return rates, weight.abs().max().item()


def factor(rates):
    """Return the largest factor of an error over the spectrum after steps with these rates."""
    return np.abs(np.prod([1 - rate * eigenvalues for rate in rates], axis=0)).max()


for epochs in [4, 8, 16, 10]:
    rates, seen = train(epochs)
    angles = np.pi * (np.arange(epochs) + 0.5) / epochs
    due = 1 / ((LARGEST + SMALLEST) / 2 - (LARGEST - SMALLEST) / 2 * np.cos(angles))
    constant = factor([2 / (LARGEST + SMALLEST)] * epochs)
    print(f"{epochs} epochs: rates {np.round(rates, 2).tolist()}")
    print(f"    due, in some order: {np.round(due, 2).tolist()}")
    print(f"    largest factor {seen:.4g}; due {factor(due):.4g}; constant rate {constant:.4g}")
    bound = 1 / np.cosh(epochs * np.arccosh((LARGEST + SMALLEST) / (LARGEST - SMALLEST)))
    assert abs(factor(due) / bound - 1) < 1e-6
    assert rates[0] == rates[1] == rates[2] == max(rates)
    assert len(set(rates)) == epochs - 2
    assert abs(seen / factor(rates) - 1) < 1e-3
    assert seen > 4 and due.max() / due.min() > 11
    if epochs == 10:
        assert not any(np.isclose(rate, due).any() for rate in rates)
    else:
        assert all(np.isclose(rate, due).any() for rate in rates)
PYTHON
