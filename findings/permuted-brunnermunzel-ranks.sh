#!/usr/bin/env bash
# permuted_brunnermunzel takes the output of argsort for ranks.
#
# Versions: permuted_brunnermunzel 0.1.0, scipy 1.17.1.
# Guess before the run: the estimate is P(X < Y) + P(X = Y) / 2, and the p-value that of scipy's
#     permutation_test with the statistic of Brunner and Munzel; neither depends on the order of the
#     values in a sample. (That `rank` is numpy's argsort was read in the source before the run.)
# Seen: argsort's indices, counted from 0, are taken for ranks. For seven values and seven others,
#     all larger, the estimate is 0.857, and -0.143 the other way round, where 1 and 0 are right. The
#     order of the values decides: two samples with an estimate of 0.878 and p = 0.0105 have
#     estimates of 0.45 to 0.71 and p from 0.013 to 0.57 in 40 random orders, with p < 0.05 in four
#     of them. Of 40 pairs of normal samples of seven that differ by two deviations, 25 have
#     p < 0.05, where 38 are due.
# For gyre: its report has a paired test of its own. There, take scipy's permutation_test.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile permuted_brunnermunzel==0.1.0 numpy==2.4.6 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import itertools
import logging

import numpy as np
import scipy.stats
from permuted_brunnermunzel import permuted_brunnermunzel

logging.disable(logging.CRITICAL)
N = 7
CHOICES = np.array(list(itertools.combinations(range(2 * N), N)))
REST = np.array([np.setdiff1d(np.arange(2 * N), chosen) for chosen in CHOICES])


def exact(x, y):
    """Return P(X < Y) and the exact p-value, by the definition, for samples without ties."""
    values = np.concatenate([x, y])
    ranks = scipy.stats.rankdata(values)
    first, second = ranks[CHOICES], ranks[REST]
    first.sort(axis=1)
    second.sort(axis=1)
    inner = np.arange(1, N + 1)
    difference = second.mean(axis=1) - first.mean(axis=1)
    spread = (first - inner).var(axis=1) + (second - inner).var(axis=1)
    with np.errstate(divide="ignore"):
        statistics = np.abs(difference / np.sqrt(spread))
    # the first choice is the observed one
    p_value = np.mean(statistics >= statistics[0] - 1e-9)
    return np.mean(np.less.outer(x, y)), p_value


low, high = list(range(7)), list(range(10, 17))
for x, y in [(low, high), (high, low)]:
    estimate, p_value = permuted_brunnermunzel(x, y)
    due, due_p = exact(x, y)
    print(f"apart: estimate {estimate:.3f}, by the definition {due:.3f}; p {p_value:.5f}, by the "
          f"definition {due_p:.5f}")
    assert abs(estimate - due) > 0.14

generator = np.random.default_rng(0)
x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
y = [4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5]
due, due_p = exact(x, y)
scipys = scipy.stats.permutation_test(
    [x, y], lambda a, b: abs(scipy.stats.brunnermunzel(a, b).statistic), n_resamples=10000,
    alternative="greater")
assert abs(scipys.pvalue - due_p) < 1e-9
results = [permuted_brunnermunzel(generator.permutation(x).tolist(),
                                  generator.permutation(y).tolist()) for _ in range(40)]
estimates, p_values = np.array(results).T
print(f"40 orders of the same samples: estimates {estimates.min():.2f} to {estimates.max():.2f}, by "
      f"the definition {due:.3f}; p {p_values.min():.3f} to {p_values.max():.3f}, below 0.05 in "
      f"{np.sum(p_values < 0.05)}, by the definition {due_p:.4f}")
assert due_p < 0.02 and p_values.max() > 0.4 and np.sum(p_values < 0.05) < 10
assert estimates.max() < due - 0.1

found = due_found = 0
for _ in range(40):
    x = generator.normal(size=N)
    y = generator.normal(size=N) + 2
    found += permuted_brunnermunzel(x.tolist(), y.tolist())[1] < 0.05
    due_found += exact(x, y)[1] < 0.05
print(f"two deviations apart: p < 0.05 in {found} of 40 pairs, by the definition in {due_found}")
assert found < 30 and due_found > 35
PYTHON
