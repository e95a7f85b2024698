#!/usr/bin/env bash
# A t-test of statds finds a difference only if the first column is larger; p goes up to 2.
#
# Versions: statds 1.1.7, scipy 1.16.3, pandas 2.3.3, numpy 2.3.5.
# Guess before the run: the tests of statds agree with those of scipy, in whatever order the
#     columns are named. That was the comparison in which this showed, with about fifteen of its
#     tests.
# Seen: both t-tests integrate the upper tail from t instead of |t|, so p = 2 - the right value for
#     a negative t, and compare t with the one-sided critical value. Of two models of which one is
#     better with each of ten seeds, the answer is "Different distributions" with the columns in
#     one order, and "Same distributions" with p = 2 in the other. For a positive t the p-value is
#     right and two-sided, but the decision is not made by it: between 0.05 and 0.1 H0 is rejected
#     too. Wilcoxon's test in the same package gives one answer for both orders.
# For gyre: its report does not use this. There, take Wilcoxon's test, or scipy's t-test.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile statds==1.1.7 scipy==1.16.3 pandas==2.3.3 \
    numpy==2.3.5
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import pandas as pd
import scipy.stats
from statds.no_parametrics import wilcoxon
from statds.parametrics import t_test_paired, t_test_unpaired


def compare(name, test, expected, losses, columns):
    """Return p and the answer of a test for two columns, and print what scipy says."""
    t, p, _, answer = test(losses[columns])
    right = expected(losses[columns[0]], losses[columns[1]])
    print(f"{name}, {columns[0]} against {columns[1]}: t {t:.2f}, p {p:.6f}, {answer!r}; "
          f"scipy: t {right.statistic:.2f}, p {right.pvalue:.6f}")
    assert abs(t - right.statistic) < 1e-6
    return p, right.pvalue, answer.startswith("Reject")


generator = np.random.default_rng(0)
base = 3.1 + 0.01 * generator.normal(size=10)
improved = base - 0.02 - 0.004 * generator.random(10)
losses = pd.DataFrame({"base": base, "improved": improved})
assert (losses.base > losses.improved).all()
for name, test, expected in [("paired", t_test_paired, scipy.stats.ttest_rel),
                             ("unpaired", t_test_unpaired, scipy.stats.ttest_ind)]:
    p, right, rejected = compare(name, test, expected, losses, ["base", "improved"])
    assert abs(p - right) < 1e-4 and rejected
    p, right, rejected = compare(name, test, expected, losses, ["improved", "base"])
    assert right < 0.001 and abs(p - (2 - right)) < 1e-4 and p > 1.99 and not rejected
answers = [wilcoxon(losses[columns])[3] for columns in [["base", "improved"], ["improved", "base"]]]
print("Wilcoxon's test, in both orders:", answers)
assert answers[0] == answers[1] and answers[0].startswith("Reject")

# A difference that is not significant at 0.05.
losses = pd.DataFrame({"a": [3.12, 3.15, 3.11, 3.14, 3.13], "b": [3.11, 3.11, 3.12, 3.10, 3.10]})
p, right, rejected = compare("paired", t_test_paired, scipy.stats.ttest_rel, losses, ["a", "b"])
assert abs(p - right) < 1e-4 and 0.05 < right < 0.1 and rejected
PYTHON
