#!/usr/bin/env bash
# dabest's permutation p-value leaves out what is as extreme as the data: 3 values above 3 others have p = 0.
#
# Versions: dabest 2025.10.20, numpy 2.1.3, scipy 1.15.3, pandas 2.2.3, numba 0.61.2.
# Guess before the run: the permutation p-value of three values that lie above three others is 0.1, 2 of 20
#     divisions, and `ps_adjust`, which follows Phipson and Smyth, does not make it smaller; without an
#     effect, at most 5 % of pairs of binary samples have p < 0.05. (That ties do not count was suspected
#     after reading the source.)
# Seen: p = 0 for 0.1, and 1.6e-230 with `ps_adjust`; so it is for each pair of samples that lie apart, and
#     4 against 4 have 3e-65 for 0.029. Without an effect, 18 % of pairs of 12 zeros and ones have p < 0.05,
#     and 17 % of pairs of five grades from 1 to 3, where 2 % are due. Normal values that overlap are right.
# Cause: `PermutationTest` counts abs(es) > threshold; the data's own division and its mirror image are not
#     above themselves (dabest/_effsize_objects.py). With `ps_adjust`, the count of 0 is compared with a
#     binomial of 5,000 for each of the 20 divisions. Issue 187 there asks for p-values above 0, for too few
#     permutations.
# For gyre: its report has a paired test of its own. There, take scipy's `permutation_test`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile dabest==2025.10.20 numpy==2.1.3 scipy==1.15.3 pandas==2.2.3 \
    numba==0.61.2 llvmlite==0.44.0 matplotlib==3.10.8 seaborn==0.13.2 lqrt==0.3.3 statsmodels==0.15.0
NUMBA_CACHE_DIR="$folder/numba" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from dabest import PermutationTest
from scipy import stats

N_PAIRS = 150


def p_value(control, test, count=500, **options):
    return PermutationTest(np.asarray(control, float), np.asarray(test, float), "mean_diff",
                           permutation_count=count, **options).pvalue


def difference(control, test):
    return control.mean() - test.mean()


for n, due in [(3, 2 / 20), (4, 2 / 70), (5, 2 / 252)]:
    low, high = np.arange(n), np.arange(n) + 10
    assert np.isclose(stats.permutation_test((low, high), difference).pvalue, due)
    plain, adjusted = p_value(low, high, 5000), p_value(low, high, 5000, ps_adjust=True)
    print(f"{n} values above {n} others: p {plain}, adjusted {adjusted:.2g}, due {due:.3g}")
    assert plain == 0 and adjusted < 1e-10

for kind, highest, n in [("pairs of 12 zeros and ones", 2, 12), ("pairs of five grades from 1 to 3", 3, 5)]:
    p_values, p_values_due = [], []
    for seed in range(N_PAIRS):
        samples = np.random.default_rng(seed).integers(0, highest, (2, n))
        p_values.append(p_value(*samples))
        p_values_due.append(stats.permutation_test(tuple(samples), difference, n_resamples=500,
                                                   random_state=np.random.default_rng(seed)).pvalue)
    share, share_due = [np.mean(np.array(values) < 0.05) for values in (p_values, p_values_due)]
    print(f"{kind} without an effect: p < 0.05 in {share:.0%}, due {share_due:.0%}")
    assert share > 0.1 and share_due < 0.07

low, high = np.random.default_rng(0).normal(size=(2, 30))
found = p_value(low, high, 5000)
due = stats.permutation_test((low, high), difference, n_resamples=9999, random_state=np.random.default_rng(0)).pvalue
print(f"30 normal values each: p {found:.3f}, due {due:.3f}")
assert abs(found - due) < 0.02
PYTHON
