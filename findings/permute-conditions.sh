#!/usr/bin/env bash
# With two groups, permute's stratified test never looks at a third condition.
#
# Versions: permute 0.2, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: with more than two conditions, the statistic is the deviation of their
#     means, added up over the groups, as the docstring says: a condition that differs is found,
#     whatever the number of groups. (That it might not be was suspected after reading the source.)
# Seen: the number of groups decides, where that of the conditions should. With two groups, the
#     statistic is the difference of the first two conditions: a third one that is 5 deviations
#     higher has p = 1.0, and a height of 1000 changes nothing; with three groups p is 0.001. A
#     single group, which the docstring allows, is refused.
# For gyre: it does not use the test. There, give `testStatistic` a function of your own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile permute==0.2 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from permute.stratified import stratified_permutationtest, stratified_permutationtest_mean

generator = np.random.default_rng(0)
conditions = np.tile([0, 1, 2], 20)
noise = generator.normal(size=60)
response = noise + 5 * (conditions == 2)


def reference(groups, conditions, response):
    """Return the deviation of the means of the conditions, added up over the groups."""
    total = 0.0
    for group in np.unique(groups):
        means = [response[(groups == group) & (conditions == condition)].mean()
                 for condition in np.unique(conditions)]
        total += np.std(means)
    return total


def reference_test(groups, conditions, response, repetitions=999):
    """Return the p-value of the statistic above, by permutations inside each group."""
    generator = np.random.default_rng(1)
    observed = reference(groups, conditions, response)
    hits = 0
    for _ in range(repetitions):
        permuted = conditions.copy()
        for group in np.unique(groups):
            inside = groups == group
            permuted[inside] = generator.permutation(permuted[inside])
        hits += reference(groups, permuted, response) >= observed - 1e-12
    return (hits + 1) / (repetitions + 1)


for count in [2, 3]:
    groups = np.repeat(np.arange(count), 60 // count)
    p, statistic, _ = stratified_permutationtest(groups, conditions, response, reps=999, seed=1)
    due = reference_test(groups, conditions, response)
    print(f"{count} groups, third condition 5 deviations higher: statistic {statistic:.3f} instead "
          f"of {reference(groups, conditions, response):.3f}, p = {p:.3f} instead of {due:.3f}")
    assert due == 0.001
    assert p > 0.2 if count == 2 else p == 0.001

groups = np.repeat([0, 1], 30)
statistics = []
for height in [0, 5, 1000]:
    response = noise + height * (conditions == 2)
    statistics.append(stratified_permutationtest_mean(groups, conditions, response))
    print(f"2 groups, third condition {height} higher: statistic {statistics[-1]:.3f} instead of "
          f"{reference(groups, conditions, response):.3f}")
assert len(set(statistics)) == 1

try:
    stratified_permutationtest(np.zeros(60), conditions, response, reps=9, seed=1)
except ValueError as error:
    print(f"1 group: {error}")
else:
    raise AssertionError("a single group was accepted")
PYTHON
