#!/usr/bin/env bash
# prob-conf-mat's uncertainty of a probability is negative where the difference is clear.
#
# Version: prob-conf-mat 0.4.0.
# Guess before the run: `wilson_score_interval` is "the radius of the interval", as documented: half the width of the
#     Wilson interval. (Suspected from reading the source.)
# Seen: for 10,000 samples it is 0.00158 for 0.00196 at a probability of 0.99, 0.00026 for 0.00065 at 0.999, and -0.00011
#     for 0.00027 at 0.9999; for 100 samples, 0.077 for 0.096 at 0.5, and -0.011 for 0.026 at 0.99. So are the three widths
#     of a comparison: of two models with 930 and 880 right answers of 1,000, one that is better with 99.99 % has a
#     "p_direction_score_interval_width" of -0.00011.
# Cause: the center is subtracted before it is divided by 1 + z^2 / n, and the upper end after that
#     (prob_conf_mat/stats/score_interval.py). No issue was found.
# For gyre: its report gives intervals of differences. There, take statsmodels' `proportion_confint`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 statsmodels==0.15.0 prob-conf-mat==0.4.0
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

from prob_conf_mat import Study
from prob_conf_mat.stats import wilson_score_interval
from statsmodels.stats.proportion import proportion_confint


def compute_radius(p, n):
    low, high = proportion_confint(round(p * n), n, method="wilson")
    return (high - low) / 2


FOUND = {(0.5, 100): 0.07696, (0.99, 100): -0.01098, (0.99, 10_000): 0.001579, (0.999, 10_000): 0.0002646, (0.9999, 10_000): -0.0001097}
for (p, n), seen in FOUND.items():
    found, due = wilson_score_interval(p, n), compute_radius(p, n)
    print(f"probability {p} of {n} samples: {found:.5f}, due {due:.5f}")
    assert math.isclose(found, seen, rel_tol=1e-3) and found < 0.85 * due
    # The upper end is right: only the center is not.
    center = p + 1.96**2 / (2 * n)
    assert math.isclose(found + center - center / (1 + 1.96**2 / n), due, rel_tol=1e-3)

study = Study(seed=0, num_samples=10_000, ci_probability=0.95)
study.add_metric(metric="acc")
for name, right in {"better": 465, "worse": 442}.items():
    wrong = 500 - right
    study.add_experiment(f"{name}/test", [[right, wrong], [wrong, right]], prevalence_prior=1, confusion_prior=1)
result = study.get_pairwise_comparison(metric="acc", experiment_a="better/test", experiment_b="worse/test", min_sig_diff=0.01)
width = result.p_direction_score_interval_width
print(f"probability of a direction: {result.p_direction:.4f}, its score interval width: {width:.6f}, "
      f"due {compute_radius(result.p_direction, 10_000):.6f}")
assert result.p_direction > 0.999 and width < 0
PYTHON
