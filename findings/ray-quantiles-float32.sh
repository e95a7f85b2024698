#!/usr/bin/env bash
# Ray Data's approximate quantiles are float32: the median of times lies outside of the data.
#
# Versions: ray 2.60.0, datasketches 5.2.0, pyarrow 26.0.1.
# Guess before the run: RobustScaler gives Unix times a median of 0 and an interquartile range of 1, within the documented
#     rank error of the sketch, 0.35 %; the median of `summary()` lies between its minimum and its maximum. (Suspected when the
#     name of the sketch was seen.)
# Seen: of one minute in seconds, the median is 2 s after the last time, and of one in milliseconds 1 s before the first, in
#     the table that has the right minimum and maximum. RobustScaler makes zeros of both: of 10,000 different rows, all are
#     equal. Of other minutes, the median is up to a minute off. Over an hour it is right to 3 %, and so are the numbers
#     less their minimum; `Quantile` is exact.
# Cause: the sketch is a `kll_floats_sketch`, of float32, and not a `kll_doubles_sketch`; 1.7e9 has steps of 128 there
#     (ray/data/aggregate.py, `ApproximateQuantile`). Its documentation speaks of rank errors only. No issue was found.
# For gyre: it scales no columns. There, subtract the minimum first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 pandas==3.1.1 pyarrow==26.0.1 datasketches==5.2.0 "ray[data]==2.60.0"
export HOME="$folder" TMPDIR="$folder" RAY_USAGE_STATS_ENABLED=0
cd "$folder"
"$folder/env/bin/python" -W ignore - 2> errors.txt <<'PYTHON' || { tail -n 20 errors.txt >&2; exit 1; }
import os
import tempfile

import numpy as np
import pyarrow as pa
import ray
from ray.data.aggregate import ApproximateQuantile, Quantile
from ray.data.preprocessors import RobustScaler

N_ROWS = 10_000
SHARES = [0.25, 0.5, 0.75]
random = np.random.default_rng(0)
columns = {
    "seconds of a minute": 1_700_000_322 + 60 * random.random(N_ROWS),
    "milliseconds of a minute": 1_700_000_040_000 + 60_000 * random.random(N_ROWS),
    "seconds of an hour": 1_700_000_322 + 3_600 * random.random(N_ROWS),
    "without the minimum": 60 * random.random(N_ROWS),
}
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=tempfile.mkdtemp(dir=os.environ["HOME"]))
data = ray.data.from_arrow(pa.table(columns))

summary = data.select_columns(list(columns)[:2]).summary().to_pandas().set_index("statistic")
for name in list(columns)[:2]:
    smallest, median, largest = (float(summary[name][row]) for row in ("min", "approx_quantile[0]", "max"))
    print(f"summary, {name}: minimum {smallest:.2f}, median {median:.2f}, maximum {largest:.2f}")
    assert (smallest, largest) == (columns[name].min(), columns[name].max())
    assert not smallest <= median <= largest

exact = data.aggregate(Quantile(on="seconds of a minute", q=0.5))["quantile(seconds of a minute)"]
assert abs(exact - np.median(columns["seconds of a minute"])) < 1e-6

scaler = RobustScaler(list(columns)).fit(data)
scaled = scaler.transform_batch(pa.table(columns).to_pandas())
for name, values in columns.items():
    low, median, high = np.quantile(scaled[name], SHARES)
    print(f"RobustScaler, {name}: median {median:.3f}, interquartile range {high - low:.3f}, {scaled[name].nunique()} different values")
    if name in ("seconds of an hour", "without the minimum"):
        assert abs(median) < 0.05 and abs(high - low - 1) < 0.05
    else:
        assert (scaled[name] == 0).all() and len(np.unique(values)) > 0.9 * N_ROWS
    as_float32 = np.quantile(values.astype(np.float32), SHARES, method="nearest")
    stored = [scaler.stats_[f"{key}({name})"] for key in ("low_quantile", "median", "high_quantile")]
    assert np.allclose(stored, as_float32, rtol=1e-6, atol=1)
    assert all(np.float32(value) == value for value in stored)
assert ApproximateQuantile(on="any", quantiles=[0.5]).zero(800).__class__.__name__ == "kll_floats_sketch"
PYTHON
