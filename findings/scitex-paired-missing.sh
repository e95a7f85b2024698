#!/usr/bin/env bash
# scitex-stats's paired Cohen's d pairs the wrong subjects where values are missing: 0.48 where 4.97 is due.
#
# Versions: scitex-stats 1.0.0, scitex-dev 0.62.4, scitex-config 0.3.7, scitex-logging 0.2.3, numpy 2.4.6,
#     scipy 1.17.1, pandas 2.3.3.
# Guess: `cohens_d(x, y, paired=True)` with missing values, which it removes, is that of the complete pairs, as
#     in `test_ttest_rel`. (Written down after the first try, for which the source had been read.)
# Seen: 50 subjects rise by 0.5 with a deviation of 0.1, so that d is 4.94. If the first subject's value after
#     and the last one's before are missing, d is 0.48, and 4.97 by `test_ttest_rel` on the same two arrays.
#     If the two missing values are neighbours, it is 2.17. If only one value is
#     missing, it raises that the samples must have one length.
# Cause: missing values are taken out of each array alone, so that all subjects between the two are shifted
#     by one (scitex_stats/effect_sizes/_cohens_d.py).
# For gyre: its report pairs by seed. There, take out incomplete pairs first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scitex-stats==1.0.0 scitex-dev==0.62.4 scitex-config==0.3.7 \
    scitex-logging==0.2.3 numpy==2.4.6 scipy==1.17.1 pandas==2.3.3
HOME="$folder" MPLBACKEND=Agg "$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from scitex_stats.effect_sizes import cohens_d
from scitex_stats.tests.parametric import test_ttest_rel

N = 50
generator = np.random.default_rng(0)
before = generator.normal(0, 1, N)
after = before + 0.5 + generator.normal(0, 0.1, N)


def effects(missing_after, missing_before):
    """Return d by `cohens_d`, by `test_ttest_rel` and of the complete pairs, without the given subjects' values."""
    x, y = after.copy(), before.copy()
    x[missing_after], y[missing_before] = np.nan, np.nan
    differences = (x - y)[~np.isnan(x - y)]
    return cohens_d(x, y, paired=True), test_ttest_rel(x, y)["effect_size"], differences.mean() / differences.std(ddof=1)


results = {}
GAPS = {"none": ([], []), "one subject, both": ([0], [0]), "neighbours": ([20], [21]), "first and last": ([0], [N - 1])}
for name, missing in GAPS.items():
    results[name] = d, by_test, due = effects(*missing)
    print(f"missing: {name:18s} cohens_d {d:.2f}, test_ttest_rel {by_test:.2f}, complete pairs {due:.2f}")
    assert np.isclose(by_test, due)
assert np.isclose(results["none"][0], results["none"][2])
assert np.isclose(results["one subject, both"][0], results["one subject, both"][2])
assert results["first and last"][0] < 0.2 * results["first and last"][2]
assert results["neighbours"][0] < 0.9 * results["neighbours"][2]
try:
    effects([0], [])
except ValueError as error:
    print(f"one value: {error}")
else:
    raise AssertionError("one missing value no longer raises")
PYTHON
