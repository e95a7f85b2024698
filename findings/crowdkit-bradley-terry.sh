#!/usr/bin/env bash
# crowd-kit's Bradley-Terry scores are those after two iterations, whatever `n_iter` is.
#
# Versions: crowd-kit 1.4.2, numpy 2.4.6, pandas 2.3.3, scipy 1.17.1.
# Guess before the run: with n_iter=1000, the scores have the highest likelihood, within `tol`, which
#     is compared with their change. (That they might not was suspected after reading the source.)
# Seen: the scores of the iteration before are kept as a reference to the array that is overwritten.
#     Their change is 0 in the second iteration, which is the last: 2, 3 and 1,000 are the same. Of 12
#     models whose log-strengths reach from -2.0 to 2.1, they reach from -1.5 to 1.0, and the best beats
#     the weakest in 93 % of their games instead of 98 %. In two leagues with few games between them,
#     the best of three weak models is ahead of two strong ones. With tol=0, only `n_iter` ends the
#     iterations, and the scores are right.
# For gyre: it ranks no models by games. There, give tol=0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile crowd-kit==1.4.2 numpy==2.4.6 pandas==2.3.3 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import pandas as pd
from crowdkit.aggregation import BradleyTerry

MODELS, GAMES = 12, 4000
generator = np.random.default_rng(0)


def fit(wins):
    """Return the log-strengths with the highest likelihood, by 10,000 iterations of Hunter (2004)."""
    games, strengths = wins + wins.T, np.ones(len(wins))
    for _ in range(10_000):
        strengths = wins.sum(1) / (games / (strengths[:, None] + strengths)).sum(1)
        strengths /= strengths.mean()
    return center(np.log(strengths))


def center(values):
    """Return the values less their mean."""
    return values - np.mean(values)


def fit_by_crowdkit(wins, **options):
    """Return the same by crowd-kit."""
    rows = [(0, f"model {i:02}", f"model {j:02}", f"model {i:02}")
            for i, j in np.argwhere(wins) for _ in range(wins[i, j])]
    games = pd.DataFrame(rows, columns=["worker", "left", "right", "label"])
    return center(np.log(BradleyTerry(**options).fit_predict(games).sort_index().to_numpy()))


def count_wins(pairs, strengths):
    """Return how often each model beats each other one, in games of the pairs."""
    wins = np.zeros((len(strengths), len(strengths)), dtype=int)
    for i, j in pairs:
        first_wins = generator.random() < 1 / (1 + np.exp(strengths[j] - strengths[i]))
        wins[(i, j) if first_wins else (j, i)] += 1
    return wins


strengths = np.linspace(-2, 2, MODELS)
wins = count_wins([generator.choice(MODELS, 2, replace=False) for _ in range(GAMES)], strengths)
due = fit(wins)
found = fit_by_crowdkit(wins, n_iter=1000)
print("log-strengths by crowd-kit:", found.round(2))
print("highest likelihood:        ", due.round(2))
probabilities = [1 / (1 + np.exp(scores[0] - scores[-1])) for scores in (found, due)]
print(f"the last beats the first in {probabilities[0]:.1%} of games, where {probabilities[1]:.1%} are due")
for n_iter in (2, 3, 100):
    assert np.array_equal(found, fit_by_crowdkit(wins, n_iter=n_iter))
assert not np.allclose(found, fit_by_crowdkit(wins, n_iter=1), atol=0.1)
assert np.abs(due - fit_by_crowdkit(wins, n_iter=10_000, tol=0)).max() < 1e-6
assert np.ptp(found) < 0.7 * np.ptp(due)

# Two leagues: three weak models and three strong ones, with few games between the leagues.
strengths = np.array([-3.0, -2.5, -1.5, 1.5, 2.5, 3.0])
within = [pair for league in ((0, 1, 2), (3, 4, 5)) for pair in
          [(league[0], league[1]), (league[0], league[2]), (league[1], league[2])]]
wins = count_wins(within * 300 + [(2, 3)] * 60, strengths)
due, found = fit(wins), fit_by_crowdkit(wins, n_iter=1000)
print("two leagues, order by crowd-kit:", np.argsort(-found), "by likelihood:", np.argsort(-due))
assert np.argsort(-due)[0] == 5 and np.argsort(-found).tolist().index(2) < 3
PYTHON
