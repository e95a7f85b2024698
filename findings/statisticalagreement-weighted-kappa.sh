#!/usr/bin/env bash
# statisticalagreement's weighted kappa counts near ratings as chance only: -1.85 for 0.89.
#
# Versions: statisticalagreement 0.6.0, numpy 2.4.6, scipy 1.17.1, scikit-learn 1.9.0.
# Guess before the run: `kappa` with method "abs" and "squared" is scikit-learn's `cohen_kappa_score` with
#     linear and quadratic weights. (Suspected after reading the source.)
# Seen: of ratings from 0 to 4, of which 40 % agree and the others are one apart, the kappas are -0.47
#     and -1.85, without a limit, where 0.71 and 0.89 are due. The kappa without weights is right.
# Cause: observed agreement is `einsum('ii,ii', w, mat)`, the diagonal alone, and the agreement by chance
#     a sum over all cells (statisticalagreement/core/_categorical_agreement.py). It is as low for all
#     ratings that are not equal, however near they are.
# For gyre: it measures no agreement. There, take scikit-learn's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile statisticalagreement==0.6.0 attrs==25.3.0 numpy==2.4.6 \
    scipy==1.17.1 scikit-learn==1.9.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import statisticalagreement as sa
from sklearn.metrics import cohen_kappa_score

N_CLASSES = 5
generator = np.random.default_rng(0)
first = generator.integers(0, N_CLASSES, 200)
second = np.clip(first + generator.choice([-1, 0, 1], 200, p=[0.3, 0.4, 0.3]), 0, N_CLASSES - 1)
table = np.zeros((N_CLASSES, N_CLASSES))
np.add.at(table, (first, second), 1 / len(first))
chance = np.outer(table.sum(axis=1), table.sum(axis=0))
distances = np.abs(np.subtract.outer(np.arange(N_CLASSES), np.arange(N_CLASSES)))

for method, weights, power in [("cohen", None, 0), ("abs", "linear", 1), ("squared", "quadratic", 2)]:
    found = sa.kappa(first, second, method=method)
    due = cohen_kappa_score(first, second, weights=weights)
    disagreement = (distances > 0) if weights is None else distances ** power
    assert np.isclose(due, 1 - np.sum(disagreement * table) / np.sum(disagreement * chance))
    print(f"{method}: {found.estimate:.2f}, limit {found.limit:.2f}; due {due:.2f}")
    if weights is None:
        assert np.isclose(found.estimate, due)
    else:
        agreement = 1 - disagreement / N_CLASSES ** power
        diagonal_alone = np.trace(agreement * table)
        expected = np.sum(agreement * chance)
        assert np.isclose(found.estimate, (diagonal_alone - expected) / (1 - expected))
        assert found.estimate < -0.3 and due > 0.6 and np.isnan(found.limit)
PYTHON
