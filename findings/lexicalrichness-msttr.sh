#!/usr/bin/env bash
# lexicalrichness' MSTTR leaves out a whole segment if the text is a multiple of the segment.
#
# Versions: lexicalrichness 0.5.1, numpy 2.4.6, scipy 1.17.1, pandas 3.1.1, matplotlib 3.11.2,
#     textblob 0.20.1, nltk 3.10.4.
# Guess before the run: the mean type-token ratio of segments of 100 words leaves out the rest of
#     the text, as documented ("for a text size of 105, the last 5 tokens will be discarded"); 200
#     words have no rest, and the mean of two segments. (That they have not was suspected after
#     reading the source.)
# Seen: with `discard`, the default, the last segment is left out, whether it is full or not. Texts
#     cut to 200 words have the ratio of their first half: 0.08 for a text with 0.08 in its first
#     half and 1 in its second, which has 0.54 with one word more. Of 1000 words, the mean is one of
#     nine segments. `discard=False` is right for such texts, and lexical-diversity for all.
# For gyre: it does not measure diversity. There, give `discard=len(words) % window != 0`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 pandas==3.1.1 \
    matplotlib==3.11.2 textblob==0.20.1 nltk==3.10.4
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lexicalrichness==0.5.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from lexicalrichness import LexicalRichness

WINDOW = 100


def measure(words, **options):
    return LexicalRichness(words, preprocessor=None, tokenizer=None).msttr(WINDOW, **options)


def mean_ratio(words):
    """Return the mean type-token ratio of the full segments."""
    starts = range(0, len(words) - WINDOW + 1, WINDOW)
    return np.mean([len(set(words[start:start + WINDOW])) / WINDOW for start in starts])


generator = np.random.default_rng(0)
poor = generator.choice(list("abcdefgh"), WINDOW).tolist()
rich = [f"word{number}" for number in range(WINDOW)]
text = poor + rich
for words in [text, text + ["end"], text[:-1] + poor]:
    print(f"{len(words)} words: {measure(words):.2f}; {mean_ratio(words):.2f} is due, "
          f"{measure(words, discard=False):.2f} with discard=False")
    if len(words) % WINDOW:
        assert np.isclose(measure(words), mean_ratio(words))
    else:
        assert np.isclose(measure(words), mean_ratio(words[:-WINDOW]))
        assert np.isclose(measure(words, discard=False), mean_ratio(words))
assert measure(text) == 0.08 and np.isclose(mean_ratio(text), 0.54)

long = [f"word{int(number)}" for number in generator.zipf(1.3, 1000) % 5000]
print(f"1000 words: {measure(long):.4f}; {mean_ratio(long):.4f} is due, and "
      f"{mean_ratio(long[:-WINDOW]):.4f} is that of the first 900")
assert np.isclose(measure(long), mean_ratio(long[:-WINDOW]))
assert not np.isclose(measure(long), mean_ratio(long))
PYTHON
