#!/usr/bin/env bash
# aligntune's calibration error is 0 if a model is sure and wrong half of the time.
#
# Versions: aligntune 0.1.28, torch 2.13.0.
# Guess before the run: by the docstring, "when the model is 70% confident in a preference, it
#     should be correct 70% of the time": the error of preferences that are drawn from the model's
#     own probabilities is about 0, and that of a model that is always sure, and wrong half of the
#     time, about 0.5. (The reverse was suspected after reading the source.)
# Seen: the confidence is the probability of the chosen response, whatever the model prefers, and a
#     pair is right if that is above 0.5: of each bin below, all are wrong, and of each above, all
#     are right. Drawn from the model's own probabilities, preferences have an error of 0.265, where
#     0.005 is right; of a model that is always sure, and wrong half of the time, it is 0.000, where
#     0.501 is right.
# For gyre: it has no such metric. There, take max(p, 1 - p) as the confidence.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps aligntune==0.1.28
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import os
import sys
import types

import numpy as np

# The packages import all modules, and thereby libraries that aren't needed here.
root = importlib.util.find_spec("aligntune").submodule_search_locations[0]
for name in ["aligntune", "aligntune.eval", "aligntune.eval.metrics"]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(root, *name.split(".")[1:])]
from aligntune.eval.metrics.dpo import CalibrationMetric

N_PAIRS = 20000
generator = np.random.default_rng(0)


def right_error(margins):
    # confidence in what the model prefers, and whether that is the chosen response
    confidences = 1 / (1 + np.exp(-np.abs(margins)))
    are_right = margins > 0
    bins = np.minimum((confidences * 10).astype(int), 9)
    error = 0.0
    for i in range(10):
        if (bins == i).any():
            error += (bins == i).mean() * abs(confidences[bins == i].mean()
                                              - are_right[bins == i].mean())
    return error


preferences = np.abs(generator.normal(0, 1.5, N_PAIRS))
# what is preferred is chosen with the probability that the model gives it
are_chosen = generator.random(N_PAIRS) < 1 / (1 + np.exp(-preferences))
signs = generator.choice([-1, 1], N_PAIRS)
cases = {
    "calibrated": np.where(are_chosen, preferences, -preferences),
    "sure, wrong half of the time": 20.0 * signs,
    "sure, always right": np.full(N_PAIRS, 20.0),
    "a little sure, always right": np.full(N_PAIRS, 0.5),
}
errors = {}
for name, margins in cases.items():
    pairs = [(float(margin), 0.0) for margin in margins]
    errors[name] = CalibrationMetric().compute(pairs, [])["calibration_error"]
    print(f"{name}: error {errors[name]:.3f}, by the definition {right_error(margins):.3f}")
assert errors["calibrated"] > 0.2 and right_error(cases["calibrated"]) < 0.02
wrong_half = "sure, wrong half of the time"
assert errors[wrong_half] < 0.01 and abs(right_error(cases[wrong_half]) - 0.5) < 0.01
PYTHON
