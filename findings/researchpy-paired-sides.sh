#!/usr/bin/env bash
# researchpy exchanges the one-sided p-values of a paired t-test if the difference is positive.
#
# Versions: researchpy 0.3.7, pandas 2.3.3, scipy 1.17.1, numpy 2.4.6, statsmodels 0.15.0, patsy 1.0.3.
# Guess before the run: "Difference > 0 p value" in the table of a paired t-test is small where the first
#     measurements are larger, as in the table of an unpaired one. (That it might not be was suspected
#     after reading the source.)
# Seen: it is small only where they are smaller, and "Difference < 0" is small in both cases: the two are
#     exchanged if t is positive. With t = 4.6, p is 1.0000 for "> 0" and 0.0000 for "< 0". Of 1,000 data
#     sets without an effect, "< 0" has p < 0.05 in 11 %, and "> 0" in none. Two-sided p-values and
#     unpaired tests are right.
# For gyre: its report pairs seeds by itself. There, take scipy's `ttest_rel` with an alternative.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pandas==2.3.3 scipy==1.17.1 numpy==2.4.6 \
    statsmodels==0.15.0 patsy==1.0.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps researchpy==0.3.7
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
from researchpy import ttest
from scipy import stats

N = 40
generator = np.random.default_rng(0)


def measure(shift):
    """Return two measurements of the same 40 subjects, of which the first is shifted."""
    before = generator.normal(5, 1, N)
    after = before + shift + generator.normal(0, 1, N)
    return pd.Series(after, name="first"), pd.Series(before, name="second")


def one_sided(first, second, paired):
    """Return researchpy's p-values for a smaller, a larger and a different first measurement."""
    table = ttest(first, second, paired=paired)[1]
    rows = dict(zip((name.strip(" =") for name in table.iloc[:, 0]), table["results"]))
    return [float(rows[f"{name} p value"])
            for name in ("Difference < 0", "Difference > 0", "Two side test")]


for shift in [0.5, -0.5]:
    first, second = measure(shift)
    for paired, test in [(True, stats.ttest_rel), (False, stats.ttest_ind)]:
        seen = one_sided(first, second, paired)
        due = [test(first, second, alternative=side).pvalue
               for side in ("less", "greater", "two-sided")]
        print(f"{'paired' if paired else 'unpaired'}, t = {test(first, second).statistic:.2f}: "
              f"p = {seen[0]:.4f} for < 0 and {seen[1]:.4f} for > 0, due {due[0]:.4f} and {due[1]:.4f}")
        assert abs(seen[2] - due[2]) < 1e-4
        exchanged = paired and shift > 0
        expected = due[1::-1] if exchanged else due[:2]
        assert np.abs(np.subtract(seen[:2], expected)).max() < 1e-4

values = np.array([one_sided(*measure(0), True) for _ in range(1000)])
shares = (values < 0.05).mean(0)
print(f"1,000 paired data sets without an effect: p < 0.05 for < 0 in {shares[0]:.1%}, for > 0 in "
      f"{shares[1]:.1%}, two-sided in {shares[2]:.1%}")
assert shares[0] > 0.07 and shares[1] == 0 and 0.03 < shares[2] < 0.07
PYTHON
