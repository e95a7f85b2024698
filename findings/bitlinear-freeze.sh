#!/usr/bin/env bash
# A model that bitlinear has frozen for inference lets each token see the ones after it.
#
# Versions: bitlinear 2.4.6, torch 2.13.0.
# Guess before the run: `freeze(model)` rounds the weights once, and the model computes what it did.
#     (That it normalizes otherwise was suspected after reading the source.)
# Seen: a BitLinear normalizes each token. A frozen one normalizes over all dimensions but the
#     first, so over the whole text: with texts of tokens of different sizes, outputs are off by
#     half of their size, and the first token's output changes with the last token. Alone, as in
#     decoding with a cache, a token has another output than in the text. With a matrix, one token
#     to a row, nothing changes, so a test on such input finds nothing. A norm of one's own, or
#     none, is ignored too.
# For gyre: it does not train ternary weights. There, give frozen layers one token to a row.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile bitlinear==2.4.6 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import copy

import torch
from bitlinear import bitlinearize, freeze
from torch import nn

WIDTH = 256
LENGTH = 8


def relate(y, right):
    """Return the relative error of y."""
    return ((y - right).norm() / right.norm()).item()


torch.manual_seed(0)
model = bitlinearize(nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.SiLU(),
                                   nn.Linear(WIDTH, WIDTH, bias=False)))
frozen = copy.deepcopy(model)
freeze(frozen)
texts = torch.randn(4, LENGTH, WIDTH) * torch.linspace(0.2, 2, LENGTH)[:, None]
changed = texts.clone()
changed[:, -1] *= 10
with torch.no_grad():
    rows = relate(frozen(texts.flatten(0, 1)), model(texts.flatten(0, 1)))
    whole = relate(frozen(texts), model(texts))
    future = relate(frozen(changed)[:, 0], frozen(texts)[:, 0])
    future_before = relate(model(changed)[:, 0], model(texts)[:, 0])
    alone = relate(frozen(texts[:, -1:]), frozen(texts)[:, -1:])
print(f"one token to a row: frozen is off by {rows:.3f}; in texts: by {whole:.3f}")
print(f"first outputs change by {future_before:.3f} with the last token, frozen by {future:.3f}")
print(f"frozen, the last token alone is off by {alone:.3f} from that in the text")
assert rows < 1e-3 and future_before == 0
assert whole > 0.3 and future > 0.3 and alone > 0.1

plain = bitlinearize(nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False)),
                     replacements=[{"norm": None}])
frozen_plain = copy.deepcopy(plain)
freeze(frozen_plain)
with torch.no_grad():
    error = relate(frozen_plain(texts[:, -1]), plain(texts[:, -1]))
print(f"without a norm, one token to a row: frozen is off by {error:.3f}")
assert error > 0.3
PYTHON
