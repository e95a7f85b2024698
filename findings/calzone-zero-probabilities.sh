#!/usr/bin/env bash
# calzone's calibration errors leave out all samples whose probability is 0.
#
# Versions: calzone-tool 0.1.0, numpy 2.4.6, scipy 1.17.1, statsmodels 0.15.0, patsy 1.0.3, pandas 2.3.3.
# Guess before the run: the expected calibration error of a class counts each sample once, in ten bins from
#     0 to 1 or in ten bins of equal size. A forest that says 0 for half of the samples, of which 30 %
#     are positive, has an error of 0.15 or more. (That it has not was suspected after reading the source.)
# Seen: a bin holds what is above its lower edge, and the lowest edge is the smallest probability, so that
#     samples at it are in no bin. ECE is 0.02 with both kinds of bins, the largest error 0.04 for
#     0.27, and the Hosmer-Lemeshow test has p = 0.015, where 5,000 of 10,000 samples say 0 and are
#     positive in 30 %. With 0.001 for 0, the errors are those due.
# For gyre: it measures no calibration. There, add 1e-6 to probabilities of 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 statsmodels==0.15.0 \
    patsy==1.0.3 pandas==2.3.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps calzone-tool==0.1.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import sys
import types

# The package imports its plots, which the metrics do not need.
sys.modules["matplotlib"] = types.ModuleType("matplotlib")
sys.modules["matplotlib.pyplot"] = types.ModuleType("matplotlib.pyplot")
import numpy as np
from calzone.metrics import CalibrationMetrics
from calzone.utils import reliability_diagram

N = 10_000
generator = np.random.default_rng(0)
above = generator.random(N // 2)
labels = np.concatenate([generator.random(N // 2) < 0.3, generator.random(N // 2) < above]).astype(int)


def due(probability):
    """Return expected and largest calibration error in ten bins of equal width that hold all samples."""
    bins = np.minimum((probability * 10).astype(int), 9)
    counts = np.bincount(bins, minlength=10)
    gaps = np.abs(np.bincount(bins, probability, 10) - np.bincount(bins, labels, 10))
    return gaps.sum() / N, np.max(gaps / counts)


for zero in [0.0, 0.001]:
    probability = np.concatenate([np.full(N // 2, zero), above])
    table = np.stack([1 - probability, probability], axis=1)
    result = CalibrationMetrics(class_to_calculate=1).calculate_metrics(
        labels.copy(), table, metrics=["ECE-H", "MCE-H", "HL-H", "ECE-C"])
    *_, counts = reliability_diagram(labels, table, class_to_plot=1)
    error, largest = due(probability)
    print(f"half of the samples say {zero}: {counts.sum()} of {N} samples are in bins; ECE "
          f"{result['ECE-H']:.3f}, in bins of equal size {result['ECE-C']:.3f}, due {error:.3f}; largest "
          f"error {result['MCE-H']:.3f}, due {largest:.3f}; Hosmer-Lemeshow p = "
          f"{result['HL-H p-value']:.3f}")
    assert error > 0.14 and largest > 0.2
    if zero == 0:
        assert counts.sum() == N // 2 and result["ECE-H"] < 0.05 and result["ECE-C"] < 0.05
        assert result["MCE-H"] < 0.1 and result["HL-H p-value"] > 0.001
    else:
        assert counts.sum() == N and abs(result["ECE-H"] - error) < 1e-9
        assert abs(result["MCE-H"] - largest) < 1e-9 and result["HL-H p-value"] < 1e-9
PYTHON
