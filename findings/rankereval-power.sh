#!/usr/bin/env bash
# rankereval's NDCG with relevance_scaling="power" is below 1 for a best order, and above 1 for a worst one.
#
# Versions: rankereval 0.2.0, numpy 1.26.4, scipy 1.15.3, numba 0.61.2.
# Guess before the run: the gain is 2**rel - 1, as the docstring says, so that NDCG is between 0 and 1, and
#     1 for the best ranking. (That it might not was suspected after reading the source.)
# Seen: the gain is rel**2 - 1: an item with relevance 1 gains nothing, and one without any loses 1. With
#     one relevant item among six, the best order has 1 and the worst one 1.88, with k = 3; with grades of
#     3, 2 and 1 and three irrelevant items, and no k, the best order has 0.88. "identity" is right.
# For gyre: it ranks nothing. There, give labels of 2**rel - 1 and "identity".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==1.26.4 scipy==1.15.3 numba==0.61.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps rankereval==0.2.0
NUMBA_DISABLE_JIT=1 "$folder/env/bin/python" -W ignore - <<'PYTHON'
import math

from rankereval import NDCG, BinaryLabels, NumericLabels, Rankings


def measure(labels, scores, k, scaling, kind):
    """Return the NDCG of rankereval."""
    metric = NDCG(k=k, relevance_scaling=scaling, log_base="2")
    return metric.score(kind.from_matrix([labels]), Rankings.from_scores([scores]))[0]


def compute(labels, scores, k, gain):
    """Return the NDCG with this gain."""
    def discount(relevances):
        return sum(gain(rel) / math.log2(rank + 1) for rank, rel in enumerate(relevances[:k], start=1))

    ranked = [label for _, label in sorted(zip(scores, labels), reverse=True)]
    return discount(ranked) / discount(sorted(labels, reverse=True))


best, worst, mixed = [6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6], [5, 1, 2, 6, 3, 4]
found = {}
for title, labels, kind, k in (
    ("one relevant item", [1, 0, 0, 0, 0, 0], BinaryLabels, 3),
    ("grades 3, 2 and 1", [3, 2, 1, 0, 0, 0], NumericLabels, None),
):
    for order, scores in (("best", best), ("worst", worst), ("mixed", mixed)):
        power = measure(labels, scores, k, "power", kind)
        due = compute(labels, scores, k, lambda rel: 2**rel - 1)
        identity = measure(labels, scores, k, "identity", kind)
        print(f"{title}, {order} order: power {power:.3f}, where {due:.3f} is due; identity {identity:.3f}")
        assert abs(identity - compute(labels, scores, k, lambda rel: rel)) < 1e-6
        found[title, order] = power
assert found["one relevant item", "worst"] > 1.8 and abs(found["one relevant item", "best"] - 1) < 1e-6
assert found["grades 3, 2 and 1", "best"] < 0.9
PYTHON
