#!/usr/bin/env bash
# pingouin's "test of bias between raters" tests whether the targets differ.
#
# Versions: pingouin 0.7.0, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3.
# Guess before the run: `F` and `pval` of `intraclass_corr` are what its documentation says, "F-test results for
#     detecting systematic differences (bias) between raters. A significant p-value suggests that rater
#     means differ": p is small where a rater is stricter than the others, and uniform where none is.
#     (Suspected after reading the source.)
# Seen: they are the other test of the same table, that of the targets over the error. Raters without
#     bias and targets that differ, as in any sound rating, have p = 7e-17 where 0.59 is due; raters whose
#     means are up to 6 deviations apart, and targets that are alike, have 0.06 where 2e-41 is due. Without
#     bias, 200 of 200 samples have p < 0.05, and 9 by the right test. Where there is bias, ICC(1,1)
#     "should not be reported".
# For gyre: it has no raters. There, divide the mean square of the raters by that of the error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pingouin==0.7.0 numpy==2.4.6 scipy==1.17.1 pandas==2.3.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
import pingouin
from scipy import stats

N_TARGETS = 30
N_RATERS = 4
N_SAMPLES = 200
generator = np.random.default_rng(0)
documentation = " ".join(pingouin.intraclass_corr.__doc__.split())
assert "A significant p-value suggests that rater means differ" in documentation


def draw(target_deviation, bias):
    """Return ratings (targets, raters) with noise of deviation 1, and raters' means from -bias to bias."""
    targets = generator.normal(0, target_deviation, (N_TARGETS, 1))
    raters = np.linspace(-bias, bias, N_RATERS)
    return targets + raters + generator.normal(0, 1, (N_TARGETS, N_RATERS))


def test_both(ratings):
    """Return the p-values of a two-way analysis of variance for targets and for raters."""
    mean = ratings.mean()
    rows = ratings.mean(axis=1, keepdims=True)
    columns = ratings.mean(axis=0, keepdims=True)
    free = (N_TARGETS - 1) * (N_RATERS - 1)
    error = np.sum((ratings - rows - columns + mean) ** 2) / free
    of_targets = N_RATERS * np.sum((rows - mean) ** 2) / (N_TARGETS - 1)
    of_raters = N_TARGETS * np.sum((columns - mean) ** 2) / (N_RATERS - 1)
    return (stats.f.sf(of_targets / error, N_TARGETS - 1, free),
            stats.f.sf(of_raters / error, N_RATERS - 1, free))


def ask(ratings):
    table = pd.DataFrame(ratings).reset_index().melt(id_vars="index")
    result = pingouin.intraclass_corr(table, targets="index", raters="variable", ratings="value")
    return result.set_index("Type").loc["ICC(A,1)", "pval"]


for name, ratings in [("no bias, targets differ", draw(2, 0)), ("biased raters, targets alike", draw(0, 3))]:
    seen = ask(ratings)
    of_targets, of_raters = test_both(ratings)
    print(f"{name}: p {seen:.2g}; for raters {of_raters:.2g}, for targets {of_targets:.2g}")
    assert np.isclose(seen, of_targets, rtol=1e-6)
    assert (seen < 1e-6) == (of_raters > 0.01)

seen = right = 0
for _ in range(N_SAMPLES):
    ratings = draw(2, 0)
    seen += ask(ratings) < 0.05
    right += test_both(ratings)[1] < 0.05
print(f"no bias: {seen} of {N_SAMPLES} samples have p < 0.05, {right} by the right test")
assert seen == N_SAMPLES and right < 0.12 * N_SAMPLES
PYTHON
