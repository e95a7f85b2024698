#!/usr/bin/env bash
# crepes gives test objects of a category that was not calibrated the interval from 0 to 0.
#
# Versions: crepes 0.9.1, numpy 2.4.6, pandas 3.1.1, scikit-learn 1.9.1, scipy 1.17.1.
# Guess before the run: an object whose Mondrian category has no calibration example has an interval
#     of maximum size, with a warning, as one whose category has too few. (That it might not was
#     suspected after reading the source.)
# Seen: without a warning, it has the interval from 0 to 0, whatever the prediction is: with targets
#     around 100, no interval of a new category holds its target, where those of a category with two
#     examples are infinite, with a warning. They make the mean size of intervals smaller. Its
#     p-values are right.
# For gyre: it predicts no intervals. There, calibrate without bins, or check the categories first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile crepes==0.9.1 numpy==2.4.6 pandas==3.1.1 \
    scikit-learn==1.9.1 scipy==1.17.1
"$folder/env/bin/python" - <<'PYTHON'
import warnings

import numpy as np
from crepes import ConformalRegressor

generator = np.random.default_rng(0)


def draw(categories):
    """Return predictions and targets around 100, for objects of these categories."""
    targets = 100 + generator.normal(size=len(categories))
    return targets + 0.5 * generator.normal(size=len(categories)), targets


calibrated = np.array(["common"] * 200 + ["rare"] * 2)
predictions, targets = draw(calibrated)
regressor = ConformalRegressor()
regressor.fit(residuals=targets - predictions, bins=calibrated)
coverage, intervals = {}, {}
for category in ["common", "rare", "new"]:
    categories = np.full(400, category)
    predictions, targets = draw(categories)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = regressor.predict_int(predictions, bins=categories, confidence=0.9)
    named = sum(category in str(warning.message) for warning in caught)
    p = regressor.predict_p(predictions, targets, bins=categories, seed=1)
    coverage[category] = np.mean((found[:, 0] <= targets) & (targets <= found[:, 1]))
    intervals[category] = found
    print(f"{category}: intervals such as {found[0].round(1)} for a target of {targets[0]:.1f} "
          f"hold {coverage[category]:.0%}; {named} warnings name the category; p-values from "
          f"{p.min():.2f} to {p.max():.2f}")
    assert named == (category == "rare") and p.max() > 0.9
assert 0.85 < coverage["common"] < 0.96
assert coverage["rare"] == 1 and np.isinf(intervals["rare"]).all()
assert coverage["new"] == 0 and (intervals["new"] == 0).all()
PYTHON
