#!/usr/bin/env bash
# polars-ds's cosine_sim is not between -1 and 1, and its weighted_hmean is the mean of the weights.
#
# Versions: polars-ds 0.13.0, polars 1.44.2.
# Guess before the run: the cosine similarity of a column with itself is 1, and does not depend on
#     the unit of a column; the weighted harmonic mean of 1 and 100 is near the number with the larger
#     weight; adjusted R2 is 1 - (1 - R2)(n - 1)/(n - p - 1) with p explanatory variables. (Suspected
#     otherwise after reading the source.)
# Seen: in exprs/stats.py, the root is taken of each norm, and then of their product: a column of norm
#     5 has 5 with itself, a hundred times as large 500, and two columns at an angle of 60 degrees
#     0.5 times the root of both norms. In weighted_hmean, x is multiplied by 1 / x instead of
#     the weights: of any values it is the mean weight, 0.5 for 1 and 100 with 0.9 and 0.1, where 1.11
#     is due, and 1 / n with is_normalized. weighted_cosine_sim and hmean are right. query_adj_r2
#     divides by n - p: with 5 variables and 12 rows of noise it is 0.15 on average, where 0 is due.
# For gyre: it has no such columns. There, give weighted_cosine_sim weights of 1, take
#     weighted_mean of 1 / x and invert it, and give p + 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile polars-ds==0.13.0 polars==1.44.2 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import polars as pl
import polars_ds as pds

table = pl.DataFrame({"a": [3.0, 4.0], "b": [300.0, 400.0], "c": [4.0, -3.0], "d": [1.0, 100.0],
                      "weight": [0.9, 0.1], "one": [1.0, 1.0]})
result = table.select(
    itself=pds.cosine_sim("a", "a"), larger=pds.cosine_sim("b", "b"), parallel=pds.cosine_sim("a", "b"),
    orthogonal=pds.cosine_sim("a", "c"), weighted=pds.weighted_cosine_sim("a", "b", "one"),
    hmean=pds.weighted_hmean("d", "weight"), hmean_of_others=pds.weighted_hmean("a", "weight"),
    normalized=pds.weighted_hmean("d", "weight", is_normalized=True)).row(0, named=True)
due = 1 / (0.9 / 1 + 0.1 / 100)
print(f"cosine similarity of (3, 4) with itself: {result['itself']:.3f}; of (300, 400) with itself: "
      f"{result['larger']:.3f}; of both: {result['parallel']:.3f}, with weights of 1 "
      f"{result['weighted']:.3f}; of orthogonal columns {result['orthogonal']:.3f}")
print(f"weighted harmonic mean of 1 and 100: {result['hmean']:.3f}, normalized "
      f"{result['normalized']:.3f}, where {due:.3f} is due; of 3 and 4 {result['hmean_of_others']:.3f}")
assert np.isclose(result["itself"], 5) and np.isclose(result["larger"], 500)
assert np.isclose(result["parallel"], 50) and np.isclose(result["weighted"], 1)
assert np.isclose(result["hmean"], 0.5) and np.isclose(result["hmean_of_others"], 0.5)
assert np.isclose(result["normalized"], 0.5)  # 1 / n, whatever the weights are

N_ROWS = 12
N_VARIABLES = 5
rng = np.random.default_rng(0)
found = []
exact = []
for _ in range(2000):
    inputs = np.column_stack([np.ones(N_ROWS), rng.normal(size=[N_ROWS, N_VARIABLES])])
    target = rng.normal(size=N_ROWS)
    prediction = inputs @ np.linalg.lstsq(inputs, target)[0]
    r2 = 1 - np.sum((target - prediction) ** 2) / np.sum((target - target.mean()) ** 2)
    exact.append(1 - (1 - r2) * (N_ROWS - 1) / (N_ROWS - N_VARIABLES - 1))
    frame = pl.DataFrame({"y": target, "p": prediction})
    found.append(frame.select(pds.query_adj_r2("y", "p", N_VARIABLES)).item())
print(f"adjusted R2 of noise: {np.mean(found):.3f} on average, by the formula {np.mean(exact):.3f}")
assert np.mean(found) > 0.1 and abs(np.mean(exact)) < 0.02
PYTHON
