#!/usr/bin/env bash
# irrCAC's p-value of Brennan and Prediger's coefficient is half as large as it should be.
#
# Versions: irrCAC 0.4.4, pandas 2.3.3, scipy 1.12.0, numpy 1.26.4.
# Guess before the run: the p-value of `bp()` is below 0.05 where the 95 % interval beside it leaves
#     out 0, as with `gwet()` and `fleiss()`, and for random ratings in 5 % of cases. (That it might
#     not be was suspected after reading the source.)
# Seen: it is one-sided for the absolute value: p = 0.045 beside an interval that contains 0. Random
#     ratings are significant in 10 % of cases. Gwet's and Fleiss's p-values, and bp() of a table of
#     counts, are two-sided, though a table with less agreement than by chance has p = 1.
# For gyre: it has no human ratings. There, double the p-value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile irrCAC==0.4.4 pandas==2.3.3 scipy==1.12.0 \
    numpy==1.26.4
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
from irrCAC.raw import CAC
from irrCAC.table import CAC as TableCAC
from scipy import stats

SUBJECTS = 50


def make(agreements):
    """Return ratings of 50 subjects by two raters who agree on so many of them."""
    first = np.arange(SUBJECTS) % 2
    second = np.where(np.arange(SUBJECTS) < agreements, first, 1 - first)
    return pd.DataFrame({"first": first, "second": second})


def two_sided(coefficients):
    """Return the p-value of a t-test from one coefficient for each subject."""
    return stats.ttest_1samp(coefficients, 0).pvalue


for agreements in [19, 30, 31, 33]:
    ratings = make(agreements)
    estimate = CAC(ratings, digits=8).bp()["est"]
    # With two raters and two categories, a subject counts 1 if they agree and -1 if they do not.
    agreed = np.where(ratings["first"] == ratings["second"], 1.0, -1.0)
    due = two_sided(agreed)
    interval = estimate["confidence_interval"]
    table = pd.crosstab(ratings["first"], ratings["second"])
    of_table = TableCAC(table, digits=8).bp()["est"]
    gwet = CAC(ratings, digits=8).gwet()["est"]
    print(f"{agreements} of {SUBJECTS} agree: {estimate['coefficient_value']:.2f}, interval from "
          f"{interval[0]:.3f} to {interval[1]:.3f}, p = {estimate['p_value']:.4f}; due {due:.4f}, "
          f"of the table {of_table['p_value']:.4f}, Gwet {gwet['p_value']:.4f}")
    assert abs(estimate["coefficient_value"] - agreed.mean()) < 1e-6
    assert abs(2 * estimate["p_value"] / due - 1) < 1e-4
    assert abs(gwet["p_value"] / due - 1) < 0.2
    assert (interval[0] > 0 or interval[1] < 0) == (due < 0.05)
    if agreements == 31:
        assert interval[0] < 0 and estimate["p_value"] < 0.05
    if agreements >= 30:
        assert abs(of_table["p_value"] / due - 1) < 0.1

generator = np.random.default_rng(0)
counts = {"bp": 0, "gwet": 0, "fleiss": 0}
for _ in range(300):
    ratings = pd.DataFrame(generator.integers(0, 3, size=(SUBJECTS, 3)))
    coefficients = CAC(ratings, digits=8)
    for name in counts:
        counts[name] += getattr(coefficients, name)()["est"]["p_value"] <= 0.05
print("random ratings with p <= 0.05: "
      + ", ".join(f"{name} {count / 300:.1%}" for name, count in counts.items()))
assert counts["bp"] > 22 and max(counts["gwet"], counts["fleiss"]) < counts["bp"]
PYTHON
