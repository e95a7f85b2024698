#!/usr/bin/env bash
# infomeasure's Kullback-Leibler divergence is negative if values are missing in the second data.
#
# Versions: infomeasure 0.6.3, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: the divergence of discrete data is never negative, 0 for equal counts, and
#     infinite, or refused, if the second data lack a value of the first. (That it might not be was
#     suspected after reading the source.)
# Seen: such values are left out of the cross-entropy and not of the entropy that is subtracted. Of
#     four equal values, data with one of them only have -1.39, the lowest number that can be, and
#     so have data without any of them; data with all four, in other proportions, have 0.19. Who
#     looks for the nearest data takes those that have least in common. Nothing is said, but for
#     data without a common value. The divergence of Jensen and Shannon is right.
# For gyre: it compares no counts. There, take `jensen_shannon_divergence`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile infomeasure==0.6.3 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import infomeasure
import numpy as np
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr

FIRST = [25, 25, 25, 25]
SECOND = {
    "the same": [25, 25, 25, 25],
    "other proportions": [55, 15, 15, 15],
    "three of four values": [40, 30, 30, 0],
    "two of four values": [50, 50, 0, 0],
    "one of four values": [100, 0, 0, 0],
    "no common value": [0, 0, 0, 0, 100],
}


def make_data(counts):
    return np.repeat(np.arange(len(counts)), counts)


first = np.array(FIRST + [0]) / 100
found = {}
for name, counts in SECOND.items():
    second = np.array((counts + [0])[:5]) / 100
    given = make_data(FIRST), make_data(counts)
    found[name] = infomeasure.kullback_leiber_divergence(*given, approach="discrete")
    due = rel_entr(first, second).sum()
    jensen_shannon = infomeasure.jensen_shannon_divergence(*given, approach="discrete")
    print(f"{name}: {found[name]:.3f}, where {due:.3f} is due; Jensen-Shannon "
          f"{jensen_shannon:.3f}")
    common = (first > 0) & (second > 0)
    cross = -(first[common] * np.log(second[common])).sum()
    assert abs(found[name] - (cross - np.log(4))) < 1e-9
    assert abs(jensen_shannon - jensenshannon(first, second) ** 2) < 1e-9
    assert np.isinf(due) or abs(found[name] - due) < 1e-9
assert found["other proportions"] > 0.1 and found["three of four values"] < -0.3
assert abs(found["one of four values"] + np.log(4)) < 1e-9
assert min(found, key=found.get) in ("one of four values", "no common value")
PYTHON
