#!/usr/bin/env bash
# With attn_flash, x-transformers ignores `causal=True` and other attention functions without a word.
#
# Versions: x-transformers 2.31.10, torch 2.13.0.
# Guess before the run: `attn_flash=True` has the outputs of the plain attention for each option, or refuses the option,
#     as it does for softclamp, cog, selective and others. (That the argument `causal` is not passed on was read in
#     the source before the run.)
# Seen: a model with an Encoder that is called with `causal=True` is causal without flash; with flash it sees
#     everything: trained on random tokens, its loss is 0.002, where 2.08 is the best, and without flash it is
#     2.08. A Decoder with `causal=False` stays causal. `attn_custom_attn_fn` and `attn_gumbel_softmax` are replaced by
#     the softmax. With 18 other options, flash and plain agree to 1e-6.
# Cause: `Attend.forward` calls `flash_attn` without `causal`, so that the constructor's value counts, and that one
#     never uses `attn_fn` (x_transformers/attend.py).
# For gyre: its attention has no such switch. There, leave `attn_flash` off with these.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.2 x-transformers==2.31.10
export OMP_NUM_THREADS=1 LOGURU_LEVEL=ERROR
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import torch
import torch.nn.functional as F
from x_transformers import Decoder, Encoder, TransformerWrapper

N_TOKENS, LENGTH = 8, 12


def square_relu(values):
    return values.relu().square()


def make_model(layers, flash, **options):
    torch.manual_seed(0)
    return TransformerWrapper(num_tokens=N_TOKENS, max_seq_len=32, attn_layers=layers(
        dim=64, depth=2, heads=4, attn_dim_head=32, attn_flash=flash, **options))


torch.manual_seed(1)
TOKENS = torch.randint(0, N_TOKENS, (2, LENGTH))
CHANGED = TOKENS.clone()
CHANGED[:, -1] = (CHANGED[:, -1] + 1) % N_TOKENS


@torch.no_grad()
def compare(**options):
    """Return the largest difference between the outputs with flash and those without."""
    plain, flash = (make_model(Decoder, flash, **options).eval()(TOKENS) for flash in [False, True])
    return (plain - flash).abs().max().item()


AGREE = [{}, {"alibi_pos_bias": True}, {"rotary_pos_emb": True}, {"rotary_pos_emb": True, "rotary_xpos": True},
         {"polar_pos_emb": True}, {"attn_num_mem_kv": 3}, {"attn_add_zero_kv": True}, {"attn_l2_distance": True},
         {"attn_qk_norm": True}, {"attn_kv_heads": 2}, {"attn_one_kv_head": True}, {"attn_max_attend_past": 3},
         {"attn_data_dependent_alibi": True}, {"attn_use_rel_proj_pos_bias": True}, {"attn_laser": True},
         {"add_value_residual": True}, {"attn_gate_value_heads": True},
         {"attn_use_latent_kv": True, "attn_dim_latent_kv": 32}]
largest = max(compare(**options) for options in AGREE)
print(f"{len(AGREE)} options: flash and plain differ by {largest:.0e} at most")
assert largest < 1e-5
custom = compare(attn_custom_attn_fn=square_relu)
softmax, hard = (make_model(Decoder, True, **options).eval()(TOKENS) for options in [{}, {"attn_gumbel_softmax": True}])
print(f"squares of ReLU instead of the softmax: they differ by {custom:.2f}; with flash, the Gumbel softmax and the softmax "
      f"are {'equal' if torch.equal(softmax, hard) else 'different'}")
assert custom > 0.1 and torch.equal(softmax, hard)


@torch.no_grad()
def see_future(layers, flash, causal):
    model = make_model(layers, flash).eval()
    return (model(TOKENS, causal=causal) - model(CHANGED, causal=causal))[:, :-1].abs().max().item()


for layers, causal in [(Encoder, True), (Decoder, False)]:
    plain, flash = (see_future(layers, flash, causal) for flash in [False, True])
    print(f"{layers.__name__}, causal={causal}: the last token changes earlier outputs by {plain:.2f}, with flash by {flash:.2f}")
    assert (plain == 0) == causal and (flash == 0) != causal


def train(flash):
    model = make_model(Encoder, flash)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(400):
        tokens = torch.randint(0, N_TOKENS, (32, LENGTH + 1), generator=generator)
        logits = model(tokens[:, :-1], causal=True)
        # the last target is in no input
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


losses = {flash: train(flash) for flash in [False, True]}
print(f"trained on random tokens with causal=True: loss {losses[False]:.2f}, with flash {losses[True]:.3f}, "
      f"the best is {math.log(N_TOKENS):.2f}")
assert losses[False] > math.log(N_TOKENS) - 0.05 and losses[True] < 0.1
PYTHON
