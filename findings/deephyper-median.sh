#!/usr/bin/env bash
# DeepHyper's MedianStopper compares first steps with last ones, and stops good runs at step 1.
#
# Versions: deephyper 0.13.2, numpy 2.4.6.
# Guess before the run: a run is compared with others at its own step, so that of runs in random
#     order the better half goes on, whatever the shape of the curves. (That it might not be was
#     suspected after reading the source.)
# Seen: as long as fewer than `min_competing` runs, 10 by default, have been seen, each writes the
#     value of each of its steps to the place of the first step: its last value stays there. The
#     tenth run is compared at step 1 with nine runs of 20 steps, and stopped, and so are those
#     after it until as many have been stopped as were finished. In a random search with curves of
#     one shape, runs 10 to 27 are all stopped at step 1; one of them is the sixth best of all 40.
#     With level curves, all that are stopped are of the worse half.
# For gyre: its studies run all steps. There, begin with `min_competing=0`, or stop by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile deephyper==0.13.2 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import tempfile

from deephyper.hpo import HpProblem, RandomSearch
from deephyper.stopper import MedianStopper

N_RUNS = 40
N_STEPS = 20
problem = HpProblem()
problem.add_hyperparameter((0.0, 1.0), "quality")


def search(slope, **options):
    """Return quality and number of steps of each run, in order."""
    runs = []

    def train(job):
        quality = job.parameters["quality"]
        for step in range(1, N_STEPS + 1):
            job.record(step, quality - slope / step)
            if job.stopped():
                break
        runs.append((quality, step))
        return job.objective

    stopper = MedianStopper(max_steps=N_STEPS, **options)
    folder = tempfile.mkdtemp(dir=".")
    RandomSearch(problem, random_state=0, log_dir=folder, stopper=stopper).search(train, N_RUNS)
    return runs


def describe(name, runs):
    stopped = [i + 1 for i, (_, step) in enumerate(runs) if step == 1]
    ranks = sorted((quality for quality, _ in runs), reverse=True)
    best = min(ranks.index(runs[i - 1][0]) + 1 for i in stopped)
    print(f"{name}: stopped at step 1: runs {stopped}; "
          f"the best of them is number {best} of {N_RUNS}")
    return stopped, best


stopped, best = describe("curves that rise", search(slope=2.0))
assert stopped[:18] == list(range(10, 28)) and best < 10
_, best = describe("level curves", search(slope=0.0))
assert best > 20
_, best = describe("curves that rise, min_competing=0", search(slope=2.0, min_competing=0))
assert best > 20
PYTHON
