#!/usr/bin/env bash
# DPO in self-rewarding-lm-pytorch trains the logits of a token to repeat that token.
#
# Versions: self-rewarding-lm-pytorch 0.2.12, torch 2.13.0, accelerate 1.15.0, ema-pytorch 0.8.3.
# Guess before the run: DPO raises the probability of each token of the chosen answer after the
#     tokens before it, and lowers those of the rejected one, for any causal model. (That it takes
#     the logits one place too late was suspected after reading the source.)
# Seen: it reads the log-probability of a token from logits that have seen it. A table of bigrams
#     learns that 10 follows 10 and 11 follows 11: where 10, 11, 12, 13 is the chosen answer, the
#     loss falls to 0.004, and each token of it is less likely than before after the last one. With
#     the logits moved by one place, the same call learns the answer. SPIN has the same function.
# For gyre: it trains on text, not on pairs. There, wrap the model so that logits come one later.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile self-rewarding-lm-pytorch==0.2.12 \
    accelerate==1.15.0 ema-pytorch==0.8.3 pytorch-custom-utils==0.0.21 pytorch-warmup==0.2.0 \
    optree==0.20.0 einx==0.4.3 einops==0.8.2 jinja2==3.1.6 tqdm==4.70.1 beartype==0.23.1 \
    torchtyping==0.1.5 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from self_rewarding_lm_pytorch.dpo import DPO

N_TOKENS = 20
N_STEPS = 300
CHOSEN = [10, 11, 12, 13]
REJECTED = [14, 15, 16, 17]

torch.set_num_threads(1)


class Bigrams(torch.nn.Module):
    """A table of logits; the first place gets zeros if all are moved by one."""

    def __init__(self, moved):
        super().__init__()
        self.table = torch.nn.Embedding(N_TOKENS, N_TOKENS)
        torch.nn.init.normal_(self.table.weight, std=0.1)
        self.moved = moved

    def forward(self, ids):
        logits = self.table(ids)
        if self.moved:
            logits = torch.nn.functional.pad(logits[:, :-1], (0, 0, 1, 0))
        return logits


def measure(model):
    """Return the mean log-probabilities of the chosen answer's next tokens, and of repeating."""
    ids = torch.tensor([0, *CHOSEN])
    log_probabilities = model.table(ids).log_softmax(dim=-1)
    following = log_probabilities[:-1].gather(1, ids[1:, None]).mean().item()
    repeating = log_probabilities[1:].gather(1, ids[1:, None]).mean().item()
    return following, repeating


def train(moved):
    torch.manual_seed(0)
    model = Bigrams(moved)
    before = measure(model)
    dpo = DPO(model, beta=1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    chosen = torch.tensor([[prompt, *CHOSEN] for prompt in range(4)])
    rejected = torch.tensor([[prompt, *REJECTED] for prompt in range(4)])
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        loss = dpo(chosen, rejected, torch.ones(4, dtype=torch.long))
        loss.backward()
        optimizer.step()
    after = measure(model)
    print(f"logits moved: {moved}; loss {loss.item():.3f}; log-probability of the next token "
          f"{before[0]:.2f} before, {after[0]:.2f} after; of the same token again {before[1]:.2f} "
          f"before, {after[1]:.2f} after")
    return after[0] - before[0], after[1] - before[1], loss.item()


following, repeating, loss = train(moved=False)
assert loss < 0.1 and repeating > 1 and following < 0
following, repeating, loss = train(moved=True)
assert loss < 0.1 and repeating < 0 and following > 1
PYTHON
