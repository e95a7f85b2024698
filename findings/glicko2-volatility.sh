#!/usr/bin/env bash
# glicko2 takes a player's rating for the deviation where it finds the volatility.
#
# Versions: glicko2 2.1.0.
# Guess before the run: after a period of games, rating, deviation and volatility are those of Glickman's paper, and
#     only differences of ratings count: with 500 more for all players, the same games change them as much.
#     (Suspected after reading the source.)
# Seen: the function whose zero is the volatility has the square of the rating for that of the deviation. In the paper's
#     example, that changes the volatility by 3e-6 only. After 90 wins in 100 games between equals of 1500, it is
#     0.144 for 0.062, and the rating rises by 201 for 191; between equals of 2000 or 2500, it stays at 0.060. After 40
#     losses against players 400 below, it is 1.3 at 1500, as is due, and 0.060 at 2000 and 2500, where 1.2 is due: the
#     rating falls from 2500 to 2078 for a due 894.
# For gyre: it rates no models. There, take another package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile glicko2==2.1.0
"$folder/env/bin/python" - <<'PYTHON'
from math import exp, log, pi, sqrt

from glicko2 import Player

SCALE, TAU = 173.7178, 0.5


def seen(rating, deviation, volatility, games):
    player = Player(rating, deviation, volatility)
    player.update_player(*(list(values) for values in zip(*games)))
    return player.rating, player.rd, player.vol


def right(rating, deviation, volatility, games):
    """Return rating, deviation and volatility after the games, by the paper; the zero is found by bisection."""
    mu, phi = (rating - 1500) / SCALE, deviation / SCALE
    variance = difference = 0
    for other, other_deviation, score in games:
        weight = 1 / sqrt(1 + 3 * (other_deviation / SCALE) ** 2 / pi**2)
        expected = 1 / (1 + exp(-weight * (mu - (other - 1500) / SCALE)))
        variance += weight**2 * expected * (1 - expected)
        difference += weight * (score - expected)
    variance = 1 / variance
    delta, start = variance * difference, log(volatility**2)

    def slope(x):
        total = phi**2 + variance + exp(x)
        return exp(x) * (delta**2 - total) / (2 * total**2) - (x - start) / TAU**2

    low, high = start - 10, start + 10
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    volatility = exp(low / 2)
    phi = 1 / sqrt(1 / (phi**2 + volatility**2) + 1 / variance)
    return SCALE * (mu + phi**2 * difference) + 1500, SCALE * phi, volatility


example = (1500, 200, 0.06), [(1400, 30, 1), (1550, 100, 0), (1700, 300, 0)]
print("example of the paper:", seen(*example[0], example[1]), "right", right(*example[0], example[1]))
due = right(*example[0], example[1])
assert abs(due[0] - 1464.06) < 0.02 and abs(due[1] - 151.52) < 0.01 and abs(due[2] - 0.05999) < 1e-5
volatilities = {}
for name, below, n_games, n_wins in (("70 wins in 100", 0, 100, 70), ("90 wins in 100", 0, 100, 90),
                                     ("40 losses against 400 below", 400, 40, 0)):
    for rating in (1500, 2000, 2500):
        games = [(rating - below, 30, int(game < n_wins)) for game in range(n_games)]
        got, due = seen(rating, 50, 0.06, games), right(rating, 50, 0.06, games)
        volatilities[name, rating] = got[2], due[2]
        print(f"{name} at {rating}: rating {got[0]:.0f}, right {due[0]:.0f}; deviation {got[1]:.1f}, right "
              f"{due[1]:.1f}; volatility {got[2]:.4f}, right {due[2]:.4f}")
for (name, rating), (got, due) in volatilities.items():
    assert abs(due - volatilities[name, 1500][1]) < 1e-9
    if rating > 1500:
        assert got < 0.0601 < due
assert volatilities["90 wins in 100", 1500][0] > 2 * volatilities["90 wins in 100", 1500][1]
assert volatilities["40 losses against 400 below", 2500][1] > 1
PYTHON
