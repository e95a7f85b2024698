#!/usr/bin/env bash
# The autoregressive Transformer of mixture-of-attention sees tokens to come through its router.
#
# Versions: mixture-of-attention 0.0.25, torch 2.13.0.
# Guess before the run: MixtureOfAutoregressiveAttention is autoregressive: outputs do not change
#     with a later token, and the next flip of a coin costs log 2. (That its router looks ahead was
#     suspected after reading the source, and had been met in other work.)
# Seen: within a window, experts choose tokens, and the score of each depends on all scores of the
#     window, those of later tokens, too. In a new model, another last token moves outputs before it
#     by more than their deviation. Trained on coin flips, the model ends far below log 2 at
#     positions of the second window whose target is in the input, and at log 2 in the first window,
#     which is not routed, and at the last position.
# For gyre: it routes no tokens. There, nothing makes it causal; `routed_window_size` of the length
#     of the texts leaves local attention alone, which is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mixture-of-attention==0.0.25 torch==2.13.0 \
    colt5-attention==0.11.2 local-attention==1.11.2 einops==0.8.2 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import torch
import torch.nn.functional as F
from mixture_of_attention.transformer import Transformer

WINDOW = 4
LENGTH = 8
N_STEPS = 600
torch.set_num_threads(1)


def make_model(routed_window_size):
    torch.manual_seed(0)
    return Transformer(num_tokens=2, dim=32, depth=2, dim_head=16, heads=2, seq_len=LENGTH,
                       num_experts=2, local_attn_window_size=WINDOW,
                       routed_window_size=routed_window_size, num_routed_queries=2,
                       num_routed_key_values=2, use_triton=False)


def measure_losses(model):
    """Train on coin flips. Return the loss at each position, on new flips."""
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(N_STEPS):
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


print(f"due at each position: {math.log(2):.3f}")
results = {}
for name, size in [("window 4", WINDOW), ("window 8", LENGTH)]:
    model = make_model(size)
    flips = torch.randint(0, 2, (100, LENGTH))
    other = flips.clone()
    other[:, -1] = 1 - other[:, -1]
    with torch.no_grad():
        outputs = model(flips)
        change = (model(other) - outputs)[:, :-1].square().mean(0).sqrt().amax() / outputs.std()
    losses = measure_losses(model)
    results[name] = change, losses
    print(f"{name}: another last token moves outputs before it by {change:.2f} deviations; losses "
          + " ".join(f"{loss:.3f}" for loss in losses))

change, losses = results["window 4"]
assert change > 0.3
assert (losses[WINDOW:-1] < 0.6).all()
assert ((losses[:WINDOW] - math.log(2)).abs() < 0.05).all()
assert abs(losses[-1] - math.log(2)) < 0.1
change, losses = results["window 8"]
assert change < 1e-4
assert ((losses - math.log(2)).abs() < 0.05).all()
PYTHON
