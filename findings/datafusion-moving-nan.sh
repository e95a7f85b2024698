#!/usr/bin/env bash
# After one NaN, infinity or spike, DataFusion's moving averages and deviations stay wrong.
#
# Versions: datafusion 55.0.0, daft 0.7.26, pyarrow 25.0.1.
# Guess before the run: what is calculated over the last three rows depends on these rows: a NaN or an
#     infinity is seen in three rows, and a large number not at all behind them.
# Seen: from a NaN or an infinity on, sum, avg, stddev and covar_samp are NaN, and corr and
#     regr_slope NaN or NULL, in every row up to the end of the partition; min, max, median and count
#     are right. From one loss of 1e8 among losses of about 2 on, the variance of three rows is
#     negative or above 1 for 0.02, and stddev NaN or above 1; from 1e17 on the moving sum of whole
#     numbers is off by 4. Without the frame's lower bound there is no such thing. Daft does so for
#     infinities in sums and means, not for NaN.
# Cause: values that leave a frame are taken off the running sum and the running moments, where infinity
#     minus infinity is NaN (`retract_batch` of the accumulators in datafusion/functions-aggregate;
#     daft skips NaN there). Trino had this as its issue 20946.
# For gyre: it has no SQL. There, filter by `isnan` and by size before a moving average, or ask duckdb.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile datafusion==55.0.0 pyarrow==25.0.1 numpy==2.4.6 \
    daft==0.7.26 duckdb==2.0.1
DAFT_PROGRESS_BAR=0 DO_NOT_TRACK=1 "$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import daft
import datafusion
import duckdb
import numpy as np
import pyarrow

N_ROWS = 60
SPIKE = 20  # the row of the odd value
WINDOW = "OVER (ORDER BY step ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
LOSSES = 2 + 0.15 * np.random.default_rng(0).normal(size=N_ROWS)
STEPS = np.arange(N_ROWS)


def make_table(odd_value, losses=LOSSES):
    losses = losses.copy()
    losses[SPIKE] = odd_value
    return pyarrow.table({"step": STEPS, "loss": losses})


def read_column(rows):
    return np.array([math.nan if value is None else value for value in rows], dtype=float)


def ask(table, aggregate):
    """Return the values behind the frames that have the odd value: DataFusion's and duckdb's."""
    context = datafusion.SessionContext()
    context.register_record_batches("losses", [table.to_batches()])
    query = f"SELECT {aggregate} {WINDOW} AS value FROM losses ORDER BY step"
    rows = context.sql(query).to_pylist()
    with duckdb.connect() as connection:
        connection.register("losses", table)
        due = connection.execute(query).fetchall()
    found, due = read_column([row["value"] for row in rows]), read_column([row[0] for row in due])
    return found[SPIKE + 3:], due[SPIKE + 3:]


ODD = ["sum(loss)", "avg(loss)", "stddev_samp(loss)", "covar_samp(loss, step)", "corr(loss, step)",
       "regr_slope(loss, step)"]
for value in [math.nan, math.inf]:
    for aggregate in ODD + ["min(loss)", "max(loss)", "median(loss)", "count(loss)"]:
        found, due = ask(make_table(value), aggregate)
        print(f"{aggregate} after {value}: {np.isnan(found).sum()} of {len(found)} rows are NaN or NULL, "
              f"in duckdb {np.isnan(due).sum()}")
        assert np.isfinite(due).all()
        assert np.isnan(found).all() if aggregate in ODD else np.allclose(found, due)

variances, due = ask(make_table(1e8), "var_samp(loss)")
print(f"var_samp(loss) after 1e8: {np.round(variances[:6], 3)}, duckdb {np.round(due[:6], 3)}; "
      f"{(variances < 0).sum()} of {len(variances)} are negative")
assert (variances < 0).mean() > 0.5 and (due > 0).all()
deviations, due = ask(make_table(1e8), "stddev_samp(loss)")
print(f"stddev_samp(loss) after 1e8: {np.isnan(deviations).sum()} of {len(deviations)} are NaN")
assert np.isnan(deviations).mean() > 0.5 and np.isfinite(due).all()
correlations, due = ask(make_table(1e8), "corr(loss, step)")
print(f"corr(loss, step) after 1e8: {np.round(correlations[:6], 3)}, duckdb {np.round(due[:6], 3)}")
sums, due = ask(make_table(1e17, STEPS % 7 + 1.0), "sum(loss)")
print(f"sum(loss) of whole numbers after 1e17: {sums[:6]}, duckdb {due[:6]}")
assert (np.abs(sums - due) >= 4).all()

# the same in daft
for value in [math.nan, math.inf]:
    frame = daft.from_arrow(make_table(value)).with_column("part", daft.lit(0))
    window = daft.Window().partition_by("part").order_by("step").rows_between(-2, 0)
    for name in ["sum", "mean", "stddev"]:
        aggregate = getattr(daft.col("loss"), name)().over(window).alias("value")
        found = read_column(frame.select("step", aggregate).sort("step").to_pydict()["value"])[SPIKE + 3:]
        print(f"daft, {name} after {value}: {np.isnan(found).sum()} of {len(found)} rows are NaN")
        assert np.isnan(found).all() == (value == math.inf and name != "stddev")
PYTHON
