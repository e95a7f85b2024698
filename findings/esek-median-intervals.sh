#!/usr/bin/env bash
# Of esek's 95 % intervals for a difference of medians, one holds the truth in 37 % of samples.
#
# Versions: esek 0.1.38, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3, statsmodels 0.15.0.
# Guess before the run: the interval of Hodges and Lehmann for two groups holds the true difference in about
#     95 % of samples, and the exact one of the sign test in at least 95 %, as its docstring says.
#     (Suspected after reading the source.)
# Seen: for two groups, the differences of all pairs are given to the interval for one sample, as if
#     they were independent: with 10 values in each group, it holds the truth in 55 % of samples, with 20 in
#     37 %, the fewer the more values there are. That of Price and Bonett is right. The "exact" interval of the
#     sign test begins one value too far inside, at the third of 10 values for the second: 89 % for a due
#     97.9 %, and 78 % with 6 values.
# For gyre: its report has a paired interval of its own. There, take Price and Bonett's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 statsmodels==0.15.0 \
    pingouin==0.7.0 arch==8.0.0 astropy==8.0.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps esek==0.1.38
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from esek.calculators.medians.two_independent_medians import TwoIndependentMedians
from esek.utils.nonparametric_ci import sign_test_ci
from scipy import stats

N_SAMPLES = 150
generator = np.random.default_rng(0)


def holds(interval):
    return interval[0] <= 0 <= interval[1]


def hodges_lehmann(left, right):
    """Return the interval that inverts the rank sum test, by its normal approximation."""
    n, m = len(left), len(right)
    differences = np.sort(np.subtract.outer(left, right).ravel())
    low = n * m / 2 - stats.norm.ppf(0.975) * np.sqrt(n * m * (n + m + 1) / 12)
    index = int(np.floor(low))
    return differences[index], differences[n * m - 1 - index]


shares = {}
for n_values in (10, 20):
    counts = np.zeros(3)
    for _ in range(N_SAMPLES):
        left, right = generator.normal(size=(2, n_values))
        intervals = TwoIndependentMedians.from_data(left, right).confidence_intervals
        counts += [holds(intervals["diff_hodges_lehmann"]), holds(intervals["diff_price_bonett"]),
                   holds(hodges_lehmann(left, right))]
    shares[n_values] = counts / N_SAMPLES
    print(f"two groups of {n_values}: Hodges and Lehmann {shares[n_values][0]:.0%}, Price and Bonett "
          f"{shares[n_values][1]:.0%}, a right Hodges and Lehmann {shares[n_values][2]:.0%}")
assert shares[10][0] < 0.65 and shares[20][0] < 0.5
assert min(shares[10][1:].min(), shares[20][1:].min()) > 0.88

for n_values in (6, 10, 20):
    counts = np.zeros(2)
    for _ in range(2000):
        values = np.sort(generator.normal(size=n_values))
        _, _, low, high = sign_test_ci(values)
        # The widest two values that leave at most 2.5 % on each side.
        rank = int(stats.binom.ppf(0.025, n_values, 0.5))
        counts += [holds((low, high)), holds((values[rank - 1], values[n_values - rank]))]
        assert (low, high) == (values[rank], values[n_values - rank - 1])
    seen, right = counts / 2000
    print(f"sign test, {n_values} values: {seen:.1%}, right {right:.1%}")
    assert seen < 0.92 and right > 0.94
PYTHON
