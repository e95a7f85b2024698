#!/usr/bin/env bash
# A calibrated model of tokens with Zipf's frequencies has a top-label error of 0.28 in MAPIE.
#
# Versions: mapie 1.6.0, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6.
# Guess before the run: top_label_ece is the mean over predictions, as in the article that it cites
#     (Gupta and Ramdas 2021: an expectation), so a label's share is its frequency. With 2 bins,
#     it is near 0 for a calibrated model. (That it is not was suspected after reading.)
# Seen: each label that was ever predicted counts alike. Of 500 tokens with Zipf's frequencies, most
#     are predicted a few times, and what is binned of these is noise: 0.275 where the mean over
#     predictions is 0.034, and the error without labels 0.001. If the commonest token, 38 % of the
#     predictions, is overconfident by 0.15, the mean over predictions rises by 0.053, and what
#     MAPIE gives by 0.0005.
# For gyre: it measures no calibration. There, weigh the errors of the labels by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mapie==1.6.0 scikit-learn==1.9.1 \
    scipy==1.17.1 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
from mapie.metrics.calibration import expected_calibration_error, top_label_ece

N = 20_000
N_TOKENS = 500
N_EDGES = 3  # two bins

generator = np.random.default_rng(0)
predicted = np.minimum(generator.zipf(1.5, N), N_TOKENS) - 1
confidences = generator.uniform(0.2, 0.9, N)


def measure(accuracies):
    """Return MAPIE's error, the labels' mean over labels and over predictions, and no labels'."""
    correct = np.random.default_rng(1).random(N) < accuracies
    targets = np.where(correct, predicted, (predicted + 1) % N_TOKENS)
    labels, counts = np.unique(predicted, return_counts=True)
    errors = [expected_calibration_error(correct[predicted == label].astype(int),
                                         confidences[predicted == label], num_bins=N_EDGES)
              for label in labels]
    seen = top_label_ece(targets, confidences, y_score_arg=predicted, num_bins=N_EDGES)
    plain = expected_calibration_error(correct.astype(int), confidences, num_bins=N_EDGES)
    return seen, np.mean(errors), np.average(errors, weights=counts), plain


share = (predicted == 0).mean()
seen = []
for overconfidence in [0, 0.15]:
    errors = measure(confidences - overconfidence * (predicted == 0))
    texts = [f"{error:.4f}" for error in errors]
    print(f"commonest token, {share:.0%} of predictions, overconfident by {overconfidence}: MAPIE "
          f"{texts[0]}, mean over labels {texts[1]}, over predictions {texts[2]}, without labels "
          f"{texts[3]}")
    assert abs(errors[0] - errors[1]) < 1e-9
    seen.append(errors)
assert seen[0][0] > 0.25 and seen[0][2] < 0.04 and seen[0][3] < 0.01
assert seen[1][0] - seen[0][0] < 0.005 and seen[1][2] - seen[0][2] > 0.04
PYTHON
