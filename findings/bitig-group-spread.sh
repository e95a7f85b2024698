#!/usr/bin/env bash
# bitig's comparison of two groups of authors takes 1 for the spread between authors, in whatever unit.
#
# Versions: bitig 0.3.1, PyMC 5.28.5, NumPy 2.4.6 (Python 3.11).
# Guess before the run: the interval of a group's mean is as wide as the spread between its authors makes
#     it, as in the model of the docstring, and 94 % of them hold the true mean. (Suspected after reading
#     the source.)
# Seen: `sigma_group` is drawn from its prior and used nowhere; authors are taken to lie about the mean of
#     their group with a deviation of 1, and the prior of the mean has one of 5. For type-token ratios of
#     0.4 and 0.6 with 0.02 between authors, the intervals are 1.3 wide, and the groups do not differ, for
#     26 standard errors. For MTLD values of 80 with 10 between authors, they are 5 to 6 wide for 11 to 15,
#     and lie below the mean of their authors by the prior: 69.7 to 75.5 for a mean of 78.8. In one of two
#     such pairs, the intervals have nothing in common. The docstring proposes "a scalar index per document
#     such as lexical-diversity"; for z-scores, 1 is about right.
# For gyre: nothing. There, scale the feature to a deviation of 1 between authors, or take a mixed model.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --only-binary :all: bitig==0.3.1 pymc==5.28.5 arviz==0.23.4 \
    pytensor==2.38.3 numpy==2.4.6
export PYTENSOR_FLAGS="base_compiledir=$folder/compiled"
"$folder/env/bin/python" - <<'PYTHON' 2>/dev/null
import logging

import numpy as np
from bitig.features import FeatureMatrix
from bitig.methods.bayesian import HierarchicalGroupComparison

N_AUTHORS = 8
N_DOCUMENTS = 4

logging.getLogger("pymc").setLevel(logging.ERROR)
draws = np.random.default_rng(0)


def compare(means, deviation):
    """Return the intervals of two groups, and the means and standard errors of their authors."""
    authors = np.array([draws.normal(mean, deviation, N_AUTHORS) for mean in means])
    values = draws.normal(authors[..., None], 0.3 * deviation, (2, N_AUTHORS, N_DOCUMENTS))
    labels = [(f"{group}-{author}", str(group)) for group in range(2) for author in range(N_AUTHORS)
              for _ in range(N_DOCUMENTS)]
    matrix = FeatureMatrix(X=values.reshape(-1, 1), document_ids=[str(i) for i in range(len(labels))],
                           feature_names=["index"], feature_type="index")
    comparison = HierarchicalGroupComparison(group_by="group", seed=1)
    summary = comparison.fit_transform(matrix, np.array([label[0] for label in labels]),
                                       np.array([label[1] for label in labels]))["results"][0]["mu_group_summary"]
    intervals = np.array([[summary[bound][f"mu_group[{group}]"] for bound in ("hdi_3%", "hdi_97%")]
                          for group in range(2)])
    found = values.mean(axis=2)
    return intervals, found.mean(axis=1), found.std(axis=1, ddof=1) / np.sqrt(N_AUTHORS)


intervals, means, errors = compare((0.4, 0.6), 0.02)
print("ratios of 0.4 and 0.6: intervals", intervals.tolist(), "means", means.round(3), "standard errors", errors.round(4))
assert (means[1] - means[0]) / np.hypot(*errors) > 15
assert intervals[0, 1] > intervals[1, 0] + 0.5 and min(np.diff(intervals)) > 1

for _ in range(2):
    intervals, means, errors = compare((80, 80), 10)
    print("80 and 80: intervals", intervals.tolist(), "means", means.round(1), "standard errors", errors.round(1))
    # 94 % of a normal distribution lie within 1.88 deviations.
    assert max(np.diff(intervals)) < 0.6 * 2 * 1.88 * errors.min() and all(intervals[:, 1] < means)
PYTHON
