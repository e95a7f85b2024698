#!/usr/bin/env bash
# functime's forecasts with differences as targets start from the first value of the series.
#
# Versions: functime 1.0.0, polars 2.1.0.
# Guess before the run: with target_transform=diff(order=1), a model of differences continues the
#     series from its last value; `invert` of the transformed series is the series, with order 2 and
#     a seasonal difference too. (Suspected otherwise after reading the source.)
# Seen: the inverse adds the differences to the first row it has seen (`from_last=False`, and
#     Transformer.invert has no such argument): a series that rose by 2 a day from 100 to 298 goes on
#     with 102, 104, 106, and one that fell from 500 to 401 with 499. With detrend() they go on with
#     300 and 400. Differences of second order come back as other numbers: 91 for 38; so do seasonal
#     ones, as these are summed without regard to the period. linear_diff, ridge_diff and lasso_diff of
#     forecasting/elite.py are such models. Nothing is said. (That forecasts vary a bit is
#     shown by functime-arbitrary-rows.sh.)
# For gyre: it forecasts nothing. There, take detrend(), or add the difference of the last and
#     the first value.
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
from functime.forecasting import linear_model
from functime.preprocessing import detrend, diff

N_DAYS = 100
rng = np.random.default_rng(0)
days = [datetime(2026, 1, 1) + timedelta(days=i) for i in range(N_DAYS)]
noise = 0.1 * rng.normal(size=[2, N_DAYS])
rising = 100 + 2 * np.arange(N_DAYS) + noise[0]
falling = 500 - np.arange(N_DAYS) + noise[1]
table = pl.DataFrame({"name": ["rising"] * N_DAYS + ["falling"] * N_DAYS, "day": days * 2,
                      "y": np.concatenate([rising, falling])})

print(f"last values: {rising[-1]:.1f} and {falling[-1]:.1f}")
for name, transform in [("diff", diff(order=1)), ("detrend", detrend(freq="1d", method="linear"))]:
    forecaster = linear_model(freq="1d", lags=3, target_transform=transform)
    forecaster.fit(y=table)
    forecast = forecaster.predict(fh=3).sort("name", "day")
    up = forecast.filter(pl.col("name") == "rising")["y"].to_numpy()
    down = forecast.filter(pl.col("name") == "falling")["y"].to_numpy()
    print(f"{name}: {np.round(up, 1)} and {np.round(down, 1)}")
    if name == "diff":
        assert np.allclose(up, [102, 104, 106], atol=5) and np.allclose(down, [499, 498, 497], atol=5)
    else:
        assert np.allclose(up, [300, 302, 304], atol=9) and np.allclose(down, [400, 399, 398], atol=9)

values = [10.0, 11.0, 13.0, 16.0, 20.0, 25.0, 31.0, 38.0]
short = pl.DataFrame({"name": ["a"] * len(values), "day": days[:len(values)], "y": values})
for order, period in [(1, 1), (2, 1), (1, 2)]:
    transform = diff(order=order, sp=period)
    back = transform.invert(transform(short).collect()).collect().sort("day")["y"].to_list()
    print(f"order {order}, period {period}: the last of {values} comes back as {back[-1]}")
    assert (back[-1] == values[-1]) == (order == 1 and period == 1)
PYTHON
