#!/usr/bin/env bash
# Two penalties of Torch-Pruning: one never reaches the scales of BatchNorm, one ignores its option.
#
# Versions: torch-pruning 1.6.1, torch 2.13.0.
# Guess before the run: `GrowingRegPruner.regularize` adds each channel's penalty times the weight
#     to the gradients of convolutions and of BatchNorm; `GroupNormPruner(alpha=a)` multiplies the
#     penalty of the weakest channel by 2^a, as its docstring says ("[2^0, 2^alpha]"). (Both were
#     suspected after reading the source.)
# Seen: GrowingRegPruner adds the penalty of BatchNorm to a copy: the gradients of its scales stay
#     as they were, bit for bit, however large the penalty is; those of convolutions are right. With
#     the scales out of the way, a convolution in front of BatchNorm can shrink without any effect.
#     GroupNormPruner stores its alpha and takes that of `regularize`, where it is not an exponent
#     but the factor itself, with a default of 2^4: every alpha is 4.
# For gyre: it prunes nothing. There, add gamma * weight to the gradients of BatchNorm by hand, and
#     give `regularize(model, alpha=2**a)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch-pruning==1.6.1 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
import torch_pruning
from torch import nn

REG = 0.1


def added_gradients(pruner, **options):
    """Return what a call of regularize adds to the gradients of zero."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    pruner.regularize(model, **options)
    return [model[0].weight.grad.clone(), model[1].weight.grad.clone()]


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
nn.init.uniform_(model[1].weight, 0.5, 1.5)
image = torch.randn(2, 3, 8, 8)
importance = torch_pruning.importance.GroupMagnitudeImportance()
convolution, scales = model[0].weight.detach(), model[1].weight.detach()

growing = torch_pruning.pruner.GrowingRegPruner(
    model, image, importance, reg=REG, delta_reg=REG, ignored_layers=[model[3]])
for round_ in range(3):
    growing.update_reg()
    penalties = next(iter(growing.group_reg.values()))
    of_convolution, of_scales = added_gradients(growing)
    print(f"growing, round {round_}: norm of what is added to the convolution's gradient "
          f"{of_convolution.norm():.3f}, expected "
          f"{(penalties[:, None, None, None] * convolution).norm():.3f}; to that of the scales "
          f"{of_scales.norm():.3f}, expected {(penalties * scales).norm():.3f}")
    assert torch.allclose(of_convolution, penalties[:, None, None, None] * convolution)
    assert of_scales.eq(0).all() and (penalties * scales).norm() > 0.1

for alpha in (0, 1, 4, 8):
    pruner = torch_pruning.pruner.GroupNormPruner(
        model, image, importance, reg=REG, alpha=alpha, ignored_layers=[model[3]])
    factors = [(added_gradients(pruner, **options)[1] / (REG * scales)).max().item()
               for options in ({}, {"alpha": 2**alpha})]
    print(f"group norm, alpha={alpha}: the weakest channel is penalized {factors[0]:.1f} times as "
          f"much as the strongest, expected {2**alpha}; with regularize(alpha={2**alpha}) "
          f"{factors[1]:.1f} times")
    assert abs(factors[0] - 16) < 0.01 and abs(factors[1] - 2**alpha) < 0.1
PYTHON
