#!/usr/bin/env bash
# ONNX's version converter turns a Softmax over one axis into one over that and all later axes.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: a model that is converted from opset 13 to an earlier one computes the same,
#     or the converter refuses. (No operator was suspected: it came out of a comparison of all of
#     ONNX's tests of single operators, 1,670 conversions.)
# Seen: until opset 12, Softmax and LogSoftmax make one axis of `axis` and all behind it. The
#     converter keeps the attribute. For the classes of each pixel (1, 5, 8, 8), `axis=1` is the
#     axis of classes before, and classes and pixels together afterwards: each pixel's probabilities
#     add up to a 64th on average. Only the last axis is right. From 12 to 13 it is right, too.
#     Nothing is said. (Why the two differ is explained in issue 6340 of onnx/onnx, which asked for
#     this conversion.)
# For gyre: it exports no ONNX. There, export with the opset that is needed, or transpose before and
#     behind each Softmax.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnx.parser
import onnxruntime
from onnx.version_converter import convert_version


def run(model):
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def softmax(values, axes):
    powers = np.exp(values - values.max())
    return powers / powers.sum(axes, keepdims=True)


x = np.random.default_rng(0).normal(size=(1, 5, 8, 8)).astype(np.float32)
shape = ", ".join(str(size) for size in x.shape)
for operator, inverse in [("Softmax", lambda y: y), ("LogSoftmax", np.exp)]:
    for axis in [1, -3, 2, 3, -1]:
        model = onnx.parser.parse_model(
            f'<ir_version: 7, opset_import: ["": 13]> '
            f"classify (float[{shape}] x) => (float[{shape}] y) "
            f"{{ y = {operator} <axis = {axis}> (x) }}")
        before = inverse(run(model))
        assert np.allclose(before, softmax(x, axis), atol=1e-6)
        for version in [12, 11, 9]:
            after = inverse(run(convert_version(model, version)))
            coerced = softmax(x, tuple(range(axis % x.ndim, x.ndim)))
            assert np.allclose(after, coerced, atol=1e-6)
        print(f"{operator}, axis {axis}: probabilities add up to {before.sum(axis).mean():.4f} "
              f"with opset 13, and to {after.sum(axis).mean():.4f} after the conversion")
        assert np.allclose(after, before, atol=1e-6) == (axis in (3, -1))
PYTHON
