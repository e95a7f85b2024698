#!/usr/bin/env bash
# qwantize's optimal NVFP4 deletes small weights, and its refinement is worse than its start.
#
# Versions: qwantize 0.1.1, torch 2.13.0.
# Guess before the run: `nvfp4_optimal` has the smallest squared error over all 126 scales; `nvfp4_admm`,
#     which "starts from the Hessian-aware optimal scale" and "further reduces output error beyond
#     nvfp4_optimal", has no larger an error of the output than these two.
# Seen: for weights with a deviation of 0.02, the smallest. For 0.005 it is 0.13 where 0.11 is possible,
#     for 0.003 it is 0.57 for 0.12, for 0.002 it is 0.96 for 0.15: blocks become zeros as a whole. The
#     refinement's outputs have an error of 0.089 where `nvfp4_optimal` has 0.081 and the Hessian-aware
#     one 0.078.
# Cause: the first scale, max / 6, is rounded to E4M3, and is 0 below 2 ** -10. Then its error is that of
#     zeros, and a block whose energy is not above it counts as noise, which is not searched. The
#     refinement starts at max / 6 instead (qwantize/nvfp4/reference.py).
# For gyre: its exports are not quantized. There, divide weights by a scale of the tensor before, and
#     leave `nvfp4_admm` out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps qwantize==0.1.1
export OMP_NUM_THREADS=1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import sys
from unittest.mock import MagicMock

import torch
import torch._dynamo  # before the stand-in

sys.modules["triton"] = sys.modules["triton.language"] = MagicMock()  # its kernels are not used here
import qwantize  # noqa: E402

SCALES = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()[1:]
LEVELS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
torch.manual_seed(0)
NOISE = torch.randn(64, 256)


def search_all(blocks):
    """Return the smallest relative error of the blocks over all scales."""
    best = blocks.square().sum(dim=1)
    for scale in SCALES:
        distances = (blocks.abs()[..., None] - scale * LEVELS).abs().amin(dim=-1)
        best = torch.minimum(best, distances.square().sum(dim=1))
    return (best.sum().sqrt() / blocks.norm()).item()


for deviation in [0.02, 0.005, 0.003, 0.002]:
    blocks = (NOISE * deviation).reshape(-1, 16)
    _, _, decoded = qwantize.nvfp4_optimal(blocks, return_dequant=True)
    error, smallest = ((decoded - blocks).norm() / blocks.norm()).item(), search_all(blocks)
    zeros = (decoded == 0).all(dim=1).float().mean().item()
    print(f"deviation {deviation}: error {error:.3f}, the smallest {smallest:.3f}; "
          f"{zeros:.0%} of blocks are zeros")
    if deviation == 0.02:
        assert abs(error - smallest) < 1e-4 and zeros == 0
    elif deviation < 0.005:
        assert error > 4 * smallest and smallest < 0.16

weights = NOISE * 0.1
inputs = torch.randn(2048, 64) @ torch.randn(64, 256) / 8 + 0.1 * torch.randn(2048, 256)
errors = {}
for name in ["nvfp4_naive", "nvfp4_optimal", "nvfp4_optimal_hessian", "nvfp4_admm"]:
    options = {"X": inputs} if name.endswith(("hessian", "admm")) else {}
    _, _, decoded = getattr(qwantize, name)(weights.reshape(64, 16, 16), return_dequant=True, **options)
    difference = inputs @ (decoded.reshape(64, 256) - weights).T
    errors[name] = (difference.norm() / (inputs @ weights.T).norm()).item()
    print(f"{name}: error of the output {errors[name]:.4f}")
assert errors["nvfp4_optimal_hessian"] < errors["nvfp4_optimal"] < 0.95 * errors["nvfp4_admm"]
PYTHON
