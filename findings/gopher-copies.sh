#!/usr/bin/env bash
# datatrove's Gopher filter keeps a text of which a fifth is repeated; the paper allows a tenth.
#
# Version: datatrove 0.9.0.
# Guess before the run: GopherRepetitionFilter, which has the limits of the paper's table A1,
#     removes a text as soon as a tenth of its characters are in 10-grams that occur more than once.
#     With a passage that stands twice in 1000 words, that is at about 50 words.
# Seen: at about 120. It counts the later copies only, not the first; and the characters of the
#     words without the spaces between them, but divides by the length of the text with them. Of a
#     text that is one passage twice, all is repeated, and the filter finds 42 %; with four spaces
#     between the words, as in a table, 29 %. The fractions for 5-grams to 9-grams are too small
#     alike; that of the most frequent n-gram counts all copies, and the spaces.
#     (find_all_duplicate joins the words by "", and the caller divides by len(text).)
# For gyre: it filters no text. A data set that was filtered by it has up to 2.4 times the limits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile datatrove==0.9.0 numpy==2.4.6 regex==2026.11.19
"$folder/env/bin/python" - <<'PYTHON'
import random
from collections import Counter

from datatrove.data import Document
from datatrove.pipeline.filters import GopherRepetitionFilter
from datatrove.pipeline.filters.gopher_repetition_filter import find_all_duplicate
from datatrove.utils.word_tokenizers import WordTokenizer

N_WORDS = 1000
N = 10
LIMIT = 0.10
letters = "abcdefghijklmnopqrstuvwxyz"
random.seed(0)
vocabulary = ["".join(random.choices(letters, k=random.randint(2, 9))) for _ in range(5000)]


class SplitTokenizer(WordTokenizer):
    """Cut at white space, so that the filter needs no language model."""

    def word_tokenize(self, text):
        return text.split()

    def sent_tokenize(self, text):
        raise NotImplementedError

    def span_tokenize(self, text):
        raise NotImplementedError


def make_words(n_repeated):
    """Return 1000 random words, in which a passage of `n_repeated` words stands twice."""
    passage = random.choices(vocabulary, k=n_repeated)
    rest = random.choices(vocabulary, k=N_WORDS - 2 * n_repeated)
    half = len(rest) // 2
    return rest[:half] + passage + rest[half:] + passage


def repeated_fraction(words):
    """Return the paper's fraction: of characters in 10-grams that occur more than once."""
    n_grams = [tuple(words[i:i + N]) for i in range(len(words) - N + 1)]
    counts = Counter(n_grams)
    repeated = set()
    for i, n_gram in enumerate(n_grams):
        if counts[n_gram] > 1:
            repeated.update(range(i, i + N))
    return sum(len(words[i]) for i in repeated) / sum(len(word) for word in words)


def measure(n_repeated, space):
    """Print and return the paper's fraction, datatrove's, and whether its filter keeps the text."""
    words = make_words(n_repeated)
    text = space.join(words)
    paper = repeated_fraction(words)
    datatrove = find_all_duplicate(words, N) / len(text)
    keeper = GopherRepetitionFilter(language=SplitTokenizer(), dup_n_grams=((N, LIMIT),))
    kept = keeper.filter(Document(text=text, id="0")) is True
    print(f"{n_repeated} words twice in {N_WORDS}, {len(space)} between two: repeated "
          f"{paper:.2f}, datatrove says {datatrove:.3f} and {'keeps' if kept else 'removes'} it")
    return paper, datatrove, kept


assert measure(0, " ") == (0, 0, True)
paper, _, kept = measure(60, " ")
assert paper > LIMIT and kept
paper, _, kept = measure(105, " ")
assert paper > 2 * LIMIT and kept
assert not measure(130, " ")[2]
paper, _, kept = measure(150, " " * 4)
assert paper > 2.7 * LIMIT and kept
paper, datatrove, _ = measure(500, " ")
assert paper == 1 and 0.4 < datatrove < 0.45
paper, datatrove, _ = measure(500, " " * 4)
assert paper == 1 and 0.25 < datatrove < 0.32
PYTHON
