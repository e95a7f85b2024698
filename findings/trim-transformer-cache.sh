#!/usr/bin/env bash
# trim-transformer divides attention by the number of keys of the call, not of the text.
#
# Versions: trim-transformer 0.1.3, torch 2.13.0.
# Guess before the run: with `is_causal=True`, a model has the same outputs token by token with its key-value
#     cache as in one pass, a text has the outputs it has at the start of a longer one, and padded
#     tokens under `src_key_padding_mask` change nothing. (That the scale is 1 / keys of the call was read in the
#     source before the run.)
# Seen: with the cache, a new token is the only key, and its attention is n times as large as in one pass over
#     n tokens: outputs are off by half of their size with 2 tokens and by more than all of it from 8
#     on. The first half of a text has outputs that differ by 34 % with 8 tokens and by 17 % with 128 from
#     those it has alone. Twice as much padding as text changes it by 35 % to 88 %. With a fixed `scale`, all
#     three are equal up to rounding.
# Cause: `scale_factor = 1 / dict_size`, the length of `key` in this call, padding included (functional.py,
#     `multi_linear_attn`).
# For gyre: it has no linear attention. There, give each layer a `scale`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps trim-transformer==0.1.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from trim_transformer.transformer_layers import TrimTransformerEncoder, TrimTransformerEncoderLayer

torch.set_num_threads(1)


def differ(outputs, due):
    return ((outputs - due).norm() / due.norm()).item()


for scale in [None, 0.05]:
    torch.manual_seed(0)
    layer = TrimTransformerEncoderLayer(d_model=32, nhead=4, dim_feedforward=64, batch_first=True,
                                        scale=scale)
    model = TrimTransformerEncoder(layer, num_layers=2).eval()
    for n in [2, 8, 32, 128]:
        text = torch.randn(1, n, 32)
        with torch.no_grad():
            whole = model(text, is_causal=True)
            steps = [model(text[:, i : i + 1], is_causal=True, use_kv_cache=True, update_kv_cache=True)
                     for i in range(n)]
            model.clear_kv_cache()
            half = model(text[:, : n // 2], is_causal=True)
            # the text alone, and in front of twice as many padded tokens
            padded = torch.cat([text, torch.randn(1, 2 * n, 32)], dim=1)
            mask = (torch.arange(3 * n) >= n)[None]
            alone, beside = model(text), model(padded, src_key_padding_mask=mask)[:, :n]
        cached = differ(torch.cat(steps, dim=1), whole)
        start, padding = differ(whole[:, : n // 2], half), differ(beside, alone)
        print(f"scale {scale}, {n:3} tokens: with the cache off by {cached:.1e}, at the start of a longer text "
              f"by {start:.1e}, with padding by {padding:.1e}")
        if scale:
            assert max(cached, start, padding) < 1e-5
        else:
            assert cached > (0.4 if n == 2 else 1) and start > 0.1 and padding > 0.1
PYTHON
