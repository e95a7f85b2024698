#!/usr/bin/env bash
# abtk's Benjamini-Yekutieli correction corrects nothing where all p-values are below the level.
#
# Versions: abtk 0.4.0, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3, statsmodels 0.15.0.
# Guess before the run: `adjust_pvalues` with "benjamini-yekutieli" gives the p-values of
#     Benjamini and Yekutieli, each at least c(n) = 1 + 1/2 + ... + 1/n times that of Benjamini and
#     Hochberg. (Suspected after reading the source.)
# Seen: the largest p-value is taken as it is, without c(n), and all smaller ones are cut to it: no p-value
#     is adjusted above the largest one. Of 20 tests with p-values from 0.02 to 0.045, all are
#     significant at 0.05, as without a correction, where 0.16 is due for each. Its other four methods
#     are right.
# For gyre: nothing. There, take statsmodels' "fdr_by".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 statsmodels==0.15.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps abtk==0.4.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from core.test_result import TestResult
from statsmodels.stats.multitest import multipletests
from utils.corrections import adjust_pvalues

LEVEL = 0.05
NAMES = {"bonferroni": "bonferroni", "sidak": "sidak", "holm": "holm", "benjamini-hochberg": "fdr_bh",
         "benjamini-yekutieli": "fdr_by"}


def make(p):
    return TestResult(name_1="a", value_1=0, std_1=1, size_1=100, name_2="b", value_2=0, std_2=1, size_2=100,
                      method_name="t", method_params={}, alpha=LEVEL, pvalue=p, effect=0, ci_length=1,
                      left_bound=0, right_bound=1, reject=p < LEVEL)


def yekutieli(p):
    """Return the adjusted p-values of ascending p-values."""
    n = len(p)
    factor = sum(1 / k for k in range(1, n + 1))
    return [min(1, min(p[j] * n * factor / (j + 1) for j in range(i, n))) for i in range(n)]


p = np.linspace(0.02, 0.045, 20)
for name, other in NAMES.items():
    results = adjust_pvalues([make(value) for value in p], method=name, alpha=LEVEL)
    seen = np.array([result.pvalue for result in results])
    due = multipletests(p, LEVEL, method=other)[1]
    n_rejected = sum(result.reject for result in results)
    print(f"{name}: {seen.min():.3f} to {seen.max():.3f}, {n_rejected} of 20 significant; "
          f"due {due.min():.3f} to {due.max():.3f}, {np.sum(due < LEVEL)}")
    assert np.allclose(seen, due) == (name != "benjamini-yekutieli")
assert np.allclose(due, yekutieli(p)) and due.min() > 0.15
assert seen.max() == p.max() and n_rejected == 20
PYTHON
