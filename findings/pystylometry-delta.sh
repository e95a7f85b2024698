#!/usr/bin/env bash
# pystylometry's Burrows' Delta of any two texts is 1.414, and its Cosine Delta is 2.
#
# Version: pystylometry 1.4.3.
# Guess before the run: "lower scores indicate more similar texts (likely same author)": of two texts by one
#     author, `compute_burrows_delta` is lower than of two by different ones. (Suspected after reading
#     the source.)
# Seen: means and deviations are those of the two texts themselves, so that each word with two different
#     frequencies has z-scores of -0.707 and 0.707, however different these are. The score is 1.414 times the
#     share of such words: 1.41421356 for texts with the same distribution, for reversed ones, and for a
#     text and the same text with one word more. `compute_cosine_delta` is 2 for all of these. A comment
#     in the source says why, beside another function, `compute_johns_delta`, which does it otherwise.
# For gyre: nothing. There, take `compute_johns_delta`, or z-scores of a corpus.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps pystylometry==1.4.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math
import random
from collections import Counter
from string import ascii_lowercase

from pystylometry.authorship import compute_burrows_delta, compute_cosine_delta

random.seed(0)
VOCABULARY = ["".join(random.choices(ascii_lowercase, k=5)) for _ in range(300)]
FREQUENT_FIRST = [1 / rank for rank in range(1, 301)]
N_WORDS = 5000


def write(weights, n_words=N_WORDS):
    return random.choices(VOCABULARY, weights, k=n_words)


def measure(left, right):
    """Return the sum of the absolute differences of the shares of words, in percent."""
    a, b = Counter(left), Counter(right)
    return sum(abs(a[word] / len(left) - b[word] / len(right)) for word in VOCABULARY) * 100


text = write(FREQUENT_FIRST)
pairs = {
    "the text and itself with one word more": text + VOCABULARY[:1],
    "two texts with the same frequencies": write(FREQUENT_FIRST, N_WORDS + 1),
    "rare words are frequent in the other": write(FREQUENT_FIRST[::-1], N_WORDS + 1),
}
distances = []
for name, other in pairs.items():
    burrows = compute_burrows_delta(" ".join(text), " ".join(other)).delta_score
    cosine = compute_cosine_delta(" ".join(text), " ".join(other)).delta_score
    distances.append(measure(text, other))
    print(f"{name}: Burrows' Delta {burrows:.8f}, Cosine Delta {cosine:.8f}; "
          f"shares differ by {distances[-1]:.2f} %")
    assert math.isclose(burrows, math.sqrt(2), rel_tol=1e-9) and math.isclose(cosine, 2, rel_tol=1e-9)
assert distances[0] < 0.1 and distances[1] < 30 and distances[2] > 100
same = compute_burrows_delta(" ".join(text), " ".join(text)).delta_score
print("a text and itself:", same)
assert same == 0
PYTHON
