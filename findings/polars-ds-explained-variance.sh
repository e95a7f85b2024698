#!/usr/bin/env bash
# polars-ds divides squared singular values by the number of columns less 1 instead of that of rows.
#
# Versions: polars-ds 0.13.0, polars 1.44.2.
# Guess before the run: with as_explained_var, `singular_values` gives the eigenvalues of the
#     covariance matrix, whose sum is the sum of the columns' variances. (Suspected otherwise after
#     reading the source.)
# Seen: the count is taken within the list of singular values, which has one for each column: of
#     three columns with 200 rows, each is 99.5 times too large (199 / 2), and a column alone has an
#     infinite variance. The same distribution with ten times as many rows has ten times the
#     variance. Shares by as_ratio are right.
# For gyre: it has no principal components. There, square the singular values and divide by n - 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile polars-ds==0.13.0 polars==1.44.2 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import polars as pl
import polars_ds as pds

COLUMNS = ["a", "b", "c"]
rng = np.random.default_rng(0)
for n_rows in [20, 200, 2000]:
    data = rng.normal(size=[n_rows, len(COLUMNS)]) * [3, 2, 1]
    table = pl.DataFrame(data, schema=COLUMNS)
    found = table.select(pds.singular_values(*COLUMNS, as_explained_var=True)).item().to_numpy()
    due = np.linalg.eigvalsh(np.cov(data.T))[::-1]
    print(f"{n_rows} rows: {np.round(found, 2)}, eigenvalues of the covariance {np.round(due, 2)}")
    assert np.allclose(found / due, (n_rows - 1) / (len(COLUMNS) - 1))
    shares = table.select(
        pds.singular_values(*COLUMNS, as_explained_var=True, as_ratio=True)).item().to_numpy()
    assert np.allclose(shares, due / due.sum())
alone = table.select(pds.singular_values("a", as_explained_var=True)).item().to_numpy()
print(f"one column with a variance of {table['a'].var():.2f}: {alone}")
assert np.isinf(alone[0])
PYTHON
