#!/usr/bin/env bash
# After its first drift, menelaus's CUSUM watches the beginning of the stream again.
#
# Versions: menelaus 0.2.0, numpy 2.4.6, pandas 3.1.1, scipy 1.17.1, scikit-learn 1.9.1.
# Guess before the run: after a drift, CUSUM goes on with new observations, target and deviation
#     from before: one step in the mean is one drift. (That it might not be was suspected after
#     reading the source.)
# Seen: the stored stream is indexed by the number of samples since the last drift, and never cut.
#     After a step from 0 to 5 at 200, the detector finds the same step again at 412, and then
#     compares the first observations with the new mean: 27 drifts within 1,000 stationary samples,
#     one every 31. Values that are a million times as large from 204 on are found at 408. A new
#     detector that is given the rest of the stream finds what is there.
# For gyre: it watches no data. There, make a new detector after each drift.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile menelaus==0.2.0 numpy==2.4.6 pandas==3.1.1 \
    scipy==1.17.1 scikit-learn==1.9.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from menelaus.change_detection import CUSUM

BURN_IN, SLACK, THRESHOLD = 30, 0.5, 15


def detect(stream):
    """Return the numbers of the observations at which the detector reports drift."""
    detector = CUSUM(burn_in=BURN_IN, delta=SLACK, threshold=THRESHOLD)
    drifts = []
    for number, value in enumerate(stream):
        detector.update(X=np.array([[value]]))
        if detector.drift_state == "drift":
            drifts.append(number)
    return drifts


def reference(stream):
    """Return the same for a detector that looks at each observation once."""
    drifts, start, high, low = [], 0, 0.0, 0.0
    target, deviation = np.mean(stream[:BURN_IN]), np.std(stream[:BURN_IN])
    for number, value in enumerate(stream):
        if number < BURN_IN - 1:
            continue
        score = (value - target) / deviation
        high, low = max(0, high + score - SLACK), max(0, low - score - SLACK)
        if number - start >= BURN_IN and max(high, low) > THRESHOLD:
            drifts.append(number)
            last = stream[number + 1 - BURN_IN:number + 1]
            target, deviation, start, high, low = np.mean(last), np.std(last), number + 1, 0, 0
    return drifts


generator = np.random.default_rng(0)
before, after = generator.normal(size=200), 5 + generator.normal(size=1000)
stream = np.concatenate([before, after])
found, due = detect(stream), reference(stream)
print(f"one step at 200: drifts at {', '.join(map(str, found[:6]))}, ..., {len(found)} in all; due "
      f"are {len(due)}, the first at {due[0]}")
assert found[0] == due[0] and 200 <= due[0] < 210
assert len(found) > 20 and len(due) <= 4
assert set(np.diff(found[2:])) == {BURN_IN + 1}

# What follows the first drift: stationary, or a million times as large.
huge = stream.copy()
huge[found[0] + 1:] *= 1e6
print(f"the rest a million times as large: {', '.join(map(str, detect(huge)[:2]))}; "
      f"due {', '.join(map(str, reference(huge)[:2]))}")
assert detect(huge)[1] > 2 * found[0] and reference(huge)[1] < found[0] + 2 * BURN_IN

fresh = detect(after)
print(f"a new detector with the 1000 samples behind the step: {len(fresh)} drifts")
assert len(fresh) <= 2 and len(detect(before)) <= 1
PYTHON
