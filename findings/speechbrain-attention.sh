#!/usr/bin/env bash
# SpeechBrain's attention takes other weights as soon as a key differs from the query.
#
# Versions: speechbrain 1.1.2, torch 2.13.0.
# Guess before the run: a key that is masked has no influence on any output; `in_proj_weight`, of
#     shape (3E, E) as in torch, holds the queries' rows, then the keys', then the values'. (Both
#     were suspected to be otherwise after reading the source.)
# Seen: RoPEMHA and RelPosMHAXL compare the contents of query, key and value. If they are equal, the
#     rows are read head by head: queries, keys and values of the first head, then of the second. If
#     one number differs, be it masked, they are read as torch reads them. So one and the same
#     weights are two models; a change of 1e-6 in a masked frame changes the outputs by as much as
#     their size, and every further change of it changes nothing. The first query alone, with all
#     the keys, gets another output than in the whole pass. Both divide scores by the square root of
#     embed_dim, not of the head's width.
# For gyre: it has three matrices. There, weights from torch's attention fit where key and query
#     differ, and need another order of rows where they are equal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps speechbrain==1.1.2
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 hyperpyyaml==1.2.3 \
    joblib==1.6.0 packaging==26.4 requests==2.34.2 scipy==1.17.1 sentencepiece==0.2.3 \
    tqdm==4.70.1 huggingface-hub==2.4.0
"$folder/env/bin/python" - <<'PYTHON'
import math
import sys
import types

import torch

# The attention needs no torchaudio, and importing the package does.
sys.modules["torchaudio"] = types.ModuleType("torchaudio")
sys.modules["torchaudio"].__version__ = "2.2.0"
from speechbrain.nnet.attention import RelPosEncXL, RelPosMHAXL, RoPEMHA  # noqa: E402

WIDTH = 32
N_HEADS = 4
HEAD_WIDTH = WIDTH // N_HEADS
LENGTH = 6


def rotate(x):
    """Return x (T, H, D), with neighbouring channels turned by RoPE."""
    positions = torch.arange(LENGTH).float()
    angles = positions[:, None] * 10_000 ** (-torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(turned * torch.polar(torch.ones(()), angles)[:, None]).flatten(-2)


def attend(layer, query, key, by_head):
    """Return RoPEMHA's output (T, E) without the last key, for this order of rows."""
    weight = layer.in_proj_weight
    if by_head:
        weight = weight.view(N_HEADS, 3, HEAD_WIDTH, WIDTH).transpose(0, 1).reshape(-1, WIDTH)
    wq, wk, wv = weight.chunk(3)
    q = rotate((query @ wq.T).view(LENGTH, N_HEADS, HEAD_WIDTH))
    k = rotate((key @ wk.T).view(LENGTH, N_HEADS, HEAD_WIDTH))[:-1]
    v = (key @ wv.T).view(LENGTH, N_HEADS, HEAD_WIDTH)[:-1]
    scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(WIDTH)
    return layer.out_proj(torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).flatten(1))


torch.manual_seed(0)
x = torch.randn(1, LENGTH, WIDTH)
masked = torch.tensor([[False] * (LENGTH - 1) + [True]])
torch.set_grad_enabled(False)
for name, layer, pos_embs in [("RoPEMHA", RoPEMHA(WIDTH, N_HEADS).eval(), None),
                              ("RelPosMHAXL", RelPosMHAXL(WIDTH, N_HEADS).eval(),
                               RelPosEncXL(WIDTH)(x))]:
    outputs = {}
    for change in [0.0, 1e-6, 1.0]:
        key = x.clone()
        key[0, -1, 0] += change
        outputs[change] = layer(x, key, key, pos_embs=pos_embs, key_padding_mask=masked)[0]
    size = outputs[0.0].abs().mean().item()
    small = (outputs[1e-6] - outputs[0.0]).abs()
    large = (outputs[1.0] - outputs[1e-6]).abs()
    print(f"{name}, one number of a masked key changed: by 1e-6, and outputs of size {size:.2f} "
          f"change by {small.mean():.2f}; from there to 1, and they change by {large.max():.0e}")
    assert small.mean() > 0.8 * size and large.max() == 0
    if name == "RoPEMHA":
        torch.testing.assert_close(outputs[0.0][0], attend(layer, x[0], x[0], by_head=True))
        torch.testing.assert_close(outputs[1.0][0], attend(layer, x[0], x[0], by_head=False))
        alone = layer(x[:, :1], x, x)[0][0, 0]
        in_pass = layer(x, x, x)[0][0, 0]
        distance = (alone - in_pass).abs().mean()
        print(f"    the first query alone gets an output that is {distance:.2f} from its output in "
              f"the whole pass")
        assert distance > 0.5 * size
        torch_layer = torch.nn.MultiheadAttention(WIDTH, N_HEADS, bias=False)
        assert torch_layer.in_proj_weight.shape == layer.in_proj_weight.shape
        print("    equal contents: rows by head; others: rows as in torch")
PYTHON
