#!/usr/bin/env bash
# dcor's permutation tests leave out ties, so that three values against three have p = 0.001.
#
# Versions: dcor 0.7, numpy 2.4.6, scipy 1.17.1, numba 0.68.1.
# Guess before the run: the p-value of a permutation test is the share of permutations with a
#     statistic as large as the observed one or larger: three values against three other ones give
#     0.1 at least, as 2 of the 20 ways to divide them are as extreme, and null data have p <= 0.05
#     in 5 % of cases at most. (That it might not was suspected after reading the source.)
# Seen: only larger ones count. Three values that lie apart from three others have p = 0.001, for
#     any seed, and five from five others too, where 0.008 is due. Of pairs of 20 trials with the
#     same failure rate of 0.05, 61 % have p <= 0.05, and none where ties count. The tests of
#     independence count alike. With 30 continuous values each, all is well.
# For gyre: its report resamples the seeds. There, permute by hand, with `energy_test_statistic`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile dcor==0.7 numpy==2.4.6 scipy==1.17.1 \
    numba==0.68.1 joblib==1.6.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from itertools import combinations

import dcor
import numpy as np

N_RESAMPLES = 999


def compute_statistic(x, y):
    """Return n m / (n + m) times the energy distance of two samples of numbers."""
    between = np.abs(x[:, None] - y).mean()
    within = np.abs(x[:, None] - x).mean() + np.abs(y[:, None] - y).mean()
    return len(x) * len(y) / (len(x) + len(y)) * (2 * between - within)


def compute_exact(x, y):
    """Return the share of all divisions that are as extreme as the given one or more so."""
    values = np.concatenate([x, y])
    statistics = []
    for chosen in combinations(range(len(values)), len(x)):
        rest = [i for i in range(len(values)) if i not in chosen]
        statistics.append(compute_statistic(values[list(chosen)], values[rest]))
    return np.mean(np.array(statistics) >= compute_statistic(x, y) - 1e-9)


def test(x, y, seed, resamples=N_RESAMPLES):
    found = dcor.homogeneity.energy_test(x, y, num_resamples=resamples, random_state=seed)
    assert np.isclose(found.statistic, compute_statistic(x, y))
    return found.pvalue


for size in (3, 4, 5):
    x = np.arange(size, dtype=float)
    y = x + 100
    found = [test(x, y, seed) for seed in range(3)]
    print(f"{size} values against {size}: p = {found}, where {compute_exact(x, y):.4f} is due")
    assert found == [1 / (N_RESAMPLES + 1)] * 3 and compute_exact(x, y) > 0.007

labels = np.repeat([0.0, 1.0], [3, 1])
same = dcor.independence.distance_covariance_test(labels, labels, num_resamples=N_RESAMPLES,
                                                  random_state=0)
print(f"independence of four labels and the same four: p = {same.pvalue}, where 0.25 is due")
assert same.pvalue == 1 / (N_RESAMPLES + 1)

DATA_SETS, FEWER_RESAMPLES = 200, 199
generator = np.random.default_rng(0)


def resample(x, y):
    """Return the p-value with ties, from random permutations of our own."""
    values = np.concatenate([x, y])
    permuted = [generator.permutation(values) for _ in range(FEWER_RESAMPLES)]
    statistics = np.array([compute_statistic(one[:len(x)], one[len(x):]) for one in permuted])
    n_extreme = np.sum(statistics >= compute_statistic(x, y) - 1e-9)
    return (n_extreme + 1) / (FEWER_RESAMPLES + 1)


for rate in (0.05, 0.1, None):
    pairs = []
    for seed in range(DATA_SETS):
        if rate is None:
            x, y = generator.normal(size=(2, 30))
        else:
            x, y = (generator.random((2, 20)) < rate).astype(float)
        pairs.append((test(x, y, seed, FEWER_RESAMPLES), resample(x, y)))
    found, due = np.mean(np.array(pairs) <= 0.05, 0)
    kind = "two samples of 30 normal values" if rate is None else f"twice 20 trials, rate {rate}"
    print(f"null data, {kind}: p <= 0.05 in {found:.0%}, with ties in {due:.0%}")
    assert due < 0.11
    assert found < 0.11 if rate is None else found > 0.15
PYTHON
