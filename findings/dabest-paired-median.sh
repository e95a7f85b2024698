#!/usr/bin/env bash
# dabest's paired p-value of a median compares the median of differences with differences of medians.
#
# Versions: dabest 2025.10.20, numpy 2.1.3, scipy 1.15.3, pandas 2.2.3, numba 0.61.2.
# Guess before the run: the permutation p-value of a paired median difference is small where each of 20
#     subjects rises, and is the share of the swaps whose median of differences is as large. (Suspected
#     after reading the source.)
# Seen: where each of 20 subjects, which differ by 10 from one another, rises by about 1, p is anything
#     from 0 to 0.5, and below 0.05 in 68 % of experiments; swaps with the same statistic give at most
#     0.003, Wilcoxon's test 2e-6, and the mean difference in dabest 0. It depends on the two subjects in
#     the middle alone. Without an effect, the mean of p is 0.73.
# Cause: the observed effect is computed with `is_paired`, and those of the permutations with False, which
#     makes differences of two medians over all subjects (dabest/_effsize_objects.py). For means, both
#     are the same.
# For gyre: its report has paired differences of its own. There, take the mean difference.
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

N_SUBJECTS, N_EXPERIMENTS = 20, 40


def p_value(before, after, effect_size, count=500):
    return PermutationTest(before, after, effect_size, "baseline", permutation_count=count).pvalue


def swapped(before, after, generator, count=2000):
    """Return the share of random swaps whose median of differences is at least as large as the observed one."""
    differences = after - before
    signs = generator.choice([-1, 1], (count, N_SUBJECTS))
    return np.mean(abs(np.median(signs * differences, axis=1)) >= abs(np.median(differences)))


def draw(seed, effect, noise):
    generator = np.random.default_rng(seed)
    subjects = generator.normal(0, 10, N_SUBJECTS)
    before = subjects + noise * generator.normal(size=N_SUBJECTS)
    return before, subjects + effect + noise * generator.normal(size=N_SUBJECTS), generator


found = {}
for seed in range(N_EXPERIMENTS):
    before, after, generator = draw(seed, 1.0, 0.07)
    assert (after - before).min() > 0.6
    found[seed] = (p_value(before, after, "median_diff"), swapped(before, after, generator),
                   p_value(before, after, "mean_diff"), stats.wilcoxon(after - before).pvalue)
p_values, p_values_due, of_means, wilcoxon = np.array(list(found.values())).T
print(f"each of {N_SUBJECTS} subjects rises: p of the median difference {np.sort(p_values)[::8].round(2)}, due at most "
      f"{p_values_due.max():.3f}; of the mean difference at most {of_means.max():.3f}, Wilcoxon {wilcoxon.max():.0e}")
print(f"p < 0.05 in {np.mean(p_values < 0.05):.0%} of experiments, due {np.mean(p_values_due < 0.05):.0%}")
assert np.mean(p_values < 0.05) < 0.85 and p_values.max() > 0.3
assert p_values_due.max() < 0.02 and of_means.max() < 0.02 and wilcoxon.max() < 1e-4

p_values, p_values_due = [], []
for seed in range(150):
    before, after, generator = draw(seed, 0.0, 0.5)
    p_values.append(p_value(before, after, "median_diff", 200))
    p_values_due.append(swapped(before, after, generator, 500))
print(f"without an effect: mean of p {np.mean(p_values):.2f}, due {np.mean(p_values_due):.2f}")
assert np.mean(p_values) > 0.65 and np.mean(p_values_due) < 0.6
PYTHON
