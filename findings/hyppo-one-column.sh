#!/usr/bin/env bash
# hyppo's Hotelling test of one column depends on the unit, and its runs test is turned around.
#
# Versions: hyppo 0.5.2, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: Hotelling's test of one column is the t-test, in any unit; the test of
#     Friedman and Rafsky has a small p-value for samples that lie apart. (That neither might hold
#     was suspected after reading the source.)
# Seen: for one column, Hotelling's statistic is not divided by the variance: two samples with a
#     difference of one deviation have p = 0.95 in hundreds and 1e-145 in hundredths, where 1e-8 is
#     due. With two columns it is right. The statistic of Friedman and Rafsky is small if samples
#     differ, and its p-value counts the permutations with a larger one: two clouds without any
#     overlap have p = 1, and points that alternate between the samples on a line have p = 0.003.
# For gyre: its report does not use it. There, take scipy's t-test for one column, and 1 - p.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile hyppo==0.5.2 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from hyppo.ksample import FriedmanRafsky, Hotelling
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from scipy.stats import ttest_ind

REPETITIONS = 300
generator = np.random.default_rng(0)
first = generator.normal(size=40)
second = generator.normal(size=40) + 1
other = generator.normal(size=(2, 40))
due = ttest_ind(first, second).pvalue
ones, twos = [], []
for unit in [0.01, 1, 100]:
    one = Hotelling().test(first * unit, second * unit).pvalue.item()
    two = Hotelling().test(np.stack([first, other[0]], axis=1) * unit,
                           np.stack([second, other[1]], axis=1) * unit).pvalue.item()
    print(f"Hotelling, data times {unit}: p = {one:.3g} with one column, {due:.3g} is due; "
          f"{two:.3g} with a second one of noise")
    ones.append(one)
    twos.append(two)
assert ones[0] > 0.5 and ones[2] < 1e-100
assert max(twos) < 1.001 * min(twos) and max(twos) < 1e-5 and due < 1e-6


def count_runs(points, labels):
    """Return the number of trees that remain without the edges between the samples."""
    rows, columns = minimum_spanning_tree(cdist(points, points)).nonzero()
    return 1 + int(np.sum(labels[rows] != labels[columns]))


def reference(points, labels):
    """Return the share of permutations with as few runs."""
    runs = count_runs(points, labels)
    hits = sum(count_runs(points, generator.permutation(labels)) <= runs
               for _ in range(REPETITIONS))
    return runs, (1 + hits) / (1 + REPETITIONS)


labels = np.repeat([0, 1], 20)
apart = generator.normal(size=(40, 2)) + 10 * labels[:, None]
line = np.stack([np.arange(40.0), np.zeros(40)], axis=1) + 0.01 * generator.normal(size=(40, 2))
found = []
for name, points, members in [("apart", apart, labels), ("alternating", line, np.arange(40) % 2)]:
    test = FriedmanRafsky().test(points, members, reps=REPETITIONS, random_state=0)
    runs, p = reference(points, members)
    print(f"Friedman-Rafsky, {name}: {test.uncor_stat} runs, p = {test.pvalue:.3f}, {p:.3f} is due")
    assert test.uncor_stat == runs
    found.append((test.pvalue, p))
assert found[0][0] > 0.99 and found[0][1] < 0.01
assert found[1][0] < 0.01 and found[1][1] > 0.99
PYTHON
