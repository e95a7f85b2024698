#!/usr/bin/env bash
# menelaus's Page-Hinkley test for a falling mean reports drift in a constant stream.
#
# Versions: menelaus 0.2.0, numpy 2.4.6, pandas 3.1.1, scipy 1.17.1, scikit-learn 1.9.1.
# Guess before the run: a constant stream has no drift in either direction, and `delta`, the
#     "minimum amplitude of change", makes the test less sensitive. (That it might not was suspected
#     after reading the source.)
# Seen: with `direction="negative"`, delta is subtracted as for a rising mean, where it should be
#     added: the sum falls by delta in each step. A stream of ones drifts every 2,000 samples, one
#     of 0.1 every 200, and the larger delta is, the sooner. With "positive" all is well.
# For gyre: it watches no data. There, give "positive" the negative stream plus a constant, or
#     `delta=0`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile menelaus==0.2.0 numpy==2.4.6 pandas==3.1.1 \
    scipy==1.17.1 scikit-learn==1.9.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from menelaus.change_detection import PageHinkley

THRESHOLD, BURN_IN = 20, 30


def detect(stream, direction, delta=0.01):
    """Return the numbers of the observations at which the detector reports drift."""
    detector = PageHinkley(delta=delta, threshold=THRESHOLD, burn_in=BURN_IN, direction=direction)
    drifts = []
    for number, value in enumerate(stream):
        detector.update(X=np.array([[value]]))
        if detector.drift_state == "drift":
            drifts.append(number)
    return drifts


def reference(stream, direction, delta=0.01):
    """Return the same, with delta taken from each step in the direction that is watched."""
    sign = 1 if direction == "positive" else -1
    drifts, count, mean, excess = [], 0, 0.0, 0.0
    for number, value in enumerate(stream):
        count += 1
        mean += (value - mean) / count
        excess = max(0.0, excess + sign * (value - mean) - delta)
        if excess > THRESHOLD * mean and count > BURN_IN:
            drifts.append(number)
            count, mean, excess = 0, 0.0, 0.0
    return drifts


noise = 1 + 0.1 * np.random.default_rng(0).normal(size=3000)
falling = np.concatenate([np.ones(500), np.full(500, 0.3)])
streams = {"ones": np.ones(6000), "tenths": np.full(1000, 0.1), "noise around 1": noise,
           "falls at 500": falling, "rises at 500": 1.3 - falling}
for name, stream in streams.items():
    for direction in ["positive", "negative"]:
        found, due = detect(stream, direction), reference(stream, direction)
        print(f"{name}, {direction}: drift at {found}, due {due}")
        if direction == "positive":
            assert found == due
        elif name in ("ones", "tenths", "noise around 1"):
            assert found and not due
        elif name == "falls at 500":
            assert due and found and found[0] >= 500
assert len(detect(streams["ones"], "negative")) == 3
assert len(detect(streams["tenths"], "negative")) == 5
counts = [len(detect(streams["ones"], "negative", delta)) for delta in [0, 0.01, 0.02, 0.1]]
print(f"ones, negative, with delta 0, 0.01, 0.02 and 0.1: {counts} drifts")
assert counts[0] == 0 and counts == sorted(counts) and counts[-1] > 20
PYTHON
