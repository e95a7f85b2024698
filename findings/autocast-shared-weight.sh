#!/usr/bin/env bash
# Under autocast, the gradients of a weight that is used several times add up in bfloat16.
#
# Version: torch 2.13.0.
# Guess before the run: a parameter in float32 that a forward pass uses 1000 times under autocast to
#     bfloat16, as the layer of a recurrent or a looped model, has the sum of 1000 gradients, within
#     0.5 %: it is in float32, and so is its gradient.
# Seen: 256, where each use contributes 1. Autocast converts a leaf once and keeps the copy. The
#     gradients of all uses meet at this copy, which is bfloat16, so their sum stands still at 256:
#     256 + 1 is 256 there. With cache_enabled=False, or if the weight is multiplied by 1 before its
#     uses, it is 1000. So it is if one call does all the products.
# For gyre: no matrix is used twice by autocast's products, and tied embeddings are looked up
#     without autocast. Layers that read one input share a copy of it, whose gradients we add in
#     float32.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" - <<'PYTHON'
import torch
import torch.nn.functional as F


def gradient(uses, cache_enabled=True, convert=lambda weight: weight):
    """The gradient of a weight (1, 1) that each use multiplies by 1."""
    parameter = torch.nn.Parameter(torch.ones(1, 1))
    weight = convert(parameter)
    x = torch.ones(1, 1)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=cache_enabled):
        total = torch.zeros(())
        for _ in range(uses):
            total = total + F.linear(x, weight).float().sum()
    total.backward()
    assert parameter.grad.dtype == torch.float32
    return parameter.grad.item()


for uses in (200, 256, 300, 1000, 4000):
    print(f"{uses} uses: {gradient(uses)}; without the cache: {gradient(uses, False)}")
    assert gradient(uses) == min(uses, 256)
    assert gradient(uses, False) == uses
print("a product of the weight and 1:", gradient(1000, convert=lambda weight: weight * 1))
assert gradient(1000, convert=lambda weight: weight * 1) == 1000

parameter = torch.nn.Parameter(torch.ones(1, 1))
with torch.autocast("cpu", torch.bfloat16):
    F.linear(torch.ones(1000, 1), parameter).float().sum().backward()
print("one call:", parameter.grad.item())
assert parameter.grad.item() == 1000
PYTHON
