#!/usr/bin/env bash
# polars-distance's cosine of two lists is 3 for equal lists of 3, and another in the other direction.
#
# Versions: polars-distance 0.5.3, polars 1.44.2.
# Guess before the run: dist_list.cosine, "cosine distance between two lists" as sets, is 1 less
#     |A and B| / sqrt(|A| |B|), or that quotient, which lies between 0 and 1, as the other functions
#     of dist_list are similarities: 1 for equal sets. It is symmetric.
# Seen: the common elements are divided by the root of the first size, and multiplied by that of the
#     second: equal lists have their length, 3 or 10, disjoint ones 0; one common element of 1 and 100
#     gives 10, and the other way round 0.1. To a list of 4 tags, an equal list is as near as one of 16
#     with 2 of its tags: 4 for both, where 1 and 0.25 are due. jaccard_index and sorensen_index are
#     right.
# For gyre: it compares no sets. There, divide by the length of the second list.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile polars-distance==0.5.3 polars==1.44.2 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import polars as pl
import polars_distance  # registers the namespaces


def measure(first, second, name="cosine"):
    table = pl.DataFrame({"a": [first], "b": [second]})
    return table.select(getattr(pl.col("a").dist_list, name)("b")).item()


for n_first, n_second, n_common in [(3, 3, 0), (3, 3, 3), (10, 10, 10), (4, 4, 2), (1, 100, 1),
                                    (100, 1, 1), (4, 16, 2), (4, 4, 4), (4, 4, 3)]:
    first = [f"tag{i}" for i in range(n_first)]
    second = [f"tag{i}" for i in range(n_first - n_common, n_first - n_common + n_second)]
    found = measure(first, second)
    due = n_common / np.sqrt(n_first * n_second)
    print(f"{n_first} and {n_second} tags, {n_common} common: {found:.3f}, cosine {due:.3f}")
    assert np.isclose(found, n_common / np.sqrt(n_first) * np.sqrt(n_second))
    jaccard = n_common / (n_first + n_second - n_common)
    assert np.isclose(measure(first, second, "jaccard_index"), jaccard)
    assert np.isclose(measure(first, second, "sorensen_index"), 2 * n_common / (n_first + n_second))
PYTHON
