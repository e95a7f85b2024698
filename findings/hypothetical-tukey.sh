#!/usr/bin/env bash
# hypothetical's p-values of Tukey's test are near 1 beside "significant difference".
#
# Versions: hypothetical 0.3.0, numpy 1.26.4, scipy 1.10.1, pandas 2.3.3, statsmodels 0.14.6, patsy 1.0.3,
#     numpy-indexed 0.3.7.
# Guess before the run: `p_adjusted` of `TukeysTest` is the p-value of the studentized range, as in scipy's
#     tukey_hsd, and below 0.05 exactly where the difference is significant. (That it is not was suspected
#     after reading the source.)
# Seen: the difference of two means is divided by the standard deviation of one group instead of the standard
#     error of a mean, and the number of samples in a group is taken for the number of groups. Of three
#     groups of 30 or 100 whose means are 0, 1 and 2 deviations, all pairs are significant at 5 %, and have
#     p = 0.9, the largest value of the table behind it, where all are below 0.001.
# For gyre: its report compares two models at a time. There, take scipy.stats.tukey_hsd.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==1.26.4 scipy==1.10.1 pandas==2.3.3 \
    statsmodels==0.14.6 patsy==1.0.3 packaging==26.4 future==1.0.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps hypothetical==0.3.0 numpy-indexed==0.3.7
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from hypothetical.posthoc import TukeysTest
from scipy import stats

generator = np.random.default_rng(0)

for n in [10, 30, 100]:
    groups = []
    for mean in [0, 1, 2]:
        values = generator.normal(size=n)
        groups.append(mean + (values - values.mean()) / values.std(ddof=1))
    table = TukeysTest(np.concatenate(groups), group=np.repeat(["a", "b", "c"], n)).group_comparison
    right = stats.tukey_hsd(*groups).pvalue[[0, 0, 1], [1, 2, 2]]
    for (_, row), due in zip(table.iterrows(), right):
        print(f"groups of {n}, {row['groups']}: difference {row['mean difference']:.1f}, significant: "
              f"{row['significant difference']}, p = {row['p_adjusted']:.2f}, due {due:.1e}")
        assert row["p_adjusted"] > 0.85 and row["significant difference"] == (due < 0.05)
    assert n == 10 or (right < 1e-3).all()
PYTHON
