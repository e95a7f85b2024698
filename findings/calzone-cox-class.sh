#!/usr/bin/env bash
# calzone's Cox regression is that of class 1, whatever class is asked for.
#
# Versions: calzone-tool 0.1.0, numpy 2.4.6, scipy 1.17.1, statsmodels 0.15.0, patsy 1.0.3, pandas 2.3.3.
# Guess before the run: with `class_to_calculate=c`, slope and intercept are those of a logistic
#     regression of "the class is c" on the logit of column c: 1 and 0 for a calibrated class, far from
#     them for one that is not. (That they are not was suspected after reading the source.)
# Seen: `calculate_metrics` does not hand the class over: all classes have the slope and the intercept of
#     class 1, bit for bit, and the index of calibration (ICI) puts column c into the curve of class 1.
#     Where class 0 is calibrated and classes 1 and 2 are not, class 0 has a slope of 0.39 and an ICI of
#     0.15. Called by itself, `cox_regression_analysis` takes the labels of class c and the column of
#     class 1: a calibrated model of two classes has a slope of -1 for class 0.
# For gyre: it measures no calibration. There, put the class into column 1.
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
from calzone.metrics import CalibrationMetrics, cox_regression_analysis
from scipy import optimize

N = 20_000
generator = np.random.default_rng(0)


def due(positive, probability):
    """Return slope and intercept of the logistic regression on the logit, by Newton's method."""
    logit = np.log(probability / (1 - probability))

    def gradient(weights):
        error = 1 / (1 + np.exp(-(weights[0] * logit + weights[1]))) - positive
        return np.array([np.mean(error * logit), np.mean(error)])

    return optimize.root(gradient, [1.0, 0.0]).x


# Class 0 has its true probability. The rest is split between classes 1 and 2 too sharply.
first = 1 / (1 + np.exp(-generator.normal(0, 1.5, N)))
share = generator.normal(0, 1, N)
true = np.stack([first, (1 - first) / (1 + np.exp(-share)), (1 - first) / (1 + np.exp(share))], axis=1)
said = np.stack([first, (1 - first) / (1 + np.exp(-4 * share)), (1 - first) / (1 + np.exp(4 * share))],
                axis=1)
labels = (generator.random((N, 1)) > np.cumsum(true, axis=1)[:, :2]).sum(axis=1)
seen = []
for index in range(3):
    result = CalibrationMetrics(class_to_calculate=index).calculate_metrics(
        labels.copy(), said, metrics=["COX"])
    seen.append((result["COX coef"], result["COX intercept"]))
    slope, intercept = due(labels == index, said[:, index])
    print(f"three classes, class {index}: slope {seen[-1][0]:.3f}, intercept {seen[-1][1]:.3f}, ICI "
          f"{result['COX ICI']:.3f}; due {slope:.3f} and {intercept:.3f}")
    if index == 0:
        assert abs(slope - 1) < 0.05 and abs(intercept) < 0.05 and seen[0][0] < 0.7
        assert result["COX ICI"] > 0.05
    if index == 1:
        assert np.allclose(seen[1], [slope, intercept], atol=1e-3)
assert seen[0] == seen[1] == seen[2]

two = np.stack([1 - first, first], axis=1)
labels = (generator.random(N) < first).astype(int)
for index in range(2):
    slope, intercept, _, _ = cox_regression_analysis(labels.copy(), two, class_to_calculate=index)
    right, _ = due(labels == index, two[:, index])
    print(f"two calibrated classes, class {index}: slope {slope:.3f}, due {right:.3f}")
    assert abs(right - 1) < 0.05 and abs(slope - (1, -1)[index == 0]) < 0.05
PYTHON
