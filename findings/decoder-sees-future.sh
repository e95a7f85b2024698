#!/usr/bin/env bash
# Four options of x-transformers let a Decoder see the tokens to come.
#
# Versions: x-transformers 2.31.10, torch 2.13.0.
# Guess before the run: a Decoder, which is always causal, is so with each of its options: a later
#     token changes no earlier output. (All that are on or off were tried, none was suspected.)
# Seen: orthog_residual, attn_orthog_projected_values and the same per head take a whole sequence as
#     one vector and subtract a projection on it, instead of token by token; mv_split_residual
#     subtracts the mean over the sequence. One changed token changes all outputs before it.
#     Trained on coin flips, such a model has a loss of less than 0.001 nats on tokens that are in
#     its input, where log 2 = 0.69 is the best there is, and 0.69 on the next one, which is not. So
#     the losses of a training and of a validation say nothing about the text it generates.
# For gyre: its residuals are sums. There, change the last token and compare the outputs before it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile x-transformers==2.31.10 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - 2> "$folder/errors.txt" <<'PYTHON' \
    || { cat "$folder/errors.txt"; exit 1; }
import math

import torch
import torch.nn.functional as F
from x_transformers import Decoder, TransformerWrapper

LENGTH = 4
N_STEPS = 600
N_ROWS = 128
torch.set_num_threads(1)


def flip(generator):
    return torch.randint(0, 2, (N_ROWS, LENGTH + 1), generator=generator)


def train(options):
    """Return a model that is trained on coin flips, all rows new."""
    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, **options)
    model = TransformerWrapper(num_tokens=2, max_seq_len=16, attn_layers=layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(N_STEPS):
        rows = flip(generator)
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


names = ["orthog_residual", "attn_orthog_projected_values",
         "attn_orthog_projected_values_per_head", "mv_split_residual"]
for options in [{}, *({name: True} for name in names)]:
    model = train(options)
    rows = flip(torch.Generator().manual_seed(2))
    changed = rows.clone()
    changed[:, -2] = 1 - changed[:, -2]
    with torch.no_grad():
        logits = model(rows[:, :-1])
        difference = (model(changed[:, :-1]) - logits)[:, :-1].abs().max().item()
        losses = F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none").mean(0)
    inside = losses[:-1].mean().item()
    after = losses[-1].item()
    print(f"{options}: if the last token changes, logits before it change by {difference:.2g}; "
          f"loss on tokens in the input {inside:.4f}, on the one behind it {after:.2f}; "
          f"log 2 = {math.log(2):.2f}")
    if options:
        assert difference > 1 and inside < 0.05
    else:
        assert difference < 1e-4 and inside > 0.67
    assert after > 0.67
PYTHON
