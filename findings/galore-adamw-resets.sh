#!/usr/bin/env bash
# galore-adamw takes steps several times too large after each projection, and "reverse" is wrong.
#
# Versions: galore-adamw 0.1.0, torch 2.13.0.
# Guess before the run: with a constant gradient, all steps of Adam, with bias correction, have one
#     size, the learning rate, before and after a new projection; 8-bit states change little;
#     proj_type="reverse" projects columns onto the right singular vectors, and keeps as much of a
#     gradient as "std". (The first and the last were suspected to be wrong after reading.)
# Seen: moments are set to zero by each new projection (every 200 steps), the count of the bias
#     correction isn't: the second moment is then too small for hundreds of steps. Steps are 1.00
#     times the learning rate before the first one, 1.35 to 2.87 times after it, and up to 4.9 times
#     after 800 steps. With 8-bit states, they are up to 5.1 times before it, and 9.6 after 800
#     steps: small second moments of a block are rounded to zero, or not changed by 0.1 % a step.
#     For "reverse", left singular vectors are taken as right ones: of a gradient of rank 3, 8 % of
#     the squared norm is left, with rank 8 (a matrix that isn't square fails).
# For gyre: it has no low-rank optimizer. There, take GaLore of its authors' package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps galore-adamw==0.1.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from galore_adamw import GaLoreAdamW, GaLoreConfig

LR = 1e-3
RANK = 8
COLUMNS = 48
STEPS = 1000
torch.set_num_threads(1)
torch.manual_seed(0)


def config(**options):
    return GaLoreConfig(lr=LR, rank=RANK, adaptive_rank=False, weight_decay=0.0, **options)


def step_sizes(optimizer, weight, gradient):
    sizes = []
    for _ in range(STEPS):
        old = weight.detach().clone()
        weight.grad = gradient.clone()
        optimizer.step()
        # each element in the subspace should move by the learning rate
        size = (weight.detach() - old).norm() / (LR * (RANK * COLUMNS) ** 0.5)
        sizes.append(size.item())
    return sizes


gradient = torch.randn(64, COLUMNS) / 100
for has_8bit_states in [False, True]:
    weight = torch.nn.Parameter(torch.zeros(64, COLUMNS))
    optimizer = GaLoreAdamW([weight], config(use_8bit_states=has_8bit_states))
    sizes = step_sizes(optimizer, weight, gradient)
    print(f"8-bit states: {has_8bit_states}; steps in multiples of the learning rate:")
    for start in range(0, STEPS, 200):
        # a new projection is made at steps 200, 400, ..., counted from 1
        part = sizes[max(start - 1, 0):start + 199]
        print(f"    after step {start}: {min(part):.2f} to {max(part):.2f}")
    if not has_8bit_states:
        assert abs(min(sizes[:199]) - 1) < 0.01 and abs(max(sizes[:199]) - 1) < 0.01
        assert max(sizes[199:399]) > 2.5 and max(sizes[799:]) > 4
    else:
        assert max(sizes[:199]) > 3

# a gradient of rank 3, with little noise
gradient = torch.randn(64, 3) @ torch.randn(3, 64) + 0.01 * torch.randn(64, 64)
for kind in ["std", "reverse"]:
    weight = torch.nn.Parameter(torch.zeros(64, 64))
    weight.grad = gradient.clone()
    optimizer = GaLoreAdamW([weight], config(proj_type=kind))
    optimizer.step()
    projector = optimizer.state[weight]["projector"]
    projected = projector.T @ gradient if kind == "std" else gradient @ projector
    kept = (projected.norm() ** 2 / gradient.norm() ** 2).item()
    print(f"{kind}: {kept:.3f} of the squared norm of a gradient of rank 3 is left")
    assert kept > 0.99 if kind == "std" else kept < 0.3
right = torch.linalg.svd(gradient).Vh[:RANK].T
kept = ((gradient @ right).norm() ** 2 / gradient.norm() ** 2).item()
print(f"by right singular vectors: {kept:.3f}")
assert kept > 0.99
PYTHON
