#!/usr/bin/env bash
# rouge-torch counts the n-grams of the whole batch for each text, and its loss has no gradient.
#
# Versions: rouge-torch 0.1.0, torch 2.13.0.
# Guess before the run: each pair has the score that it has alone; ROUGE-L of a text with itself is 1; the loss
#     is "differentiable", as its documentation says. (That it is otherwise was suspected after reading
#     the source.)
# Seen: each row gets the n-grams of all rows: eight random pairs with ROUGE-1 between 0 and 0.25 have 0.64,
#     all of them, and eight texts against each other's references have 1. ROUGE-L is right up to 20
#     tokens; a text of 60 with itself has 0.33, and one of 101 has 1 again, from an approximation without
#     order: backwards it has 1, too. The tokens come from argmax: added to a cross entropy,
#     the loss leaves its gradients as they are, bit for bit, and says nothing.
# For gyre: it has no such loss. There, take rouge-score, and a batch of one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps rouge-torch==0.1.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from collections import Counter

import torch
from rouge_torch import ROUGEScoreTorch
from torch.nn.functional import cross_entropy, one_hot

VOCABULARY = 50
ROWS = 8
torch.manual_seed(0)
scorer = ROUGEScoreTorch(VOCABULARY)


def encode(tokens):
    return one_hot(tokens, VOCABULARY).float()


def score(candidates, references):
    return scorer.rouge_n_batch(encode(candidates), [encode(references)], n=1)["f1"]


def rouge_1(candidate, reference):
    """Return the F1 score of the common tokens of two texts of one length."""
    common = Counter(candidate.tolist()) & Counter(reference.tolist())
    return sum(common.values()) / len(candidate)


# Token 0 is the padding.
candidates = torch.randint(1, VOCABULARY, (ROWS, 12))
references = torch.randint(1, VOCABULARY, (ROWS, 12))
together = score(candidates, references)
alone = torch.cat([score(candidates[i:i + 1], references[i:i + 1]) for i in range(ROWS)])
right = torch.tensor([rouge_1(*pair) for pair in zip(candidates, references)])
print("ROUGE-1 of pairs in a batch:", together.tolist())
print("one by one:", [round(x, 4) for x in alone.tolist()])
assert torch.allclose(alone, right)
assert right.max() < 0.3 and together.min() > 0.6 and together.unique().numel() == 1
exchanged = score(candidates, candidates.roll(1, 0))
print("each text with the next one's reference:", exchanged.tolist())
assert (exchanged == 1).all()

for length, due in [(20, 1.0), (60, 20 / 60), (101, 1.0)]:
    text = torch.randint(1, VOCABULARY, (1, length))
    seen = scorer.rouge_l_batch(encode(text), [encode(text)])["f1"].item()
    back = scorer.rouge_l_batch(encode(text), [encode(text.flip(1))])["f1"].item()
    print(f"ROUGE-L of {length} tokens with themselves: {seen:.3f}, with themselves backwards: {back:.3f}")
    assert abs(seen - due) < 1e-6
    assert (back == 1) == (length > 100)

gradients = []
for weight in (0.0, 10.0):
    logits = torch.randn(ROWS, 12, VOCABULARY, generator=torch.Generator().manual_seed(1)).requires_grad_()
    loss = cross_entropy(logits.flatten(0, 1), references.flatten())
    if weight:
        loss = loss + weight * scorer.compute_rouge_loss(logits, [encode(references)])
    loss.backward()
    print(f"with {weight} times the ROUGE loss: loss {loss.item():.3f}, norm of the gradient {logits.grad.norm():.6f}")
    gradients.append(logits.grad)
assert torch.equal(*gradients)
PYTHON
