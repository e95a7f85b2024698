#!/usr/bin/env bash
# permute's stratified two-sided tests call two equal samples different, with p = 0.
#
# Versions: permute 0.2, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: a two-sided p-value of equal samples is 1, no p-value is 0 with `plus1`, and
#     of null data 5 % have p <= 0.05 at most. (That this might not be so was suspected after
#     reading the source.)
# Seen: the lower tail is 1 minus the upper one, so that permutations that tie with the data are in
#     neither. Where the statistic is the smallest that can be, the p-value is 0: for samples
#     without any difference, for half of the null data sets with a single failure among 40 trials,
#     and for a quarter of those with two. alternative="less" has the same fault. With responses
#     that hardly tie, all is well, as with the unstratified tests.
# For gyre: its report does not use it. There, count both tails from the distribution
#     (`keep_dist=True`).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile permute==0.2 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from permute.core import two_sample
from permute.stratified import stratified_permutationtest, stratified_two_sample

REPETITIONS = 199
groups = np.repeat([0, 1], 20)
conditions = np.tile([0, 1], 20)


def test(response, alternative, seed=1):
    """Return permute's p-value, and the one with ties in both tails, from the same distribution."""
    p, statistic, distribution = stratified_two_sample(
        groups, conditions, response, alternative=alternative, reps=REPETITIONS, seed=seed,
        keep_dist=True)
    upper = (np.sum(distribution >= statistic - 1e-12) + 1) / (REPETITIONS + 1)
    lower = (np.sum(distribution <= statistic + 1e-12) + 1) / (REPETITIONS + 1)
    due = {"greater": upper, "less": lower, "two-sided": min(1, 2 * min(upper, lower))}
    return p, due[alternative]


equal = np.ones(40)
for alternative in ["greater", "less", "two-sided"]:
    p, due = test(equal, alternative)
    other, _, _ = stratified_permutationtest(groups, conditions, equal, alternative=alternative,
                                             reps=REPETITIONS, seed=1)
    print(f"all responses equal, {alternative}: p = {p:.3f} and {other:.3f} instead of {due:.3f}")
    assert due == 1
    assert p == other == (1 if alternative == "greater" else 0)
unstratified, _ = two_sample(equal[:20], equal[20:], alternative="two-sided", reps=REPETITIONS,
                             seed=1)
print(f"all responses equal, two-sided, without groups: p = {unstratified:.3f}")
assert unstratified == 1

generator = np.random.default_rng(0)
DATA_SETS = 100
for failures, least, most in [(1, 0.3, 0.7), (2, 0.12, 0.4), (None, 0, 0.11)]:
    pairs = []
    for seed in range(DATA_SETS):
        if failures is None:
            response = generator.normal(size=40)
        else:
            response = np.zeros(40)
            response[generator.choice(40, failures, replace=False)] = 1
        pairs.append(test(response, "two-sided", seed))
    share, due = np.mean(np.array(pairs) <= 0.05, 0)
    zeros = np.mean([p == 0 for p, _ in pairs])
    kind = "normal responses" if failures is None else f"failures among 40: {failures}"
    print(f"null data, {kind}: p <= 0.05 in {share:.0%} instead of {due:.0%}, p = 0 in {zeros:.0%}")
    assert least <= share <= most and due <= 0.11
    assert zeros > 0.1 if failures else zeros < 0.05
PYTHON
