#!/usr/bin/env bash
# A multi-class Venn-ABERS calibrator that is fitted again goes on to use the first data.
#
# Versions: venn-abers 1.5.4, scikit-learn 1.9.1, numpy 2.4.6, scipy 1.17.1, pandas 3.1.1.
# Guess before the run: `VennAbersMultiClass.fit` starts anew, as every `fit` of scikit-learn, and a
#     calibrator that was fitted before has the probabilities of a new one. (Suspected after reading the
#     source.)
# Seen: the pairs of classes and their estimators are added to those that are there, and all of them take
#     part in the predictions. Fitted to other data before, a calibrator of three classes is right in
#     51 % of the cases, where 67 % are due; fitted twice to the same data, its probabilities
#     change. VennAbersCalibrator, which makes a new one each time, is right. So a loop over
#     data sets or folds with one object mixes all that came before.
# For gyre: it does not calibrate. There, make a new object for each fit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 \
    pandas==3.1.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps venn-abers==1.5.4
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from sklearn.naive_bayes import GaussianNB
from venn_abers import VennAbersCalibrator, VennAbersMultiClass

N_SAMPLES = 600
generator = np.random.default_rng(0)


def make_data(shift):
    """Return samples of three overlapping classes, whose places are shifted."""
    labels = generator.integers(3, size=N_SAMPLES)
    samples = generator.normal(0, 1.5, (N_SAMPLES, 2))
    samples[:, 0] += 2 * ((labels + shift) % 3)
    return samples, labels


def measure(cls, *data_sets):
    """Return the accuracy and the log loss of a calibrator that was fitted to each of the sets."""
    calibrator = cls(GaussianNB(), inductive=True, cal_size=0.3, random_state=0)
    for samples, labels in data_sets:
        calibrator.fit(samples, labels)
    probabilities = calibrator.predict_proba(test[0])
    loss = -np.log(probabilities[np.arange(N_SAMPLES), test[1]]).mean()
    accuracy = (probabilities.argmax(axis=1) == test[1]).mean()
    print(f"{cls.__name__}, fitted {len(data_sets)} times: right in {accuracy:.1%}, log loss {loss:.4f}")
    return accuracy, loss


other, data, test = make_data(0), make_data(1), make_data(1)
once = measure(VennAbersMultiClass, data)
after_other = measure(VennAbersMultiClass, other, data)
twice = measure(VennAbersMultiClass, data, data)
assert after_other[0] < once[0] - 0.1 and after_other[1] > once[1] + 0.3
assert abs(twice[1] - once[1]) > 0.005
assert measure(VennAbersCalibrator, data) == measure(VennAbersCalibrator, other, data)
PYTHON
