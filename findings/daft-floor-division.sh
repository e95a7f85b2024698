#!/usr/bin/env bash
# Daft's floor division rounds whole numbers towards zero, and its quotients do not belong to its rests.
#
# Version: daft 0.7.26.
# Guess before the run: `x // 4` is the floor, as the documentation of the operator says, for integers
#     and floats alike, and x equals (x // 4) * 4 + x % 4.
# Seen: for integers it is the quotient of C: -3 to 3 are all 0, so that the bin around zero is nearly
#     twice as wide as the others, in SQL too; for floats it is the floor. `%` has the sign of the
#     dividend for both: with floats, -7 becomes -11 when it is put together again. A sawtooth
#     `x % 4` has negative values, as in C.
# Cause: results are those of Rust's `/` for integers and of its `%` for both, seen from outside; "Floor
#     divides two numeric expressions" stands in `__floordiv__` (daft/expressions/expressions.py).
# For gyre: it has no such tables. There, floor integers by `(x / 4).floor()`, which is exact below 2^53.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile daft==0.7.26
DAFT_PROGRESS_BAR=0 DO_NOT_TRACK=1 "$folder/env/bin/python" -W ignore - <<'PYTHON'
from collections import Counter

import daft
from daft import col

VALUES = list(range(-8, 8))
WHOLE = daft.from_pydict({"x": VALUES})
REAL = daft.from_pydict({"x": [float(value) for value in VALUES]})
DUE = [value // 4 for value in VALUES]


def compute(table, expression):
    return table.select(expression.alias("result")).to_pydict()["result"]


def show(name, results, due):
    wrong = [x for x, result, value in zip(VALUES, results, due) if result != value]
    print(f"{name}: {results}, wrong for {wrong}")
    return wrong


whole = compute(WHOLE, col("x") // 4)
assert show("integers // 4", whole, DUE) == [-7, -6, -5, -3, -2, -1]
assert show("floats // 4", compute(REAL, col("x") // 4), DUE) == []
in_sql = daft.sql("SELECT x // 4 AS result FROM whole", whole=WHOLE).to_pydict()["result"]
assert show("integers // 4 in SQL", in_sql, DUE) == [-7, -6, -5, -3, -2, -1]
assert show("floor(integers / 4)", compute(WHOLE, (col("x") / 4).floor()), DUE) == []
bins = Counter(whole)
print(f"integers per bin, due 4 each: {dict(sorted(bins.items()))}")
assert bins[0] == 7 and bins[-1] == 4 and bins[-2] == 1

again = compute(REAL, (col("x") // 4) * 4 + col("x") % 4)
assert show("floats, (x // 4) * 4 + x % 4", again, VALUES) == [-7, -6, -5, -3, -2, -1]
assert again[VALUES.index(-7)] == -11
assert show("integers, (x // 4) * 4 + x % 4", compute(WHOLE, (col("x") // 4) * 4 + col("x") % 4), VALUES) == []
PYTHON
