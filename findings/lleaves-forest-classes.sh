#!/usr/bin/env bash
# lleaves averages the first class of a random forest only: the other classes are sums of all trees.
#
# Versions: lleaves 1.3.0, lightgbm 4.7.0, llvmlite 0.43.0, numpy 2.4.6.
# Guess before the run: a model that lleaves compiles predicts what LightGBM predicts.
#     (It was suspected in the source.)
# Seen: with `boosting="rf"`, raw scores are means over the trees. For three classes, lleaves divides
#     the score of the first class by the number of trees of all classes, which is 3 times too many,
#     and the scores of the other classes by nothing: with 20 trees to a class, they are 20 times too
#     large. Probabilities are off by up to 0.9, nearly all are below 0.01 or above 0.99, and many
#     rows have another class. Nothing is said. Boosted trees with three classes, and forests with
#     two, are right. The other side of it: with `raw_score=True`, LightGBM itself returns sums over
#     the trees for a forest, and lleaves means.
# For gyre: it has no trees. There, compile boosted models only, or forests with one score.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile lleaves==1.3.0 lightgbm==4.7.0 llvmlite==0.43.0 \
    numpy==2.4.6
env/bin/python - <<'PYTHON'
import lightgbm
import lleaves
import numpy as np

N_ROUNDS = 20


def softmax(scores):
    exps = np.exp(scores - scores.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True)


def sum_leaves(booster, n_classes):
    """Return the sums of the leaves that the rows fall into, (N, n_classes)."""
    leaves = booster.predict(x, pred_leaf=True)  # (N, trees); a round has a tree for each class
    outputs = [[booster.get_leaf_output(tree, leaf) for tree, leaf in enumerate(row)]
               for row in leaves]
    return np.reshape(outputs, (len(x), N_ROUNDS, n_classes)).sum(1)


def fit(options, labels):
    """Return a booster, its predictions, and those of lleaves."""
    data = lightgbm.Dataset(x, labels)
    booster = lightgbm.train(options | {"verbose": -1, "num_threads": 1, "seed": 0}, data, N_ROUNDS)
    booster.save_model("model.txt")
    compiled = lleaves.Model("model.txt")
    compiled.compile()
    return booster, booster.predict(x), compiled.predict(x, n_jobs=1)


generator = np.random.default_rng(0)
x = generator.normal(size=(1000, 4))
y = 2 * x[:, 0] + x[:, 1] + generator.normal(size=1000) / 2
classes = (y > 0).astype(int) + (y > 2)
forest = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}

for name, options, labels in [
        ("boosted, three classes", {"objective": "multiclass", "num_class": 3}, classes),
        ("forest, two classes", {"objective": "binary"} | forest, classes > 0),
        ("forest, regression", {"objective": "regression"} | forest, y)]:
    _, by_lightgbm, by_lleaves = fit(options, labels)
    print(f"{name}: largest difference {abs(by_lleaves - by_lightgbm).max():.1e}")
    assert np.allclose(by_lleaves, by_lightgbm, atol=1e-9)

booster, by_lightgbm, by_lleaves = fit(
    {"objective": "multiclass", "num_class": 3} | forest, classes)
sums = sum_leaves(booster, 3)
assert np.allclose(by_lightgbm, softmax(sums / N_ROUNDS))
assert np.allclose(by_lleaves, softmax(sums / [3 * N_ROUNDS, 1, 1]))
sure = {name: ((p < 0.01) | (p > 0.99)).mean()
        for name, p in [("LightGBM", by_lightgbm), ("lleaves", by_lleaves)]}
others = (by_lleaves.argmax(1) != by_lightgbm.argmax(1)).mean()
errors = {name: -np.log(p[range(len(x)), classes]).mean()
          for name, p in [("LightGBM", by_lightgbm), ("lleaves", by_lleaves)]}
print(f"forest, three classes: first row {by_lightgbm[0].round(3)} by LightGBM, "
      f"{by_lleaves[0].round(3)} by lleaves")
print(f"largest difference {abs(by_lleaves - by_lightgbm).max():.2f}, "
      f"{others:.0%} of the rows have another class")
print(f"probabilities below 0.01 or above 0.99: {sure}; log loss: {errors}")
assert abs(by_lleaves - by_lightgbm).max() > 0.8 and others > 0.01
assert sure["LightGBM"] < 0.1 and sure["lleaves"] > 0.8

compiled = lleaves.Model("model.txt")
compiled.compile(raw_score=True)
assert np.allclose(booster.predict(x, raw_score=True), sums)
assert np.allclose(compiled.predict(x, n_jobs=1), sums / [3 * N_ROUNDS, 1, 1])
PYTHON
