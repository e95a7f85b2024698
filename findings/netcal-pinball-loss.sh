#!/usr/bin/env bash
# netcal's pinball loss is not that of a quantile: at 5 %, a forecast 100 times too narrow is as good.
#
# Versions: netcal 1.4.0, numpy 2.4.6, scipy 1.17.1, torch 2.13.0.
# Guess before the run: `QuantileLoss` (PinballLoss) has the value of the formula in its docstring:
#     t is the q-quantile of the forecast, and the loss is q (y - t) above it and (1 - q) (t - y) below.
#     (That it might not was suspected after reading the source.)
# Seen: t is the nearer bound of the central interval that holds q of the forecast, and the weights say
#     whether y lies in that interval. At q = 0.5, the loss of normal forecasts with the right mean
#     should be half of the absolute error, 0.40, whatever their deviation is: it is 0.23 for the
#     right one, and 0.36 for twice as much. At q = 0.05, a forecast with a hundredth of the deviation
#     has 0.040 and the right one 0.038, where 0.39 and 0.10 are due. The sign of a bias does not
#     count: at q = 0.95, forecasts one deviation too low and too high have 0.13, where 0.19 and 0.13
#     are due.
# For gyre: it makes no such forecasts. There, take sklearn.metrics.mean_pinball_loss.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 scipy==1.17.1 \
    scikit-learn==1.9.1 tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps netcal==1.4.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from netcal.metrics.regression import QuantileLoss
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss

SIZE = 20_000
values = np.random.default_rng(0).normal(size=SIZE)


def compare(mean, deviation, q):
    """Print and return the loss at `q` of one normal forecast for all values, and what is due."""
    forecast = (np.full(SIZE, mean), np.full(SIZE, deviation))
    found = QuantileLoss().measure(forecast, values, np.array([q]))
    quantile = norm.ppf(q, mean, deviation)
    due = mean_pinball_loss(values, np.full(SIZE, quantile), alpha=q)
    formula = np.where(values >= quantile, (values - quantile) * q, (quantile - values) * (1 - q))
    assert abs(due - formula.mean()) < 1e-9  # the formula of the docstring

    low, high = norm.ppf([(1 - q) / 2, (1 + q) / 2], mean, deviation)
    distance = np.minimum(abs(values - low), abs(values - high))
    inside = (low <= values) & (values <= high)
    assert abs(found - np.mean(distance * np.where(inside, 1 - q, q))) < 1e-4
    print(f"q = {q}, forecast N({mean:g}, {deviation:g}): {found:.3f}, where {due:.3f} is due")
    return found, due


print("values from N(0, 1)")
narrow, right, wide = (compare(0.0, deviation, 0.5) for deviation in (0.01, 1.0, 2.0))
assert abs(right[1] - wide[1]) < 1e-9 and wide[0] > 1.4 * right[0]
narrow, right = compare(0.0, 0.01, 0.05), compare(0.0, 1.0, 0.05)
assert narrow[0] < 1.1 * right[0] and narrow[1] > 3 * right[1]
low, high = compare(-1.0, 1.0, 0.95), compare(1.0, 1.0, 0.95)
assert abs(low[0] - high[0]) < 0.02 and low[1] > 1.4 * high[1]
PYTHON
