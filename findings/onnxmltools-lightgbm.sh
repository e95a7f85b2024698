#!/usr/bin/env bash
# onnxmltools converts the trees of LightGBM, and forgets what LightGBM does with their sum.
#
# Versions: onnxmltools 1.16.0, skl2onnx 1.20.0, lightgbm 4.7.0, onnx 1.23.2, onnxruntime 1.32.0,
#     numpy 2.4.6.
# Guess before the run: boosters that onnxmltools converts without an error predict what LightGBM
#     predicts. (Forests, linear trees and zeros as missing values were suspected; the comparison
#     had 27 settings.)
# Seen: random forests are sums, not means: 20 times too large with 20 trees, and their
#     probabilities are nearly all 0 or 1. `sigmoid=2` has no effect on the link, so that 0.90
#     becomes 0.75. `reg_sqrt` has no square. "multiclassova" gets a softmax for its sigmoids.
#     Nothing is said. Other objectives, such as "poisson" and "multiclass", are right.
# For gyre: it has no trees. There, compare predictions before and after.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile onnxmltools==1.16.0 skl2onnx==1.20.0 \
    lightgbm==4.7.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import lightgbm
import numpy as np
import onnxruntime
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

N_ROUNDS = 20


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    exps = np.exp(x - x.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True)


def keep(x):
    return x


def square(x):
    return np.sign(x) * x**2


def predict_converted(booster, n_classes):
    """Return what onnxruntime predicts, (N,) or (N, classes)."""
    model = convert_lightgbm(booster, initial_types=[("x", FloatTensorType([None, 4]))],
                             zipmap=False)
    session = onnxruntime.InferenceSession(model.SerializeToString(), session_options)
    output = session.run(None, {"x": x})[-1]
    return output if n_classes > 1 else output[:, -1]


session_options = onnxruntime.SessionOptions()
session_options.log_severity_level = 3  # its warning is about the shape of the label
generator = np.random.default_rng(0)
x = generator.normal(size=(600, 4)).astype(np.float32)
y = 2 * x[:, 0] + x[:, 1] + generator.normal(size=600) / 3
classes = (y > 0).astype(int) + (y > 2)
forest = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}
three = {"num_class": 3}
for name, options, labels, due, seen in [
        ("regression", {}, y, keep, keep),
        ("poisson", {}, abs(y), np.exp, np.exp),
        ("binary", {}, y > 0, sigmoid, sigmoid),
        ("multiclass", three, classes, softmax, softmax),
        ("regression", forest, y, lambda s: s / N_ROUNDS, keep),
        ("binary", forest, y > 0, lambda s: sigmoid(s / N_ROUNDS), sigmoid),
        ("multiclass", three | forest, classes, lambda s: softmax(s / N_ROUNDS), softmax),
        ("binary", {"sigmoid": 2.0}, y > 0, lambda s: sigmoid(2 * s), sigmoid),
        ("regression", {"reg_sqrt": True}, y, square, keep),
        ("multiclassova", three, classes, sigmoid, softmax)]:
    booster = lightgbm.train(
        {"objective": name, "verbose": -1, "num_threads": 1, "seed": 0} | options,
        lightgbm.Dataset(x, labels), N_ROUNDS)
    n_classes = options.get("num_class", 1)
    leaves = booster.predict(x, pred_leaf=True)  # (N, trees); a round has a tree for each class
    outputs = [[booster.get_leaf_output(tree, leaf) for tree, leaf in enumerate(row)]
               for row in leaves]
    sums = np.reshape(outputs, (len(x), N_ROUNDS, n_classes)).sum(1)  # (N, classes)
    sums = sums if n_classes > 1 else sums[:, 0]
    by_lightgbm, converted = booster.predict(x), predict_converted(booster, n_classes)
    print(f"{name}, {options}: first row {by_lightgbm[0].round(3)} by LightGBM, "
          f"{converted[0].round(3)} converted")
    assert np.allclose(by_lightgbm, due(sums), atol=1e-5)
    assert np.allclose(converted, seen(sums), rtol=1e-3, atol=1e-3)
    assert (due is seen) == np.allclose(converted, by_lightgbm, rtol=1e-3, atol=0.05)
PYTHON
