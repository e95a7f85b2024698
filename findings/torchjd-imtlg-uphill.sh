#!/usr/bin/env bash
# With IMTL-G of torchjd, two tasks that are alike let a training raise all losses.
#
# Versions: torchjd 0.18.0, torch 2.13.0.
# Guess before the run: the step of IMTL-G has the same projection on each gradient, and goes downhill: if a
#     direction lowers all losses, it finds one. (That the weights' sum may be negative was suspected after
#     reading the source.)
# Seen: weights are divided by their sum, as in the paper. If two gradients are nearly the same and one is
#     shorter, as with a second loss for the same thing with a factor of 0.1, the sum is negative in 20 % of
#     the cases, or 40 %: the step is turned around and goes uphill on all losses by the same
#     amount, while the mean of the gradients would lower all. Of 40 trainings with three quadratic losses,
#     8 end with all three higher than at the start; with the factor 1, none does.
# For gyre: it has one loss. There, take UPGrad, or turn the step if its product with a gradient is negative.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchjd==0.18.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
from torchjd.aggregation import IMTLG

WIDTH, N_CALLS, N_RUNS = 100, 400, 40
torch.set_num_threads(1)
combine = IMTLG()


def gradients(noise, factor):
    """Return three gradients with a common part, the third a noisy copy of the first times a factor."""
    first, second = torch.randn(2, WIDTH) + 0.5
    return torch.stack([first, second, factor * (first + noise * torch.randn(WIDTH))])


def due(matrix):
    """Return the direction with equal projections on all rows, in float64, that goes downhill."""
    rows = matrix.double().numpy()
    lengths = np.linalg.norm(rows, axis=1)
    return rows.T @ np.linalg.solve(rows @ rows.T, lengths)


torch.manual_seed(0)
print("noise, factor: share of steps that raise all losses, of means of gradients that do; cosine with due")
shares = {}
for noise, factor in [(1.0, 1.0), (1.0, 0.1), (0.1, 1.0), (0.1, 0.1), (0.03, 0.1)]:
    uphill = mean_uphill = 0
    cosines = []
    for _ in range(N_CALLS):
        matrix = gradients(noise, factor)
        step, right = combine(matrix), due(matrix)
        assert (matrix.double().numpy() @ right > 0).all()
        uphill += (matrix @ step < 0).all().item()
        mean_uphill += (matrix @ matrix.mean(0) < 0).any().item()
        cosines.append(step.double().numpy() @ right / np.linalg.norm(right) / step.norm().item())
    shares[noise, factor] = uphill / N_CALLS
    print(f"{noise}, {factor}: {uphill / N_CALLS:.2f}, {mean_uphill / N_CALLS:.2f}; "
          f"{min(cosines):.2f} to {max(cosines):.2f}")
assert shares[1.0, 1.0] == shares[0.1, 1.0] == 0
assert shares[0.1, 0.1] > 0.1 and shares[0.03, 0.1] > 0.25


def train(factor):
    """Return whether 200 steps on three quadratic losses end with all of them higher."""
    first, second = torch.randn(2, WIDTH)
    weights = 3 * torch.randn(WIDTH)
    targets = torch.stack([first, second, first + 0.1 * torch.randn(WIDTH)])
    factors = torch.tensor([1.0, 1.0, factor])
    start = (weights - targets).square().sum(1)
    for _ in range(200):
        weights = weights - 0.1 * combine(factors[:, None] * (weights - targets))
    return ((weights - targets).square().sum(1) > start).all().item()


raised = {factor: sum(train(factor) for _ in range(N_RUNS)) for factor in [1.0, 0.1]}
print(f"trainings of {N_RUNS} that raise all losses: factor 1: {raised[1.0]}, 0.1: {raised[0.1]}")
assert raised[1.0] == 0 and raised[0.1] >= 4
PYTHON
