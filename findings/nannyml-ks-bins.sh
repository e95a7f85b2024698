#!/usr/bin/env bash
# nannyml's Kolmogorov-Smirnov statistic is 0 for any drift behind one outlier, "exact" or not.
#
# Versions: nannyml 0.13.1, numpy 2.4.6, pandas 3.1.1, scipy 1.17.1, python-dateutil 2.9.0.post0.
# Guess before the run: from 10,000 rows of reference on, the statistic is that of 10,000 bins
#     between quantiles, as the documentation says, within 0.01 of scipy's; with
#     `calculation_method` "exact" it is scipy's. (That it might not be was suspected after reading
#     the source.)
# Seen: the bins have equal widths from the smallest value to the largest one: with one value of a
#     million among 20,000 normal ones, all others are in one bin, the statistic of values shifted
#     by three deviations is 0.000 for 0.86, and there is no alert. Waiting times with a heavy tail
#     need no outlier: 0.07 for 0.43. "exact" and `n_bins`, given as in the documentation, are not
#     read: they are looked up one level too high.
# For gyre: it watches no data. There, give both levels at once: {"kolmogorov_smirnov": {},
#     "calculation_method": "exact"}.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 pandas==3.1.1 scipy==1.17.1 \
    python-dateutil==2.9.0.post0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps nannyml==0.13.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib
import importlib.metadata
import logging
import pathlib
import sys
import types

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp

# Import the methods without the packages around them, which need plotly, lightgbm and more.
root = pathlib.Path(importlib.metadata.distribution("nannyml").locate_file("nannyml"))
for name in ["nannyml", "nannyml.drift", "nannyml.drift.univariate"]:
    package = types.ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package
sys.modules["nannyml._typing"] = types.SimpleNamespace(Self=object)  # for annotations
sys.modules["nannyml.base"] = types.SimpleNamespace(_remove_nans=lambda values: values.dropna())
Statistic = importlib.import_module("nannyml.drift.univariate.methods").KolmogorovSmirnovStatistic
Chunker = importlib.import_module("nannyml.chunk").SizeBasedChunker
Threshold = importlib.import_module("nannyml.thresholds").StandardDeviationThreshold

logging.disable()
ROWS = 20000
DOCUMENTED = {"kolmogorov_smirnov": {"calculation_method": "exact", "n_bins": 1000}}
BOTH_LEVELS = {"kolmogorov_smirnov": {}, "calculation_method": "exact"}
generator = np.random.default_rng(0)
normal = generator.normal(size=ROWS)
outlier = np.append(normal[1:], 1e6)
waiting = 1 + generator.pareto(0.8, size=ROWS)
cases = {"normal values": (normal, generator.normal(size=2000) + 3),
         "the same and a million": (outlier, generator.normal(size=2000) + 3),
         "heavy tail": (waiting, 2 * (1 + generator.pareto(0.8, size=2000)))}


def measure(reference, current, options):
    """Return the statistic, whether there is an alert, and the method that was made."""
    method = Statistic(chunker=Chunker(2000), threshold=Threshold(), computation_params=options)
    method.fit(pd.Series(reference, name="values"))
    value = method.calculate(pd.Series(current, name="values"))
    return value, bool(method.alert(value)), method


for name, (reference, current) in cases.items():
    due = ks_2samp(reference, current).statistic
    print(f"{name}: scipy {due:.3f}")
    for label, options in [("default", {}), ("as documented", DOCUMENTED),
                           ("both levels", BOTH_LEVELS)]:
        value, alert, method = measure(reference, current, options)
        print(f"    {label}: {value:.3f}, alert {alert}, method {method.calculation_method}, "
              f"{method.n_bins} bins")
        if label == "both levels":
            assert method.calculation_method == "exact" and abs(value - due) < 1e-12 and alert
        else:
            assert method.calculation_method == "auto" and method.n_bins == 10000
            if name == "normal values":
                assert abs(value - due) < 0.01 and alert
            else:
                assert value < 0.1 and due > 0.4
    if name == "the same and a million":
        assert measure(reference, current, {})[0] < 0.001
        assert not measure(reference, current, {})[1]
PYTHON
