#!/usr/bin/env bash
# confidence-intervals: an interval with conditions depends on the order of the rows.
#
# Versions: confidence-intervals 0.0.3, scikit-learn 1.9.1, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: with conditions, speakers say, a bootstrap draws conditions and then rows of each,
#     independently. The interval does not depend on the order of the rows, but for the noise of the
#     draws. (That it might was suspected after reading the source.)
# Seen: one seed serves for all conditions of a draw, so that those with equally many rows are drawn at
#     the same positions. Where 50 speakers have 10 positive rows each and then 10 negative ones, a draw
#     with too many positive rows has too many of every speaker: the interval of the accuracy is 2.2 times
#     as wide as that of the same rows in random order, and 2.7 times as wide as with independent draws.
# For gyre: its report resamples seeds. There, shuffle the rows first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps confidence-intervals==0.0.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from confidence_intervals import evaluate_with_conf_int, get_bootstrap_indices

SPEAKERS, ROWS, DRAWS = 50, 20, 200
generator = np.random.default_rng(0)
speakers = np.repeat(np.arange(SPEAKERS), ROWS)
labels = np.tile(np.repeat([1, 0], ROWS // 2), SPEAKERS)
share = np.where(labels == 1, 0.98, 0.4)  # of rows that are called positive
predictions = (generator.random(SPEAKERS * ROWS) < share).astype(int)


def measure_accuracy(labels, predictions):
    """Return the share of right predictions."""
    return (labels == predictions).mean()


def measure_width(order):
    """Return the width of the 95 % interval for the rows in this order."""
    _, (low, high) = evaluate_with_conf_int(
        predictions[order], measure_accuracy, labels[order], speakers[order], num_bootstraps=DRAWS
    )
    return high - low


indices = get_bootstrap_indices(SPEAKERS * ROWS, speakers, random_state=0)
drawn = [sorted(row % ROWS for row in indices if row // ROWS == speaker) for speaker in set(indices // ROWS)]
once = [positions for positions in drawn if len(positions) == ROWS]
print(f"speakers that are drawn once: {len(once)}, with {len(set(map(tuple, once)))} list of positions")
assert len(once) > 2 and len(set(map(tuple, once))) == 1

right = (labels == predictions).reshape(SPEAKERS, ROWS)
scores = []
for _ in range(2000):
    chosen = right[generator.integers(SPEAKERS, size=SPEAKERS)]
    rows = generator.integers(ROWS, size=(SPEAKERS, ROWS))
    scores.append(np.take_along_axis(chosen, rows, axis=1).mean())
due = np.subtract(*np.percentile(scores, [97.5, 2.5]))
given = measure_width(np.arange(SPEAKERS * ROWS))
shuffled = measure_width(generator.permutation(SPEAKERS * ROWS))
print(f"width of the interval: {given:.3f} as given, {shuffled:.3f} in random order, {due:.3f} with "
      f"independent draws")
assert given > 2 * due and 0.7 * due < shuffled < 1.4 * due
PYTHON
