#!/usr/bin/env bash
# functime's overforecast and underforecast add up forecasts instead of errors.
#
# Versions: functime 1.0.0, polars 2.1.0.
# Guess before the run: overforecast is "the difference between actual and predicted for predicted
#     values greater than actual", as its documentation says, added up: 3 for 101 and 102 where 100
#     came, and underforecast -1 or 1 for 99. Both less or added give the sum of errors. (Suspected
#     otherwise after reading the source.)
# Seen: the forecasts themselves are added: 203 and 99 (metrics/point.py). Numbers moved by 1,000
#     have 2,203 and 1,099 with the same errors, and a forecast that is right but for 0.001 has the
#     sum of the series. score_forecast and score_backtest report both.
# For gyre: it forecasts nothing. There, take the mean error, `mfe`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile functime==1.0.0 polars==2.1.0 numpy==2.4.6 \
    scipy==1.17.1 scikit-learn==1.9.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from datetime import datetime, timedelta

import numpy as np
import polars as pl
from functime.metrics.point import mfe, overforecast, underforecast

days = [datetime(2026, 1, 1) + timedelta(days=i) for i in range(4)]


def score(actual, predicted):
    truth = pl.DataFrame({"name": ["a"] * 4, "day": days, "y": actual})
    forecast = pl.DataFrame({"name": ["a"] * 4, "day": days, "y": predicted})
    return [metric(truth, forecast).item(0, 1) for metric in [overforecast, underforecast, mfe]]


for level in [100.0, 1100.0]:
    over, under, mean_error = score([level] * 4, [level + error for error in [1, -1, 2, 0]])
    print(f"around {level:.0f} with errors of 1, -1, 2 and 0: overforecast {over:.0f}, "
          f"underforecast {under:.0f}, mean error {mean_error}")
    assert over == 2 * level + 3 and under == level - 1 and mean_error == 0.5
over, under, mean_error = score([100.0] * 4, [100.001] * 4)
print(f"errors of 0.001: overforecast {over:.3f}, underforecast {under:.0f}")
assert np.isclose(over, 400.004) and under == 0
PYTHON
