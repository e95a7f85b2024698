#!/usr/bin/env bash
# errorbars has p = 1 where one model is better by the same amount on each question.
#
# Versions: errorbars 0.2.4, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: a model that is right on all of 50 questions and one that is wrong on all have a
#     p-value near 0, and are not in one group of the leaderboard. (That p is 1 had been read in the
#     source.)
# Seen: p = 1 with an interval from 1 to 1, and both models are in one group that is "not significantly
#     different"; McNemar's exact p-value in the same result is 2e-15. With graded scores, a model that is
#     better by 0.25 on each question has p = 1, and one that is better by 0.1 has p = 0, as sums of
#     rounded numbers are never quite equal. If one of the 50 questions differs, p is 3e-43 instead of 1.
# Cause: `paired_compare` sets the p-value to 1 if the standard error is 0, whatever the difference is
#     (errorbars/compare.py), and the leaderboard takes it (errorbars/leaderboard.py).
# For gyre: it scores no answers. There, look at the interval, or at McNemar's test.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile errorbars==0.2.4 numpy==2.4.6 scipy==1.17.1
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import csv

import numpy as np
from errorbars.compare import paired_compare
from errorbars.io import load_csv
from errorbars.leaderboard import build_leaderboard
from scipy import stats

N_QUESTIONS = 50

right, wrong = np.ones(N_QUESTIONS), np.zeros(N_QUESTIONS)
result = paired_compare(right, wrong)
print(f"all right against none: difference {result.mean_diff}, interval {result.ci_low} to {result.ci_high}, "
      f"p {result.p_value}, McNemar {result.mcnemar.p_value:.1e}")
assert result.p_value == 1 and result.ci_low == 1 and result.mcnemar.p_value < 1e-14

nearly = right.copy()
nearly[0] = 0
result = paired_compare(nearly, wrong)
print(f"all but one against none: p {result.p_value:.1e}")
assert result.p_value < 1e-30

with open("scores.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["question_id", "model", "score"])
    for question in range(N_QUESTIONS):
        writer.writerows([f"q{question}", model, int(score)]
                         for model, score in [("right", 1), ("nearly", nearly[question]), ("wrong", 0)])
board = build_leaderboard(load_csv("scores.csv"))
print("models that do not differ:", board.groups)
assert ["right", "wrong"] in board.groups and ["nearly", "wrong"] not in board.groups

p_values = {}
scores = np.random.default_rng(0).integers(0, 3, N_QUESTIONS) / 4
for better_by in [0.25, 0.1]:
    p_values[better_by] = paired_compare(scores + better_by, scores).p_value
    signs = stats.wilcoxon(np.full(N_QUESTIONS, better_by)).pvalue
    print(f"better by {better_by} on each question: p {p_values[better_by]:.1g}, by signed ranks {signs:.0e}")
assert p_values[0.25] == 1 and p_values[0.1] == 0
PYTHON
