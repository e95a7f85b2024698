#!/usr/bin/env bash
# Chonkie's chunks of words have wrong places, or half of the words that are asked for.
#
# Version: chonkie 1.7.0.
# Guess before the run: with the tokenizer "word", text[chunk.start_index:chunk.end_index] is
#     chunk.text, chunks have up to `chunk_size` words, and `token_count` is their number.
# Seen: TokenChunker loses the space between two chunks, and counts on without it: the hundredth
#     chunk begins 99 characters too early, more than its own length. With an overlap it is right. RecursiveChunker counts the space behind a word as one more: chunks of
#     `chunk_size=10` have 5 words and a `token_count` of 10. With "character", both are right.
# Cause: WordTokenizer splits by spaces and joins with spaces (chonkie/tokenizer.py): the tokens of a
#     chunk have none at its ends, while places add up the lengths of the texts
#     (chunker/token.py, `_create_chunks`), and "word " is split into a word and an empty one.
#     Its issue 629 tells of wrong places behind cut characters.
# For gyre: it cuts tokens, not texts. There, look for each text with `find`, from the last one on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile chonkie==1.7.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from chonkie import RecursiveChunker, TokenChunker

WORDS = [f"w{i:04d}" for i in range(1000)]
TEXT = " ".join(WORDS)


def find_shifts(chunks):
    """Return how many characters each chunk is ahead of its place."""
    return [TEXT.index(chunk.text) - chunk.start_index for chunk in chunks]


chunks = TokenChunker("word", chunk_size=10, chunk_overlap=0).chunk(TEXT)
shifts = find_shifts(chunks)
last = chunks[-1]
print(f"TokenChunker: {len(chunks)} chunks, {shifts[:4]} to {shifts[-1]} characters too early; the last "
      f"one is {last.text[:17]!r}..., its place has {TEXT[last.start_index:last.end_index][:17]!r}...")
assert shifts == list(range(100))

overlapping = TokenChunker("word", chunk_size=10, chunk_overlap=2).chunk(TEXT)
characters = TokenChunker("character", chunk_size=60, chunk_overlap=0).chunk(TEXT)
print(f"with an overlap {set(find_shifts(overlapping))}, with characters {set(find_shifts(characters))}")
assert set(find_shifts(overlapping)) == set(find_shifts(characters)) == {0}

for size in [10, 20, 100]:
    chunks = RecursiveChunker("word", chunk_size=size, min_characters_per_chunk=1).chunk(TEXT)
    counts = {chunk.token_count for chunk in chunks[:-1]}
    n_words = {len(chunk.text.split()) for chunk in chunks[:-1]}
    print(f"RecursiveChunker, chunk_size={size}: {len(chunks)} chunks for {1000 // size}, of {n_words} words, "
          f"token_count {counts}")
    assert n_words == {size // 2} and counts == {size}
PYTHON
