#!/usr/bin/env bash
# In blosc2, x[x > 0] of a matrix comes chunk by chunk, and x[mask] row by row.
#
# Versions: blosc2 4.14.1, numpy 2.4.6.
# Guess before the run: a matrix indexed by a condition gives NumPy's values in NumPy's order, row
#     by row, however it is chunked. (None was suspected: it came out of a comparison of all
#     operators.)
# Seen: where chunks are narrower than a row, the values are in the order of the chunks, with
#     `where`, too. The same condition as a computed mask, of blosc2 or of NumPy, gives the order of
#     rows. So values that are selected by a condition do not belong to labels that NumPy selects
#     from another matrix by the same condition: a correlation of 1 becomes 0.0. The number, the sum
#     and the sorted values are right, and so are chunks of whole rows. Nothing is said.
# For gyre: it has no such arrays. There, compute the condition first: x[(x > 0).compute()].
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile blosc2==4.14.1 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import blosc2
import numpy as np

SIZE, CHUNK, BLOCK = 200, 50, 25
values = np.random.default_rng(0).normal(size=(SIZE, SIZE))
labels = 3 * values + 1
mask = values > 0
due = values[mask]


def order_by_chunks(width):
    """Return the positive values in the order of chunks of (CHUNK, width), each row by row."""
    parts = [values[i:i + CHUNK, j:j + width] for i in range(0, SIZE, CHUNK)
             for j in range(0, SIZE, width)]
    return np.concatenate([part[part > 0] for part in parts])


for width in (CHUNK, SIZE):
    x = blosc2.asarray(values, chunks=(CHUNK, width), blocks=(BLOCK, BLOCK))
    for name, seen, is_condition in [
            ("x[x > 0]", x[x > 0][:], True), ("(x > 0).where(x)", (x > 0).where(x)[:], True),
            ("x[(x > 0).compute()]", x[(x > 0).compute()][:], False),
            ("x[NumPy's mask]", x[mask][:], False)]:
        correlation = np.corrcoef(seen, labels[mask])[0, 1]
        print(f"chunks of {CHUNK} x {width}, {name}: {len(seen)} values, correlation with the "
              f"labels of the same mask {correlation:.3f}")
        in_rows = width == SIZE or not is_condition
        assert np.array_equal(seen, due if in_rows else order_by_chunks(width))
        assert np.array_equal(np.sort(seen), np.sort(due))
        assert correlation > 0.999 if in_rows else abs(correlation) < 0.05

small = np.arange(24.0).reshape(4, 6)
x = blosc2.asarray(small, chunks=(2, 3), blocks=(2, 3))
seen = x[x > 11][:]
print(f"4 rows of 6 in chunks of 2 x 3, x[x > 11]: {seen.astype(int).tolist()}")
assert seen.tolist() == [12, 13, 14, 18, 19, 20, 15, 16, 17, 21, 22, 23]
PYTHON
