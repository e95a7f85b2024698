#!/usr/bin/env bash
# fastparquet writes dates of January 1970 with times="int96", and for all dates that come in seconds.
#
# Versions: fastparquet 2026.9.0, pandas 3.1.1, pyarrow 26.0.1.
# Guess before the run: dates and differences come back as they were written, whatever unit the column has,
#     by fastparquet and by pyarrow.
# Seen: with times="int96", for Spark and Impala, only columns in nanoseconds are right. Those that pandas 3
#     makes are in microseconds: each date of 2020 or 2021 is the 18th or 19th of January 1970. By default,
#     dates in seconds, as pandas takes them from NumPy's days, are divided by a million: May 2021 is 27
#     minutes after the start of 1970 by pyarrow, and with a time zone by fastparquet, too, which fails
#     without one. Differences in seconds are divided by a million: an hour is none, and 491 days are 42
#     seconds.
# Cause: int96 takes the integers of any unit for nanoseconds. Those in seconds are declared as
#     milliseconds and divided by 1,000 instead of multiplied; differences in seconds are declared as
#     microseconds and not changed (writer.py, `convert` and `time_factors`).
# For gyre: it writes Parquet by pyarrow. There, convert columns to microseconds, and leave int96.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile fastparquet==2026.9.0 pyarrow==26.0.1 numpy==2.4.6 pandas==3.1.1
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

DAYS = pd.Series(np.array(["2020-01-01", "2021-05-06"], "M8[D]"))
PARSED = pd.to_datetime(pd.Series(["2020-01-01", "2021-05-06"]))
assert (DAYS.dtype, PARSED.dtype) == ("M8[s]", "M8[us]")


def write_and_read(column, **arguments):
    """Return the last value by pyarrow and by fastparquet, or the error."""
    pd.DataFrame({"x": column}).to_parquet("data.parquet", engine="fastparquet", **arguments)
    values = []
    for read in [lambda: pq.read_table("data.parquet")["x"][-1].as_py(),
                 lambda: pd.read_parquet("data.parquet", engine="fastparquet")["x"].iloc[-1]]:
        try:
            values.append(read())
        except ValueError as error:
            values.append(error)
    return values


def check(name, column, right, **arguments):
    values = write_and_read(column, **arguments)
    due = column.iloc[-1]
    print(f"{name}, {column.dtype}: {due} is {values[0]} by pyarrow, {values[1]} by fastparquet")
    for value in values:
        assert (not isinstance(value, ValueError) and pd.Timestamp(value) == due) == right
    return values


for unit in ["ms", "us", "ns"]:
    check("default", DAYS.astype(f"M8[{unit}]"), True)
check("int96", PARSED.astype("M8[ns]"), True, times="int96")
for column in [PARSED, DAYS.astype("M8[ms]"), DAYS]:
    for value in check("int96", column, False, times="int96"):
        assert pd.Timestamp(value) < pd.Timestamp("1970-01-20")
by_pyarrow, by_fastparquet = check("default", DAYS, False)
assert pd.Timestamp(by_pyarrow) == pd.Timestamp(DAYS.iloc[-1].timestamp() // 1000, unit="ms")
assert isinstance(by_fastparquet, ValueError)
for value in check("default", DAYS.dt.tz_localize("UTC"), False):
    assert pd.Timestamp(value) < pd.Timestamp("1970-01-02", tz="UTC")

for difference, right in [(pd.Timedelta(hours=1).as_unit("us"), True), (pd.Timedelta(hours=1).as_unit("s"), False),
                          (DAYS.diff().iloc[-1], False)]:
    column = pd.Series([difference])
    pd.DataFrame({"x": column}).to_parquet("data.parquet", engine="fastparquet")
    found = pd.read_parquet("data.parquet", engine="fastparquet")["x"].iloc[0]
    print(f"differences, {column.dtype}: {difference} is {found}")
    assert (found == difference) == right and (right or found == difference // 10**6)
PYTHON
