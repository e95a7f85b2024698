#!/usr/bin/env bash
# Local attention with autopad=True attends to its own padding, unless a mask is given.
#
# Versions: local-attention 1.11.2, torch 2.13.0.
# Guess before the run: a text whose length is no multiple of the window gets the same output with
#     and without a mask that is true everywhere: what is padded inside is masked inside. (That it
#     is not was suspected after reading the source.)
# Seen: with causal=True nobody sees the padding. Without, which is the default, the tokens of the
#     last two windows do: the padded keys are zeros, which is a score of 0, and so are their
#     values. With values of one all outputs should be one; of 17 tokens in windows of 8, nine are
#     below, down to 0.64. With a mask that is true everywhere, all are one.
# For gyre: it pads nothing. There, give a mask of ones, in training too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile local-attention==1.11.2 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from local_attention import LocalAttention

WIDTH = 64
WINDOW = 8

torch.manual_seed(0)
lowest = {}
for causal in [True, False]:
    attention = LocalAttention(window_size=WINDOW, dim=WIDTH, causal=causal, autopad=True)
    for length in [16, 17, 20, 23]:
        q, k = torch.randn(2, 1, length, WIDTH)
        ones = torch.ones(1, length, WIDTH)
        everywhere = torch.ones(1, length, dtype=torch.bool)
        masked = attention(q, k, ones, mask=everywhere)[0, :, 0]
        torch.testing.assert_close(masked, torch.ones(length))
        seen = attention(q, k, ones)[0, :, 0]
        lowest[causal, length] = seen.min().item()
        n_off = int((seen < 0.999).sum())
        print(f"causal={causal}, {length} tokens, values of one: {n_off} outputs are below one, "
              f"the lowest is {lowest[causal, length]:.2f}")
        assert n_off == (0 if causal or length == 16 else length - WINDOW)

assert lowest[False, 17] < 0.7
PYTHON
