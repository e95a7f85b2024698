#!/usr/bin/env bash
# experiment-toolkit's E-value of an interval takes the wrong end where a treatment protects: 3.41 where 1 is due.
#
# Versions: experiment-toolkit 0.2.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: a study has one E-value, whichever of its two groups is called treated. `e_value_ci`
#     is 1 if the 95 % interval holds a risk ratio of 1, so in 95 % of studies without an effect, and it is
#     never above the E-value of the estimate. (Suspected after reading the source.)
# Seen: a risk ratio of 0.8 with the interval 0.5 to 1.28 has 3.41 for its interval and 1.81 for the estimate;
#     with the groups exchanged, 1.25 with 0.78 to 2, it has 1 and 1.81. Of 1,000 studies without an effect,
#     `e_value_ci` is 1 in 50 %, where 96 % of the intervals hold 1. It is above the E-value of the estimate
#     in each of the 450 studies whose estimate is below 1.
# Cause: only the lower limit can be given, and its E-value is taken also for a ratio below 1, where the
#     limit nearer to 1 is the upper one (experiment_toolkit/sensitivity.py, `e_value`). Whether the
#     interval holds 1 is asked there by a lower limit above 1, which no such interval has.
# For gyre: it makes no causal claims from observations. There, pass the upper limit as `lower_ci` if the
#     ratio is below 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile experiment-toolkit==0.2.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import numpy as np
from experiment_toolkit.sensitivity import e_value

RATIO, LOWER, UPPER = 0.8, 0.5, 1.28
N_STUDIES, N, RISK = 1000, 500, 0.2


def e_value_due(ratio, lower, upper):
    """Return the E-values of the estimate and of the limit that is nearer to 1 (VanderWeele and Ding, 2017)."""
    if ratio < 1:
        ratio, lower, upper = 1 / ratio, 1 / upper, 1 / lower
    lower = max(lower, 1.0)
    return ratio + math.sqrt(ratio * (ratio - 1)), lower + math.sqrt(lower * (lower - 1))


result = e_value(RATIO, LOWER)
exchanged = e_value(1 / RATIO, 1 / UPPER)
print(f"ratio {RATIO}, {LOWER} to {UPPER}: {result.e_value_point:.2f}, interval {result.e_value_ci:.2f}; "
      f"with the groups exchanged {exchanged.e_value_point:.2f}, interval {exchanged.e_value_ci:.2f}")
point_due, interval_due = e_value_due(RATIO, LOWER, UPPER)
assert math.isclose(result.e_value_point, point_due) and math.isclose(exchanged.e_value_point, point_due)
assert interval_due == exchanged.e_value_ci == 1
assert math.isclose(result.e_value_ci, 2 + math.sqrt(2))

generator = np.random.default_rng(0)
ones, ones_due, protective, above = 0, 0, 0, 0
for treated, control in generator.binomial(N, RISK, (N_STUDIES, 2)):
    ratio = treated / control
    error = math.sqrt(1 / treated - 1 / N + 1 / control - 1 / N)
    lower, upper = ratio * math.exp(-1.96 * error), ratio * math.exp(1.96 * error)
    result = e_value(ratio, lower)
    point_due, interval_due = e_value_due(ratio, lower, upper)
    assert math.isclose(result.e_value_point, point_due)
    ones += result.e_value_ci == 1
    ones_due += interval_due == 1
    protective += ratio < 1
    above += result.e_value_ci > result.e_value_point and ratio < 1
    assert ratio < 1 or result.e_value_ci == interval_due or ratio == 1
print(f"{N_STUDIES} studies without an effect: the interval's E-value is 1 in {ones}, due in {ones_due}; "
      f"above that of the estimate in {above} of {protective} with a ratio below 1")
assert ones < 0.6 * N_STUDIES and ones_due > 0.93 * N_STUDIES
assert above == protective > 0.4 * N_STUDIES
PYTHON
