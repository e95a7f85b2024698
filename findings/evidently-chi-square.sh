#!/usr/bin/env bash
# evidently's chi-square test takes the reference for the truth: equal samples drift far too often.
#
# Versions: evidently 0.7.23, numpy 2.4.6, pandas 3.1.1, scipy 1.17.1.
# Guess before the run: its "test of two samples", the default for categories and up to 1,000 rows
#     of reference, calls 5 % of the pairs of samples from one distribution different, as the test
#     of a contingency table does. (That it might not was suspected after reading the source.)
# Seen: the counts of the reference are given to a test of fit as the expected ones, as if they had
#     no error of their own. With two samples of 500, the statistic is twice as large as due: 25 %
#     of equal pairs with 3 categories are called different, 48 % with 10 and 91 % with 30. A
#     category that is in the current data only gives p = 0. The test of the contingency table is
#     at 5 %.
# For gyre: it watches no data. There, give a function with scipy's chi2_contingency as the test.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 pandas==3.1.1 scipy==1.17.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps evidently==0.7.23
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib
import importlib.metadata
import pathlib
import sys
import types

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

# Import one test without the packages around it, which need a web server and more.
tests = "evidently.legacy.calculations.stattests"
root = pathlib.Path(importlib.metadata.distribution("evidently").locate_file("evidently"))
names = tests.split(".")
for depth in range(1, len(names) + 1):
    package = types.ModuleType(".".join(names[:depth]))
    package.__path__ = [str(root.joinpath(*names[1:depth]))]
    sys.modules[package.__name__] = package
sys.modules["evidently.legacy.core"] = types.SimpleNamespace(
    ColumnType=types.SimpleNamespace(Categorical="cat", Numerical="num"))
sys.modules[tests + ".registry"] = types.SimpleNamespace(
    StatTest=types.SimpleNamespace, register_stattest=lambda test, default_impl: None)
chi_square = importlib.import_module(tests + ".chisquare_stattest")._chi_stat_test

PAIRS, THRESHOLD = 300, 0.05
generator = np.random.default_rng(0)


def counts(first, second, categories):
    return np.stack([np.bincount(sample, minlength=categories) for sample in (first, second)])


shares = {}
for categories in [3, 10, 30]:
    for rows in [200, 500]:
        hits = np.zeros(2)
        for _ in range(PAIRS):
            reference = generator.integers(categories, size=500)
            current = generator.integers(categories, size=rows)
            p, drift = chi_square(pd.Series(reference), pd.Series(current), "cat", THRESHOLD)
            due = chi2_contingency(counts(reference, current, categories), correction=False).pvalue
            assert drift == (p < THRESHOLD) and p < due
            hits += [p < THRESHOLD, due < THRESHOLD]
        shares[categories, rows] = hits / PAIRS
        print(f"{categories} categories, 500 rows of reference, {rows} of current data: drift in "
              f"{hits[0] / PAIRS:.0%} of the pairs from one distribution; by the contingency table "
              f"in {hits[1] / PAIRS:.0%}")
for (categories, rows), (found, due) in shares.items():
    assert due < 0.1 and found > 2 * due
assert shares[10, 500][0] > 0.4 and shares[30, 500][0] > 0.75

reference = generator.permutation(np.repeat([0, 1, 2], [300, 190, 10]))
current = generator.permutation(np.repeat([0, 1, 2, 3], [300, 190, 9, 1]))
p, _ = chi_square(pd.Series(reference), pd.Series(current), "cat", THRESHOLD)
due = chi2_contingency(counts(reference, current, 4), correction=False).pvalue
print(f"one of 500 values is new: p = {p}, by the contingency table {due:.2f}")
assert p == 0 and due > 0.5
PYTHON
