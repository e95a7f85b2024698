#!/usr/bin/env bash
# PyOD's LODA and HBOS score a value by the histogram's bin beside its own.
#
# Versions: pyod 3.6.7, numpy 2.4.6, scipy 1.17.1, scikit-learn 1.9.1, numba 0.66.0, joblib 1.6.0.
# Guess before the run: both take the density of the bin in which a value is counted, so that the
#     most frequent value of a column has the lowest score. (Suspected after reading the source.)
# Seen: 1. LODA looks every value up one bin too far to the right, but for the smallest one and those
#     in the last two bins. Of ratings from 1 to 4, the neighbouring bins of 2 and 3 are empty: 3,
#     given by 70 %, has the highest score, that of a value that has never been seen, and 1, given
#     by 2 %, a ninth of it. Of three such columns, a row of ones has a lower score than each
#     row of threes.
#     2. HBOS counts a value at the border of two bins on the right and looks it up on the left. Of
#     ratings from 0 to 10 and with 10 bins, the default, each rating from 1 to 9 has the score of the
#     rating below it: where 60 % say 5, those who say 6 are the most normal ones.
# For gyre: it looks for no outliers. There, add noise of half a bin to integers for HBOS; for LODA
#     there is no way around.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 \
    numba==0.66.0 joblib==1.6.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps pyod==3.6.7
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from pyod.models.hbos import HBOS
from pyod.models.loda import LODA

N_ROWS = 2000
generator = np.random.default_rng(0)


def draw(values, shares, n_columns):
    """Return ratings (N_ROWS, n_columns) with exactly these shares in each column."""
    column = np.repeat(np.array(values, dtype=float), (np.array(shares) * N_ROWS).round().astype(int))
    return np.stack([generator.permutation(column) for _ in range(n_columns)], axis=1)


def score(detector, ratings, value):
    """Return the score of the rows with this rating, which all have the same one."""
    scores = detector.decision_scores_[ratings[:, 0] == value]
    assert np.ptp(scores) < 1e-9
    return scores[0]


shares = [0.02, 0.08, 0.70, 0.20]
ratings = draw([1, 2, 3, 4], shares, 1)
unseen = -np.log(1e-12 / N_ROWS)
for seed in range(3):
    detector = LODA(random_state=seed).fit(ratings)
    # LODA divides by the number of cuts twice, which changes all scores by one factor.
    seen = [score(detector, ratings, value) * detector.n_random_cuts for value in (1, 2, 3, 4)]
    print("LODA, ratings 1 to 4: due", np.round(-np.log(shares), 2), "seen", np.round(seen, 2))
    assert abs(seen[1] - unseen) < 0.1 and abs(seen[2] - unseen) < 0.1
    assert np.allclose([seen[0], seen[3]], [-np.log(0.02), -np.log(0.20)])

ratings = draw([1, 2, 3, 4], shares, 3)
ratings[:10] = 1
outliers, usual = (ratings == 1).all(axis=1), (ratings == 3).all(axis=1)
for seed in range(3):
    scores = LODA(random_state=seed).fit(ratings).decision_scores_
    print(f"LODA, three ratings: {outliers.sum()} rows of ones have scores of up to "
          f"{scores[outliers].max():.3f}, {usual.sum()} rows of threes of {scores[usual].min():.3f} and more")
    assert outliers.sum() >= 10 and scores[outliers].max() < scores[usual].min()

shares = [0.04] * 5 + [0.60] + [0.04] * 5
ratings = draw(range(11), shares, 1)
detector = HBOS().fit(ratings)
seen = np.array([score(detector, ratings, value) for value in range(11)])
# The last bin holds 9 and 10.
counted = np.array(shares[:9] + [0.08])
due = -np.log2(counted[[*range(10), 9]] + 0.1)
print("HBOS, ratings 0 to 10: due ", np.round(due, 2))
print("                       seen", np.round(seen, 2))
assert due.argmin() == 5 and seen.argmin() == 6
assert np.allclose(seen[1:10], due[:9]) and np.allclose(seen[[0, 10]], due[[0, 10]])
PYTHON
