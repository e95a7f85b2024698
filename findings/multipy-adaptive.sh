#!/usr/bin/env bash
# multipy's adaptive Benjamini-Hochberg procedure does not adapt: it finds what the plain one finds.
#
# Versions: multipy 0.16, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: abh estimates how many hypotheses are true, by the paper's rule, and so finds more
#     than lsu where most are false. It leaves the given p-values as they are. (That neither might hold
#     was suspected after reading the source.)
# Seen: the rule stops at the first estimate that is larger than the one before. The code compares the
#     second estimate with the last one of all, and takes the third: nearly all hypotheses count as true.
#     Of 1,000 hypotheses of which 800 are false, it finds 483, as lsu does, where the paper's rule finds
#     637 and the true number of true ones 741. p-values above 0.99 are set to 0.99 in the caller's array.
# For gyre: its report compares few pairs. There, take tst, or statsmodels' "fdr_tsbh".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps multipy==0.16
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import numpy as np
from multipy.fdr import abh, lsu, orc
from scipy.stats import norm

RATE, FAMILIES = 0.05, 50
generator = np.random.default_rng(0)


def step_up(p, rate):
    """Return which hypotheses Benjamini and Hochberg's procedure rejects."""
    size = len(p)
    order = sorted(range(size), key=p.__getitem__)
    last = max((k for k in range(1, size + 1) if p[order[k - 1]] < k * rate / size), default=0)
    rejected = np.zeros(size, dtype=bool)
    rejected[order[:last]] = True
    return rejected


def adapt(p):
    """Return the rejections by the adaptive procedure of 2000, and its number of true hypotheses."""
    size = len(p)
    estimates = [(size + 1 - k) / (1 - value) for k, value in enumerate(sorted(p), start=1)]
    true = size
    if not step_up(p, RATE).any():
        return np.zeros(size, dtype=bool), size
    for before, estimate in zip(estimates, estimates[1:]):
        if estimate > before:
            true = math.ceil(min(estimate, size))
            break
    return step_up(p, RATE * size / true), true


for size, false in ((1000, 500), (1000, 800)):
    found = dict.fromkeys(["lsu", "abh", "paper", "true number known"], 0.0)
    estimate = 0.0
    for _ in range(FAMILIES):
        z = generator.normal(size=size)
        z[:false] += 2.5
        p = 2 * norm.sf(np.abs(z))
        paper, true = adapt(p)
        assert (lsu(p, RATE) == step_up(p, RATE)).all()
        found["lsu"] += lsu(p, RATE).sum() / FAMILIES
        found["abh"] += abh(p.copy(), RATE).sum() / FAMILIES
        found["paper"] += paper.sum() / FAMILIES
        found["true number known"] += orc(p, size - false, RATE).sum() / FAMILIES
        estimate += true / FAMILIES
    print(f"{size} hypotheses, {false} of them false, {estimate:.0f} true by the paper's rule; found:",
          ", ".join(f"{name} {count:.0f}" for name, count in found.items()))
    assert found["abh"] < 1.01 * found["lsu"]
    assert found["paper"] > 1.1 * found["lsu"]

p = np.array([0.001, 0.2, 0.5, 0.995])
abh(p, RATE)
print("p-values of the caller afterwards:", p.tolist())
assert p[3] == 0.99
PYTHON
