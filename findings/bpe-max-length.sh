#!/usr/bin/env bash
# With `max_token_length=16`, BPE of tokenizers has no token of 16 characters: 15 is the limit.
#
# Versions: tokenizers 0.23.3, bpeasy 0.1.6.
# Guess before the run: `max_token_length` "prevents creating tokens longer than the specified
#     size", and creates those of that size. (For bpeasy, that they are missing was seen before,
#     when its merges were compared with the most frequent pairs.)
# Seen: a pair is left out if its length is the limit, too, but for pairs of two characters, which
#     are never left out: 4 gives tokens of at most 3, and both 2 and 3 give 2. Trained on "abcd", 4
#     ends with "ab" and "cd". So the vocabulary is another one, and smaller than asked for where
#     pairs run out: 79 tokens with 4, where 134 come out by hand. bpeasy follows tokenizers in
#     this.
# For gyre: it trains by sentencepiece, whose limit is not off. There, give one more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps tokenizers==0.23.3 bpeasy==0.1.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import random
from collections import Counter

import bpeasy
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

random.seed(0)
WORDS = ["".join(random.choices("abcde", k=random.randint(3, 30))) for _ in range(40)]
TEXTS = [" ".join(random.choices(WORDS, k=30)) for _ in range(50)]


def train_tokenizers(texts, limit):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=5000, max_token_length=limit, show_progress=False))
    return set(tokenizer.get_vocab())


def train_bpeasy(texts, limit):
    vocabulary = bpeasy.train_bpe(iter(texts), r"\S+", limit, 5000)
    return {token.decode() for token in vocabulary if len(token) > 1 or token in b"abcde"}


def train(texts, limit):
    """Merge the most frequent pair whose token has at most `limit` characters, to the end."""
    counts = Counter(word for text in texts for word in text.split())
    words = {tuple(word): count for word, count in counts.items()}
    tokens = {character for word in words for character in word}
    while True:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                if len("".join(pair)) <= limit:
                    pairs[pair] += count
        if not pairs:
            return tokens
        best = max(pairs, key=pairs.get)
        tokens.add("".join(best))
        merged = Counter()
        for word, count in words.items():
            new, place = [], 0
            while place < len(word):
                step = 2 if word[place:place + 2] == best else 1
                new.append("".join(word[place:place + step]))
                place += step
            merged[tuple(new)] += count
        words = merged


for limit in [2, 3, 4, 5, 8, 16]:
    due = train(TEXTS, limit)
    seen = {"tokenizers": train_tokenizers(TEXTS, limit), "bpeasy": train_bpeasy(TEXTS, limit)}
    print(f"max_token_length={limit}: by hand, {len(due)} tokens, the longest has "
          f"{max(map(len, due))}; " + "; ".join(
              f"{name}: {len(tokens)}, the longest has {max(map(len, tokens))}"
              for name, tokens in seen.items()))
    assert max(map(len, due)) == limit
    for tokens in seen.values():
        assert max(map(len, tokens)) == max(2, limit - 1)
small = train_tokenizers(["abcd"] * 10, 4)
print(f"trained on abcd with max_token_length=4: {sorted(small)}; by hand "
      f"{sorted(train(['abcd'], 4))}")
assert "abcd" not in small and "abcd" in train(["abcd"], 4)
PYTHON
