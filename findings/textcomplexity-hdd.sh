#!/usr/bin/env bash
# textcomplexity's HD-D of a text without a repeated word is 0.02 instead of 1.
#
# Versions: textcomplexity 0.11.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: HD-D is the expected share of types in 42 random tokens: 1 for a text of
#     1,000 different words. Gries' DP is between 0 and 1. (That they might not be was suspected
#     after reading the source of an older module of the package.)
# Seen: the sum goes over the frequency spectrum, which says how many words have a frequency, as if
#     it were the list of words and their frequencies. A text without a repeated word has 0.02 for
#     1, less than one of 400 words by Zipf's law, which has 0.11 for 0.71. DP lacks its factor of a
#     half: it reaches 1.8 with ten parts, and the normalized one 2. The moving average of the
#     type-token ratio is right.
# For gyre: it measures no diversity of samples. There, take MATTR, and half of DP.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps textcomplexity==0.11.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from collections import Counter, namedtuple

import numpy as np
from scipy.stats import hypergeom
from textcomplexity import surface
from textcomplexity.utils.text import Text

SAMPLE, N_PARTS = 42, 10
Token = namedtuple("Token", ["word", "pos"])
generator = np.random.default_rng(0)


def compute_hdd(words):
    """Return the expected number of types in 42 tokens, drawn without replacement, over 42."""
    frequencies = np.array(list(Counter(words).values()))
    return (1 - hypergeom.pmf(0, len(words), frequencies, SAMPLE)).sum() / SAMPLE


def compute_dp(words):
    """Return the mean over the types of half of the sum of |share in a part - share of a part|."""
    size = len(words) // N_PARTS
    parts = [Counter(words[i * size:(i + 1) * size]) for i in range(N_PARTS)]
    return np.mean([sum(abs(part[word] / count - 1 / N_PARTS) for part in parts) / 2
                    for word, count in Counter(words).items()])


shares = 1 / np.arange(1, 401)
TEXTS = {
    "1,000 different words": [f"w{i}" for i in range(1000)],
    "400 words by Zipf's law": [
        f"w{i}" for i in generator.choice(400, size=1000, p=shares / shares.sum())],
    "ten words, evenly": [f"w{i % 10}" for i in range(1000)],
}
found = {}
for name, words in TEXTS.items():
    text = Text.from_tokens([Token(word, "X") for word in words])
    found[name] = surface.hdd(text)
    dp, normalized = surface.gries_dp(text, N_PARTS), surface.gries_dp_norm(text, N_PARTS)
    print(f"{name}: HD-D {found[name]:.3f}, where {compute_hdd(words):.3f} is due; DP {dp:.3f} and "
          f"normalized {normalized:.3f}, where {compute_dp(words):.3f} and "
          f"{compute_dp(words) / (1 - 1 / N_PARTS):.3f} are due")
    spectrum = Counter(Counter(words).values())
    wrong = sum(1 - hypergeom.pmf(0, len(words), count, SAMPLE) for count in spectrum.values())
    assert abs(found[name] - wrong / SAMPLE) < 1e-6
    assert abs(dp - 2 * compute_dp(words)) < 1e-9
    window = surface.mattr(text, window_size=100)
    due = np.mean([len(set(words[i:i + 100])) / 100 for i in range(len(words) - 99)])
    assert abs(window - due) < 1e-9
assert found["1,000 different words"] < 0.03 and compute_hdd(TEXTS["1,000 different words"]) > 0.99
assert found["400 words by Zipf's law"] > 2 * found["1,000 different words"]
PYTHON
