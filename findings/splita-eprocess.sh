#!/usr/bin/env bash
# splita's e-process multiplies e-values of the same data: without an effect it stops sooner or later.
#
# Versions: splita 0.1.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: `EProcess(alpha=0.05)`, whose "products of sequential e-values" are
#     "anytime-valid", stops in at most 5 % of experiments without an effect, however often it is
#     updated, with both of its methods. (Suspected after reading the source.)
# Seen: within 100 updates of 10 observations a group, "grapa" stops in 22 % and "universal" in 100 %
#     of the experiments; within 300, "grapa" in 33 %. With each batch's own e-value as factor, it is 2 %.
# Cause: each update multiplies by the e-value of all data so far, not by that of the new batch
#     (splita/sequential/safe_testing.py), so that a mean which is high once counts in all later
#     updates. The factor of "universal" is exp(z^2 / 4), whose mean is sqrt(2) without an effect, and
#     which is never below 1: its "e-process" cannot fall.
# For gyre: it has no sequential test. There, take EValue, which keeps to 5 %.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile splita==0.1.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

import numpy as np
from splita.sequential import EProcess, EValue

BATCH = 10
N_EXPERIMENTS = 300
N_UPDATES = 300


def first_stops(make):
    """Return the update at which each experiment stops, infinity if it does not."""
    stops = np.full(N_EXPERIMENTS, np.inf)
    for seed in range(N_EXPERIMENTS):
        generator = np.random.default_rng(seed)
        test = make()
        previous = 0.0
        for update in range(1, N_UPDATES + 1):
            state = test.update(generator.normal(size=BATCH), generator.normal(size=BATCH))
            if isinstance(test, EProcess) and test._method == "universal":
                assert state.log_e_value >= previous
                previous = state.log_e_value
            if state.should_stop:
                stops[seed] = update
                break
    return stops


class BatchProduct:
    """The product of one e-value a batch, with known variance: the mean of each factor is 1."""

    def __init__(self):
        self.log_e = 0.0

    def update(self, control, treatment):
        z = (np.mean(treatment) - np.mean(control)) / math.sqrt(2 / BATCH)
        self.log_e += 0.5 * math.log(0.8) + 0.2 * z ** 2 / 2
        self.should_stop = self.log_e >= math.log(20)
        return self


shares = {}
for name, make in [("grapa", lambda: EProcess(method="grapa")), ("universal", lambda: EProcess(method="universal")),
                   ("EValue", EValue), ("each batch's own", BatchProduct)]:
    stops = first_stops(make)
    shares[name] = [np.mean(stops <= n) for n in [20, 100, N_UPDATES]]
    print(f"{name}: stops without an effect within 20, 100, {N_UPDATES} updates: "
          + ", ".join(f"{share:.0%}" for share in shares[name]))
z = np.random.default_rng(0).normal(size=10 ** 6)
mean_factor = np.exp(z ** 2 / 4).mean()
print(f"mean factor of \"universal\" without an effect: {mean_factor:.2f}, due at most 1")
assert abs(mean_factor - math.sqrt(2)) < 0.02
assert shares["grapa"][0] > 0.06 and shares["grapa"][2] > 0.2
assert shares["universal"][0] > 0.4 and shares["universal"][1] > 0.98
assert max(shares["EValue"]) < 0.08 and max(shares["each batch's own"]) < 0.08
PYTHON
