#!/usr/bin/env bash
# polars-ols's expanding_ols isn't least squares: with small numbers, its coefficients are near 0.
#
# Versions: polars-ols 0.3.5, polars 1.44.2.
# Guess before the run: the last row of expanding_ols has the coefficients of ols, as that of
#     rolling_ols with a window of all rows has, whatever the unit of the columns is. (Written down
#     after a first comparison had shown a small difference.)
# Seen: it is recursive least squares with a prior (`self.rls(..., half_life=None)`), which has a mean
#     of 0 and a variance of 10 for each coefficient, as of ridge regression with alpha 0.1. For numbers
#     around 1 that hardly matters. Of 250 daily returns with deviations of 1 %, the slope is 0.20 for
#     1.00, in the last row; with 0.1 %, it is 0.003. In percent it is 0.99. Also the intercept of
#     numbers around 1,000 is 10 too small after ten rows. Rolling regressions have no prior, and are
#     right. The prior is described with RLSKwargs, but not with this function.
# For gyre: it fits no such lines. There, give initial_state_covariance=1e12.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile polars-ols==0.3.5 polars==1.44.2 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import polars as pl
import polars_ols  # registers the namespace

N_DAYS = 250
rng = np.random.default_rng(0)
market = rng.normal(size=N_DAYS)
stock = market + 0.1 * rng.normal(size=N_DAYS)


def fit(table, name, **options):
    """Return the coefficients of the last row."""
    method = getattr(pl.col("y").least_squares, name)
    coefficients = table.select(method("x", mode="coefficients", **options).alias("fit"))
    return np.array(coefficients["fit"].struct.unnest().row(-1))


for unit, low, high in [(1, 0.97, 1.01), (0.1, 0.94, 0.98), (0.01, 0.1, 0.3), (0.001, 0, 0.01)]:
    table = pl.DataFrame({"x": unit * market, "y": unit * stock})
    expanding = fit(table, "expanding_ols")[0]
    rolling = fit(table, "rolling_ols", window_size=N_DAYS)[0]
    ordinary = fit(table, "ols")[0]
    wide = fit(table, "expanding_ols", initial_state_covariance=1e12)[0]
    # Ridge regression with the inverse of the prior's variance:
    ridge = table["x"].dot(table["y"]) / (table["x"].dot(table["x"]) + 1 / 10)
    print(f"deviation of {unit}: slope {expanding:.4f}, rolling {rolling:.4f}, ols {ordinary:.4f}, "
          f"ridge {ridge:.4f}, with a wide prior {wide:.4f}")
    assert np.isclose(expanding, ridge) and np.isclose(rolling, ordinary)
    assert abs(ordinary - 1) < 0.05 and abs(wide - ordinary) < 1e-3 and low <= expanding < high

table = pl.DataFrame({"x": market[:10], "y": 1000 + stock[:10]})
intercepts = [fit(table, name, add_intercept=True)[1] for name in ["expanding_ols", "ols"]]
print(f"intercepts of ten rows: {intercepts[0]:.1f}, ols {intercepts[1]:.1f}")
assert intercepts[1] - intercepts[0] > 5
PYTHON
