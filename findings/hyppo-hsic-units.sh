#!/usr/bin/env bash
# hyppo's HSIC gives the second variable the kernel width of the first: the unit decides.
#
# Versions: hyppo 0.5.2, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: each variable has the width of its own median distance, as in Gretton's
#     paper, so that the p-value does not depend on units. (That it might was suspected after
#     reading the source.)
# Seen: the median distance of the first one serves for both. A parabola that is found with
#     p = 0.005 in its own unit has p = 0.14 in hundredths, and 0.01 if the variables are exchanged;
#     with dHSIC it has 0.17. Standardized first, all units have the same statistic.
# For gyre: its report does not use it. There, standardize both variables.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile hyppo==0.5.2 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from hyppo.d_variate import dHsic
from hyppo.independence import Hsic
from scipy.spatial.distance import pdist, squareform

REPETITIONS = 200
generator = np.random.default_rng(0)
first = generator.normal(size=(80, 1))
second = first ** 2 + 0.3 * generator.normal(size=(80, 1))


def test(method, *variables):
    options = {"auto": False, "random_state": 1} if method is Hsic else {}
    np.random.seed(1)
    result = method().test(*variables, reps=REPETITIONS, **options)
    return float(result.stat), float(result.pvalue)


def center(values):
    """Return the centred Gaussian kernel whose width is the median distance of the values."""
    distances = pdist(values)
    kernel = np.exp(-squareform(distances) ** 2 / (2 * np.median(distances) ** 2))
    return kernel - kernel.mean(axis=0) - kernel.mean(axis=1)[:, None] + kernel.mean()


def reference(first, second):
    """Return the normalized statistic, and its p-value by permutations."""
    one, two = center(first), center(second)
    scale = np.sqrt(np.sum(one * one) * np.sum(two * two))
    statistic = np.sum(one * two) / scale
    hits = 0
    for _ in range(REPETITIONS):
        order = generator.permutation(len(two))
        hits += np.sum(one * two[order][:, order]) / scale >= statistic
    return statistic, (1 + hits) / (1 + REPETITIONS)


found, both, standard = {}, {}, {}
for unit in [0.01, 1, 100]:
    scaled = unit * second
    found[unit] = test(Hsic, first, scaled)
    exchanged = test(Hsic, scaled, first)
    both[unit] = test(dHsic, first, scaled)
    standard[unit] = test(Hsic, first / first.std(), scaled / scaled.std())
    due = reference(first, scaled)
    print(f"second variable times {unit}: statistic {found[unit][0]:.3f}, "
          f"p = {found[unit][1]:.3f}; exchanged {exchanged[0]:.3f}, p = {exchanged[1]:.3f}; "
          f"dHSIC p = {both[unit][1]:.3f}; due {due[0]:.3f}, p = {due[1]:.3f}; standardized "
          f"{standard[unit][0]:.3f}, p = {standard[unit][1]:.3f}")
    assert due[1] < 0.01 and standard[unit][1] < 0.01
assert found[1][1] < 0.01 and found[100][1] > 0.1
assert both[1][1] < 0.01 and both[100][1] > 0.1
assert np.ptp([statistic for statistic, _ in standard.values()]) < 1e-9
PYTHON
