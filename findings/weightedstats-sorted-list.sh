#!/usr/bin/env bash
# weightedstats' median sorts the caller's list, so that its weights belong to other values afterwards.
#
# Versions: weightedstats 0.4.1, numpy 2.4.6.
# Guess before the run: `median(data)` leaves the list as it is, as `mean(data)` does, so that
#     `weighted_mean(data, weights)` and `weighted_median(data, weights)` are the same before and after
#     it. (That it does not was suspected after reading the source.)
# Seen: the list itself is sorted. In the order of the package's own example, plain statistics first, the
#     weighted mean of five values is 4.23 for 1.77, and their weighted median 5 for 1. `weighted_median(
#     data)` without weights sorts too; the two functions for arrays do not.
# For gyre: its medians sort copies. There, give `list(data)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 weightedstats==0.4.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import random

import numpy as np
import weightedstats as ws

VALUES, WEIGHTS = [5, 4, 3, 2, 1], [1, 1, 1, 1, 9]


def due(values, weights):
    """Return the weighted mean and the weighted median of copies."""
    pairs = sorted(zip(values, weights))
    total, middle = 0, None
    for value, weight in pairs:
        total += weight
        if middle is None and total > sum(weights) / 2:
            middle = value
    return float(np.average(values, weights=weights)), middle


for first in (ws.mean, ws.median, ws.weighted_median, ws.numpy_weighted_median):
    data = list(VALUES)
    first(data)
    seen = ws.weighted_mean(data, weights=WEIGHTS), ws.weighted_median(data, weights=WEIGHTS)
    print(f"after {first.__name__}(data): weighted mean {seen[0]:.2f}, median {seen[1]}; due "
          f"{due(VALUES, WEIGHTS)[0]:.2f} and {due(VALUES, WEIGHTS)[1]}; the list is {data}")
    changed = first in (ws.median, ws.weighted_median)
    assert data == (sorted(VALUES) if changed else VALUES)
    right = np.isclose(seen[0], due(VALUES, WEIGHTS)[0]) and seen[1] == due(VALUES, WEIGHTS)[1]
    assert right == (not changed)

random.seed(0)
errors = []
for _ in range(200):
    data = [random.random() for _ in range(21)]
    weights = [value**2 for value in data]
    before = ws.weighted_mean(data, weights=weights)
    ws.median(data)
    errors.append(before - ws.weighted_mean(data, weights=weights))
print(f"200 lists that are weighted by their squares: the weighted mean falls by {np.mean(errors):.2f} "
      f"on average after a median")
assert np.mean(errors) > 0.15
PYTHON
