#!/usr/bin/env bash
# sktime's windowed F1 score is 0 for exact detections, and up to 2 for a single one.
#
# Versions: sktime 1.2.0, scikit-base 1.1.0, scikit-learn 1.9.1, pandas 2.3.3, numpy 2.4.6.
# Guess before the run: with the default margin of 0, "only exact matches" count, so that detections
#     at the true places have 1; with a margin of 2 those that are off by 2 count, on either side; a
#     score is between 0 and 1. (That they might not was suspected after reading the source.)
# Seen: a detection is skipped if it is as far ahead of an event as the margin. With a margin of 0 no
#     detection ever counts: perfect ones have 0, as have all others. With a margin of 2, those that
#     are 2 late have 1, and those that are 2 early 0. A detection counts for each event near it: one
#     for three events has 1.5, and for 50 events 1.96.
# For gyre: it detects nothing in series. There, count pairs by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile sktime==1.2.0 scikit-base==1.1.0 \
    scikit-learn==1.9.1 pandas==2.3.3 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
from sktime.performance_metrics.detection import WindowedF1Score


def score(events, detections, margin):
    """Return the score of the package."""
    frames = [pd.DataFrame({"ilocs": places}) for places in (events, detections)]
    return WindowedF1Score(margin=margin).evaluate(*frames)


def due(events, detections, margin):
    """Return the F1 score of a one-to-one matching, from the first event to the last."""
    left = sorted(detections)
    matched = 0
    for event in sorted(events):
        near = [place for place in left if abs(place - event) <= margin]
        if near:
            left.remove(near[0])
            matched += 1
    return 2 * matched / (len(events) + len(detections))


events = np.array([100, 200, 300, 400])
for margin in [0, 2, 10]:
    for shift in sorted({0, margin, -margin, margin + 1}):
        seen, right = score(events, events + shift, margin), due(events, events + shift, margin)
        print(f"margin {margin}, all detections off by {shift}: {seen}, due {right}")
        assert right == (abs(shift) <= margin)
        assert seen == (0 if shift == -margin else right)

generator = np.random.default_rng(0)
exact = [score(places, places, 0)
         for places in (generator.choice(1000, 50, replace=False) for _ in range(20))]
print(f"20 lists of 50 exact detections, with the default margin: {set(exact)}")
assert set(exact) == {0}

for n in [2, 3, 10, 50]:
    events, detections = np.arange(n), [n]
    seen, right = score(events, detections, 100), due(events, detections, 100)
    print(f"one detection for {n} events: {seen:.2f}, due {right:.2f}")
    assert abs(right - 2 / (n + 1)) < 1e-12
    assert abs(seen - 2 * n / (n + 1)) < 1e-12 and seen > 1
PYTHON
