#!/usr/bin/env bash
# DeepHyper's successive halving comes too early if a run is to have several steps first.
#
# Versions: deephyper 0.13.2, numpy 2.4.6.
# Guess before the run: as the docstring says, with `min_steps=10` and a factor of 3, runs are
#     compared after 10, 30 and 90 steps, each a third of a longer one. (That they might not be was
#     suspected after reading the source.)
# Seen: after 10, 12, 18, 36 and 90 steps: the powers of 3 are added to 9 instead of multiplied by
#     10. After 18 steps, a run has to be in the best third three times already, which the docstring
#     has after 90. Of 60 runs with level curves, 14 are stopped at step 12, two steps after they
#     were among the best third; with budgets in units of 10 steps, the same 14 runs are stopped at
#     step 30.
# For gyre: its studies run all steps. There, count budgets in units of `min_steps`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile deephyper==0.13.2 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import collections

import numpy as np
from deephyper.evaluator import RunningJob
from deephyper.evaluator.storage import MemoryStorage
from deephyper.stopper import SuccessiveHalvingStopper

N_STEPS = 100
N_RUNS = 60


def search(steps_per_unit, min_steps, curve):
    """Return the number of steps of each run, one after the other.

    The stopper sees a budget of step / steps_per_unit.
    """
    storage = MemoryStorage()
    search_id = storage.create_new_search()
    n_steps = []
    for run in range(N_RUNS):
        stopper = SuccessiveHalvingStopper(max_steps=N_STEPS / steps_per_unit, min_steps=min_steps,
                                           reduction_factor=3)
        job = RunningJob(id=storage.create_new_job(search_id), parameters={}, storage=storage,
                         stopper=stopper)
        stopper.job = job
        for step in range(1, N_STEPS + 1):
            job.record(step / steps_per_unit, curve(run, step))
            if job.stopped():
                break
        n_steps.append(step)
    return n_steps


quality = np.random.default_rng(0).permutation(N_RUNS) / N_RUNS
level = search(1, 10, lambda run, step: quality[run])
print(f"level curves: runs by their number of steps {sorted(collections.Counter(level).items())}")
units = search(10, 1, lambda run, step: quality[run])
print(f"budgets in units of 10 steps: {sorted(collections.Counter(units).items())}")

assert sorted(set(level)) == [10, 12, 18, 36, 100]
assert sorted(set(units)) == [10, 30, 90, 100]
assert sum(n == 12 for n in level) == sum(n == 30 for n in units) == 14

PYTHON
