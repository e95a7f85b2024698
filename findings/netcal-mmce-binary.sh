#!/usr/bin/env bash
# netcal's MMCE of a binary classifier is large if it is calibrated and says "no" with confidence.
#
# Versions: netcal 1.4.0, torch 2.13.0, scikit-learn 1.9.1, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: of calibrated probabilities in one dimension, which stand for class 1, the
#     maximum mean calibration error is near 0, as their ECE is. (That it might not be was suspected
#     after reading the source.)
# Seen: it is 0.4. A probability below 0.5 predicts class 0, and is taken for the confidence in it:
#     0.1 and right in 90 % of cases counts as an error of 0.8. Given as two columns, the same
#     probabilities have 0.01. With the classes exchanged, the error is 0.08: it depends on which
#     of them is called 1.
# For gyre: it measures no calibration. There, give two columns, 1 - p and p.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 scipy==1.17.1 \
    scikit-learn==1.9.1 tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps netcal==1.4.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from netcal.metrics.confidence import ECE, MMCE

SAMPLES = 2000
generator = np.random.default_rng(0)


def reference(probabilities, labels):
    """Return the error of Kumar et al. (2018), of the confidence in the predicted class."""
    confidence = np.maximum(probabilities, 1 - probabilities)
    errors = (labels == (probabilities > 0.5)) - confidence
    kernel = np.exp(-2.5 * np.abs(confidence[:, None] - confidence))
    return np.sqrt(errors @ kernel @ errors) / len(labels)


def sharpen(probabilities, power):
    """Return overconfident probabilities: the odds to a power."""
    odds = (probabilities / (1 - probabilities)) ** power
    return odds / (1 + odds)


def measure(name, probabilities, labels):
    binary = MMCE().measure(probabilities, labels)
    columns = MMCE().measure(np.stack([1 - probabilities, probabilities], axis=1), labels)
    due = reference(probabilities, labels)
    ece = ECE(bins=10).measure(probabilities, labels)
    print(f"{name}: MMCE {binary:.3f}, of two columns {columns:.3f}, due {due:.3f}, ECE {ece:.3f}")
    assert abs(columns - due) < 1e-9
    return binary, due


true = generator.beta(1, 2, size=SAMPLES)
labels = (generator.uniform(size=SAMPLES) < true).astype(int)
calibrated, due = measure("calibrated, a third in class 1", true, labels)
assert calibrated > 0.3 and due < 0.03
overconfident, due_overconfident = measure("overconfident", sharpen(true, 3), labels)
assert due_overconfident > 4 * due
turned, due_turned = measure("calibrated, classes exchanged", 1 - true, 1 - labels)
assert abs(due_turned - due) < 1e-9 and turned < calibrated - 0.1
positive = true > 0.5
only, due_only = measure("calibrated, above 0.5", true[positive], labels[positive])
assert abs(only - due_only) < 1e-9
PYTHON
