#!/usr/bin/env bash
# iaa-kit's AC2 is Cohen's weighted kappa, 10 stands between 1 and 2, and ordinal alpha takes the numbers.
#
# Versions: iaa-kit 0.1.2; beside it krippendorff 0.8.1, scikit-learn 1.7.0 (NumPy 2.3.1, Python 3.11).
# Guess before the run: AC2 is high like AC1 where nearly all ratings are the same, weighted kappa takes
#     numbers in their order, and alpha is Krippendorff's, with ordinal ranks and missing ratings.
#     (Suspected after reading the source.)
# Seen: `ac2` calls the kappa: for 100 pairs of which 95 are 3 and 3 and the others next to it, AC1 is
#     0.95 and `ac2` -0.006, the kappa that Gwet's coefficients are to replace; AC2 is 0.98. Labels are
#     sorted by their `repr`, so that on a scale to 10 the order is 1, 10, 2: for ratings that differ by
#     1 at most, the quadratic kappa is 0.73 for 0.96. Alpha's "ordinal" is its "interval", so that it
#     changes with the numbers of the categories: 0.76 and 0.65 for the same order. Items count by their
#     pairs of raters, not by their raters: 0.09 for 0.23 if half the items have six raters, who agree
#     less, and half two. "nominal" and "interval" without missing ratings are right.
# For gyre: nothing. For agreement between raters, take `krippendorff`; AC2 is the few lines below.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --only-binary :all: iaa-kit==0.1.2 krippendorff==0.8.1 \
    scikit-learn==1.7.0 numpy==2.3.1
"$folder/env/bin/python" - <<'PYTHON'
import iaa_kit
import krippendorff
import numpy as np
from sklearn.metrics import cohen_kappa_score

draws = np.random.default_rng(0)


def compute_ac2(left, right, labels):
    """Return Gwet's AC2 with linear weights."""
    places = np.arange(len(labels))
    weights = 1 - abs(places[:, None] - places) / (len(labels) - 1)
    agreed = np.mean([weights[labels.index(a), labels.index(b)] for a, b in zip(left, right)])
    shares = np.array([(left.count(label) + right.count(label)) / (2 * len(left)) for label in labels])
    chance = weights.sum() / (len(labels) * (len(labels) - 1)) * (shares * (1 - shares)).sum()
    return (agreed - chance) / (1 - chance)


left = [3] * 95 + [1, 2, 4, 5, 3]
right = [3] * 95 + [3, 3, 3, 3, 2]
seen = iaa_kit.ac2(left, right)
due = compute_ac2(left, right, [1, 2, 3, 4, 5])
print(f"AC1 {iaa_kit.ac1(left, right):.3f}, AC2 {seen:.3f}, due {due:.3f}")
assert iaa_kit.ac1(left, right) > 0.9 and due > 0.95
assert seen == iaa_kit.weighted_kappa(left, right) < 0.01

truth = draws.integers(1, 11, 1000)
left = [int(rating) for rating in truth]
right = [int(rating) for rating in np.clip(truth + draws.integers(-1, 2, 1000), 1, 10)]
seen = iaa_kit.weighted_kappa(left, right, "quadratic")
due = cohen_kappa_score(left, right, weights="quadratic")
print(f"quadratic kappa of ratings from 1 to 10: {seen:.3f}, due {due:.3f}")
assert seen < 0.75 and due > 0.95
letters = [["ABCDEFGHIJ"[rating - 1] for rating in ratings] for ratings in (left, right)]
assert abs(iaa_kit.weighted_kappa(*letters, "quadratic") - due) < 1e-9

ratings = np.clip(draws.integers(1, 6, (300, 1)) + draws.integers(-1, 2, (300, 3)), 1, 5)
seen = []
for name, table in [("1 to 5", ratings), ("3, 7, 20, 55, 148", np.exp(ratings).round())]:
    for level in ("nominal", "ordinal", "interval"):
        value = iaa_kit.alpha_value(table.tolist(), level)
        due = krippendorff.alpha(reliability_data=table.T, level_of_measurement=level)
        print(f"{level} alpha of ratings of {name}: {value:.3f}, due {due:.3f}")
        if level == "ordinal":
            seen.append(value)
            assert abs(due - 0.758) < 0.001
        else:
            assert abs(value - due) < 1e-9
assert abs(seen[0] - seen[1]) > 0.1

truth = draws.integers(0, 2, 300)
rows = []
for item, value in enumerate(truth):
    n_raters, hit_rate = (2, 0.95) if item < 150 else (6, 0.6)
    hits = draws.random(n_raters) < hit_rate
    rows.append([int(value if hit else 1 - value) for hit in hits] + [None] * (6 - n_raters))
table = np.array(rows, dtype=float)
seen = iaa_kit.alpha_value(rows)
due = krippendorff.alpha(reliability_data=table.T, level_of_measurement="nominal")
print(f"alpha with two or six raters: {seen:.3f}, due {due:.3f}")
assert due - seen > 0.1
PYTHON
