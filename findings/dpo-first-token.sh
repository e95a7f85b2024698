#!/usr/bin/env bash
# In x-transformers, DPO leaves out the first token of each answer and trains the padding instead.
#
# Versions: x-transformers 2.31.10, torch 2.13.0.
# Guess before the run: DPO makes the tokens of the chosen answer more likely and those of the
#     rejected one less; prompt and padding do not count. (That the mask is one place late was
#     suspected after reading the source.)
# Seen: log-probabilities begin with the second token, and the mask is cut at its end instead of its
#     beginning. So the first token of an answer does not count, and the first token of padding
#     does. With answers of one token, such as yes and no, the loss falls to nearly 0 while the
#     chosen answer gets no more likely: the model learns to predict padding after one and not after
#     the other. Without padding, there is no gradient at all. With the place corrected, the chosen
#     answer has a probability near 1 against the rejected one.
# For gyre: it trains on text, not on pairs. There, put the last token of the prompt into the mask
#     of the answers, and leave `pad_id` out, with masks of your own that lack the last token.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile x-transformers==2.31.10 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import torch
from x_transformers import Decoder, TransformerWrapper
from x_transformers.dpo import DPO

PAD, YES, NO = 8, 4, 5
PROMPT = [1, 2, 3]
torch.set_num_threads(1)


def make_model():
    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=1, heads=2, attn_dim_head=16)
    return TransformerWrapper(num_tokens=9, max_seq_len=8, attn_layers=layers)


def get_preference(model):
    """Return the probability of the chosen answer against the rejected one."""
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT]))[0, -1]
    return torch.sigmoid(logits[YES] - logits[NO]).item()


def compute_reference(model, first, chosen, rejected):
    """Return the DPO loss whose only token is that of the answer."""
    position = len(PROMPT) - 1
    ratios = [(net(text).log_softmax(-1)[0, position, text[0, position + 1]])
              for net in (model, first) for text in (chosen, rejected)]
    return -torch.nn.functional.logsigmoid(0.1 * (ratios[0] - ratios[1] - ratios[2] + ratios[3]))


def train(n_pads, reference):
    """Train on yes against no. Return the loss, its largest gradient, and the preference."""
    model = make_model()
    dpo = DPO(model, pad_id=PAD)
    chosen = torch.tensor([PROMPT + [YES] + [PAD] * n_pads])
    rejected = torch.tensor([PROMPT + [NO] + [PAD] * n_pads])
    prompt_mask = torch.tensor([[True] * len(PROMPT) + [False] * (1 + n_pads)])
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    before, largest = get_preference(model), 0.0
    for _ in range(300):
        if reference:
            loss = compute_reference(model, dpo.ref_model, chosen, rejected)
        else:
            loss = dpo(chosen, rejected, prompt_mask=prompt_mask)
        optimizer.zero_grad()
        loss.backward()
        largest = max(largest, max(weight.grad.abs().max().item() for weight in model.parameters()
                                   if weight.grad is not None))
        optimizer.step()
    return loss.item(), largest, before, get_preference(model)


for name, n_pads, reference in [("the place corrected", 2, True), ("2 tokens of padding", 2, False),
                                ("no padding", 0, False)]:
    loss, largest, before, after = train(n_pads, reference)
    print(f"{name}: loss {loss:.3f}, largest gradient {largest:.2g}, preference of the chosen "
          f"answer {before:.3f} before and {after:.3f} after (due near 1)")
    if reference:
        assert loss < 0.3 and after > 0.99
    elif n_pads:
        assert loss < 0.3 and after < 0.9
    else:
        assert largest == 0 and after == before and abs(loss - math.log(2)) < 1e-3
PYTHON
