#!/usr/bin/env bash
# m2cgen exports LightGBM's trees with linear leaves as trees with constant leaves.
#
# Versions: m2cgen 0.10.0, lightgbm 4.7.0, numpy 2.4.6, scikit-learn 1.9.1.
# Guess before the run: exported code predicts what the model predicts, or the export raises an error.
#     (That `linear_tree=True` might get lost was suspected after reading the source.)
# Seen: leaves of a model with `linear_tree=True` have a constant and coefficients. The export takes the constant
#     that the leaf would have without them, and says nothing: on a linear function of three columns, R^2 falls
#     from 0.95 to 0.76. Plain trees are right.
# For gyre: it has no trees. There, train without `linear_tree`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile m2cgen==0.10.0 lightgbm==4.7.0 numpy==2.4.6 scikit-learn==1.9.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import lightgbm
import m2cgen
import numpy as np

rng = np.random.default_rng(0)
inputs = rng.normal(size=(500, 3))
targets = inputs @ [2, -1, 0.5] + 0.1 * rng.normal(size=500)


def measure_r2(outputs):
    return 1 - ((targets - outputs) ** 2).sum() / ((targets - targets.mean()) ** 2).sum()


def add_leaves(booster, with_coefficients):
    """Sum the leaves of all trees by hand, (N,)."""
    sums = np.zeros(len(inputs))
    leaves = booster.predict(inputs, pred_leaf=True)
    for tree, info in enumerate(booster.dump_model()["tree_info"]):
        found = {}

        def visit(node):
            if "leaf_index" in node:
                found[node["leaf_index"]] = node
            else:
                visit(node["left_child"])
                visit(node["right_child"])

        visit(info["tree_structure"])
        for row, leaf in enumerate(leaves[:, tree]):
            node = found[leaf]
            if with_coefficients:
                sums[row] += node["leaf_const"]
                sums[row] += np.dot(inputs[row, node["leaf_features"]], node["leaf_coeff"])
            else:
                sums[row] += node["leaf_value"]
    return sums


for linear in (False, True):
    model = lightgbm.LGBMRegressor(n_estimators=20, num_leaves=4, linear_tree=linear, random_state=0,
                                   n_jobs=1, verbose=-1).fit(inputs, targets)
    names = {}
    exec(m2cgen.export_to_python(model), names)
    exported = np.array([names["score"](list(row)) for row in inputs])
    predicted = model.predict(inputs)
    print(f"linear_tree={linear}: R^2 {measure_r2(predicted):.2f}, exported {measure_r2(exported):.2f}, "
          f"largest difference {np.abs(exported - predicted).max():.2g}")
    assert np.allclose(exported, add_leaves(model.booster_, with_coefficients=False), atol=1e-6)
    if linear:
        assert np.allclose(predicted, add_leaves(model.booster_, with_coefficients=True), atol=1e-6)
        assert measure_r2(predicted) > 0.9
        assert measure_r2(exported) < 0.85
    else:
        assert np.allclose(exported, predicted, atol=1e-6)
PYTHON
