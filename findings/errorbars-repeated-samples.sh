#!/usr/bin/env bash
# errorbars counts each sample of a question as a question: error bars of evaluations are too short.
#
# Versions: errorbars 0.2.4, numpy 2.4.6.
# Guess before the run: with a `sample` column, which "marks repeated generations of the same question",
#     the interval of a model's mean is that of the means of its questions, and holds the expected score
#     in 95 % of evaluations. (Suspected after reading the source.)
# Seen: with 50 questions and 10 samples each, `leaderboard` and `summarize` count 500 questions: the 95
#     % intervals of the leaderboard hold the expected score in 58 % of evaluations. A model that always
#     answers the same has an interval that is 3.2 times shorter with each answer written down ten
#     times. Pairwise tests take means of questions, and are right.
# Cause: `mean_ci_clt` takes all scores as independent (errorbars/leaderboard.py, errorbars/cli.py), and
#     where no cluster column is given, a question's own samples are no cluster (`_has_clusters`).
# For gyre: it samples no answers. There, average the samples of each question first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile errorbars==0.2.4 numpy==2.4.6
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import csv
import json
import subprocess
import sys

import numpy as np
from errorbars.io import load_csv
from errorbars.leaderboard import build_leaderboard

N_QUESTIONS, N_EVALUATIONS = 50, 200


def write(scores):
    """Write the scores of each model, (questions, samples)."""
    with open("scores.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question_id", "model", "score", "sample"])
        for model, table in scores.items():
            for question, row in enumerate(table):
                for sample, score in enumerate(row):
                    writer.writerow([f"q{question}", model, int(score), sample])


def summarize():
    command = [sys.executable, "-m", "errorbars.cli", "summarize", "scores.csv", "--model", "a", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


coverage = {}
for n_samples in [1, 10]:
    covered, covered_due = [], []
    for seed in range(N_EVALUATIONS):
        generator = np.random.default_rng(seed)
        # questions are easy or hard: the share of right answers to each is drawn from Beta(0.5, 0.5)
        scores = {name: generator.random((N_QUESTIONS, n_samples)) < generator.beta(0.5, 0.5, (N_QUESTIONS, 1))
                  for name in "ab"}
        write(scores)
        board = build_leaderboard(load_csv("scores.csv"))
        entry = next(entry for entry in board.entries if entry.model == "a")
        assert entry.n == N_QUESTIONS * n_samples
        covered.append(entry.ci_low < 0.5 < entry.ci_high)
        means = scores["a"].mean(axis=1)
        covered_due.append(abs(means.mean() - 0.5) < 2.01 * means.std(ddof=1) / np.sqrt(N_QUESTIONS))
    coverage[n_samples] = np.mean(covered), np.mean(covered_due)
    print(f"{n_samples} samples of {N_QUESTIONS} questions: 95 % intervals hold the expected score in "
          f"{coverage[n_samples][0]:.0%} of evaluations, those of the questions' means in {coverage[n_samples][1]:.0%}")
assert coverage[1][0] > 0.9 and min(due for _, due in coverage.values()) > 0.9
assert coverage[10][0] < 0.7

answers = np.random.default_rng(0).random((N_QUESTIONS, 1)) < 0.5
widths = []
for n_samples in [1, 10]:
    table = np.repeat(answers, n_samples, axis=1)
    write({"a": table, "b": ~table})
    summary = summarize()
    widths.append(summary["ci_high"] - summary["ci_low"])
    print(f"a model that always answers the same, {n_samples} samples: n {summary['n']}, "
          f"{summary['ci_low']:.3f} to {summary['ci_high']:.3f}, clustered: {summary.get('clustered')}")
    assert "clustered" not in summary
assert 3 < widths[0] / widths[1] < 3.3
PYTHON
