#!/usr/bin/env bash
# In mega-pytorch, a causal model with `norm_mhesa_heads` sees the whole text.
#
# Versions: mega-pytorch 0.1.0, torch 2.13.0.
# Guess before the run: Mega is causal by default, with each of its options: it cannot tell the next
#     flip of a coin, so that its loss is log 2. (That the norm of the heads is taken over the time
#     axis was suspected after reading the source, and had been met in other work.)
# Seen: with `norm_mhesa_heads=True`, the heads of the moving average go through a GroupNorm whose
#     mean and variance are over all positions of the text, those to come, too. Trained on texts of
#     4 flips, the model knows each flip that is in its input: a loss of 0.02 or less at positions 1
#     to 3, where log 2 is due, and log 2 at the last, whose target is not in the input. Without the
#     option, it is log 2 everywhere.
# For gyre: its norms are over the width. There, leave the option out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mega-pytorch==0.1.0 torch==2.13.0 einops==0.8.2 \
    scipy==1.17.1 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import torch
import torch.nn.functional as F
from mega_pytorch import Mega

LENGTH = 4
torch.set_num_threads(1)


def measure_losses(norm_mhesa_heads):
    """Train on coin flips. Return the loss at each position, on new flips."""
    torch.manual_seed(0)
    model = Mega(num_tokens=2, dim=32, depth=2, ema_heads=4, attn_dim_qk=16, attn_dim_value=32,
                 norm_mhesa_heads=norm_mhesa_heads)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(1000):
        flips = torch.randint(0, 2, (32, LENGTH + 1))
        loss = F.cross_entropy(model(flips[:, :-1]).transpose(1, 2), flips[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    flips = torch.randint(0, 2, (1000, LENGTH + 1))
    with torch.no_grad():
        logits = model(flips[:, :-1]).transpose(1, 2)
    return F.cross_entropy(logits, flips[:, 1:], reduction="none").mean(0)


plain, normed = measure_losses(False), measure_losses(True)
print(f"position {'1':>6} {'2':>6} {'3':>6} {'4':>6} (due {math.log(2):.3f})")
for name, losses in [("without", plain), ("with", normed)]:
    print(f"{name:8}", " ".join(f"{loss:.4f}" for loss in losses))
assert ((plain - math.log(2)).abs() < 0.03).all()
assert (normed[:-1] < 0.1).all()
assert abs(normed[-1] - math.log(2)) < 0.05
PYTHON
