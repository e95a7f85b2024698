#!/usr/bin/env bash
# evidently's Mann-Whitney test finds values that rise and never values that fall.
#
# Versions: evidently 0.7.23, numpy 2.4.6, pandas 3.1.1, scipy 1.17.1.
# Guess before the run: as a test of drift it is two-sided, like the t-test and the
#     Kolmogorov-Smirnov test beside it, since nothing else is said: a mean that falls by one
#     deviation is drift. (That it might not be was suspected after reading the source.)
# Seen: scipy's test is called with "less" for reference and current data: a fall of any size has
#     p = 1 and no drift, and a rise half of the p-value that is due.
# For gyre: it watches no data. There, give a function with scipy's two-sided mannwhitneyu as the
#     test.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 pandas==3.1.1 scipy==1.17.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps evidently==0.7.23
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib
import importlib.metadata
import pathlib
import sys
import types

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu

# Import the tests without the packages around them, which need a web server and more.
tests = "evidently.legacy.calculations.stattests"
root = pathlib.Path(importlib.metadata.distribution("evidently").locate_file("evidently"))
names = tests.split(".")
for depth in range(1, len(names) + 1):
    package = types.ModuleType(".".join(names[:depth]))
    package.__path__ = [str(root.joinpath(*names[1:depth]))]
    sys.modules[package.__name__] = package
sys.modules["evidently.legacy.core"] = types.SimpleNamespace(
    ColumnType=types.SimpleNamespace(Categorical="cat", Numerical="num"))
sys.modules[tests + ".registry"] = types.SimpleNamespace(
    StatTest=types.SimpleNamespace, register_stattest=lambda test, default_impl: None)
modules = {"mannw": ("mann_whitney_urank_stattest", "_mannwhitneyu_rank"),
           "t_test": ("t_test", "_t_test2samp"), "ks": ("ks_stattest", "_ks_stat_test")}
found = {name: getattr(importlib.import_module(f"{tests}.{module}"), function)
         for name, (module, function) in modules.items()}

generator = np.random.default_rng(0)
reference = pd.Series(generator.normal(size=200))
for shift in [-10, -1, -0.5, 0.5, 1]:
    current = pd.Series(generator.normal(size=200) + shift)
    results = {name: test(reference, current, "num", 0.05) for name, test in found.items()}
    due = mannwhitneyu(reference, current).pvalue
    print(f"current values shifted by {shift}: "
          + ", ".join(f"{name} p = {p:.2g}, drift {bool(drift)}"
                      for name, (p, drift) in results.items()) + f"; two-sided {due:.2g} is due")
    p, drift = results["mannw"]
    assert due < 0.001 and results["t_test"][1] and results["ks"][1]
    if shift < 0:
        assert p > 0.99 and not drift
    else:
        assert abs(p / due - 0.5) < 0.01 and drift
PYTHON
