#!/usr/bin/env bash
# In cornac's cross-validation, the validation set of a model is the fold on which it is evaluated.
#
# Versions: cornac 3.0.1, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: as with RatioSplit without a validation set, a model in cross-validation
#     sees the training folds alone: one that chooses by its validation set is no better than chance
#     on random data. (That it might be was suspected after reading the source.)
# Seen: `fit` gets the test fold as `val_set`, rating by rating. Of 100 random rankings, a model
#     that keeps the best one by its validation set has a recall of 0.43 in the report, where chance
#     gives 0.24, and a validation set of its own 0.25. Early stopping, as in NeuMF, chooses its
#     epoch so.
# For gyre: it recommends nothing. There, give `from_splits` three parts for each fold.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile cornac==3.0.1 numpy==2.4.6 scipy==1.17.1
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from cornac.eval_methods import CrossValidation, RatioSplit
from cornac.metrics import Recall
from cornac.models import Recommender

USERS, ITEMS, CANDIDATES, FIRST = 30, 50, 100, 10
generator = np.random.default_rng(0)
ratings = [(f"user {user}", f"item {item}", 1.0) for user in range(USERS)
           for item in generator.choice(ITEMS, 10, replace=False)]


def pairs(data):
    """Return the ratings of a data set as pairs of user and item."""
    users, items = list(data.user_ids), list(data.item_ids)
    return {(users[user], items[item]) for user, item in zip(*data.uir_tuple[:2])}


class Lucky(Recommender):
    """Of random rankings of all items, keep the one with the most ratings of the validation set."""

    seen = []

    def __init__(self):
        super().__init__(name="lucky")

    def fit(self, train_set, val_set=None):
        super().fit(train_set, val_set)
        Lucky.seen.append(None if val_set is None else pairs(val_set))
        rankings = [np.random.default_rng(seed).permutation(train_set.num_items)
                    for seed in range(CANDIDATES)]
        self.scores = rankings[0]
        if val_set is not None:
            items = val_set.uir_tuple[1]
            self.scores = max(rankings, key=lambda scores: self.count(scores, items))
        return self

    def count(self, scores, items):
        return np.isin(items, np.argsort(-scores)[:FIRST]).sum()

    def score(self, user_idx, item_idx=None):
        return self.scores.astype(float) if item_idx is None else float(self.scores[item_idx])


def evaluate(method):
    """Return the recall in the report, and what the model saw beside each test set."""
    Lucky.seen.clear()
    tests = []
    build = method.build

    def watch(**parts):
        result = build(**parts)
        tests.append(pairs(method.test_set))
        return result

    method.build = watch
    result, _ = method.evaluate(Lucky(), [Recall(k=FIRST)], user_based=True, show_validation=False)
    if not tests:
        tests.append(pairs(method.test_set))
    recalls = result.metric_avg_results if hasattr(result, "metric_avg_results") else {
        "Recall@10": np.mean([fold.metric_avg_results["Recall@10"] for fold in result])}
    return recalls["Recall@10"], list(zip(Lucky.seen, tests))


cross, seen = evaluate(CrossValidation(ratings, n_folds=5, seed=1))
same = sum(validation == test for validation, test in seen)
print(f"cross-validation: recall {cross:.2f}; in {same} of {len(seen)} folds the validation set is "
      "the test fold")
assert same == len(seen) == 5
own, without = [], []
for seed in range(5):
    recall, [(validation, test)] = evaluate(RatioSplit(ratings, test_size=0.2, val_size=0.2,
                                                       seed=seed))
    assert not validation & test
    own.append(recall)
    recall, [(validation, test)] = evaluate(RatioSplit(ratings, test_size=0.2, seed=seed))
    assert validation is None
    without.append(recall)
print(f"splits with a validation set of their own: recall {np.mean(own):.2f}; without one "
      f"{np.mean(without):.2f}; chance {FIRST / (ITEMS - 8):.2f}")
assert cross > 0.35 and max(np.mean(own), np.mean(without)) < 0.3
PYTHON
