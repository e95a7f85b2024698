#!/usr/bin/env bash
# LLaMA's weights fit grouped-query attention in x-transformers, and are another model there.
#
# Versions: x-transformers 2.31.10, torch 2.13.0.
# Guess before the run: of 4 query heads and 2 key heads, query heads 0 and 1 share key head 0, as
#     in LLaMA, torch and ONNX. (That it might be otherwise was suspected.)
# Seen: query heads 0 and 2 share key head 0: the heads are repeated as a whole, not each of them.
#     Both orders have equal shapes and train equally well, so nothing shows but the output of
#     weights from elsewhere. With one key head, or one for each query head, both are the same.
# For gyre: weights that move between gyre and x-transformers need the rows of wq and the columns of
#     wo in another order of heads, besides what RoPE needs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile x-transformers==2.31.10 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from x_transformers import Decoder

N_HEADS = 4
HEAD_WIDTH = 32
LENGTH = 6


def split_heads(x):
    return x.view(1, LENGTH, -1, HEAD_WIDTH).transpose(1, 2)


def attend(layer, x, head_order):
    """Return torch's grouped-query attention, its query heads taken in this order."""
    q = split_heads(layer.to_q(x))[:, head_order]
    out = torch.nn.functional.scaled_dot_product_attention(
        q, split_heads(layer.to_k(x)), split_heads(layer.to_v(x)), is_causal=True, enable_gqa=True)
    in_place = out[:, torch.argsort(torch.tensor(head_order))]
    return layer.to_out(in_place.transpose(1, 2).reshape(1, LENGTH, -1))


torch.manual_seed(0)
for n_kv_heads in [1, 2, 4]:
    for flash in [False, True]:
        decoder = Decoder(dim=64, depth=1, heads=N_HEADS, attn_dim_head=HEAD_WIDTH,
                          attn_kv_heads=n_kv_heads, attn_flash=flash)
        layer = decoder.layers[0][1]
        x = torch.randn(1, LENGTH, 64)
        strided = [head for first in range(n_kv_heads)
                   for head in range(first, N_HEADS, n_kv_heads)]
        with torch.no_grad():
            seen = layer(x)[0]
            off = {order: (seen - attend(layer, x, list(order))).abs().max().item()
                   for order in [tuple(range(N_HEADS)), tuple(strided)]}
        texts = [f"{difference:.0e} from torch's with query heads {order}"
                 for order, difference in off.items()]
        print(f"{n_kv_heads} key heads, attn_flash={flash}: {'; '.join(texts)}")
        assert off[tuple(strided)] < 1e-5
        if n_kv_heads == 2:
            assert off[tuple(range(N_HEADS))] > 0.1
PYTHON
