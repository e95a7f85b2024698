#!/usr/bin/env bash
# fastparquet's row filters join conditions by OR, read none of a partition, and "not in" loses row groups.
#
# Versions: fastparquet 2026.9.0, pandas 3.1.1, pyarrow 26.0.1.
# Guess before the run: with `row_filter=True`, `filters` gives the rows of the condition, which pyarrow
#     gives, too: a single list of conditions is joined by AND, as documented. Without it, it leaves out row
#     groups in which no row fulfils the condition. (That plain lists and partitions go wrong was suspected
#     after reading the source, for "not in".)
# Seen: a list of two conditions is joined by OR: 30 rows for 5. Only a list in a list is right. A
#     condition on the column of the partitions alone gives no row for 25, or for 75 with "!=", and (partition
#     or value) all rows of 100, for 33. "not in" leaves out each row group whose smallest or largest value is
#     one of those given, with all others in it: of the numbers from 0 to 99 without 0 and 99, in two row
#     groups, none is left, with `row_filter` and without, and nothing of a third label if the two
#     others are left out.
# Cause: the conditions of a plain list are added by `|=`, and those on partitions are passed over, as if they
#     were false in a plain list, and true in a list of lists (api.py, `_column_filter`). `filter_not_in`
#     asks if the smallest or the largest value is given, not if both are and equal.
# For gyre: it reads Parquet by pyarrow. There, too, or give lists of lists, and no "not in".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile fastparquet==2026.9.0 pyarrow==26.0.1 numpy==2.4.6 pandas==3.1.1
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd

TABLE = pd.DataFrame({"number": np.arange(100), "odd": np.arange(100) % 2 == 1, "group": list("wxyz") * 25,
                      "label": np.random.default_rng(0).choice(["cat", "dog", "eel"], 100)})
TABLE.to_parquet("table.parquet", engine="fastparquet", row_group_offsets=50, stats=True)
TABLE.to_parquet("parts", engine="fastparquet", partition_on=["group"])


def count(path, filters):
    """Return the rows by pyarrow, by fastparquet's row filter, and those of the row groups that it reads."""
    found = [len(pd.read_parquet(path, engine="pyarrow", filters=filters)),
             len(pd.read_parquet(path, engine="fastparquet", filters=filters, row_filter=True)),
             len(pd.read_parquet(path, engine="fastparquet", filters=filters))]
    print(f"{filters}: due {found[0]} rows, {found[1]} found, {found[2]} in row groups that are read")
    return found


both = [("number", ">=", 90), ("odd", "==", True)]
assert count("table.parquet", both) == [5, 30, 50]
assert count("table.parquet", [both]) == [5, 5, 50]
assert count("table.parquet", [both[:1], both[1:]]) == [55, 55, 100]

assert count("parts", [("group", "==", "x")]) == [25, 0, 25]
assert count("parts", [[("group", "==", "x")]]) == [25, 25, 25]
assert count("parts", [("group", "!=", "x")]) == [75, 0, 75]
assert count("parts", [[("group", "==", "x")], [("number", ">=", 90)]]) == [33, 100, 100]

assert count("table.parquet", [[("number", "not in", [10, 60])]]) == [98, 98, 100]
assert count("table.parquet", [[("number", "not in", [0])]]) == [99, 50, 50]
assert count("table.parquet", [[("number", "not in", [0, 99])]]) == [98, 0, 0]
n_dogs = int((TABLE["label"] == "dog").sum())
assert count("table.parquet", [[("label", "not in", ["dog"])]]) == [100 - n_dogs, 100 - n_dogs, 100]
assert count("table.parquet", [[("label", "not in", ["cat", "dog"])]]) == [(TABLE["label"] == "eel").sum(), 0, 0]
PYTHON
