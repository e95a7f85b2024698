#!/usr/bin/env bash
# bleu-torch's BLEU does not see the order of words: a text has 0.99 with itself backwards.
#
# Versions: bleu-torch 1.0.0, torch 2.13.0.
# Guess before the run: for token ids, the score is the BLEU of the paper, with the small smoothing that is
#     documented: near 0 for a text without a common bigram. (Suspected after reading the source.)
# Seen: an n-gram is a row of n one-hot vectors, and the rows are added up before they are compared. What
#     is counted is each word at each place of an n-gram, and almost every word is at every place once. So all
#     four precisions are about that of single words: 100 different words backwards have 0.99, and
#     shuffled 0.98, where 0 is due. If every second word is another one, the score is 0.5, and 0 is due. As
#     a loss, it teaches a bag of words.
# For gyre: it has no such loss. There, nothing helps but max_n=1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps bleu-torch==1.0.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math
from collections import Counter

import torch
from bleu_torch import DifferentiableBLEUModule

VOCABULARY = 200
LENGTH = 100
torch.manual_seed(0)
module = DifferentiableBLEUModule(VOCABULARY).eval()


def bleu(candidate, reference):
    """Return the BLEU of two texts of one length, and the four precisions, smoothed as in the module."""
    precisions = []
    for n in range(1, 5):
        seen, due = (Counter(tuple(text[i:i + n]) for i in range(len(text) - n + 1))
                     for text in (candidate, reference))
        precisions.append(sum((seen & due).values()) / sum(seen.values()))
    return math.exp(sum(math.log(max(p, module.smoothing)) for p in precisions) / 4), precisions


text = torch.randperm(VOCABULARY)[:LENGTH]
half = text.clone()
half[::2] = torch.tensor(sorted(set(range(VOCABULARY)) - set(text.tolist())))[:LENGTH // 2]
others = {"itself": text, "itself backwards": text.flip(0), "itself shuffled": text[torch.randperm(LENGTH)],
          "every second word replaced": half}
scores = {}
for name, other in others.items():
    seen = module(other, [text]).item()
    right, precisions = bleu(other.tolist(), text.tolist())
    scores[name] = seen, right
    print(f"{name}: {seen:.4f}, due {right:.1e}; precisions {[round(p, 3) for p in precisions]}")
assert all(abs(x - 1) < 1e-5 for x in scores["itself"])
for name in ("itself backwards", "itself shuffled"):
    assert scores[name][0] > 0.9 and scores[name][1] < 1e-4
assert abs(scores["every second word replaced"][0] - 0.5) < 0.02
assert scores["every second word replaced"][1] < 1e-4

# A plain BLEU-1 is right.
unigrams = DifferentiableBLEUModule(VOCABULARY, max_n=1).eval()
assert abs(unigrams(half, [text]).item() - bleu(half.tolist(), text.tolist())[1][0]) < 1e-6
PYTHON
