#!/usr/bin/env bash
# With minicons' correction for the beginning of words, the words after a prefix have probabilities
# that do not add up to 1.
#
# Versions: minicons 0.3.39, transformers 5.24.0, tokenizers 0.23.3, torch 2.13.0.
# Guess before the run: with `bow_correction=True`, conditional_score() gives the probability of a
#     word after a prefix as Pimentel and Meister (2024) and Oh and Schuler (2024) do: that of its
#     pieces, times that of a beginning of a word behind it, divided by that of a beginning of a
#     word before it. So the probabilities of all words add up to 1. (That the division is missing
#     was suspected after reading the source.)
# Seen: the first word of a continuation is never divided. A model which knows three pieces goes on
#     after a prefix by a new word with a probability of 0.3: the probabilities of all words add up
#     to 0.3 instead of 1, and each surprisal is 1.2 nats too high. The second word of a
#     continuation is right. So a comparison of the same word after two prefixes has the difference
#     of their log-probabilities of a new word in it.
# For gyre: it scores no words. There, take the last word from a continuation of two, or divide by
#     hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile minicons==0.3.39 transformers==5.24.0 \
    tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from itertools import product
from types import SimpleNamespace

import torch
from minicons.scorer import IncrementalLMScorer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

VOCABULARY = {"<s>": 0, "Ġ": 1, "a": 2, "b": 3, "c": 4, "Ġa": 5, "Ġb": 6}
KNOWN = ["Ġa", "Ġb", "c"]
# A row for the last piece, a column for the next one. The prefix ends in "a".
NEXT = {"a": [0.1, 0.2, 0.7], "Ġa": [0.5, 0.3, 0.2], "Ġb": [0.2, 0.7, 0.1], "c": [0.3, 0.4, 0.3]}
torch.set_num_threads(1)


class Bigrams(torch.nn.Module):
    """A language model: the probabilities of the next piece depend on the last piece."""

    def __init__(self):
        super().__init__()
        self.logits = torch.full((len(VOCABULARY), len(VOCABULARY)), -1e9)
        self.logits[0, VOCABULARY["a"]] = 0.0
        for piece, row in NEXT.items():
            for other, probability in zip(KNOWN, row):
                self.logits[VOCABULARY[piece], VOCABULARY[other]] = torch.tensor(probability).log()

    def forward(self, input_ids, **_):
        return SimpleNamespace(logits=self.logits[input_ids])


pieces = Tokenizer(models.BPE(vocab=VOCABULARY, merges=[("Ġ", "a"), ("Ġ", "b")]))
pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
pieces.add_special_tokens(["<s>"])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, bos_token="<s>", eos_token="<s>",
                                    pad_token="<s>")
scorer = IncrementalLMScorer(Bigrams(), "cpu", tokenizer=tokenizer)
assert scorer.is_bow_tokenizer and tokenizer.tokenize("a acc") == ["a", "Ġa", "c", "c"]


def begin(piece):
    """Return the probability that a word begins after `piece`."""
    return sum(NEXT[piece][:2])


def reference(before, word):
    """Return the probability of `word` after the piece `before`, as in the papers."""
    probability, last = 1.0, before
    for piece in ["Ġ" + word[0], *word[1:]]:
        probability *= NEXT[last][KNOWN.index(piece)]
        last = piece
    return probability * begin(last) / begin(before)


def score(prefixes, words):
    logs = scorer.conditional_score(prefixes, words, bow_correction=True, bos_token=True,
                                    reduction=lambda scores: scores.sum().item())
    return torch.tensor(logs, dtype=torch.float64).exp()


words = [first + "c" * count for first, count in product("ab", range(9))]
due = torch.tensor([reference("a", word) for word in words], dtype=torch.float64)
given = score(["a"] * len(words), words)
print(f"first word after the prefix, {len(words)} words: probabilities add up to "
      f"{given.sum():.4f}, due {due.sum():.4f}")
assert abs(due.sum() - 1) < 1e-3
assert abs(given.sum() - begin("a")) < 1e-3
assert torch.allclose(given, due * begin("a"), rtol=1e-4)

# The second word of a continuation, as the quotient of a continuation of two words and one of one.
both = score(["a"] * len(words), ["b " + word for word in words])
given = both / score(["a"], ["b"])
due = torch.tensor([reference("Ġb", word) for word in words], dtype=torch.float64)
print(f"second word: probabilities add up to {given.sum():.4f}, due {due.sum():.4f}")
assert torch.allclose(given, due, rtol=1e-4)

after = {"a": "after a piece that seldom ends a word", "a b": "after one that mostly does"}
for prefix, name in after.items():
    last = tokenizer.tokenize(prefix)[-1]
    surprisal = -score([prefix], ["ac"]).log().item()
    right = -torch.tensor(reference(last, "ac")).log().item()
    print(f"surprisal of 'ac' {name}: {surprisal:.3f}, due {right:.3f}")
PYTHON
