#!/usr/bin/env bash
# NLTK's weighted kappa of 0.89 becomes 0.57 if it is given the largest distance.
#
# Versions: nltk 3.10.3, scikit-learn 1.9.1, numpy 2.4.6.
# Guess before the run: `weighted_kappa(max_distance=9.0)`, with 9 the largest distance between two
#     grades, is scikit-learn's kappa with the same weights: it divides by what is expected by
#     chance, so that the unit of the distance makes no difference.
# Seen: only the disagreement by chance is divided by `max_distance`, the observed one is not: 1 -
#     kappa is multiplied by it. For grades of 1 to 5 and their difference as the distance, the
#     largest is 4: two raters with a kappa of 0.89 get 0.57, and two with 0.67 get -0.31, worse
#     than by chance. With distances in hundredths, the first two get 0.996. With 1, the default,
#     it is right, whatever the largest distance is.
# For gyre: it has no human ratings. There, leave `max_distance` out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile nltk==3.10.3 scikit-learn==1.9.1 \
    scipy==1.17.1 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
from nltk.metrics.agreement import AnnotationTask
from sklearn.metrics import cohen_kappa_score


def rate(seed, share_changed):
    """Return two raters' grades of 1 to 5 for 100 texts: some differ by one."""
    generator = np.random.default_rng(seed)
    first = generator.integers(1, 6, size=100)
    change = generator.choice([-1, 1], size=100) * (generator.random(100) < share_changed)
    return first, np.clip(first + change, 1, 5)


def measure(first, second, distance, largest=None):
    """Return NLTK's weighted kappa."""
    ratings = [("first", i, int(grade)) for i, grade in enumerate(first)]
    ratings += [("second", i, int(grade)) for i, grade in enumerate(second)]
    task = AnnotationTask(ratings, distance=distance)
    return task.weighted_kappa() if largest is None else task.weighted_kappa(max_distance=largest)


DISTANCES = {"linear": lambda a, b: abs(a - b), "quadratic": lambda a, b: (a - b)**2}
seen = {}
for share_changed in [0.2, 0.6]:
    first, second = rate(0, share_changed)
    assert set(first) == set(second) == {1, 2, 3, 4, 5}
    for weights, distance in DISTANCES.items():
        right = cohen_kappa_score(first, second, weights=weights)
        largest = distance(1, 5)
        default = measure(first, second, distance)
        kappa = measure(first, second, distance, largest)
        print(f"{share_changed:.0%} of the grades changed, {weights} weights: kappa {right:.3f}; "
              f"NLTK by default {default:.3f}, with max_distance={largest} {kappa:.3f}")
        assert abs(default - right) < 1e-9
        assert abs(kappa - (1 - largest * (1 - right))) < 1e-9
        seen[share_changed, weights] = right, kappa
assert seen[0.2, "linear"][0] > 0.85 and 0.4 < seen[0.2, "linear"][1] < 0.7
assert seen[0.6, "linear"][0] > 0.6 and seen[0.6, "linear"][1] < 0

# The same ratings, with distances in hundredths.
first, second = rate(0, 0.2)
hundredths = measure(first, second, lambda a, b: abs(a - b) / 100, 0.04)
print(f"with distances in hundredths and max_distance=0.04: {hundredths:.3f}")
assert hundredths > 0.99
PYTHON
