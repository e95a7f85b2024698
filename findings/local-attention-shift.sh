#!/usr/bin/env bash
# In local attention that looks ahead, RoPE takes the token one window ahead for the query's own.
#
# Versions: local-attention 1.11.2, torch 2.13.0.
# Guess before the run: the product of a query at i and a key at j is rotated by i - j, so for equal
#     contents it is largest at j = i. (That it is not was suspected after reading the source.)
# Seen: that is so with causal=True. Without, which is the default, it is rotated by i - j + window,
#     with look_forward windows of 2 by twice as much: queries get the positions of the last window
#     that their keys come from. With queries and keys of ones and scale=1, a token gives four
#     fifths of its weight to the token one window ahead, and less than 1e-4 to itself. Training can
#     undo a turn; but the model starts with a bias to far tokens, and not to near ones. No warning.
# For gyre: it has causal attention only. A comparison of encodings with this package needs
#     causal=True, or use_rotary_pos_emb=False and rotations of one's own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile local-attention==1.11.2 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import math

import torch
from local_attention import LocalAttention

WIDTH = 64
WINDOW = 8
LENGTH = 48


def attend(q, k, shift, causal, n_ahead):
    """Return the weights (T, T) of local attention whose RoPE turns by i - j + shift."""
    weights = torch.zeros(LENGTH, LENGTH)
    for i in range(LENGTH):
        first = max(i // WINDOW - 1, 0) * WINDOW
        end = i + 1 if causal else min((i // WINDOW + n_ahead + 1) * WINDOW, LENGTH)
        for j in range(first, end):
            for channel in range(WIDTH // 2):
                angle = (i - j + shift) * 10_000 ** (-2 * channel / WIDTH)
                qx, qy = q[i, channel], q[i, channel + WIDTH // 2]
                kx, ky = k[j, channel], k[j, channel + WIDTH // 2]
                weights[i, j] += (math.cos(angle) * (qx * kx + qy * ky)
                                  + math.sin(angle) * (qx * ky - qy * kx))
        scores = weights[i, first:end] / math.sqrt(WIDTH)
        weights[i, first:end] = scores.softmax(dim=0)
    return weights


torch.manual_seed(0)
q, k = torch.randn(2, LENGTH, WIDTH)
equal = torch.ones(1, LENGTH, WIDTH)
for causal, n_ahead in [(True, 0), (False, 1), (False, 2)]:
    attention = LocalAttention(window_size=WINDOW, dim=WIDTH, causal=causal, look_forward=n_ahead)
    seen = attention(q[None], k[None], torch.eye(LENGTH)[None])[0]
    errors = {shift: (seen - attend(q, k, shift, causal, n_ahead)).abs().max().item()
              for shift in [0, n_ahead * WINDOW]}
    unscaled = LocalAttention(window_size=WINDOW, dim=WIDTH, causal=causal, look_forward=n_ahead,
                              scale=1.0)
    weights = unscaled(equal, equal, torch.eye(LENGTH)[None])[0]
    largest = weights[12].argmax().item()
    texts = [f"{error:.0e} if turned by i - j + {shift}" for shift, error in errors.items()]
    print(f"causal={causal}, look_forward={n_ahead}: weights differ from RoPE's by "
          f"{', '.join(texts)}")
    print(f"    equal contents: token 12 gives {weights[12, 12]:.1e} to itself and most, "
          f"{weights[12, largest]:.2f}, to token {largest}")
    assert errors[n_ahead * WINDOW] < 1e-5
    assert largest == 12 + n_ahead * WINDOW
    if not causal:
        assert errors[0] > 0.1 and weights[12, 12] < 1e-4
PYTHON
