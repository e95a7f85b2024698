#!/usr/bin/env bash
# sprt accepts what it should reject, and rejects what it should accept, if h1 is below h0.
#
# Versions: sprt 0.0.1, numpy 2.4.6, pandas 3.1.1, matplotlib 3.11.2.
# Guess before the run: a sequential test of h0=0.5 against h1=0.3 rejects h0 where 30 % of the values are 1,
#     and accepts it where half are; the decision is that of the first value that leaves the bounds. (That
#     neither might hold was suspected after reading the source.)
# Seen: the bounds are divided by a logarithm that is negative then, so that the upper one is below the
#     lower one, and the comparisons stay as they are: of 200 values of which half are 1, all series are
#     "Reject", and where 30 % are, all are "Accept". Only the last value is looked at: of 20 series with
#     h1 = 0.6 that a test step by step rejects, 13 are "Continue" or "Accept".
# For gyre: it tests nothing step by step. There, test 1 - x with 1 - h0 and 1 - h1, value by value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 pandas==3.1.1 matplotlib==3.11.2 \
    setuptools==80.9.0 wheel==0.45.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps --no-build-isolation sprt==0.0.1
MPLBACKEND=agg MPLCONFIGDIR="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io
import math
from collections import Counter

import numpy as np
from sprt import SPRTBinomial

ALPHA, BETA, LENGTH, SERIES = 0.05, 0.2, 200, 60
generator = np.random.default_rng(0)


def decide(values, h0, h1):
    """Return the decision of sprt."""
    with contextlib.redirect_stdout(io.StringIO()):
        return SPRTBinomial(alpha=ALPHA, beta=BETA, h0=h0, h1=h1, values=values).decision


def decide_stepwise(values, h0, h1):
    """Return the decision of Wald's test, at the first value that leaves the bounds."""
    ratio = 0.0
    for value in values:
        ratio += math.log(h1 / h0) if value else math.log((1 - h1) / (1 - h0))
        if ratio > math.log((1 - BETA) / ALPHA):
            return "Reject"
        if ratio < math.log(BETA / (1 - ALPHA)):
            return "Accept"
    return "Continue"


counts = {}
for h1 in (0.3, 0.7):
    for share in (0.5, h1):
        series = [(generator.random(LENGTH) < share).astype(int).tolist() for _ in range(SERIES)]
        found = counts[h1, share] = Counter(decide(values, 0.5, h1) for values in series)
        due = Counter(decide_stepwise(values, 0.5, h1) for values in series)
        print(f"h0 = 0.5, h1 = {h1}, share {share}: {dict(found)}, where {dict(due)} are due")
        assert due["Accept" if share == 0.5 else "Reject"] > 0.7 * SERIES
assert counts[0.3, 0.5]["Reject"] > 0.9 * SERIES and counts[0.3, 0.3]["Accept"] > 0.9 * SERIES
assert counts[0.7, 0.5]["Accept"] > 0.9 * SERIES and counts[0.7, 0.7]["Reject"] > 0.9 * SERIES

rejected = []
while len(rejected) < 20:
    values = (generator.random(LENGTH) < 0.5).astype(int).tolist()
    if decide_stepwise(values, 0.5, 0.6) == "Reject":
        rejected.append(values)
found = Counter(decide(values, 0.5, 0.6) for values in rejected)
print(f"h1 = 0.6, share 0.5, rejected step by step: {dict(found)} of {len(rejected)} at their end")
assert found["Reject"] < 0.5 * len(rejected)
PYTHON
