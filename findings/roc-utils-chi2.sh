#!/usr/bin/env bash
# roc-utils' chi-square cut-off does not maximize chi-square: it prefers cut-offs that few are above.
#
# Versions: roc-utils 0.2.2, numpy 1.26.4, scipy 1.10.1, pandas 2.3.3, statsmodels 0.14.6, patsy 1.0.3,
#     scikit-learn 1.5.2, matplotlib 3.9.4.
# Guess before the run: the cut-off of `objective="chi2"` is the one with the largest chi-square statistic of
#     its 2 x 2 table, as the docstring and Miller and Siegmund say. (That it is not was suspected after
#     reading the source.)
# Seen: the formula lacks the brackets of its denominator, so that it multiplies by two of three factors
#     instead of dividing: of q, the share above the cut-off, (1 - q) / q is taken for 1 / (q (1 - q)). With
#     100 samples each, one deviation apart, cut-offs have a sensitivity of 0.34 for 0.68 on average, and a
#     chi-square of 27 for 38; with 300 positive and 30 negative ones, 12 for 37.
# For gyre: it chooses no cut-offs. There, take "youden" for classes of equal size.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==1.26.4 scipy==1.10.1 pandas==2.3.3 \
    statsmodels==0.14.6 patsy==1.0.3 scikit-learn==1.5.2 matplotlib==3.9.4
"$folder/env/bin/pip" install --quiet --no-compile --no-deps roc-utils==0.2.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from roc_utils import compute_roc
from scipy import stats

generator = np.random.default_rng(0)
SETS = 20


def chi_square(above, positive):
    """Return the chi-square statistic of the table of "above the cut-off" and "positive"."""
    table = np.array([[np.sum(above == a) - np.sum((above == a) & positive),
                       np.sum((above == a) & positive)] for a in [False, True]])
    if (table.sum(axis=1) == 0).any():
        return 0.0
    return stats.chi2_contingency(table, correction=False).statistic


for n_positive, n_negative in [(100, 100), (30, 300), (300, 30)]:
    rows = []
    for _ in range(SETS):
        values = np.concatenate([generator.normal(1, 1, n_positive), generator.normal(0, 1, n_negative)])
        positive = np.arange(len(values)) < n_positive
        best = compute_roc(values, positive.astype(int), pos_label=1, objective="chi2").opd["chi2"]
        seen = max(chi_square(values > best.opt, positive), chi_square(values >= best.opt, positive))
        cuts = np.sort(values)[:-1]
        statistics = [chi_square(values > cut, positive) for cut in cuts]
        due = cuts[np.argmax(statistics)]
        rows.append([best.opp[1], np.mean(values[positive] > due), seen, np.max(statistics)])
    sensitivity, right, seen, largest = np.mean(rows, axis=0)
    print(f"{n_positive} positive and {n_negative} negative samples: sensitivity {sensitivity:.2f}, due "
          f"{right:.2f}; chi-square {seen:.1f}, the largest is {largest:.1f}")
    assert all(row[2] <= row[3] + 1e-9 for row in rows)
    if n_positive == n_negative:
        assert sensitivity < right - 0.15 and seen < 0.8 * largest
PYTHON
