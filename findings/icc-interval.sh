#!/usr/bin/env bash
# The 95 % intervals of the package icc are those of 90 %.
#
# Versions: icc 0.1.1, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: the interval for `confidence_level=0.95` is that of Shrout and Fleiss, whom the
#     docstring names, and holds the true correlation in 95 % of samples. (That it might not was
#     suspected after reading the source.)
# Seen: both ends take the quantile of alpha instead of that of alpha / 2: an interval for 0.95 is the
#     formula's for 0.90, and holds the truth in 91 % of samples. With each model, type and unit, that
#     for 0.5 has no length. Correlations and p-values are right.
# For gyre: it has no raters. There, give 0.975.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps icc==0.1.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from icc import icc
from scipy import stats

SUBJECTS, RATERS = 40, 4
SETS = 4000
TRUTH = 0.5
generator = np.random.default_rng(0)


def formula(ratings, level):
    """Return the interval of ICC(1) by Shrout and Fleiss' formula."""
    between = RATERS * ratings.mean(1).var(ddof=1)
    within = ratings.var(1, ddof=1).mean()
    freedom = SUBJECTS - 1, SUBJECTS * (RATERS - 1)
    tail = 1 - (1 - level) / 2
    lower = between / within / stats.f.ppf(tail, *freedom)
    upper = between / within * stats.f.ppf(tail, *freedom[::-1])
    return [(ratio - 1) / (ratio + RATERS - 1) for ratio in (lower, upper)]


held = {"icc, 0.95": 0, "formula, 0.95": 0, "icc, 0.975": 0}
for index in range(SETS):
    subjects = generator.normal(0, np.sqrt(TRUTH), (SUBJECTS, 1))
    ratings = subjects + generator.normal(0, np.sqrt(1 - TRUTH), (SUBJECTS, RATERS))
    seen = icc(ratings, model="oneway", type="agreement", confidence_level=0.95)[-2:]
    half = icc(ratings, model="oneway", type="agreement", confidence_level=0.975)[-2:]
    due = formula(ratings, 0.95)
    for name, (lower, upper) in zip(held, [seen, due, half]):
        held[name] += lower < TRUTH < upper
    assert np.allclose(seen, formula(ratings, 0.9)) and np.allclose(half, due)
    if index == 0:
        print(f"icc's interval for 0.95: {seen[0]:.3f} to {seen[1]:.3f}; the formula's: {due[0]:.3f} "
              f"to {due[1]:.3f}, for 0.90: {formula(ratings, 0.9)[0]:.3f} to "
              f"{formula(ratings, 0.9)[1]:.3f}")
for name, count in held.items():
    print(f"{name}: the interval holds the truth in {count / SETS:.1%} of {SETS:,} samples")
assert held["icc, 0.95"] / SETS < 0.92 and held["formula, 0.95"] / SETS > 0.935

for model, kind, unit in [("oneway", "agreement", "average"), ("twoway", "agreement", "single"),
                          ("twoway", "consistency", "single"), ("twoway", "agreement", "average"),
                          ("twoway", "consistency", "average")]:
    lower, upper = icc(ratings, model=model, type=kind, unit=unit, confidence_level=0.5)[-2:]
    wide = icc(ratings, model=model, type=kind, unit=unit, confidence_level=0.95)[-2:]
    print(f"{model}, {kind}, {unit}: for 0.95 from {wide[0]:.3f} to {wide[1]:.3f}, for 0.5 from "
          f"{lower:.3f} to {upper:.3f}")
    assert upper - lower < 0.02 < wide[1] - wide[0]
PYTHON
