#!/usr/bin/env bash
# pystylometry's HD-D counts the words that a sample lacks, and its voc-D is 5 for any rich text.
#
# Version: pystylometry 1.4.3.
# Guess before the run: HD-D is the expected type-token ratio of 42 words, between 0 and 1, as the documentation
#     says, and hardly depends on the length of the text; voc-D is the D of the paper's curve, 10 to 100 and
#     more, with a determination near 1. (Suspected after reading the source.)
# Seen: HD-D is the sum of the probabilities that a word is absent: 119 for a text of 200 words, and 1,415
#     for one of 5,000 with the same frequencies, where 0.91 and 0.90 are due. voc-D fits D / sqrt(n) instead
#     of the paper's curve: five texts have 4.7 to 5.6 where 77 to 1,256 are due, with a determination
#     of -11 to -900. The moving average of the type-token ratio is right.
# For gyre: it measures no diversity of samples. There, take `compute_mattr`.
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

from pystylometry.lexical.advanced_diversity import compute_hdd, compute_mattr, compute_vocd_d

SAMPLE = 42
random.seed(0)
VOCABULARY = ["".join(random.choices(ascii_lowercase, k=6)) for _ in range(3000)]
documentation = " ".join(compute_hdd.__doc__.split())
assert "HD-D values range from 0 (no diversity) to 1" in documentation
assert "D values typically range from 10 (low diversity) to 100+" in " ".join(compute_vocd_d.__doc__.split())


def expect_ratio(words, size):
    """Return the expected type-token ratio of a random sample without replacement."""
    n_words = len(words)
    counts = Counter(words).values()
    present = sum(1 - math.comb(n_words - count, size) / math.comb(n_words, size) for count in counts)
    return present / size


def fit_d(words):
    """Return the D of the paper: TTR = D / n (sqrt(1 + 2 n / D) - 1), for samples of 35 to 50 words."""
    sizes = range(35, 51)
    ratios = [expect_ratio(words, size) for size in sizes]

    def error(d):
        return sum((d / n * (math.sqrt(1 + 2 * n / d) - 1) - ratio) ** 2 for n, ratio in zip(sizes, ratios))

    return min(range(1, 3000), key=error)


seen = {}
for offset, n_words in [(3, 200), (3, 1000), (3, 5000), (100, 5000), (0.3, 5000)]:
    weights = [1 / (rank + offset) for rank in range(1, 3001)]
    words = random.choices(VOCABULARY, weights, k=n_words)
    text = " ".join(words)
    hdd = compute_hdd(text).hdd_score
    vocd = compute_vocd_d(text, random_seed=0)
    ratio = expect_ratio(words, SAMPLE)
    d = fit_d(words)
    seen[offset, n_words] = hdd, ratio, vocd.d_parameter, d, vocd.curve_fit_r_squared
    print(f"{n_words} words: HD-D {hdd:.1f}, due {ratio:.3f}; voc-D {vocd.d_parameter:.2f}, "
          f"determination {vocd.curve_fit_r_squared:.1f}, due {d:.0f}; MATTR {compute_mattr(text).mattr_score:.3f}")
for hdd, ratio, d_seen, d_due, determination in seen.values():
    assert hdd > 100 and 0.8 < ratio < 1
    assert 4 < d_seen < 6 and d_due > 60 and determination < -5
# With the same frequencies, the value grows with the text.
assert seen[3, 5000][0] > 2.5 * seen[3, 1000][0] > 6 * seen[3, 200][0]
PYTHON
