#!/usr/bin/env bash
# sktime's Rand index needs the same numbers of segments on both sides, and falls to -1 without.
#
# Versions: sktime 1.2.0, scikit-base 1.1.0, scikit-learn 1.9.1, pandas 2.3.3, numpy 2.4.6.
# Guess before the run: the index is the share of pairs of places that two segmentations treat alike,
#     "between 0 and 1"; as in every Rand index, names of segments have no part in it. (That they
#     might have one was suspected after reading the source.)
# Seen: a pair within a segment of both sides counts only if both segments have the same number, which
#     is their place in the list. One short segment too many at the start of a series leaves 0.03 of
#     0.98 that are due; at the end, it leaves all of it. One segment against two has -0.98. With two
#     labels exchanged, the same segments have 0.01 instead of 1.
# For gyre: it segments nothing. There, take scikit-learn's `rand_score` of the places' labels.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile sktime==1.2.0 scikit-base==1.1.0 \
    scikit-learn==1.9.1 pandas==2.3.3 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
from sklearn.metrics import rand_score
from sktime.performance_metrics.detection import RandIndex

N = 100


def segments(breaks, labels=None):
    """Return a segmentation of the places from 0 to N in sktime's form."""
    frame = pd.DataFrame({"ilocs": pd.IntervalIndex.from_breaks([0, *breaks, N], closed="left")})
    if labels is not None:
        frame["label"] = labels
    return frame


def compare(name, first, second):
    """Return the indices of sktime and of scikit-learn."""
    seen = RandIndex().evaluate(first, second)
    places = [np.concatenate([np.full(int(row.length), i) for i, row in enumerate(frame["ilocs"])])
              for frame in (first, second)]
    due = rand_score(*places)
    print(f"{name}: {seen:.3f}, due {due:.3f}")
    return seen, due


seen, due = compare("the same segments", segments([50]), segments([50]))
assert seen == due == 1
seen, due = compare("a second break near the end", segments([50]), segments([50, 98]))
assert abs(seen - due) < 1e-3 and due > 0.9
seen, due = compare("a second break near the start", segments([50]), segments([2, 50]))
assert due > 0.9 and seen < 0.05
seen, due = compare("two segments for one", segments([]), segments([1]))
assert due > 0.9 and seen < -0.9
seen, due = compare("two labels exchanged", segments([50], [0, 1]), segments([50], [1, 0]))
assert due == 1 and seen < 0.02

generator = np.random.default_rng(0)
pairs = []
for _ in range(200):
    breaks = np.sort(generator.choice(np.arange(5, N - 5), 5, replace=False))
    found = np.sort(generator.choice(breaks, 4, replace=False))
    first, second = segments(breaks), segments(found)
    labels = [np.repeat(np.arange(len(edges) + 1), np.diff([0, *edges, N]))
              for edges in (breaks, found)]
    pairs.append((RandIndex().evaluate(first, second), rand_score(*labels)))
seen, due = np.array(pairs).T
print(f"200 times, four of five breaks found: {seen.mean():.2f} on average, due {due.mean():.2f}")
assert due.min() > 0.6 and seen.mean() < due.mean() - 0.1 and (seen <= due + 1e-9).all()
PYTHON
