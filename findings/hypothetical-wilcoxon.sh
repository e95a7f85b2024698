#!/usr/bin/env bash
# hypothetical's Wilcoxon test does not look at signs: its p-value depends on the number of pairs alone.
#
# Versions: hypothetical 0.3.0, numpy 1.26.4, scipy 1.10.1, pandas 2.3.3, statsmodels 0.14.6, patsy 1.0.3,
#     numpy-indexed 0.3.7.
# Guess before the run: `WilcoxonTest(a, b)` sums up the ranks of the positive differences, and has scipy's
#     p-value by the normal approximation: without an effect, below 0.05 in 5 % of the data sets. (That it
#     has not was suspected after reading the source.)
# Seen: all ranks are summed up, as it is the rank of a difference that is asked whether it is positive, and
#     not the difference; the mean is not taken away either. 30 pairs without ties have V = 465, p = 1.7e-6
#     and an effect size of 0.87 whatever the numbers are, also if the differences are symmetric around 0,
#     and 60 pairs 1.6e-11. Of 200 data sets without an effect, all have p < 0.001.
# For gyre: its report uses its own paired test. There, take scipy.stats.wilcoxon.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==1.26.4 scipy==1.10.1 pandas==2.3.3 \
    statsmodels==0.14.6 patsy==1.0.3 packaging==26.4 future==1.0.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps hypothetical==0.3.0 numpy-indexed==0.3.7
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from hypothetical.nonparametric import WilcoxonTest
from scipy import stats

generator = np.random.default_rng(0)


def due(differences):
    """Return the sum of positive ranks and its two-sided p-value by the normal approximation."""
    n = len(differences)
    positive = stats.rankdata(np.abs(differences))[differences > 0].sum()
    z = (positive - n * (n + 1) / 4) / np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return positive, 2 * stats.norm.sf(abs(z))


for n in [30, 60]:
    values = set()
    symmetric = np.arange(1, n + 1) * np.where(np.arange(n) % 4 % 3 == 0, 1.0, -1.0)
    for name, differences in [("symmetric around 0", symmetric),
                              ("around 1", generator.normal(1, 1, n)),
                              ("all negative", -generator.random(n) - 0.1)]:
        first = generator.normal(size=n)
        result = WilcoxonTest(first + differences, first).test_summary
        positive, right = due(differences)
        assert np.isclose(right, stats.wilcoxon(differences, mode="approx", correction=False).pvalue)
        print(f"{n} differences {name}: V = {result['V']:.0f}, due {positive:.0f}; p = "
              f"{result['p-value']:.1e}, due {right:.1e}; effect size {result['effect size']:.2f}")
        assert result["V"] == n * (n + 1) / 2 and result["p-value"] < 1e-5
        values.add(round(result["p-value"], 20))
        if name.startswith("symmetric"):
            assert right > 0.5
    assert len(values) == 1

seen, right = [], []
for _ in range(200):
    differences = generator.normal(size=30)
    seen.append(WilcoxonTest(differences, np.zeros(30)).test_summary["p-value"] < 0.001)
    right.append(due(differences)[1] < 0.05)
print(f"no effect: p < 0.001 in {np.mean(seen):.0%} of 200 data sets; due: p < 0.05 in {np.mean(right):.0%}")
assert np.all(seen) and np.mean(right) < 0.12
PYTHON
