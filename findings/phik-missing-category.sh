#!/usr/bin/env bash
# phik's arrays have missing values as a category, with pandas before 3, in spite of dropna=True.
#
# Versions: phik 0.12.5, pandas 2.3.3, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: phik_from_array and significance_from_array leave rows with a missing value
#     out ("dropna: remove NaN values with True", the default), as phik_matrix does, and two equal
#     columns have a phi_K of 1. (That neither might hold was suspected after reading the source.)
# Seen: for drop_underflow, the values become strings before they are counted, and None and NaN the
#     categories "None" and "nan": dropna=True and False are the same. Two independent columns with the
#     same 30 % of rows missing have a phi_K of 0.90 and a significance of 49 deviations, where 0 and
#     0 are due. drop_underflow=False with drop_overflow=False is right. pandas 3 keeps missing
#     values as they are, and so is everything with it.
#     Two equal columns of two values have 0.95 for 10 rows and 0.99 for 20, those of three values 1:
#     the statistic of a table of two by two has Yates's correction.
# For gyre: its report does not use it. There, drop such rows before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile phik==0.12.5 pandas==2.3.3 numpy==2.4.6 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
from phik.phik import phik_from_array, phik_from_hist2d, phik_matrix
from phik.significance import significance_from_array

SIZE = 2000
generator = np.random.default_rng(2)
np.random.seed(0)
x, y = (generator.choice(list(letters), SIZE).astype(object) for letters in ("abc", "uvw"))
numbers = generator.normal(size=(2, SIZE))
missing = generator.random(SIZE) < 0.3
x[missing] = y[missing] = None
numbers[:, missing] = np.nan


def compare(x, y, columns):
    """Print and return phi_K of two arrays, as dropna and of the matrix, and the significance."""
    frame = pd.DataFrame({"x": x, "y": y})
    found = [phik_from_array(x, y, num_vars=columns, dropna=drop) for drop in (True, False)]
    found.append(phik_from_array(x[~missing], y[~missing], num_vars=columns))
    found.append(phik_matrix(frame, interval_cols=columns, njobs=1).loc["x", "y"])
    deviations = [
        significance_from_array(first, second, num_vars=columns, njobs=1)[1]
        for first, second in ((x, y), (x[~missing], y[~missing]))
    ]
    print(f"phi_K {found[0]:.2f}, dropna=False {found[1]:.2f}, without the rows {found[2]:.2f},")
    print(f"  matrix {found[3]:.2f}; significance {deviations[0]:.1f}, without the rows", end=" ")
    print(f"{deviations[1]:.1f}")
    return found, deviations


for first, second, columns in ((x, y, []), (*numbers, ["x", "y"])):
    found, deviations = compare(first, second, columns)
    assert found[0] > 0.6 and abs(found[0] - found[1]) < 1e-3 and max(found[2:]) < 0.3
    assert deviations[0] > 10 and deviations[1] < 3
plain = phik_from_array(x, y, drop_underflow=False, drop_overflow=False)
print(f"drop_underflow=False, drop_overflow=False: {plain:.2f}")
assert plain < 0.3

for rows in (10, 20, 100):
    two = phik_from_hist2d(np.diag([rows // 2] * 2), noise_correction=False)
    three = phik_from_hist2d(np.diag([rows // 2] * 3), noise_correction=False)
    print(f"equal columns, {rows // 2} rows a value: {two:.3f} of two values, {three:.3f} of three")
    assert two < 1 == round(three, 6)
PYTHON
