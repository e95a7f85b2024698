#!/usr/bin/env bash
# nnef_tools drops alpha of Elu, the third input of Max and the axis of Flatten of an ONNX model.
#
# Versions: nnef_tools 1.0.11, nnef 1.0.10, onnx 1.23.2, onnxruntime 1.32.0, torch 2.13.0.
# Guess before the run: an operator that converts computes what it did, in the package's own
#     interpreter; what NNEF lacks is refused, as hundreds of ONNX's tests of single operators are.
#     (None was suspected: these came out of a comparison of those tests.)
# Seen: 1. Elu and Selu lose their attributes, and are those with alpha=1 and the standard
#     constants.
#     2. Max and Min of three tensors are those of the first two.
#     3. Flatten keeps as many leading axes as `axis` says and flattens the others, instead of
#     making one of each side: a number of axes other than 2, unless `axis=1`.
#     4. Softmax without `axis` is over axis 1, as until opset 12, and not over the last.
#     With the standard values, or two tensors, or `axis`, all are right. Nothing is said.
# For gyre: it exports no ONNX. There, compare both models on one input.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile nnef_tools==1.0.11 nnef==1.0.10 onnx==1.23.2 \
    onnxruntime==1.32.0 torch==2.13.0 numpy==2.4.6
env/bin/python -W ignore - <<'PYTHON'
import subprocess
import sys

import numpy as np
import onnx.parser
import onnxruntime
import torch
from nnef_tools.interpreter.pytorch import NNEFModule

rng = np.random.default_rng(0)
tensors = {name: rng.normal(size=(2, 3, 4)).astype(np.float32) for name in ["x", "y", "z"]}
x, y, z = tensors.values()


def elu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(x))


def softmax(x, axis):
    powers = np.exp(x)
    return powers / powers.sum(axis, keepdims=True)


CASES = [
    # Expression, what it is, and what it becomes.
    ("Elu (x)", elu(x, 1), elu(x, 1)),
    ("Elu <alpha = 2.0> (x)", elu(x, 2), elu(x, 1)),
    ("Selu <alpha = 2.0, gamma = 3.0> (x)", 3 * elu(x, 2), 1.0507 * elu(x, 1.67326)),
    ("LeakyRelu <alpha = 0.5> (x)", np.maximum(x, x / 2), np.maximum(x, x / 2)),
    ("Max (x, y)", np.maximum(x, y), np.maximum(x, y)),
    ("Max (x, y, z)", np.maximum(np.maximum(x, y), z), np.maximum(x, y)),
    ("Min (x, y, z)", np.minimum(np.minimum(x, y), z), np.minimum(x, y)),
    ("Flatten (x)", x.reshape(2, 12), x.reshape(2, 12)),
    ("Flatten <axis = 2> (x)", x.reshape(6, 4), x),
    ("Flatten <axis = 0> (x)", x.reshape(1, 24), x.ravel()),
    ("Softmax <axis = 2> (x)", softmax(x, 2), softmax(x, 2)),
    ("Softmax (x)", softmax(x, 2), softmax(x, 1)),
]
for i, (expression, due, becomes) in enumerate(CASES):
    names = [name for name in tensors if f" {name}" in expression or f"({name}" in expression]
    inputs = ", ".join(f"float[2, 3, 4] {name}" for name in names)
    shape = ", ".join(str(size) for size in due.shape)
    model = onnx.parser.parse_model(
        f'<ir_version: 7, opset_import: ["": 13]> '
        f"one ({inputs}) => (float[{shape}] result) {{ result = {expression} }}")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, f"{i}.onnx")
    by_onnx = onnxruntime.InferenceSession(f"{i}.onnx").run(
        None, {name: tensors[name] for name in names})[0]
    assert by_onnx.shape == due.shape and np.allclose(by_onnx, due, atol=1e-5)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "nnef_tools.convert", "--input-format", "onnx",
         "--output-format", "nnef", "--input-model", f"{i}.onnx", "--output-model", f"{i}.nnef"],
        capture_output=True, text=True)
    assert run.returncode == 0 and "arn" not in run.stdout + run.stderr
    with torch.no_grad():
        result = NNEFModule(f"{i}.nnef")(*(torch.from_numpy(tensors[name]) for name in names))
    by_nnef = (result[0] if isinstance(result, (tuple, list)) else result).numpy()
    with open(f"{i}.nnef/graph.nnef") as file:
        line = file.read().splitlines()[-2].strip()
    print(f"{expression}: shape {by_onnx.shape}, mean {by_onnx.mean():.4f} by ONNX; "
          f"shape {by_nnef.shape}, mean {by_nnef.mean():.4f} by NNEF, {line}")
    assert by_nnef.shape == becomes.shape and np.allclose(by_nnef, becomes, atol=1e-4)
PYTHON
