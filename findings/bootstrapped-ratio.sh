#!/usr/bin/env bash
# bootstrapped's permutation test of a ratio never finds a decrease: half of the control's mean has p = 1.
#
# Versions: bootstrapped 0.0.2, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3.
# Guess before the run: `permutation_test` with compare_functions.ratio, one of the four that its docstring
#     names, has about the p-value of the difference, and the same one with the groups exchanged; so has
#     `is_significant` of `bootstrap_ab`. (Suspected after reading the source.)
# Seen: where the test group's mean is half of the control's, p = 1 by ratio and below 0.001 by difference;
#     exchanged, it is below 0.001. Of experiments without an effect, 5 % have p < 0.05, all with the
#     larger mean in the test group, where p is half that of the difference. The bootstrap of a ratio is
#     significant in 100 % of them, as its interval never holds 0. With batches, the first shuffles are
#     counted again in each later one: 1,000 in batches of 100 are 5,500 values.
# Cause: `_get_permutation_result` counts what is beyond plus or minus the statistic, around 0, but ratios
#     are around 1 (bootstrapped/permutation.py). `is_significant` asks whether both ends have one sign
#     (bootstrapped/bootstrap.py). The lists of shuffles are not emptied between batches.
# For gyre: its report has a paired test of its own. There, take the difference, or percent_change.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 matplotlib==3.10.8
"$folder/env/bin/pip" install --quiet --no-compile bootstrapped==0.0.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import bootstrapped.bootstrap as bootstrap
import bootstrapped.compare_functions as compare
import bootstrapped.stats_functions as statistics
import numpy as np
from bootstrapped.permutation import permutation_test

N, N_EXPERIMENTS = 50, 200


def p_value(test, control, function):
    np.random.seed(0)
    return permutation_test(test, control, statistics.mean, function, num_iterations=2000)


generator = np.random.default_rng(0)
control = generator.gamma(4.0, size=N)
test = generator.gamma(4.0, size=N) / 2
found = {name: p_value(*groups, function) for name, groups, function in [
    ("ratio", (test, control), compare.ratio), ("ratio, exchanged", (control, test), compare.ratio),
    ("difference", (test, control), compare.difference), ("percent_change", (test, control), compare.percent_change)]}
print(f"means {test.mean():.2f} and {control.mean():.2f}: p", found)
assert found["ratio"] == 1 and found["ratio, exchanged"] < 0.001 and found["difference"] < 0.001
assert found["percent_change"] < 0.001

by_ratio, by_difference, larger, significant = [], [], [], []
for seed in range(N_EXPERIMENTS):
    test, control = np.random.default_rng(seed).gamma(4.0, size=(2, N))
    np.random.seed(seed)
    by_ratio.append(permutation_test(test, control, statistics.mean, compare.ratio, num_iterations=500))
    by_difference.append(permutation_test(test, control, statistics.mean, compare.difference, num_iterations=500))
    larger.append(test.mean() > control.mean())
    result = bootstrap.bootstrap_ab(test, control, statistics.mean, compare.ratio, num_iterations=500)
    significant.append(bool(result.is_significant()))
by_ratio, by_difference, larger = map(np.array, (by_ratio, by_difference, larger))
print(f"without an effect: p < 0.05 in {np.mean(by_ratio < 0.05):.1%} by ratio and {np.mean(by_difference < 0.05):.1%} by "
      f"difference; of those by ratio, {np.mean(larger[by_ratio < 0.05]):.0%} with the larger mean in the test group; "
      f"smallest p of the others {by_ratio[~larger].min():.2f}; bootstrap significant in {np.mean(significant):.0%}")
assert by_ratio[~larger].min() > 0.4 and all(significant)
assert np.allclose(by_ratio[larger], by_difference[larger] / 2, atol=0.08)

test, control = np.random.default_rng(0).gamma(4.0, size=(2, N))
sizes = [len(permutation_test(test, control, statistics.mean, compare.difference, num_iterations=1000,
                              iteration_batch_size=batch, return_distribution=True).ravel()) for batch in (1000, 100)]
print("values of 1,000 shuffles, at once and in batches of 100:", sizes)
assert sizes == [1000, 5500]
PYTHON
