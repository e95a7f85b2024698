#!/usr/bin/env bash
# hypothesize's test of all correlations finds some in independent data, with p = 0.
#
# Versions: hypothesize 1.2.3, numpy 2.4.6, pandas 3.1.1, scipy 1.17.1.
# Guess before the run: `pball` rejects the hypothesis that all correlations are 0 in 5 % of
#     independent data sets. `wcov`, the Winsorized covariances of `winall`, has the Winsorized
#     variances on its diagonal. (That neither is so was suspected after reading the source.)
# Seen: with 30 samples of 3 columns it is rejected in 21 %, of 6 columns in 74 % and of 12 in 99 %,
#     nearly always with p = 0: the normalizing series has 240 to the power of c^3 where 240 times
#     c^3 is due, so that one correlation of 0.3 makes H infinite or nearly so. With more samples it
#     is the same. `wcov` is the matrix of correlations: columns with deviations of 1, 10 and 100
#     have a variance of 1 each. The correlations of both are right.
# For gyre: its report does not use it. There, test pairs, or compute H from `pbcorm`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile hypothesize==1.2.3 numpy==2.4.6 pandas==3.1.1 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
from hypothesize.measuring_associations import pball, winall
from scipy import stats

DATA_SETS = 200


def reference(correlations, samples):
    """Return the p-value of H: the sum of the squares of the t-values made normal (Hill, 1970)."""
    r = correlations[np.triu_indices(len(correlations), 1)]
    freedom = samples - 2
    t = r * np.sqrt(freedom / (1 - r**2))
    a, b = freedom - 0.5, 48 * (freedom - 0.5)**2
    c = np.sqrt(a * np.log1p(t**2 / freedom))
    z = c + (c**3 + 3 * c) / b - ((4 * c**7 + 33 * c**5 + 240 * c**3 + 855 * c)
                                  / (10 * b**2 + 8 * b * c**4 + 1000 * b))
    return stats.chi2.sf(np.sum(z**2), len(r))


# The reference's normal values are those of the t-values, to 0.001.
t = np.array([0.1, 1, 3])
r = t / np.sqrt(28 + t**2)
for value, correlation in zip(t, r):
    p = reference(np.array([[1, correlation], [correlation, 1]]), 30)
    assert abs(p - 2 * stats.t.sf(value, 28)) < 1e-3

generator = np.random.default_rng(0)
for samples, columns, least in [(30, 3, 0.13), (30, 6, 0.6), (100, 6, 0.6), (30, 12, 0.95)]:
    found, due, zeros = 0, 0, 0
    for _ in range(DATA_SETS):
        result = pball(pd.DataFrame(generator.normal(size=(samples, columns))))
        found += result["H_p_value"] < 0.05
        zeros += result["H_p_value"] == 0
        due += reference(result["pbcorm"], samples) < 0.05
    print(f"{samples} samples of {columns} independent columns: p < 0.05 in "
          f"{found / DATA_SETS:.1%} instead of {due / DATA_SETS:.1%}, p = 0 in "
          f"{zeros / DATA_SETS:.1%}")
    assert found / DATA_SETS > least and due / DATA_SETS < 0.12 and zeros > 0.8 * found

table = generator.normal(size=(200, 3)) * [1, 10, 100]
winsorized = np.column_stack([stats.mstats.winsorize(column, (0.2, 0.2)) for column in table.T])
result = winall(pd.DataFrame(table))
print(f"Winsorized variances: {np.diag(result['wcov']).round(3)} instead of "
      f"{np.cov(winsorized.T).diagonal().round(3)}")
assert np.allclose(result["wcov"], np.corrcoef(winsorized.T))
assert np.array_equal(result["wcov"], result["wcor"])
PYTHON
