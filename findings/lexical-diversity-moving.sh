#!/usr/bin/env bash
# lexical-diversity's moving MTLD is 0 for texts that are too diverse, and ignores its minimum.
#
# Versions: lexical-diversity 0.1.1, setuptools 65.5.1.
# Guess before the run: `mtld_ma_bid`, the mean over all positions of the words until a type-token
#     ratio of 0.72, forwards and backwards, is near `mtld`, and grows with the vocabulary; `min`, the
#     fewest words of a factor, has an effect as it has in `mtld`. (Suspected after reading the
#     source; that `mtld` itself is 0 without a repeated word is recorded publicly.)
# Seen: 1. A position from which the ratio never falls to 0.72 counts nothing, and with none left
#     the value is 0. Of random texts of 100 words, those from 100 words have 62, those from 200 words
#     9 where `mtld` has 133, and those from 500 and more 0: the highest value belongs to a middling
#     vocabulary. With 200 words, the fall comes between 200 and 500.
#     2. `min` is not handed on: 1, 10 and 50 give the same value, bit for bit.
# For gyre: it measures no diversity of texts. There, take `mtld`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile setuptools==65.5.1 lexical-diversity==0.1.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import random

from lexical_diversity import lex_div


def draw(length, n_words):
    return [f"word{random.randrange(n_words)}" for _ in range(length)]


def average(values):
    values = list(values)
    return sum(values) / len(values)


random.seed(0)
for length, falls in [(100, 200), (200, 500)]:
    for n_words in (20, 50, 100, 200, 500, 1000):
        texts = [draw(length, n_words) for _ in range(30)]
        moving = average(map(lex_div.mtld_ma_bid, texts))
        plain = average(map(lex_div.mtld, texts))
        print(f"{length} of {n_words} words: moving {moving:.1f}, mtld {plain:.1f}")
        if n_words < falls:
            assert abs(moving / plain - 1) < 0.15
        elif n_words == falls:
            assert moving < 0.1 * plain and plain > 100
        else:
            assert moving == 0 and plain > 200

text = draw(300, 20)
values = [lex_div.mtld_ma_bid(text, min=minimum) for minimum in (1, 10, 50)]
print(f"minima of 1, 10 and 50: moving {values}, "
      f"mtld {[round(lex_div.mtld(text, min=minimum), 1) for minimum in (1, 10, 50)]}")
assert len(set(values)) == 1 and lex_div.mtld(text, min=50) > 2 * lex_div.mtld(text, min=10)
PYTHON
