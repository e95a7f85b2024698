#!/usr/bin/env bash
# In vit-pytorch's rotary ViT, a patch is as unlike its neighbour as the far corner.
#
# Versions: vit-pytorch 1.26.14, torch 2.13.0.
# Guess before the run: with the defaults, two equal patches have a product near one side by side,
#     and a lower one the farther they are apart, as RoPE has in general. (That it has not was
#     suspected after reading the source.)
# Seen: the product is 0 on average from one patch on, with no trend in the distance. The
#     frequencies go from 1 to 10,000 radians per patch, the reciprocals of RoPE's, and the
#     positions are whole numbers, so seven of eight channels turn by more than half a turn per
#     patch and are aliases. Attention still sees distances only, but what it learns of one says
#     nothing of the next. With rope_min_freq=1e-4 and rope_max_freq=1, neighbours have 0.98, and
#     patches twelve apart 0.72. No warning.
# For gyre: it has text only, with frequencies from 1 down. There, give both frequencies.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps vit-pytorch==1.26.14
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.2
"$folder/env/bin/python" - <<'PYTHON'
import math
import sys
import types

import torch

# The model needs no torchvision, and importing the package does.
sys.modules["torchvision"] = types.ModuleType("torchvision")
sys.modules["torchvision"].transforms = types.ModuleType("transforms")
from vit_pytorch.vit_nd_rotary import ViTND  # noqa: E402

N_HEADS = 8
HEAD_WIDTH = 64
GRID = 16  # patches at a side


def products_by_distance(**frequencies):
    """Return products of equal patches (H, N, N), distances (N, N) and frequencies."""
    model = ViTND(ndim=2, input_shape=16 * GRID, patch_size=16, num_classes=2, dim=64, depth=1,
                  heads=N_HEADS, mlp_dim=64, **frequencies)
    side = torch.arange(GRID).float()
    places = torch.cartesian_prod(side, side)
    turned = model.rotary_emb(torch.ones(1, N_HEADS, GRID ** 2, HEAD_WIDTH), places[None])[0]
    frequencies = model.rotary_emb.freqs
    return turned @ turned.mT / HEAD_WIDTH, torch.cdist(places, places), frequencies


means = {}
for name, options in [("defaults", {}),
                      ("1e-4 to 1", {"rope_min_freq": 1e-4, "rope_max_freq": 1.0})]:
    products, distances, frequencies = products_by_distance(**options)
    turns = (frequencies.norm(dim=-1) > math.pi).float().mean().item()
    print(f"{name}: {turns:.0%} of the channels turn by more than half a turn per patch")
    for low, high in [(0.9, 1.1), (3.9, 4.1), (7.9, 8.1), (12, 99)]:
        chosen = products[:, (distances > low) & (distances < high)]
        means[name, low] = chosen.mean().item()
        print(f"    {low} to {high} patches apart: equal patches have a product of "
              f"{means[name, low]:.2f} +- {chosen.std():.2f}")

assert max(abs(mean) for (name, _), mean in means.items() if name == "defaults") < 0.05
assert means["1e-4 to 1", 0.9] > 0.95 and means["1e-4 to 1", 12] < 0.8
PYTHON
