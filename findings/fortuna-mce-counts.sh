#!/usr/bin/env bash
# Fortuna's maximum calibration error is multiplied by the number of samples in a bin.
#
# Versions: aws-fortuna 0.2.0, jax 0.4.38, numpy 1.26.4, scipy 1.15.3.
# Guess before the run: as in the paper that the docstring names, it is the largest distance between
#     confidence and accuracy in a bin: from 0 to 1, and at least the expected calibration error.
#     (That it might not be was suspected after reading the source.)
# Seen: the distance is multiplied by the number of samples in the bin before the largest one is
#     taken. For 1,000 samples it is 30, for the same samples ten times 300, and the bin is another
#     one: a bin of 40 samples that is off by 0.5 does not show beside one of 600 that is off by
#     0.05. The expected calibration error is right.
# For gyre: it measures no calibration. There, take `compute_counts_confs_accs` and the largest
#     distance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile jax==0.4.38 jaxlib==0.4.38 numpy==1.26.4 \
    scipy==1.15.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps aws-fortuna==0.2.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.metadata
import pathlib
import sys
import types

import numpy as np

# Import the metrics without the packages around them, which need flax and more.
root = pathlib.Path(importlib.metadata.distribution("aws-fortuna").locate_file("fortuna"))
for name in ["fortuna", "fortuna.metric"]:
    package = types.ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package
sys.modules["fortuna.typing"] = types.SimpleNamespace(Array=object)  # for annotations
sys.modules["fortuna.plot"] = types.SimpleNamespace(plot_reliability_diagram=None)
sys.modules["fortuna.data"] = types.ModuleType("fortuna.data")
sys.modules["fortuna.data.loader"] = types.SimpleNamespace(TargetsLoader=type("Loader", (), {}))
from fortuna.metric import classification as metrics  # noqa: E402

# Confidence, accuracy and number of samples of three bins.
BINS = [(0.95, 0.90, 600), (0.75, 0.72, 360), (0.55, 0.05, 40)]


def make(repeat):
    """Return predictions, probabilities of two classes, and targets."""
    right, top = [], []
    for confidence, accuracy, count in BINS:
        hits = round(accuracy * count)
        right += [1] * hits + [0] * (count - hits)
        top += [confidence] * count
    right, top = np.tile(right, repeat), np.tile(top, repeat)
    predictions = np.zeros(len(right), dtype=int)
    probabilities = np.stack([top, 1 - top], axis=1)
    return predictions, probabilities, 1 - right


gaps = [abs(confidence - round(accuracy * count) / count) for confidence, accuracy, count in BINS]
counts = [count for _, _, count in BINS]
due_largest = max(gaps)
due_mean = sum(gap * count for gap, count in zip(gaps, counts)) / sum(counts)
for repeat in [1, 10]:
    samples = make(repeat)
    largest = float(metrics.maximum_calibration_error(*samples))
    mean = float(metrics.expected_calibration_error(*samples))
    print(f"{len(samples[0])} samples: maximum calibration error {largest:.2f}, {due_largest:.2f} "
          f"is due; expected calibration error {mean:.4f}, {due_mean:.4f} is due")
    products = [repeat * gap * count for gap, count in zip(gaps, counts)]
    assert abs(largest - max(products)) < 0.01 * largest and largest > 20 * repeat
    assert abs(mean - due_mean) < 1e-4
    assert products.index(max(products)) == 0 and gaps.index(due_largest) == 2
PYTHON
