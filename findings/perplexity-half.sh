#!/usr/bin/env bash
# One unlikely token makes torchmetrics' perplexity of float16 logits infinite.
#
# Versions: torchmetrics 1.9.0, torch 2.13.0.
# Guess before the run: half precision costs digits: the perplexity is that of the same logits in
#     float32 within 1 %. (That it takes the softmax first was suspected.)
# Seen: it does, until one target is more than 17 nats below the rest. The metric takes the softmax
#     and then the logarithm, in the dtype of the logits. Below 2**-25, a probability is 0 in
#     float16, so the whole evaluation is inf; just above, it has one bit. bfloat16, which is less
#     precise, is right: it has the exponents of float32.
# For gyre: evaluate.py takes the cross entropy of float32 logits. A float16 export that is scored
#     by this metric needs logits.float().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import math

import torch
from torchmetrics.text import Perplexity

N_TOKENS = 1000
N_VOCABULARY = 32
perplexities = {}
for nats in [10, 16, 18]:
    logits = torch.zeros(1, N_TOKENS, N_VOCABULARY)
    logits[..., 0] = nats
    target = torch.zeros(1, N_TOKENS, dtype=torch.long)
    target[0, 0] = 1  # the one unlikely token
    true_value = torch.nn.functional.cross_entropy(logits[0].double(), target[0]).exp().item()
    for dtype in [torch.float32, torch.bfloat16, torch.float16]:
        metric = Perplexity()
        metric.update(logits.to(dtype), target)
        perplexities[nats, dtype] = metric.compute().item()
        print(f"one token of {N_TOKENS} is {nats} nats below, {dtype}: perplexity "
              f"{perplexities[nats, dtype]:.4f}, right is {true_value:.4f}")
        if dtype != torch.float16:
            assert math.isclose(perplexities[nats, dtype], true_value, rel_tol=0.01)

assert math.isfinite(perplexities[16, torch.float16])
assert perplexities[18, torch.float16] == math.inf
PYTHON
