#!/usr/bin/env bash
# In openskill, weights of 1 for two single players double what the winner gains and halve the loss.
#
# Versions: openskill 6.2.0, numpy 2.4.6.
# Guess, written down after a first look: weights say how much each player of a team contributed.
#     Equal weights give the ratings that no weights give, the weight of a player without a team
#     changes nothing, and two equal players together keep their points.
# Seen: the weights of a team are scaled to the range from 1 to 2, so that 0.50 and 0.51 become 1
#     and 2, and the weight of a single player becomes 2, whatever it is. A gain is multiplied by
#     the weight and a loss divided by it: from 25 each, a win moves two players to 30.3 and 23.7
#     instead of 27.6 and 22.4. Ten equal players of mean 25 stand at 165 after 3,000 games, and
#     those who play three times as often as others are the first five, 8 above the rest. All five
#     models do so. Equal weights of players of one team become 1 and change nothing.
# For gyre: it does not rate. There, leave weights out for single players.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile openskill==6.2.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
from openskill.models import (BradleyTerryFull, BradleyTerryPart, PlackettLuce,
                              ThurstoneMostellerFull, ThurstoneMostellerPart)


def play(model, winner, loser, weights):
    """Return both players after the game; weights are a pair or None."""
    options = {} if weights is None else {"weights": [[weights[0]], [weights[1]]]}
    (winner,), (loser,) = model.rate([[winner], [loser]], **options)
    return winner, loser


def means(model, weights):
    return [player.mu for player in play(model, model.rating(), model.rating(), weights)]


for Model in [PlackettLuce, BradleyTerryFull, BradleyTerryPart, ThurstoneMostellerFull,
              ThurstoneMostellerPart]:
    model = Model()
    plain, ones = means(model, None), means(model, (1, 1))
    print(f"{Model.__name__}: without weights {plain[0]:.2f} and {plain[1]:.2f}, "
          f"with weights of 1 {ones[0]:.2f} and {ones[1]:.2f}")
    assert abs(sum(plain) - 50) < 1e-9
    assert abs(ones[0] - 25 - 2 * (plain[0] - 25)) < 1e-9
    assert abs(25 - ones[1] - (25 - plain[1]) / 2) < 1e-9
    assert means(model, (0.2, 5)) == means(model, (3, 0)) == ones


def team_means(weights):
    """Return the means of two teams of two after the first has won."""
    model = PlackettLuce()
    teams = [[model.rating(), model.rating()] for _ in range(2)]
    rated = model.rate(teams) if weights is None else model.rate(teams, weights=[weights] * 2)
    return [[round(player.mu, 2) for player in players] for players in rated]


for weights in [None, [1, 1], [0.5, 0.51], [1, 100]]:
    print(f"two teams of two, weights {weights}: {team_means(weights)}")
assert team_means([1, 1]) == team_means(None)
assert team_means([0.5, 0.51]) == team_means([1, 100]) != team_means(None)


def league(weights, often):
    """Return the means of ten equal players, of whom the first five play more often."""
    model = PlackettLuce()
    generator = np.random.default_rng(0)
    players = [model.rating() for _ in range(10)]
    share = np.repeat([often, 1], 5) / (5 * often + 5)
    for _ in range(3000):
        i, j = generator.choice(10, 2, replace=False, p=share)
        players[i], players[j] = play(model, players[i], players[j], weights)
    return np.array([player.mu for player in players])


for weights in [None, (1, 1)]:
    equal, uneven = league(weights, 1), league(weights, 3)
    print(f"weights {weights}: mean {equal.mean():.1f}; of those who play three times as often "
          f"{uneven[:5].mean():.1f}, of the others {uneven[5:].mean():.1f}")
    inflated = weights is not None
    assert (equal.mean() > 150) == inflated
    assert (uneven[:5].min() > uneven[5:].max()) == inflated
    assert (uneven[:5].mean() - uneven[5:].mean() > 5) == inflated

# Scaled to a range of no width, weights change nothing.
model = PlackettLuce(weight_bounds=(1.0, 1.0))
assert means(model, (1, 1)) == means(model, None)
PYTHON
