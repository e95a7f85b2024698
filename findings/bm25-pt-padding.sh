#!/usr/bin/env bash
# bm25_pt counts padding as words if the tokenizer's padding is not token 0.
#
# Versions: bm25-pt 0.0.7, transformers 5.24.0, torch 2.13.0, scipy 1.17.1.
# Guess before the run: `BM25(tokenizer=...)` gives the BM25 of the tokens with any tokenizer of
#     transformers. (That it does not with another padding was suspected after reading the source.)
# Seen: texts are padded by the tokenizer, and what counts is each token but 0. With padding as
#     token 1, which RoBERTa and XLM-R have, or a high one, as GPT-2's and Qwen's, each document of
#     a batch of 512 is as long as the longest: `b` has no effect, and long documents win. Of 200
#     queries, 128 have another first document. Scores depend on the other documents, and on the
#     queries in the same call. A token 0 that is a word is never found. With padding as token 0, as
#     BERT has it, all is right.
# For gyre: it retrieves nothing. There, give a tokenizer whose token 0 is the padding.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6 scipy==1.17.1 \
    transformers==5.24.0
env/bin/pip install --quiet --no-compile --no-deps bm25-pt==0.0.7
TQDM_DISABLE=1 env/bin/python -W ignore - <<'PYTHON'
import math
from collections import Counter

import numpy as np
import torch
from bm25_pt import BM25
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

K1, B = 1.5, 0.75
torch.set_num_threads(1)
generator = np.random.default_rng(0)
WORDS = [f"w{number}" for number in range(300)]
chances = 1 / np.arange(1, 301)
chances /= chances.sum()


def write(length):
    return " ".join(generator.choice(WORDS, length, p=chances))


documents = [write(length) for length in generator.integers(5, 200, 200)]
queries = [write(length) for length in generator.integers(2, 9, 200)]


def make_tokenizer(special):
    vocabulary = {token: number for number, token in enumerate(special + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")


def bm25(texts):
    """Return the scores of `queries` (rows) for `texts` (columns)."""
    bags = [Counter(text.split()) for text in texts]
    lengths = np.array([sum(bag.values()) for bag in bags])
    scores = np.zeros((len(queries), len(texts)))
    for row, query in enumerate(queries):
        for word in query.split():
            counts = np.array([bag[word] for bag in bags])
            n_with = (counts > 0).sum()
            idf = math.log((len(texts) - n_with + 0.5) / (n_with + 0.5) + 1)
            scores[row] += idf * counts * (K1 + 1) / (
                counts + K1 * (1 - B + B * lengths / lengths.mean()))
    return scores


due = bm25(documents)
seen = {}
for name, special in {"padding is token 0": ["<pad>", "<s>", "</s>", "<unk>"],
                      "padding is token 1": ["<s>", "<pad>", "</s>", "<unk>"]}.items():
    model = BM25(tokenizer=make_tokenizer(special), k1=K1, b=B)
    model.index(documents)
    seen[name] = model.score_batch(queries).numpy()
    alone = np.stack([model.score(query).numpy() for query in queries[:20]])
    first = (seen[name].argmax(1) != due.argmax(1)).sum()
    mean_lengths = [np.mean([len(documents[index].split()) for index in scores.argmax(1)])
                    for scores in [seen[name], due]]
    print(f"{name}: largest error {np.abs(seen[name] - due).max():.3f} (scores up to "
          f"{due.max():.1f}); {first} of {len(queries)} queries have another first document; its "
          f"mean length is {mean_lengths[0]:.0f}, and {mean_lengths[1]:.0f} is due")
    change = np.abs(alone - seen[name][:20]).max()
    print(f"    20 queries alone: scores change by up to {change:.4f}; documents have lengths of "
          f"{model._corpus_lengths.min():.0f} to {model._corpus_lengths.max():.0f}")
    if "0" in name:
        assert np.allclose(seen[name], due, atol=1e-3) and change < 1e-4
    else:
        assert first > 50 and change > 1e-3
        assert model._corpus_lengths.min() == model._corpus_lengths.max()
        plain = BM25(tokenizer=make_tokenizer(special), k1=K1, b=0)
        plain.index(documents)
        assert np.allclose(plain.score_batch(queries).numpy(), seen[name], atol=1e-3)
        print("    with b=0 the scores are the same")

tokenizer = Tokenizer(models.WordLevel({"yes": 0, "no": 1, "<pad>": 2, "<unk>": 3},
                                       unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
model = BM25(tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>",
                                               unk_token="<unk>"))
model.index(["yes", "no", "no no"])
print(f"a word that is token 0: its document has the score {model.score('yes')[0]:.3f}")
assert model.score("yes")[0] == 0 < model.score("no")[1]
PYTHON
