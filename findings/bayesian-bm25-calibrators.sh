#!/usr/bin/env bash
# bayesian-bm25 calibrates cosine similarities of 0.55 to 0.85 to probabilities of 0.47 to 0.54.
#
# Versions: bayesian-bm25 0.11.0, numpy 2.4.6.
# Guess before the run: `PlattCalibrator` fits what logistic regression of the labels on the scores fits, and
#     `IsotonicCalibrator` gives scores of 1 to 5 the mean label of each, in whichever order the rows are.
#     (Suspected after reading the source.)
# Seen: Platt's fit is 1,000 steps of 0.01 from a slope of 1 and ends without a warning: for similarities of 0.7 with a
#     deviation of 0.05, the slope is 0.8 for 40, and the calibration error 0.19 for 0.01; it is 0.23 for scores of 20
#     with a deviation of 5. The isotonic fit does not pool equal scores: a score of 1, with 13 % ones, has a
#     probability of 0, and 3, with 56 % ones, one of 0.42 or of 0.55, by the order of the rows.
# For gyre: it calibrates nothing. There, raise `max_iterations` for scores of mean 0 and deviation 1, and take
#     scikit-learn's isotonic regression.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps bayesian-bm25==0.11.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from bayesian_bm25 import expected_calibration_error
from bayesian_bm25.calibration import IsotonicCalibrator, PlattCalibrator

generator = np.random.default_rng(0)


def logistic(scores, labels):
    """Return slope and intercept of the logistic regression, by Newton's method on standardized scores."""
    mean, deviation = scores.mean(), scores.std()
    columns, weights = np.stack([(scores - mean) / deviation, np.ones_like(scores)]), np.zeros(2)
    for _ in range(20):
        chances = 1 / (1 + np.exp(-weights @ columns))
        weights -= np.linalg.solve(columns * chances * (1 - chances) @ columns.T, columns @ (chances - labels))
    return weights[0] / deviation, weights[1] - weights[0] * mean / deviation


for mean, deviation in ((0.7, 0.05), (20, 5), (0, 1)):
    scores = generator.normal(mean, deviation, 5000)
    labels = (generator.random(5000) < 1 / (1 + np.exp(-2 * (scores - mean) / deviation))).astype(float)
    calibrator = PlattCalibrator()
    calibrator.fit(scores, labels)
    chances = calibrator(scores)
    slope, intercept = logistic(scores, labels)
    right = 1 / (1 + np.exp(-slope * scores - intercept))
    errors = [expected_calibration_error(values, labels) for values in (chances, right)]
    print(f"scores of {mean} +- {deviation}: slope {calibrator.a:.2f}, right {slope:.2f}; probabilities "
          f"{chances.min():.2f} to {chances.max():.2f}, right {right.min():.2f} to {right.max():.2f}; error "
          f"{errors[0]:.3f}, right {errors[1]:.3f}")
    assert errors[1] < 0.02
    assert errors[0] > (0.15 if mean else 0.03)
    # More steps over standardized scores reach the fit.
    standard = (scores - scores.mean()) / scores.std()
    calibrator = PlattCalibrator()
    calibrator.fit(standard, labels, max_iterations=20_000)
    assert np.allclose(calibrator(standard), right, atol=0.01)

scores = generator.integers(1, 6, 1000).astype(float)
labels = (generator.random(1000) < scores / 6).astype(float)
due = np.array([labels[scores == score].mean() for score in range(1, 6)])
print("mean labels of scores 1 to 5:", due.round(2))
seen = []
for name, order in (("as drawn", slice(None)), ("zeros first", np.argsort(labels, kind="stable"))):
    calibrator = IsotonicCalibrator()
    calibrator.fit(scores[order], labels[order])
    seen.append([calibrator(float(score)) for score in range(1, 6)])
    print(f"{name}:", np.round(seen[-1], 2))
assert (np.diff(due) > 0).all() and np.abs(due - seen).max() > 0.1 and np.abs(np.diff(seen, axis=0)).max() > 0.05
PYTHON
