#!/usr/bin/env bash
# In vector-quantize-pytorch, the learned values of LatentQuantize never learn.
#
# Versions: vector-quantize-pytorch 1.32.0, torch 2.13.0.
# Guess before the run: `optimize_values=True`, the default, learns the values of each latent
#     dimension, as in the paper and in the README ("an individual learnable scalar codebook for
#     each dimension"). (That they have no gradient was suspected after reading the source.)
# Seen: they are parameters, and no loss reaches them: quantized values leave by a straight-through
#     step before both losses are taken, and both pull at the input. For latents six times as wide
#     as the initial grid, the values stay where they are, bit for bit, and a squared error of 2.75
#     remains, where values that learn by the paper's loss get to 0.27.
# For gyre: it quantizes nothing. There, scale the latents to between -0.5 and 0.5, or take FSQ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile vector-quantize-pytorch==1.32.0 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from vector_quantize_pytorch import LatentQuantize

LEVELS = [5, 8]
torch.set_num_threads(1)


def get_latents(n_rows):
    """Return latents near the points of a grid from -3 to 3, (1, dimension, row)."""
    grids = [torch.linspace(-0.5, 0.5, level) * 6 for level in LEVELS]
    rows = [grid[torch.randint(len(grid), (n_rows,))] for grid in grids]
    return (torch.stack(rows) + 0.05 * torch.randn(len(LEVELS), n_rows))[None]


def train(learn_by_hand):
    """Return values before and after, whether they have gradients, and the squared error."""
    torch.manual_seed(0)
    quantizer = LatentQuantize(levels=LEVELS, dim=len(LEVELS))
    values = list(quantizer.values_per_latent)
    before = [value.detach().clone() for value in values]
    optimizer = torch.optim.Adam(quantizer.parameters(), 0.01)
    for _ in range(1500):
        latents = get_latents(256).requires_grad_()
        _, _, loss = quantizer(latents)
        if learn_by_hand:  # the paper's quantization loss: values move to the latents
            for dimension, value in enumerate(values):
                row = latents.detach()[0, dimension]
                nearest = value[(row[:, None] - value).abs().argmin(1)]
                loss = loss + (nearest - row).square().mean()
        optimizer.zero_grad()
        loss.backward()
        has_gradients = [value.grad is not None for value in values]
        optimizer.step()
    quantizer.eval()
    latents = get_latents(4096)
    with torch.no_grad():
        error = (quantizer(latents)[0] - latents).square().mean().item()
    return before, [value.detach() for value in values], has_gradients, error


for learn_by_hand in (False, True):
    before, after, has_gradients, error = train(learn_by_hand)
    print("with the paper's loss by hand" if learn_by_hand else "LatentQuantize")
    print(f"    values have gradients: {has_gradients}; squared error of latents {error:.3f}")
    for start, end in zip(before, after):
        print("   ", [round(v, 2) for v in start.tolist()], "->",
              [round(v, 2) for v in end.tolist()])
    unchanged = all(torch.equal(start, end) for start, end in zip(before, after))
    if learn_by_hand:
        assert not unchanged and error < 0.5
    else:
        assert unchanged and not any(has_gradients) and error > 2
PYTHON
