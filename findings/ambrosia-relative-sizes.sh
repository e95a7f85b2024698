#!/usr/bin/env bash
# ambrosia gives both groups the mean of their sizes when it tests a relative effect.
#
# Versions: ambrosia 0.5.3.post1, numpy 2.4.6, scipy 1.17.1, pandas 2.3.3, statsmodels 0.15.0.
# Guess before the run: without an effect, 5 % of the experiments have p < 0.05 and 95 % of the intervals hold
#     0, for relative effects as for absolute ones, however the traffic is split. (That it might not was
#     suspected after reading the source.)
# Seen: the variances of both groups are divided by the mean size. With 1,900 users and 100, relative
#     intervals are 2.3 times too short, 37 % of the experiments without an effect have p < 0.05, and 63 %
#     of the intervals hold the true value. With equal groups, and for absolute effects, all is well.
# For gyre: it tests no such effects. There, split the traffic evenly, or test absolute effects.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 scipy==1.17.1 pandas==2.3.3 \
    statsmodels==0.15.0 scikit-learn==1.9.1 joblib==1.6.0 pyyaml==6.0.4 tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps ambrosia==0.5.3.post1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
from ambrosia.tester import Tester
from scipy.stats import norm

EXPERIMENTS, MEAN, DEVIATION = 300, 10.0, 5.0
generator = np.random.default_rng(0)


def test_by_hand(a, b):
    """Return p-value and interval of the relative effect by the delta method."""
    effect = b.mean() / a.mean() - 1
    variance = b.var() / len(b) / a.mean() ** 2 + a.var() / len(a) * b.mean() ** 2 / a.mean() ** 4
    shift = norm.ppf(0.975) * np.sqrt(variance)
    return 2 * norm.sf(abs(effect) / np.sqrt(variance)), effect - shift, effect + shift


def test_by_ambrosia(a, b, effect_type):
    frame = pd.DataFrame({"value": np.concatenate([a, b]),
                          "group": np.repeat(["A", "B"], [len(a), len(b)])})
    tester = Tester(dataframe=frame, metrics="value", column_groups="group", first_type_errors=0.05)
    found = tester.run(effect_type, method="theory", criterion="ttest", as_table=False)[0]
    return (float(np.squeeze(found["pvalue"])), *np.ravel(found["confidence_interval"])[:2])


for sizes in ((1000, 1000), (1900, 100), (100, 1900)):
    results = {"absolute": [], "relative": [], "by hand": []}
    for _ in range(EXPERIMENTS):
        a, b = (generator.normal(MEAN, DEVIATION, size=size) for size in sizes)
        results["absolute"].append(test_by_ambrosia(a, b, "absolute"))
        results["relative"].append(test_by_ambrosia(a, b, "relative"))
        results["by hand"].append(test_by_hand(a, b))
    widths = {}
    for name, rows in results.items():
        p_values, low, high = np.array(rows).T
        positives, holds = np.mean(p_values < 0.05), np.mean((low <= 0) & (0 <= high))
        widths[name] = np.mean(high - low)
        print(f"{sizes[0]} and {sizes[1]}, {name}: p < 0.05 in {positives:.0%}, intervals hold 0 in "
              f"{holds:.0%}, mean width {widths[name]:.3f}")
        if name == "relative" and sizes[0] != sizes[1]:
            assert positives > 0.25 and holds < 0.75
        else:
            assert positives < 0.1 and holds > 0.9
    if sizes[0] == sizes[1]:
        assert np.isclose(widths["relative"], widths["by hand"], rtol=0.01)
    else:
        assert widths["relative"] < 0.5 * widths["by hand"]
PYTHON
