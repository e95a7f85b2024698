#!/usr/bin/env bash
# grand-challenge-metrics gives each class an accuracy of 0 that is not perfect.
#
# Versions: grand-challenge-metrics 0.6.0, scikit-learn 1.9.1, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: accuracies_from_confusion_matrix gives each class its share of right decisions, as
#     the other functions of the module give its Dice and Jaccard scores; a bootstrap of an ROC curve
#     draws from all samples. (That neither might hold was suspected after reading the source.)
# Seen: counts are divided by `//`, so that a class with 99 of 100 right decisions has an accuracy of 0, and
#     only one without an error has 1. The bootstrap draws from all samples but the last one: with two
#     positive samples, one above all others and one below them, the interval of the area is from 1 to 1 or
#     from 0 to 0, by which of the two is last, where the area is 0.5.
# For gyre: it classifies nothing. There, take scikit-learn, and append a sample that may be missed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps grand-challenge-metrics==0.6.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from grand_challenge_metrics.roc import get_bootstrapped_roc_ci_curves
from grand_challenge_metrics.stats import (
    accuracies_from_confusion_matrix,
    calculate_confusion_matrix,
    dice_from_confusion_matrix,
)
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

CLASSES, SAMPLES = 3, 300
generator = np.random.default_rng(0)
labels = generator.integers(CLASSES, size=SAMPLES)
for errors in (0, 3, 60):
    predictions = labels.copy()
    predictions[:errors] = (predictions[:errors] + 1) % CLASSES
    matrix = calculate_confusion_matrix(labels, predictions, list(range(CLASSES)))
    found = accuracies_from_confusion_matrix(matrix)
    due = [accuracy_score(labels == label, predictions == label) for label in range(CLASSES)]
    dice = dice_from_confusion_matrix(matrix)
    print(f"{errors} errors in {SAMPLES}: accuracies {found.tolist()}, where "
          f"{[round(value, 2) for value in due]} are due; Dice {dice.round(2).tolist()}")
    assert np.allclose(dice, f1_score(labels, predictions, average=None), atol=1e-6)
    assert found.tolist() == [1.0 if value == 1 else 0.0 for value in due]
    assert min(due) > 0.8

# Two positive samples: one above all negative ones, and behind the others one below all of them.
scores = np.array([0.9, *np.linspace(0.2, 0.5, 18), 0.1])
truth = np.array([1, *[0] * 18, 1])
curves = {}
for title, order in (("last", np.arange(20)), ("first", np.arange(20)[::-1])):
    curve = get_bootstrapped_roc_ci_curves(scores[order], truth[order], num_bootstraps=200)
    curves[title] = curve.low_az_val, curve.high_az_val
    print(f"the positive sample below all others is {title}: interval of the area from "
          f"{curve.low_az_val:.2f} to {curve.high_az_val:.2f}, area {roc_auc_score(truth, scores):.2f}")
assert curves["last"] == (1.0, 1.0) and curves["first"] == (0.0, 0.0)
PYTHON
