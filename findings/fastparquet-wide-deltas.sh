#!/usr/bin/env bash
# fastparquet reads other integers than are in the file where neighbours differ by more than 27 bits.
#
# Versions: fastparquet 2026.9.0, pyarrow 26.0.1, duckdb 2.0.1.
# Guess before the run: an integer column has the same values by fastparquet and by pyarrow, in every
#     encoding that fastparquet reads.
# Seen: not in DELTA_BINARY_PACKED, which DuckDB writes for all integers with PARQUET_VERSION V2. Numbers of up
#     to 26 bits and a sign are right; from 27 bits on, 99 % are wrong, without a word, as each error stays in
#     all later ones of its page. Of 1,000 checksums of 31 bits, 8 are left; the times of a day in
#     microseconds have a mean of -11,638 hours.
# Cause: the next bytes are read before those that are used up are dropped, so that they are shifted beyond
#     the 64 bits of the buffer (cencoding.pyx, `delta_read_bitpacked`).
# For gyre: it reads Parquet by pyarrow. There, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile fastparquet==2026.9.0 pyarrow==26.0.1 duckdb==2.0.1 numpy==2.4.6 \
    pandas==3.1.1
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import zlib

import duckdb
import fastparquet
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

N = 1000
GENERATOR = np.random.default_rng(0)


def read(integers, writer):
    """Return the column that fastparquet reads, after pyarrow has read the right one."""
    numbers = pa.table({"x": integers})
    if writer == "duckdb":
        duckdb.sql("COPY numbers TO 'data.parquet' (FORMAT parquet, PARQUET_VERSION v2)")
    else:
        pq.write_table(numbers, "data.parquet", use_dictionary=False, column_encoding=writer)
    assert (pq.read_table("data.parquet")["x"].to_numpy() == integers).all()
    return fastparquet.ParquetFile("data.parquet").to_pandas()["x"].to_numpy()


for bits in [20, 24, 26, 27, 28, 30]:
    integers = GENERATOR.integers(-2**bits, 2**bits, N).astype(np.int32)
    wrong = {writer: int((read(integers, writer) != integers).sum())
             for writer in ["duckdb", "DELTA_BINARY_PACKED", "PLAIN"]}
    print(f"{bits} bits and a sign, wrong of {N}: {wrong}")
    assert wrong["PLAIN"] == 0
    for writer in ["duckdb", "DELTA_BINARY_PACKED"]:
        assert wrong[writer] == 0 if bits < 27 else wrong[writer] > 0.98 * N

checksums = np.array([zlib.crc32(str(number).encode()) & 0x7fffffff for number in range(N)], np.int32)
found = read(checksums, "duckdb")
common = len(set(checksums.tolist()) & set(found.tolist()))
print(f"checksums of {N} texts: {common} of them are in what is read")
assert common < 20

times = GENERATOR.integers(0, 86_400_000_000, N)
found = read(times, "duckdb")
print(f"times of a day in microseconds: mean {times.mean() / 3.6e9:.1f} h, read {found.mean() / 3.6e9:.1f} h; "
      f"from {found.min() / 3.6e9:.0f} to {found.max() / 3.6e9:.0f} h")
assert abs(times.mean() / 3.6e9 - 12) < 1 and found.min() < -86_400_000_000
PYTHON
