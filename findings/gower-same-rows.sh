#!/usr/bin/env bash
# gower mirrors the distances between two tables if they have as many rows, and ignores columns up to 0.
#
# Versions: gower 0.1.2, numpy 2.4.6, pandas 2.3.3, scipy 1.17.1.
# Guess before the run: `gower_matrix(X, Y)[i, j]` is the distance of row i of X from row j of Y, and a
#     number counts with its distance by the range of its column, wherever the column lies. (That they
#     might not was suspected after reading the source.)
# Seen: if Y has as many rows as X, the matrix is taken for that of one table with itself, and its
#     lower half is the mirrored upper one: the nearest row of Y is right for 39 of 100 rows.
#     With one row more it is right. A column whose largest value is 0, as a loss or a log-probability
#     has, counts with a distance of 0 everywhere; shifted by 1 it counts as the others.
# For gyre: it measures no such distances. There, add a row, and shift columns to 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile gower==0.1.2 numpy==2.4.6 pandas==2.3.3 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import gower
import numpy as np

N = 100
generator = np.random.default_rng(0)


def due(first, second):
    """Return Gower's distances: the mean over columns of distances by their ranges."""
    both = np.concatenate([first, second])
    spread = both.max(0) - both.min(0)
    return (np.abs(first[:, None] - second) / spread).mean(-1)


first, second = generator.uniform(1, 5, (N, 3)), generator.uniform(1, 5, (N, 3))
seen, right = gower.gower_matrix(first, second), due(first, second)
upper, lower = np.triu_indices(N), np.tril_indices(N, -1)
nearest = np.mean(seen.argmin(1) == right.argmin(1))
print(f"as many rows: errors of up to {np.abs(seen - right)[upper].max():.1e} in the upper half and "
      f"{np.abs(seen - right)[lower].max():.2f} in the lower; the matrix is symmetric: "
      f"{np.array_equal(seen, seen.T)}; nearest rows right: {nearest:.0%}")
assert np.abs(seen - right)[upper].max() < 1e-5 and np.abs(seen - right)[lower].max() > 0.3
assert np.array_equal(seen, seen.T) and not np.allclose(right, right.T, atol=0.1)
assert nearest < 0.8

more = np.concatenate([second, second[:1]])
seen, right = gower.gower_matrix(first, more), due(first, more)
print(f"one row more: errors of up to {np.abs(seen - right).max():.1e}")
assert np.abs(seen - right).max() < 1e-5

table = generator.uniform(1, 5, (N, 2))
table[:, 1] -= table[:, 1].max()
print(f"a column from {table[:, 1].min():.1f} to {table[:, 1].max():.1f}:")
alone = np.abs(gower.gower_matrix(table[:, 1:])).max()
both, right = gower.gower_matrix(table), due(table, table)
half = due(table[:, :1], table[:, :1]) / 2
print(f"alone, its largest distance is {alone}; beside another column, errors are up to "
      f"{np.abs(both - right).max():.2f}, and up to {np.abs(both - half).max():.1e} if it counts as 0")
assert alone == 0 and np.abs(both - right).max() > 0.4 and np.abs(both - half).max() < 1e-5
shifted = gower.gower_matrix(table + [0, 1])
print(f"shifted by 1: errors of up to {np.abs(shifted - right).max():.1e}")
assert np.abs(shifted - right).max() < 1e-5
PYTHON
