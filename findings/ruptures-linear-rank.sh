#!/usr/bin/env bash
# In ruptures, a stretch in which a covariate is constant costs nothing, however badly it fits.
#
# Versions: ruptures 1.1.10, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: with `model="linear"`, the cost of a segment is the sum of its squared
#     residuals, with any covariates, and a change of the coefficients is found where it is. (That
#     it might not be was suspected after reading the source.)
# Seen: if the columns are linearly dependent in a segment, as an intercept and a switch that stays
#     off in it, the cost is 0: `lstsq` returns no residuals then. Of a signal whose mean changes at
#     120, and whose switch is on from 60 to 90 and from 150 to 170, Pelt gives 60, 90, 150 and 170
#     and not 120; the segment from 90 to 150, which holds the change, costs 0 for 148. With an
#     intercept and a column for "off", each segment costs 0: the change is at 5 by dynamic
#     programming, and nowhere by Pelt. With noise of 0.001 on the switch, all find 120.
# For gyre: it looks for no changes. There, leave out dependent columns, and add such noise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ruptures==1.1.10 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import ruptures
from ruptures.costs import CostLinear

LENGTH, CHANGE, MIN_SIZE, PENALTY = 200, 120, 5, 10
SEGMENTS = [(0, CHANGE), (90, 150), (0, LENGTH)]
generator = np.random.default_rng(0)
times = np.arange(LENGTH)
switch = (((times >= 60) & (times < 90)) | ((times >= 150) & (times < 170))).astype(float)
y = 1 + 2 * switch + 3 * (times >= CHANGE) + 0.5 * generator.normal(size=LENGTH)
ones = np.ones(LENGTH)
COVARIATES = {
    "intercept and switch": np.stack([ones, switch], 1),
    "intercept, on and off": np.stack([ones, switch, 1 - switch], 1),
    "intercept and noisy switch": np.stack(
        [ones, switch + 0.001 * generator.normal(size=LENGTH)], 1),
}


def compute_cost(covariates, start, end):
    """Return the sum of the squared residuals of a least-squares fit."""
    x = covariates[start:end]
    return np.square(y[start:end] - x @ np.linalg.pinv(x) @ y[start:end]).sum()


changes = {}
for name, covariates in COVARIATES.items():
    signal = np.column_stack([y, covariates])
    cost = CostLinear().fit(signal)
    found = [cost.error(start, end) for start, end in SEGMENTS]
    due = [compute_cost(covariates, start, end) for start, end in SEGMENTS]
    best = min(range(MIN_SIZE, LENGTH - MIN_SIZE), key=lambda time: (
        compute_cost(covariates, 0, time) + compute_cost(covariates, time, LENGTH)))
    options = {"model": "linear", "jump": 1, "min_size": MIN_SIZE}
    by_pelt = ruptures.Pelt(**options).fit_predict(signal, pen=PENALTY)[:-1]
    by_dynp = ruptures.Dynp(**options).fit_predict(signal, n_bkps=1)[:-1]
    changes[name] = by_pelt, by_dynp
    print(f"{name}: Pelt {by_pelt}, one change {by_dynp}, where {best} is due; costs of "
          f"{SEGMENTS}: {np.round(found, 1).tolist()}, where {np.round(due, 1).tolist()} are due")
    assert best == CHANGE
    for (start, end), one, other in zip(SEGMENTS, found, due):
        if np.linalg.matrix_rank(covariates[start:end]) < covariates.shape[1]:
            assert one == 0 and other > 10
        else:
            assert abs(one - other) < 1e-6
assert changes["intercept and switch"][0] == [60, 90, 150, 170]
assert changes["intercept, on and off"] == ([], [MIN_SIZE])
assert changes["intercept and noisy switch"] == ([CHANGE], [CHANGE])
PYTHON
