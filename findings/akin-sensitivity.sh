#!/usr/bin/env bash
# In akin, `sensitivity=2` finds nothing: not even a text that is the same.
#
# Versions: akin 1.0.1, mmh3 5.3.0, numpy 2.4.6.
# Guess before the run: with `sensitivity=2`, query() and adjacency_list() give the texts that share
#     at least two bands with a text, as the docstring says: an identical one shares all 50. (That
#     the bands are not counted was suspected after reading the source.)
# Seen: each text that shares a band has a count of 1, however many it shares, so that with any
#     sensitivity above 1 the lists are empty, without an error: a corpus in which each text stands
#     twice has no duplicates.
# For gyre: it removes no near-duplicates. There, leave `sensitivity` out, and give `min_jaccard`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile akin==1.0.1 mmh3==5.3.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from akin import LSH, KMinHash

TEXTS = 20
BANDS = 50
generator = np.random.default_rng(0)
texts = [" ".join(f"w{number}" for number in generator.integers(0, 10**7, 60))
         for _ in range(TEXTS)] * 2
signatures = KMinHash(n_gram=2, n_gram_type="term", permutations=100, seed=3).transform(texts)
index = LSH(permutations=100, no_of_bands=BANDS)
index.update(signatures, range(len(texts)))

rows = len(signatures[0]) // BANDS
for sensitivity in [1, 2, 10]:
    lists = index.adjacency_list(sensitivity=sensitivity)
    found = sum((label + TEXTS) % len(texts) in others for label, others in lists.items())
    due = sum(
        sum(signatures[label][start:start + rows]
            == signatures[(label + TEXTS) % len(texts)][start:start + rows]
            for start in range(0, len(signatures[0]), rows)) >= sensitivity
        for label in lists)
    print(f"sensitivity {sensitivity}: {found} of {len(texts)} texts have their copy in the list, "
          f"{due} share that many bands with it")
    assert due == len(texts)
    assert found == (len(texts) if sensitivity == 1 else 0)
PYTHON
