#!/usr/bin/env bash
# curriculus' `best_effort` spends a short dataset long before the end of the training.
#
# Version: curriculus 0.1.6.
# Guess before the run: it "reduces the dataset's sampling probability to make it last", as documented: a dataset of 100
#     that is due in half of 1,000 steps is a tenth of the steps, from the first to the last.
# Seen: it is a sixth of the steps, and used up after about 600: the last 400 have none. Due for 90 % of the steps, it
#     is half of them, and used up after about 200. With enough data, and with `oversampling`, the shares are those of the
#     schedule.
# Cause: the weight is multiplied by what there is over what is due, and then all weights are divided by their sum, which
#     has become smaller (curriculus/planner.py, `_calculate_budget_factors`; dataset.py, `_get_current_weights`). No issue
#     was found.
# For gyre: it takes each text once, in one order. There, write the shares that the sizes allow into the schedule.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile curriculus==0.1.6
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

from curriculus import Curriculus

N_STEPS, N_RUNS = 1000, 20


def run(size, share, **options):
    """Return the mean share of the short dataset among the first 100 steps, and the mean place of its last example."""
    shares, ends = [], []
    for seed in range(N_RUNS):
        datasets = [{"name": "short", "dataset": [{"short": True}] * size}, {"name": "long", "dataset": [{"short": False}] * N_STEPS}]
        schedule = [(place, {"short": share, "long": 1 - share}) for place in (0.0, 1.0)]
        with contextlib.redirect_stdout(io.StringIO()):
            steps = [example["short"] for example in Curriculus(datasets, schedule, total_steps=N_STEPS, seed=seed, **options)["train"]]
        assert len(steps) == N_STEPS
        shares.append(sum(steps[:100]) / 100)
        ends.append(N_STEPS - steps[::-1].index(True))
    return sum(shares) / N_RUNS, sum(ends) / N_RUNS


for size, share, options in [(100, 0.5, {}), (100, 0.9, {}), (100, 0.5, {"oversampling": True}), (600, 0.5, {})]:
    found, end = run(size, share, **options)
    due = min(share, size / N_STEPS)
    print(f"{size} examples, due in {share:.0%} of {N_STEPS} steps, {options}: {found:.1%} of the first 100 steps, "
          f"the last one in step {end:.0f}")
    if options or size > share * N_STEPS:
        assert abs(found - share) < 0.05 and end > 980
    else:
        scaled = size / (share * N_STEPS) * share
        assert abs(found - scaled / (scaled + 1 - share)) < 0.04
        assert found > 1.5 * due and end < 700
PYTHON
