#!/usr/bin/env bash
# In reformer-pytorch, full attention has no positions.
#
# Versions: reformer-pytorch 1.4.4, torch 2.13.0.
# Guess before the run: `use_full_attn=True`, which the README offers for comparison, and
#     `full_attn_thres`, up to which length full attention is used, change how exact attention is,
#     and leave the rotary positions, which are the default, as they are. (That full attention
#     drops them was suspected after reading the source.)
# Seen: full attention is handed the positions and ignores them: a shuffled text has the shuffled
#     outputs, but for rounding. With `full_attn_thres`, one model has positions in long
#     texts and none in short ones. Hashed attention and learned positions tell the order.
# For gyre: its positions belong to every attention. There, give `absolute_position_emb=True`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile reformer-pytorch==1.4.4 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from reformer_pytorch import ReformerLM

VOCABULARY = 16
torch.set_num_threads(1)


def compare_shuffled(length, **options):
    """Return how far the outputs of a shuffled text are from the shuffled outputs."""
    torch.manual_seed(0)
    model = ReformerLM(num_tokens=VOCABULARY, dim=32, depth=2, max_seq_len=64, heads=2, dim_head=16,
                       bucket_size=8, n_hashes=4, ff_chunks=1, **options).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    text = torch.randint(0, VOCABULARY, (1, length))
    order = torch.randperm(length)
    with torch.no_grad():
        torch.manual_seed(1)
        outputs = model(text)[:, order]
        torch.manual_seed(1)
        shuffled = model(text[:, order])
    return ((outputs - shuffled).norm() / outputs.norm()).item()


for name, blind, options in [
        ("hashed attention", (False, False), {}),
        ("use_full_attn", (True, True), {"use_full_attn": True}),
        ("full_attn_thres=32", (True, False), {"full_attn_thres": 32}),
        ("use_full_attn, absolute_position_emb", (False, False),
         {"use_full_attn": True, "absolute_position_emb": True})]:
    errors = [compare_shuffled(length, **options) for length in (16, 64)]
    print(f"{name}: shuffled outputs are off by {errors[0]:.1e} (16 tokens) and {errors[1]:.1e} "
          "(64 tokens)")
    for error, is_blind in zip(errors, blind):
        assert error < 1e-5 if is_blind else error > 0.1
PYTHON
