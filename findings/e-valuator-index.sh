#!/usr/bin/env bash
# e-valuator stops next to no trajectory if the rows come from `pd.concat`, and the wrong ones if they are sorted.
#
# Versions: e-valuator 1.0.0, pandas 2.3.3, numpy 2.4.6, scikit-learn 1.9.1, scipy 1.17.1.
# Guess before the run: `apply` gives each row the e-value of its trajectory up to its step, whatever the index of
#     the frame is. (Suspected after reading the source.)
# Seen: it takes the label of a row for its position. Where trajectories are joined without `ignore_index`, so that each
#     begins at 0, all e-values are written to the first few rows, and the others have none: they are below each
#     threshold, and no trajectory but the first is ever stopped. Where the rows were sorted by step, each gets the
#     e-value of another row: 75 % of the solved trajectories are stopped, where 1 % is due. With a filtered frame,
#     it raises.
# For gyre: it judges no trajectories. There, call `reset_index(drop=True)` before `apply`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile e-valuator==1.0.0 pandas==2.3.3 numpy==2.4.6 scikit-learn==1.9.1 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
from evaluator import EValuator

N_STEPS, REJECT = 5, "reject_PAC_alpha_0_1"
generator = np.random.default_rng(0)


def trajectory(name, solved):
    """Return the steps of a trajectory, whose scores are higher where it solves its problem."""
    scores = generator.normal(0.6 if solved else 0.4, 0.15, N_STEPS).tolist()
    return pd.DataFrame({"uq_problem_idx": name, "num_steps": range(1, N_STEPS + 1), "solved": int(solved),
                         "judge_probability_series": [scores[:step] for step in range(1, N_STEPS + 1)]})


calibration = pd.concat([trajectory(f"c{i}", i % 2 == 0) for i in range(600)], ignore_index=True)
evaluator = EValuator(alphas=[0.1])
evaluator.fit(calibration)
joined = pd.concat([trajectory(f"t{i}", i % 2 == 0) for i in range(300)])
plain = joined.reset_index(drop=True)
right = evaluator.apply(plain)
key = ["uq_problem_idx", "num_steps"]


def stopped(frame):
    """Return the shares of solved and of unsolved trajectories that are stopped at one of their steps."""
    ends = frame.groupby("uq_problem_idx").agg({REJECT: "any", "solved": "first"})
    return ends[REJECT][ends.solved == 1].mean(), ends[REJECT][ends.solved == 0].mean()


shares = {}
for name, frame in (("fresh index", plain), ("joined", joined), ("sorted by step", plain.sort_values("num_steps"))):
    result = evaluator.apply(frame)
    both = right.merge(result, on=key, suffixes=("_right", ""))
    same = np.isclose(both.PAC_e_val_right, both.PAC_e_val).mean()
    shares[name] = stopped(result)
    print(f"{name}: stopped {shares[name][0]:.0%} of the solved, {shares[name][1]:.0%} of the unsolved; {same:.0%} of "
          f"the rows have their e-value, {result.PAC_e_val.isna().mean():.1%} none")
assert shares["fresh index"][0] < 0.12 and shares["fresh index"][1] > 0.5
assert max(shares["joined"]) < 0.02
assert abs(np.subtract(*shares["sorted by step"])) < 0.15 and shares["sorted by step"][0] > 0.3
try:
    evaluator.apply(plain[plain.num_steps > 1])
except IndexError as error:
    print("filtered:", error)
else:
    raise AssertionError
PYTHON
