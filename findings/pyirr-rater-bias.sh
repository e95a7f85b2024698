#!/usr/bin/env bash
# pyirr's bias of two raters counts their agreements for one of them, unless there are four categories.
#
# Versions: pyirr 0.84.1.2, pandas 2.3.3, scipy 1.17.1, numpy 2.4.6, statsmodels 0.15.0, patsy 1.0.3.
# Guess before the run: `rater_bias()` compares how often the second rater is higher with how often he is
#     lower, the two triangles of the table: a ratio of 0.5 and p < 0.05 in 5 % of cases without a bias,
#     for any number of categories. (That it might not was suspected after reading the source.)
# Seen: the triangles of the table begin at a diagonal that moves with the number of categories. With
#     three, agreements count as "higher": raters without a bias who agree in 80 % have a ratio of 0.90
#     and p < 0.05 in all of 100 cases. With two, they count on both sides, so that a ratio of 0.82
#     becomes 0.54; with five, disagreements by one category count on one side only, a ratio of 1.00;
#     with six they count on neither side, and the ratio is NaN. With four it is right.
# For gyre: it has no human ratings. There, take a sign test of the differences.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pandas==2.3.3 scipy==1.17.1 numpy==2.4.6 \
    statsmodels==0.15.0 patsy==1.0.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps pyirr==0.84.1.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from pyirr import rater_bias
from scipy import stats

N = 200
SETS = 100
generator = np.random.default_rng(0)


def rate(categories, agreement, higher):
    """Return ratings of 200 subjects by two raters; disagreements are by one category."""
    first = generator.integers(0, categories, N)
    step = np.where(generator.random(N) < higher, 1, -1)
    step[generator.random(N) < agreement] = 0
    second = first + step
    # A step that would leave the scale starts at the other end instead: as many steps of each kind.
    first = np.where(second < 0, first + 1, np.where(second >= categories, first - 1, first))
    return np.stack([first, first + step], axis=1)


def due(ratings):
    """Return the share of higher ratings among the unequal ones, and the p-value of McNemar's test."""
    higher = np.sum(ratings[:, 1] > ratings[:, 0])
    lower = np.sum(ratings[:, 1] < ratings[:, 0])
    return higher / (higher + lower), stats.chi2.sf((higher - lower) ** 2 / (higher + lower), 1)


shares = {}
for categories in range(2, 7):
    rows = []
    for _ in range(SETS):
        ratings = rate(categories, 0.8, 0.5)
        result = rater_bias(ratings)
        rows.append([result.value, result.pvalue < 0.05, due(ratings)[0], due(ratings)[1] < 0.05])
    value, seen, ratio, right = np.mean(rows, axis=0)
    shares[categories] = seen
    print(f"{categories} categories, no bias: ratio {value:.2f}, due {ratio:.2f}; p < 0.05 in "
          f"{seen:.0%}, due {right:.0%}")
    assert abs(ratio - 0.5) < 0.05 and right < 0.15
    if categories == 4:
        assert abs(value - ratio) < 1e-9 and seen == right
assert shares[3] == shares[5] == 1 and shares[6] == 0

ratings = rate(3, 0.8, 0.5)
result = rater_bias(ratings)
print(f"3 categories: ratio {result.value:.2f}, p = {result.pvalue:.1e}; due {due(ratings)[0]:.2f} "
      f"and {due(ratings)[1]:.2f}")
assert result.value > 0.85 and result.pvalue < 1e-12
ratings = rate(2, 0.8, 0.9)
result = rater_bias(ratings)
print(f"2 categories, the second higher in 9 of 10 disagreements: ratio {result.value:.2f}, "
      f"due {due(ratings)[0]:.2f}")
assert result.value < 0.6 and due(ratings)[0] > 0.75
PYTHON
