#!/usr/bin/env bash
# QONNX's QCDQToQuant changes weights with a zero point, and square ones with a scale for each row.
#
# Versions: qonnx 1.0.0, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: QCDQToQuant writes DequantizeLinear as Quant nodes, so the model computes
#     what it did, whatever the type of its weights and the axis of their scales. (That some weights
#     are others was suspected after reading the source.)
# Seen: the zero point is subtracted in uint8, where 100 - 128 is 228. Then Quant cuts the result
#     off at 127: all negative weights have the largest value. Outputs are off by more than their
#     size. Scales along axis 0 are multiplied along the last axis, which fits if the matrix is
#     square. Then each row has the scales of all others, and outputs are off by half of their size;
#     if it isn't square, an error is raised. Signed weights with one scale, or with scales along
#     the last axis, are right.
# For gyre: it exports no ONNX. There, quantize to int8 with one scale for each matrix.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile qonnx==1.0.0 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.transformation.infer_shapes import InferShapes
from qonnx.transformation.qcdq_to_qonnx import QCDQToQuant

N_ROWS, N_INPUTS = 8, 16
generator = np.random.default_rng(0)


def quantize(weights, dtype, axis=None):
    """Return weights of 8 bits, their scales and their zero points, by minimum and maximum."""
    other = None if axis is None else 1 - axis
    largest = weights.max(axis=other, keepdims=axis is not None)
    smallest = weights.min(axis=other, keepdims=axis is not None)
    if dtype == np.uint8:
        scale = (largest - smallest) / 255
        zero = np.round(-smallest / scale)
    else:
        scale = np.maximum(largest, -smallest) / 127
        zero = np.zeros_like(scale)
    limits = np.iinfo(dtype)
    values = np.clip(np.round(weights / scale) + zero, limits.min, limits.max)
    if axis is not None:
        scale, zero = scale.ravel(), zero.ravel()
    return values.astype(dtype), np.float32(scale), np.asarray(zero, dtype)


def make_model(values, scale, zero, axis):
    """Return x -> x @ transpose(dequantized weights), as torch exports a linear layer."""
    attributes = {} if axis is None else {"axis": axis}
    inputs = ["w", "scale", "zero"]
    nodes = [helper.make_node("DequantizeLinear", inputs, ["weights"], **attributes),
             helper.make_node("Gemm", ["x", "weights"], ["y"], transB=1)]
    tensors = [numpy_helper.from_array(np.asarray(tensor), name)
               for name, tensor in [("w", values), ("scale", scale), ("zero", zero)]]
    graph = helper.make_graph(
        nodes, "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [N_INPUTS, values.shape[1]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [N_INPUTS, values.shape[0]])],
        tensors)
    opsets = [helper.make_opsetid("", 13)]
    return ModelWrapper(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def error(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def compare(dtype, axis, n_columns):
    """Return the errors of a model before and after QCDQToQuant."""
    weights = generator.normal(size=(N_ROWS, n_columns))
    if axis is not None:
        spread = np.exp(generator.normal(size=weights.shape[axis]))
        weights = weights * np.expand_dims(spread, 1 - axis)
    x = generator.normal(size=(N_INPUTS, n_columns)).astype(np.float32)
    values, scale, zero = quantize(weights, dtype, axis)
    model = make_model(values, scale, zero, axis).transform(InferShapes())
    before = execute_onnx(model, {"x": x})["y"]
    model = model.transform(QCDQToQuant())
    assert [node.op_type for node in model.graph.node] == ["Quant", "Gemm"]
    after = execute_onnx(model, {"x": x})["y"]
    return error(before, x @ weights.T), error(after, x @ weights.T)


for dtype, axis, n_columns, right in [
        (np.int8, None, 8, True), (np.int8, None, 12, True), (np.int8, 1, 8, True),
        (np.uint8, None, 8, False), (np.uint8, None, 12, False), (np.int8, 0, 8, False)]:
    before, after = compare(dtype, axis, n_columns)
    scales = "one scale" if axis is None else f"scales along axis {axis}"
    print(f"{dtype.__name__}, {N_ROWS} x {n_columns}, {scales}: error {before:.3f} with "
          f"DequantizeLinear, {after:.3f} with Quant")
    assert before < 0.02
    assert after < 0.02 if right else after > 0.4

try:
    compare(np.int8, 0, 12)
except ValueError as problem:
    print(f"int8, {N_ROWS} x 12, scales along axis 0: {problem}")
else:
    raise SystemExit("a matrix that is not square is converted")

values = np.uint8([[100, 128, 200]])
model = make_model(values, np.float32(1), np.uint8(128), None).transform(InferShapes())
stored = model.transform(QCDQToQuant()).get_initializer("w").tolist()
x = np.eye(N_INPUTS, 3, dtype=np.float32)
used = execute_onnx(model.transform(QCDQToQuant()), {"x": x})["y"][:3, 0].tolist()
print(f"weights 100, 128, 200 with zero point 128: due -28, 0, 72, stored {stored}, used {used}")
assert stored == [[228, 0, 72]] and used == [127, 0, 72]
PYTHON
