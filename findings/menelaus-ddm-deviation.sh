#!/usr/bin/env bash
# menelaus's DDM takes the deviation of one observation for that of the error rate.
#
# Versions: menelaus 0.2.0, numpy 2.4.6, pandas 3.1.1, scipy 1.17.1, scikit-learn 1.9.1.
# Guess before the run: drift where p + s exceeds the smallest p plus 3 times the smallest s, as its
#     docstring says, with s the root of p(1 - p) / n; so a classifier with a constant error rate
#     has about as many drifts as by a loop of one's own. (That it might not was suspected after
#     reading the source.)
# Seen: the sum of squares is replaced by its root in each step, so that next to nothing but the
#     last observation is left of it: with an error rate of 0.1, s is several times as large after
#     an error as after a right answer, and the limit has the present s, not the smallest one. With
#     error rates of 0.1 to 0.3, nearly each stationary stream of 1,000 has a drift, and all
#     together several times as many as by the docstring. EDDM has the same formula.
# For gyre: it watches no data. There, take STEPD, which compares two windows by a test of its own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile menelaus==0.2.0 numpy==2.4.6 pandas==3.1.1 \
    scipy==1.17.1 scikit-learn==1.9.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from menelaus.concept_drift import DDM, STEPD

STREAMS, LENGTH, BURN_IN = 20, 1000, 30


def detect(detector, errors):
    """Return the numbers of the observations at which the detector reports drift."""
    drifts = []
    for number, error in enumerate(errors):
        detector.update(y_true=0, y_pred=int(error))
        if detector.drift_state == "drift":
            drifts.append(number)
    return drifts


def reference(errors):
    """Return the same, by the formulas of the docstring and Gama et al. (2004)."""
    drifts, count, wrong, lowest_rate, lowest_deviation = [], 0, 0, np.inf, np.inf
    for number, error in enumerate(errors):
        count += 1
        wrong += error
        rate = wrong / count
        deviation = np.sqrt(rate * (1 - rate) / count)
        if count < BURN_IN:
            continue
        if rate + deviation <= lowest_rate + lowest_deviation:
            lowest_rate, lowest_deviation = rate, deviation
        if deviation > 0 and rate + deviation >= lowest_rate + 3 * lowest_deviation:
            drifts.append(number)
            count, wrong, lowest_rate, lowest_deviation = 0, 0, np.inf, np.inf
    return drifts


def draw(rates, seed):
    return (np.random.default_rng(seed).uniform(size=len(rates)) < rates).astype(int)


# One detector that never reports drift: its deviation, and that of the error rate.
errors = draw(np.full(LENGTH, 0.1), 0)
detector = DDM(drift_scale=1e9, warning_scale=1e9)
ratios = {0: [], 1: []}
for count, error in enumerate(errors, 1):
    detector.update(y_true=0, y_pred=int(error))
    rate = errors[:count].mean()
    if count > 200:
        ratios[error].append(detector._error_std / np.sqrt(rate * (1 - rate) / count))
right, wrong = np.mean(ratios[0]), np.mean(ratios[1])
print(f"rate 0.1: s is {right:.2f} of its value after a right answer, {wrong:.2f} after an error")
assert right < 1.2 and wrong > 2 and wrong > 2.5 * right

for rate in [0.1, 0.2, 0.3]:
    streams = [draw(np.full(LENGTH, rate), seed) for seed in range(STREAMS)]
    found = [detect(DDM(), stream) for stream in streams]
    due = [reference(stream) for stream in streams]
    steady = [detect(STEPD(), stream) for stream in streams]
    counts = [(sum(map(bool, drifts)), sum(map(len, drifts))) for drifts in (found, due, steady)]
    print(f"{STREAMS} streams with a constant error rate of {rate}: DDM finds drift in "
          f"{counts[0][0]}, {counts[0][1]} times; by its docstring in {counts[1][0]}, "
          f"{counts[1][1]} times; STEPD in {counts[2][0]}")
    assert counts[0][0] >= 16 and counts[0][1] > 2.5 * counts[1][1] and counts[1][0] <= 14
PYTHON
