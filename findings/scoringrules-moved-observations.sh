#!/usr/bin/env bash
# scoringrules moves the given observations when it scores an exponential forecast.
#
# Versions: scoringrules 0.10.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: a score leaves its arguments as they are: `crps_exponentialM` gives the same
#     for the same forecast twice. (That it might not was suspected after reading the source.)
# Seen: the location is subtracted from the caller's array. The second call scores other
#     observations, in silence, and so does each score of another forecast after it: of the true
#     forecast and one whose location is 0.5 too high, the one that comes first has its score, and
#     the other has 2.1 for 0.6 or 0.5. `logs_exponential2` does the same; five scores of other
#     distributions leave their arguments alone.
# For gyre: it predicts no distributions. There, give a copy.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile scoringrules==0.10.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import scoringrules

LOCATION, MASS = 2.0, 0.2
generator = np.random.default_rng(0)
samples = 2000
waits = np.where(generator.random(samples) < MASS, 0, generator.exponential(size=samples))


def make_observations():
    """Return waiting times of 2, with a probability of 0.2, or 2 plus an exponential time."""
    return LOCATION + waits


def compute(observed, location):
    """Return the mean CRPS by the energy form, from 2,000 quantiles of the forecast."""
    levels = (np.arange(2000) + 0.5) / 2000
    quantiles = location - np.log1p(-np.maximum(levels - MASS, 0) / (1 - MASS))
    ranks = 2 * levels - 1
    return np.abs(observed[:, None] - quantiles).mean() - (ranks * quantiles).mean()


def score(observed, location):
    return scoringrules.crps_exponentialM(observed, MASS, location).mean()


due = {location: compute(make_observations(), location) for location in (2.0, 2.5)}
for order in [(2.0, 2.5), (2.5, 2.0)]:
    observed = make_observations()
    first, second = [score(observed, location) for location in order]
    shifted = compute(make_observations() - order[0], order[1])
    print(f"location {order[0]} has {first:.3f}, then {order[1]} has {second:.3f}, where "
          f"{due[order[0]]:.3f} and {due[order[1]]:.3f} are due; observations begin at "
          f"{observed.min():.1f} now")
    assert abs(first - due[order[0]]) < 0.002 and abs(second - shifted) < 0.002
    assert second > due[order[1]] + 1
    assert np.allclose(observed, make_observations() - sum(order))

observed = make_observations() + 0.1
copy = observed.copy()
scores = [scoringrules.logs_exponential2(observed, LOCATION, 1.0) for _ in range(2)]
print(f"logs_exponential2, called twice: {[float(values.mean()) for values in scores]}")
assert np.allclose(scores[0], copy - LOCATION) and np.isinf(scores[1]).any()
copy = make_observations()
observed = copy.copy()
for name in ("crps_logistic", "crps_normal", "crps_laplace", "logs_normal", "logs_laplace"):
    getattr(scoringrules, name)(observed, LOCATION, 1.0)
assert np.array_equal(observed, copy)
PYTHON
