#!/usr/bin/env bash
# A comparison of weight 0 costs both models points in evalica's Elo, and one of weight 2 pays both.
#
# Version: evalica 0.4.2.
# Guess, written down after a first look: the weight of a comparison scales its update, as K does:
#     weight 0.5 moves both ratings half as far, weight 0 not at all, and their sum stays the same.
# Seen: the weight multiplies the result, but not the result that was expected. With weight 0.5, the
#     winner of two equal models gets nothing, the loser pays in full, and a draw costs both.
#     With weight 0 both lose as if both were beaten; with weight 2 a draw pays both. After 2,000
#     comparisons of weight 0.5 two models that began at 1000 stand near -1000. Who is compared
#     less often loses less, so a model that loses 3 of 4 can pass the one that it loses to.
#     Bradley-Terry does as guessed. (`k * (weight * win_weight - expected)`, in both solvers.)
# For gyre: it does not rate. With weights, use evalica's bradley_terry, or leave rows out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile evalica==0.4.2 numpy==2.4.6 pandas==3.1.1
"$folder/env/bin/python" - <<'PYTHON'
from evalica import Winner, bradley_terry, elo

WIN, LOSS, DRAW = Winner.X, Winner.Y, Winner.Draw


def rate(pairs, results, weight, function=elo, **options):
    """Return the scores of the models, all comparisons having one weight."""
    first = [pair[0] for pair in pairs]
    second = [pair[1] for pair in pairs]
    weights = [weight] * len(pairs)
    return function(first, second, results, weights=weights, **options).scores.to_dict()


for solver in ["pyo3", "naive"]:
    for weight, win, draw in [(1, (1002, 998), (1000, 1000)), (2, (1006, 998), (1002, 1002)),
                              (0.5, (1000, 998), (999, 999)), (0, (998, 998), (998, 998))]:
        won = rate(["ab"], [WIN], weight, solver=solver)
        drawn = rate(["ab"], [DRAW], weight, solver=solver)
        print(f"{solver}, weight {weight}: after a win {won}, after a draw {drawn}")
        assert won == dict(zip("ab", win)) and drawn == dict(zip("ab", draw))

N = 2000
results = [WIN, WIN, LOSS, WIN] * (N // 4)
full = rate(["ab"] * N, results, 1)
half = rate(["ab"] * N, results, 0.5)
half_k = rate(["ab"] * N, results, 1, k=2)
print(f"a wins 3 of 4, {N} comparisons: weight 1 {full}, K/2 {half_k}, weight 0.5 {half}")
assert abs(sum(full.values()) - 2000) < 1e-6 and abs(sum(half_k.values()) - 2000) < 1e-6
assert 150 < full["a"] - full["b"] < 230
assert max(half.values()) < -800
for weight in [0.5, 1, 2]:
    scores = rate(["ab"] * N, results, weight, function=bradley_terry)
    assert abs(scores["a"] / scores["b"] - 3) < 0.01

# c loses 3 of 4 against b. b is also compared with a, which is as good as b is.
pairs = ["bc"] * 4 + ["ab"] * 16
results = [WIN, WIN, LOSS, WIN] + [WIN, LOSS, LOSS, WIN] * 4
for weight in [1, 0.5]:
    scores = rate(pairs * 50, results * 50, weight)
    print(f"b wins 3 of 4 against c and half of those against a, weight {weight}: {scores}")
    assert (scores["b"] < scores["c"]) == (weight == 0.5)
PYTHON
