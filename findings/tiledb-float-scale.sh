#!/usr/bin/env bash
# TileDB's float scale filter stores missing values as 0, and wraps numbers that are too large.
#
# Versions: tiledb 0.36.1, numpy 2.4.6.
# Guess before the run: numbers beyond the range of the integers are refused, as the delta filters
#     refuse what they cannot hold, or saturate; NaN is refused, or comes back as NaN. (None was
#     suspected: it came out of a comparison of all filters.)
# Seen: with one or two bytes, NaN and infinities come back as the offset, which is 0 by default, or
#     the middle of the range. With four, they are -2147483648 times the factor. Numbers beyond the
#     range lose their high bits, as in C: with a factor of 0.01 and two bytes, temperatures of
#     400 come back as -255.36. Where every tenth of 1,000 temperatures around 300 K is missing, the
#     mean is 270 instead of 300. Nothing is said, neither on writing nor on reading.
# For gyre: it has no such store. There, fill in what is missing, and check the range first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tiledb==0.36.1 numpy==2.4.6
cd "$folder"
env/bin/python -W error - <<'PYTHON'
import itertools

import numpy as np
import tiledb

counter = itertools.count()


def write_and_read(values, factor, offset, n_bytes):
    """Return the values (N,) as a dense array with the filter gives them back."""
    name = f"array_{next(counter)}"
    dimension = tiledb.Dim(name="i", domain=(0, len(values) - 1), tile=len(values), dtype=np.int32)
    scale = tiledb.FloatScaleFilter(factor=factor, offset=offset, bytewidth=n_bytes)
    attribute = tiledb.Attr(name="a", dtype=values.dtype, filters=tiledb.FilterList([scale]))
    tiledb.Array.create(name, tiledb.ArraySchema(domain=tiledb.Domain(dimension),
                                                 attrs=[attribute]))
    with tiledb.open(name, "w") as array:
        array[:] = values
    with tiledb.open(name) as array:
        return array[:]["a"]


for kind in (np.float32, np.float64):
    for n_bytes in (1, 2, 4):
        given = np.array([1.5, np.nan, np.inf, -np.inf], kind)
        for offset in (0.0, 20.0):
            seen = write_and_read(given, 0.5, offset, n_bytes)
            print(f"{kind.__name__}, {n_bytes} bytes, offset {offset}: {given} is {seen}")
            assert seen[0] == 1.5
            assert (seen[1:] == offset + (-2.0**31 * 0.5 if n_bytes == 4 else 0)).all()

large = np.array([-10, 20, 327.67, 327.68, 400, -330])
seen = write_and_read(large, 0.01, 0.0, 2)
wrapped = (np.round(large / 0.01).astype(np.int64) + 2**15) % 2**16 - 2**15
print(f"two bytes, factor 0.01: {large} is {seen}")
assert np.allclose(seen, wrapped * 0.01) and np.allclose(seen[:3], large[:3])
assert abs(seen[4] + 255.36) < 1e-6

temperatures = np.random.default_rng(0).normal(300, 5, 1000)
temperatures[::10] = np.nan
seen = write_and_read(temperatures, 0.01, 0.0, 2)
due = np.nanmean(temperatures)
print(f"mean of what is not NaN: {np.nanmean(seen):.2f} of {np.isfinite(seen).sum()} values, "
      f"{due:.2f} of {np.isfinite(temperatures).sum()} due")
assert abs(due - 300) < 1 and abs(np.nanmean(seen) - 0.9 * due) < 0.1
given = temperatures[np.isfinite(temperatures)]
assert abs(write_and_read(given, 0.01, 0.0, 2) - given).max() < 0.00501

# The filter of differences refuses what it cannot hold.
dimension = tiledb.Dim(name="i", domain=(0, 2), tile=3, dtype=np.int32)
attribute = tiledb.Attr(name="a", dtype=np.int64,
                        filters=tiledb.FilterList([tiledb.PositiveDeltaFilter()]))
tiledb.Array.create("deltas", tiledb.ArraySchema(domain=tiledb.Domain(dimension),
                                                 attrs=[attribute]))
try:
    with tiledb.open("deltas", "w") as array:
        array[:] = np.array([3, 2, 1])
    raise SystemExit("a falling series was written")
except tiledb.TileDBError as error:
    print(f"positive deltas of a falling series: {error}")
PYTHON
