#!/usr/bin/env bash
# logits-processor-zoo counts uncertain tokens of a whole text, where it says "consecutive" ones.
#
# Versions: logits-processor-zoo 0.2.1, transformers 5.24.0, tokenizers 0.23.3, torch 2.13.0,
#     numpy 2.4.6.
# Guess before the run: PreventHallucinationLogitsProcessor puts in "I don't know" behind more than
#     `tolerate` uncertain tokens in a row ("The number of consecutive low-confidence tokens
#     tolerated before triggering the fallback phrase"). (That it might not was suspected after
#     reading the source.)
# Seen: a certain token does not set the count back. With `tolerate=1`, a text whose 10th and 90th
#     token are uncertain is broken off at the 90th. Where each token is uncertain with a
#     probability of 0.05, by itself, 2 of 100 texts of 200 tokens have three such tokens in a row;
#     with `tolerate=2`, all of them are broken off, three times on average.
# For gyre: it has no such processor. There, give `tolerate` for a whole text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 transformers==5.24.0 \
    tokenizers==0.23.3 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps logits-processor-zoo==0.2.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
from logits_processor_zoo.transformers import PreventHallucinationLogitsProcessor
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, logging

logging.set_verbosity_error()
words = {word: index for index, word in enumerate(["</s>", "sure", "maybe", "or", "dunno"])}
backend = Tokenizer(models.WordLevel(words, unk_token="maybe"))
backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
SURE = torch.tensor([[-9.0, 5.0, 0.0, 0.0, -9.0]])
UNCERTAIN = torch.tensor([[-9.0, 0.1, 0.2, 0.1, -9.0]])  # probabilities of about a third


def decode(uncertain, tolerate):
    """Return the places at which the phrase is put into greedy text."""
    processor = PreventHallucinationLogitsProcessor(
        tokenizer, batch_size=1, minp=0.4, tolerate=tolerate, phrase="dunno")
    ids, places = torch.zeros(1, 1, dtype=torch.long), []
    for place, flag in enumerate(uncertain):
        scores = processor(ids, (UNCERTAIN if flag else SURE).clone())
        token = scores.argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
        if token.item() == words["dunno"]:
            places.append(place)
    return places


def first_in_row(uncertain, tolerate):
    """Return the first token that ends a row of more than `tolerate` uncertain ones, or None."""
    length = 0
    for place, flag in enumerate(uncertain):
        length = length + 1 if flag else 0
        if length > tolerate:
            return place
    return None


assert UNCERTAIN.softmax(-1).max() < 0.4 < SURE.softmax(-1).max()
for places in [[50, 51], [10, 90]]:
    uncertain = np.isin(np.arange(100), places)
    found = decode(uncertain, tolerate=1)
    print(f"tokens {places} are uncertain, tolerate=1: the phrase is put in at {found}; by rows of "
          f"uncertain tokens, at {first_in_row(uncertain, 1)}")
    assert found == places[1:]
assert first_in_row(uncertain, 1) is None

texts = np.random.default_rng(0).random((100, 200)) < 0.05
counts = [len(decode(text, tolerate=2)) for text in texts]
due = sum(first_in_row(text, 2) is not None for text in texts)
print(f"of 100 texts in which each token is uncertain with a probability of 0.05, {due} have three "
      f"such tokens in a row; the phrase is in {np.count_nonzero(counts)}, {np.mean(counts):.1f} "
      "times on average")
assert due <= 10 and np.count_nonzero(counts) >= 95 and np.mean(counts) > 2
PYTHON
