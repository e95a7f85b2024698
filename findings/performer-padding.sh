#!/usr/bin/env bash
# In performer-pytorch, masked tokens still take their share of the attention.
#
# Versions: performer-pytorch 1.1.4, torch 2.13.0.
# Guess before the run: `mask` keeps padding out of the attention: a text has the same outputs alone
#     and beside a longer one. (That padding counts was suspected after reading the source.)
# Seen: only the values of masked tokens are set to zero; their keys stay in the sum by which the
#     outputs are divided. The more padding, the smaller the output: with as much padding as text
#     about a half, with 15 times as much about a sixteenth. The gradient of the padding's inputs is
#     not zero either. Softmax attention with the same mask is the same for any padding.
# For gyre: it pads nothing. There, put texts of one length into a batch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile performer-pytorch==1.1.4 torch==2.13.0 \
    numpy==2.4.6 setuptools==80.9.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from performer_pytorch import SelfAttention
from torch.nn import functional

LENGTH, WIDTH, HEADS = 16, 32, 2
torch.set_num_threads(1)
torch.manual_seed(0)
layer = SelfAttention(dim=WIDTH, heads=HEADS, dim_head=WIDTH // HEADS, causal=False).eval()
torch.nn.init.zeros_(layer.to_out.bias)
text = torch.randn(1, LENGTH, WIDTH)


def split(inputs):
    return inputs.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def attend_exactly(inputs, mask):
    q, k, v = (split(project(inputs)) for project in (layer.to_q, layer.to_k, layer.to_v))
    outputs = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
    return layer.to_out(outputs.transpose(1, 2).flatten(2))


def attend_linearly(inputs, mask):
    return layer(inputs, mask=mask)


for name, attend in [("softmax attention", attend_exactly), ("performer", attend_linearly)]:
    alone = attend(text, torch.ones(1, LENGTH, dtype=torch.bool))
    for n_padding in (0, 16, 240):
        padding = torch.zeros(1, n_padding, WIDTH, requires_grad=True)
        inputs = torch.cat([text, padding], 1)
        mask = torch.arange(LENGTH + n_padding)[None] < LENGTH
        outputs = attend(inputs, mask)[:, :LENGTH]
        size = (outputs.norm() / alone.norm()).item()
        error = ((outputs - alone).norm() / alone.norm()).item()
        gradient = torch.autograd.grad(outputs.square().sum(), padding)[0].norm().item()
        print(f"{name}, {LENGTH} tokens and {n_padding} of padding: outputs are {size:.3f} times "
              f"those of the text alone, off by {error:.3f}; gradient of the padding "
              f"{gradient:.1e}")
        if attend is attend_exactly or n_padding == 0:
            assert error < 1e-5 and gradient < 1e-6
        else:
            due = LENGTH / (LENGTH + n_padding)
            assert due / 2 < size < due * 1.5 and gradient > 1e-4
PYTHON
