#!/usr/bin/env bash
# permutations-stats takes minus infinity for infinity, which doubles one-sided p-values.
#
# Versions: permutations-stats 0.2, numba 0.68.1.
# Guess before the run: for four values above four others, the exact one-sided Brunner-Munzel test has
#     p = 1/70, as the Mann-Whitney test has: only one of the 70 divisions is as extreme. (That
#     infinite values count as equal was read in the source before the run.)
# Seen: p is 2/70 for "greater" and "less", as for the two-sided test; 0.1 for 0.05 with three values
#     in each sample, and 0.0079 for 0.0040 with five. With one value inside the other sample it is
#     right, so that p is the same for 4 values apart and for that, 0.0286.
# Cause: `is_close` (utils.py) says that two numbers are close if neither is finite. The statistic is
#     infinite for the two divisions that separate all values, with opposite signs.
# For gyre: its report has a paired test of its own. There, halve p if all values of one sample are
#     above those of the other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 numba==0.68.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps permutations-stats==0.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import numpy as np
from permutations_stats.permutations import permutation_test

for n in [3, 4, 5]:
    low, high = np.arange(n) * 1.0, np.arange(n) + 10.0
    due = 1 / math.comb(2 * n, n)
    for alternative, samples in [("greater", (high, low)), ("less", (low, high))]:
        p_values = {test: permutation_test(*samples, test=test, alternative=alternative).pvalue
                    for test in ["brunner_munzel", "mann_whitney"]}
        print(f"{n} values above {n}, {alternative}: Brunner-Munzel {p_values['brunner_munzel']:.4f}, "
              f"Mann-Whitney {p_values['mann_whitney']:.4f}, due {due:.4f}")
        assert abs(p_values["brunner_munzel"] - 2 * due) < 1e-9
        assert abs(p_values["mann_whitney"] - due) < 1e-9

# with a finite statistic, both are right
samples = np.array([3.0, 11, 12, 13]), np.array([0.0, 1, 2, 4])
finite = permutation_test(*samples, test="brunner_munzel", alternative="greater").pvalue
print(f"one value inside the other sample: Brunner-Munzel {finite:.4f}, due {2 / 70:.4f}")
assert abs(finite - 2 / 70) < 1e-9
PYTHON
