#!/usr/bin/env bash
# scikit-uplift's deviation of the total uplift is the sum of those of its parts.
#
# Versions: scikit-uplift 0.5.1, scikit-learn 1.6.1, pandas 3.1.1, scipy 1.17.1, numpy 2.4.6.
# Guess before the run: in `uplift_by_percentile(std=True, total=True)`, the standard deviation of the
#     total is smaller than those of the ten parts, by the root of ten, as ten times as many people
#     are in it. (That it might not be was suspected after reading the source.)
# Seen: it is the sum of the ten: 32 times too large, and with 20 parts 89 times. An uplift of 0.1 of
#     10,000 people has a deviation of 0.3 in the table, where 0.01 is due; those of the parts are
#     right, and so is the total's uplift.
# For gyre: it targets nobody. There, call it with bins=1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scikit-learn==1.6.1 pandas==3.1.1 scipy==1.17.1 \
    numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps scikit-uplift==0.5.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sys
import types
from pathlib import Path

import numpy as np

# The metrics of the package, without its plots and its data sets.
package = types.ModuleType("sklift")
package.__path__ = [str(Path(importlib.util.find_spec("sklift").origin).parent)]
sys.modules["sklift"] = package
from sklift.metrics import uplift_by_percentile

N = 10_000
generator = np.random.default_rng(0)
treatment = np.arange(N) % 2
outcome = (generator.random(N) < 0.4 + 0.1 * treatment).astype(int)
score = generator.random(N)


def deviation(outcomes):
    """Return the standard deviation of a difference of two shares, treated minus others."""
    return np.sqrt(sum(np.var(part) / len(part) for part in outcomes))


due = deviation([outcome[treatment == 0], outcome[treatment == 1]])
for bins in [5, 10, 20]:
    table = uplift_by_percentile(outcome, score, treatment, bins=bins, std=True, total=True)
    total, parts = table.iloc[-1], table.iloc[:-1]
    factor = total["std_uplift"] / due
    print(f"{bins} parts: deviations of {parts['std_uplift'].min():.4f} to "
          f"{parts['std_uplift'].max():.4f}; total: uplift {total['uplift']:.3f}, deviation "
          f"{total['std_uplift']:.4f}, due {due:.4f}: {factor:.0f} times too large")
    assert total["n_treatment"] + total["n_control"] == N
    assert abs(total["uplift"] - 0.1) < 4 * due
    assert abs(total["std_uplift"] - parts["std_uplift"].sum()) < 1e-9
    assert abs(factor / bins**1.5 - 1) < 0.05
    assert (abs(parts["std_uplift"] / (due * np.sqrt(bins)) - 1) < 0.05).all()
one = uplift_by_percentile(outcome, score, treatment, bins=1, std=True)["std_uplift"].iloc[0]
print(f"with one part: {one:.4f}")
assert abs(one - due) < 1e-9
PYTHON
