#!/usr/bin/env bash
# scoringrules's CRPS of a hypergeometric distribution lacks the counts above that of black balls.
#
# Versions: scoringrules 0.10.0, numpy 2.4.6, scipy 1.17.1.
# Guess, written after the first run: `crps_hypergeometric(y, m, n, k)`, for k draws from m white
#     balls and n black ones, is the integral of the squared distance between the distribution
#     function and the step at y.
# Seen: the sum has the terms from 0 to n, the number of black balls, instead of those up to k. With
#     13 white balls, 5 black ones and 12 draws, of which 7 at least are white, each observation has
#     a score of 0, which is perfect. With 40, 8 and 10, the true forecast has a mean of 0.33, where
#     0.58 is due, and one of 60 white balls wins with 0.18, where 0.65 is due. If n is not below
#     k, all is right, and so is `logs_hypergeometric`.
# For gyre: it predicts no counts. There, take `logs_hypergeometric`, or integrate by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scoringrules==0.10.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import scoringrules
from scipy.stats import hypergeom


def compute(observed, white, black, draws):
    """Return the CRPS as the sum of the squared distances at the whole numbers."""
    counts = np.arange(draws)
    cumulative = hypergeom(white + black, white, draws).cdf(counts)
    return np.square(cumulative - (counts >= observed)).sum()


def average(score, truth, forecast):
    """Return the expected score of a forecast for outcomes of a true distribution."""
    white, black, draws = truth
    counts = np.arange(draws + 1)
    weights = hypergeom(white + black, white, draws).pmf(counts)
    return sum(weight * float(score(int(count), *forecast))
               for count, weight in zip(counts, weights) if weight > 0)


for black in (20, 12, 8, 5):
    case = 13, black, 12
    scores = [float(scoringrules.crps_hypergeometric(count, *case)) for count in (8, 10, 12)]
    due = [compute(count, *case) for count in (8, 10, 12)]
    print(f"13 white, {black} black, 12 draws, 8, 10 and 12 observed: {np.round(scores, 3)}, "
          f"where {np.round(due, 3)} is due")
    if black >= 12:
        assert np.allclose(scores, due)
    if black == 5:
        assert max(scores) < 1e-6 and min(due) > 0.1
truth = 40, 8, 10
scores, due = {}, {}
for forecast in (truth, (60, 8, 10)):
    scores[forecast] = average(scoringrules.crps_hypergeometric, truth, forecast)
    due[forecast] = average(compute, truth, forecast)
    logarithmic = average(scoringrules.logs_hypergeometric, truth, forecast)
    print(f"40 white, 8 black, 10 draws, forecast of {forecast[0]} white: mean "
          f"{scores[forecast]:.3f}, where {due[forecast]:.3f} is due; logarithmic score "
          f"{logarithmic:.3f}")
    exact = -hypergeom(forecast[0] + 8, forecast[0], 10).logpmf(np.arange(2, 11))
    weights = hypergeom(48, 40, 10).pmf(np.arange(2, 11))
    assert abs(logarithmic - weights @ exact) < 1e-6
assert due[truth] < due[60, 8, 10] - 0.05 and scores[60, 8, 10] < scores[truth] - 0.1
PYTHON
