#!/usr/bin/env bash
# MarkLLM's ITSEdit detects the first text that it marks, and none after it.
#
# Versions: markllm 0.1.5, torch 2.13.0, numpy 2.4.6.
# Guess before the run: detect_watermark() finds each text of generate_watermarked_text() of the same
#     object, with a p-value of 0.01 or less, and gives plain text any p-value; plain text is drawn
#     from the model. (Both were suspected to be otherwise after reading the source.)
# Seen: the first text has p = 0, and of the eleven after it, one has p <= 0.1, as chance would. The
#     seed of a text is drawn from torch's global generator, which the constructor sets to the key;
#     the detector sets it to the key and draws again. So a second text, or anything else that draws
#     in between, has a seed that nobody knows. And generate_unwatermarked_text() sets the generator
#     to the key before each token: where the model is indifferent between 97 tokens, plain text is
#     one token, repeated. The compiled edit distance in the package is for Python 3.9; here the same
#     recursion is written in Python.
# For gyre: it marks no texts. There, call torch.manual_seed(key) before each text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps markllm==0.1.5
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import torch

VOCABULARY = 100
LENGTH = 20
TEXTS = 12
EOS = 2


def levenshtein(first, second, gamma=1.0):
    """Return the edit distance of numbers; a change costs their difference, the rest gamma."""
    above = [gamma * column for column in range(len(second) + 1)]
    for row, x in enumerate(first.tolist(), start=1):
        line = [gamma * row]
        for column, y in enumerate(second.tolist(), start=1):
            line.append(min(above[column] + gamma, line[-1] + gamma,
                            above[column - 1] + abs(x - y)))
        above = line
    return above[-1]


module = ModuleType("levenshtein")
module.levenshtein = levenshtein
sys.modules["markllm.watermark.its_edit.cython_files.levenshtein"] = module
from markllm.watermark.its_edit import ITSEdit  # noqa: E402


class Tokenizer:
    def __len__(self):
        return VOCABULARY

    def encode(self, text, **options):
        return torch.tensor([[int(word) for word in text.split()]])

    def decode(self, tokens, **options):
        return " ".join(str(token) for token in tokens.tolist())


class Model:
    """A language model that is indifferent between all tokens but three."""

    device = torch.device("cpu")

    def __call__(self, tokens):
        logits = torch.zeros(*tokens.shape, VOCABULARY)
        logits[..., :EOS + 1] = -torch.inf
        return SimpleNamespace(logits=logits, past_key_values=None)


def make():
    return ITSEdit("its.json", SimpleNamespace(
        model=Model(), tokenizer=Tokenizer(), vocab_size=VOCABULARY, device="cpu", gen_kwargs={}))


torch.set_num_threads(1)
with open("its.json", "w") as file:
    json.dump({"algorithm_name": "ITSEdit", "pseudo_length": LENGTH, "sequence_length": LENGTH,
               "n_runs": 99, "key": 42, "p_threshold": 0.1, "top_k": 0}, file)
watermark = make()
texts = [watermark.generate_watermarked_text("5 6 7") for _ in range(TEXTS)]
scores = [watermark.detect_watermark(text)["score"] for text in texts]
print("p-values of the texts of one object:", np.round(scores, 2).tolist())
assert scores[0] == 0 and np.median(scores[1:]) > 0.2 and sum(np.less(scores[1:], 0.05)) <= 3

firsts = []
for _ in range(3):
    watermark = make()
    firsts.append(watermark.detect_watermark(watermark.generate_watermarked_text("5 6 7"))["score"])
print("p-values of the first texts of new objects:", firsts)
torch.rand(1)
late = make()
torch.rand(1)
late_score = late.detect_watermark(late.generate_watermarked_text("5 6 7"))["score"]
print(f"after one random number in between: {late_score:.2f}")
seeded = []
for _ in range(3):
    torch.manual_seed(42)
    seeded.append(late.detect_watermark(late.generate_watermarked_text("5 6 7"))["score"])
print("with torch.manual_seed(key) before each:", seeded)
assert max(firsts) == max(seeded) == 0 and late_score > 0.05

plain = watermark.generate_unwatermarked_text("5 6 7").split()
print(f"plain text of {len(plain)} tokens has {len(set(plain))} different ones:", *plain[:5])
assert len(plain) == LENGTH and len(set(plain)) == 1
assert len(set(texts[0].split())) > LENGTH // 2
PYTHON
