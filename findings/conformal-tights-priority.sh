#!/usr/bin/env bash
# conformal-tights' quantiles for accuracy become those for coverage once these have been asked for.
#
# Versions: conformal-tights 0.5.0, xgboost-cpu 3.2.0, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6,
#     pandas 2.3.3.
# Guess before the run: a prediction does not change the model: `predict_quantiles` with
#     priority="accuracy" gives the same before and after a call with priority="coverage". (That it does
#     not was suspected after reading the source.)
# Seen: the correction that only widens is written into the stored correction. After one call for coverage,
#     `predict_quantiles` for accuracy gives the quantiles for coverage, bit for bit, for these levels and
#     until the next fit: 10 % quantiles move by up to 0.7 deviations of the noise. Asked for in the other
#     order, the two priorities differ. `predict_interval(coverage=0.5)` does it to the quartiles.
# For gyre: it has no quantiles. There, take a copy of the model for each priority.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6 \
    pandas==2.3.3
"$folder/env/bin/pip" install --quiet --no-compile --no-deps conformal-tights==0.5.0 xgboost-cpu==3.2.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import copy
import sys
import types

# The package imports its forecaster for darts, which the regressor does not need.
forecaster = types.ModuleType("conformal_tights._darts_forecaster")
forecaster.DartsForecaster = None
sys.modules[forecaster.__name__] = forecaster
import numpy as np
from conformal_tights import ConformalCoherentQuantileRegressor
from sklearn.linear_model import LinearRegression

generator = np.random.default_rng(0)
x = generator.normal(size=(1500, 2))
y = x[:, 0] + generator.normal(size=1500)
test = generator.normal(size=(2000, 2))
model = ConformalCoherentQuantileRegressor(estimator=LinearRegression())
model.fit(x, y)
fresh = copy.deepcopy(model)


def predict(regressor, levels, priority):
    """Return the quantiles of the test set, one column for each level."""
    return regressor.predict_quantiles(test, quantiles=levels, priority=priority)


levels = (0.1, 0.9)
before = predict(model, levels, "accuracy")
assert np.array_equal(before, predict(model, levels, "accuracy"))
coverage = predict(model, levels, "coverage")
after = predict(model, levels, "accuracy")
print(f"quantiles 0.1 and 0.9, for accuracy: mean width {np.mean(before[:, 1] - before[:, 0]):.3f} before a "
      f"call for coverage, {np.mean(after[:, 1] - after[:, 0]):.3f} after it; they move by up to "
      f"{np.abs(after - before).max():.2f}, and equal those for coverage: {np.array_equal(after, coverage)}")
assert np.array_equal(after, coverage) and np.abs(after - before).max() > 0.05

quartiles = (0.25, 0.75)
before = predict(fresh, quartiles, "accuracy")
interval = fresh.predict_interval(test, coverage=0.5)
after = predict(fresh, quartiles, "accuracy")
print(f"quartiles for accuracy move by up to {np.abs(after - before).max():.2f} by predict_interval, and "
      f"equal its ends: {np.array_equal(after, interval)}")
assert np.array_equal(after, interval) and not np.array_equal(after, before)
PYTHON
