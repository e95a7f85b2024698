#!/usr/bin/env bash
# In x-transformers, the masked model of NonAutoregressiveWrapper learns to avoid the right tokens.
#
# Versions: x-transformers 2.31.10, torch 2.13.0.
# Guess before the run: the default loss, weighted as in masked diffusion (MDLM), is positive and
#     falls: trained on one text, the wrapper generates it. (That the weights are negative was
#     suspected after reading the source.)
# Seen: the weight is the derivative of the schedule, which falls, divided by 1 minus its value.
#     MDLM has this form for the share of tokens that are kept, times a log-probability; here it is
#     computed of the share that is masked, and multiplies a cross-entropy. So it is negative, and
#     largest for texts that are masked nearly completely. Trained on one text, the loss falls below
#     -100, the cross-entropy of masked tokens rises from 2 to more than 20, and no generated token
#     is right. With `use_simple_mdlm_loss_weight=False`, all are.
# For gyre: it has no masked models. There, `use_simple_mdlm_loss_weight=False`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile x-transformers==2.31.10 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import random

import torch
import torch.nn.functional as F
from x_transformers import Encoder, NonAutoregressiveWrapper, TransformerWrapper

LENGTH = 8
MASK = 8
TEXT = torch.tensor([3, 1, 4, 1, 5, 2, 6, 5])
torch.set_num_threads(1)


def train(**options):
    """Train on one text. Return loss, cross-entropy before and after, and right tokens."""
    torch.manual_seed(0)
    random.seed(0)
    net = TransformerWrapper(num_tokens=9, max_seq_len=LENGTH,
                             attn_layers=Encoder(dim=32, depth=1, heads=2, attn_dim_head=16))
    model = NonAutoregressiveWrapper(net, mask_id=MASK, **options)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    masked = torch.full((1, LENGTH), MASK)

    def measure():
        with torch.no_grad():
            return F.cross_entropy(net(masked)[0], TEXT).item()

    before = measure()
    losses = []
    for _ in range(300):
        loss = model(TEXT.repeat(16, 1)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    right = (model.generate(batch_size=16) == TEXT).float().mean().item()
    return sum(losses[-50:]) / 50, before, measure(), right


for options in [{"use_simple_mdlm_loss_weight": False}, {}]:
    loss, before, after, right = train(**options)
    name = ", ".join(f"{key}={value}" for key, value in options.items()) or "defaults"
    print(f"{name}: loss {loss:.4g}; cross-entropy {before:.2f} before and {after:.4g} after "
          f"(due 0); {100 * right:.0f} % of the generated tokens are right (due 100)")
    if "use_simple_mdlm_loss_weight" in options:
        assert 0 < loss < 0.1 and after < 0.1 and right == 1
    else:
        assert loss < -20 and after > 10 and right < 0.05
PYTHON
