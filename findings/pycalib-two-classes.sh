#!/usr/bin/env bash
# pycalib's ECE of two classes is 0.25 for a model that is always right, and for one that never is.
#
# Versions: pycalib 0.1.0.dev6, numpy 2.4.6, scipy 1.17.1, scikit-learn 1.9.1.
# Guess before the run: the expected calibration error of perfect probabilities for two classes is
#     near 0; with the options of ECE itself it is that of binary_ECE. (That it is not was suspected
#     after reading the source.)
# Seen: 0.13 for perfect probabilities, 0.25 for a model that gives 99 % to the right class and for
#     one that gives them to the wrong one, where 0.01 and 0.99 are due. Labels become indicators by
#     label_binarize, which makes one column of two classes. It is zipped with both columns of the
#     probabilities, one after the other: a probability is compared with the label of another
#     sample, and half of the samples are left out. With three classes it is right, and so are
#     conf_ECE, binary_ECE and classwise_ECE. MCE(mce_full=True) has the same flaw.
# For gyre: it measures no calibration. There, take binary_ECE for two classes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 \
    scikit-learn==1.9.1 matplotlib==3.11.2 pandas==3.1.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps pycalib==0.1.0.dev6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from pycalib.metrics import ECE, binary_ECE

SAMPLES, BINS = 4000, 15
generator = np.random.default_rng(0)


def compute_ece(indicators, probabilities):
    """Return the mean of |label - probability| over bins of all classes, weighted by their size."""
    places = np.minimum(np.ceil(probabilities * BINS), BINS).astype(int)
    return sum(abs((indicators - probabilities)[places == place].sum())
               for place in np.unique(places)) / indicators.size


def show(name, labels, probabilities):
    """Print and return ECE beside what is due."""
    indicators = np.eye(probabilities.shape[1])[labels]
    found, due = ECE(labels, probabilities, bins=BINS), compute_ece(indicators, probabilities)
    assert found == ECE(indicators, probabilities, bins=BINS)  # labels as indicators
    print(f"{name}: ECE {found:.3f}, where {due:.3f} is due")
    return found, due


three = generator.dirichlet(np.ones(3), SAMPLES)
labels = (generator.random((SAMPLES, 1)) > three.cumsum(axis=1)).sum(axis=1)
found, due = show("three classes, perfect probabilities", labels, three)
assert abs(found - due) < 1e-3 and due < 0.03

p = generator.random(SAMPLES)
labels = (generator.random(SAMPLES) < p).astype(int)
found, due = show("two classes, perfect probabilities", labels, np.stack([1 - p, p], axis=1))
print(f"    binary_ECE {binary_ECE(labels, p, bins=BINS):.3f}")
assert found > 0.1 > 0.03 > due
assert binary_ECE(labels, p, bins=BINS) < 0.03

right = np.where(np.eye(2)[labels] == 1, 0.99, 0.01)
found, due = show("two classes, 99 % for the right one", labels, right)
assert abs(found - 0.25) < 0.02 and abs(due - 0.01) < 1e-6
found, due = show("two classes, 99 % for the wrong one", labels, 1 - right)
assert abs(found - 0.25) < 0.02 and abs(due - 0.99) < 1e-6

# The probabilities of the second half of the samples are not read.
changed = right.copy()
changed[SAMPLES // 2:] = generator.dirichlet([1, 1], SAMPLES // 2)
assert ECE(labels, changed, bins=BINS) == ECE(labels, right, bins=BINS)
print("other probabilities for the second half of the samples: the same ECE")
PYTHON
