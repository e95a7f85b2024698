#!/usr/bin/env bash
# puncc's APS and RAPS cut prediction sets at the number of samples in the batch.
#
# Versions: puncc 0.9.3, numpy 1.26.4, scikit-learn 1.7.2, pandas 2.3.3, scipy 1.15.3.
# Guess before the run: the prediction set of a sample does not depend on those beside it, so sets
#     of a level of 90 % hold 90 % of the classes in batches of any size. (That it might was
#     suspected after reading the source.)
# Seen: the size of a set is cut at the number of samples, where that of the classes is meant. With
#     ten classes, sets of 90 % hold 93 % in batches of 20, 85 % in batches of 5 and 60 % in batches
#     of 2, with 7, 5 and 2 classes; the last batch of a loop is concerned too. LAC's sets are the
#     same in each batch. A batch of one sample is an error.
# For gyre: it predicts no sets. There, give all samples at once, or more than there are classes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile puncc==0.9.3 numpy==1.26.4 scikit-learn==1.7.2 \
    pandas==2.3.3 scipy==1.15.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from deel.puncc.api.prediction import BasePredictor
from deel.puncc.classification import APS, LAC, RAPS

CLASSES, SAMPLES, ALPHA = 10, 300, 0.1
generator = np.random.default_rng(0)


class Given:
    """A classifier whose inputs are its probabilities."""

    def predict(self, inputs):
        return inputs


def draw(count):
    """Return probabilities, and classes drawn from them."""
    weights = np.exp(1.2 * generator.normal(size=(count, CLASSES)))
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    chosen = probabilities.cumsum(axis=1) > generator.uniform(size=(count, 1))
    return probabilities, chosen.argmax(axis=1)


def reference(calibration, calibration_classes, inputs):
    """Return the sets of APS without randomization, by Romano et al. (2020)."""
    def mass(rows):
        order = np.argsort(-rows, axis=1)
        return order, np.take_along_axis(rows, order, axis=1).cumsum(axis=1)

    order, sums = mass(calibration)
    scores = sums[order == calibration_classes[:, None]]
    rank = int(np.ceil((len(scores) + 1) * (1 - ALPHA)))
    threshold = np.sort(scores)[rank - 1]
    order, sums = mass(inputs)
    return [set(row[:np.sum(total < threshold) + 1]) for row, total in zip(order, sums)]


calibration, calibration_classes = draw(1000)
inputs, classes = draw(SAMPLES)
due = reference(calibration, calibration_classes, inputs)
methods = {"APS": lambda: APS(BasePredictor(Given(), is_trained=True), train=False, rand=False),
           "RAPS": lambda: RAPS(BasePredictor(Given(), is_trained=True), train=False, lambd=0.01,
                                k_reg=2),
           "LAC": lambda: LAC(BasePredictor(Given(), is_trained=True), train=False)}
coverage = {}
for name, make in methods.items():
    predictor = make()
    predictor.fit(X_calib=calibration, y_calib=calibration_classes)
    for size in [SAMPLES, 20, 5, 3, 2]:
        sets = []
        for start in range(0, SAMPLES, size):
            sets += map(set, predictor.predict(inputs[start:start + size], alpha=ALPHA)[1])
        coverage[name, size] = np.mean([label in found for label, found in zip(classes, sets)])
        print(f"{name}, batches of {size}: sets of {np.mean([len(found) for found in sets]):.1f} "
              f"classes hold {coverage[name, size]:.0%}")
        if name == "APS":
            assert sets == (due if size > CLASSES else
                            [set(np.argsort(-row)[:min(len(found), size)])
                             for row, found in zip(inputs, due)])
        if name == "LAC":
            assert coverage[name, size] == coverage[name, SAMPLES] > 0.85
for name in ["APS", "RAPS"]:
    assert min(coverage[name, SAMPLES], coverage[name, 20]) > 0.85
    assert coverage[name, 3] < 0.8 and coverage[name, 2] < 0.7
PYTHON
