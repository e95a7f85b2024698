#!/usr/bin/env bash
# onnxconverter-common's optimizer makes padding with zeros of every other padding.
#
# Versions: onnxconverter-common 1.16.0, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: optimize_onnx_model keeps the function of a model. It joins a Pad of zeros
#     with the convolution behind it, and leaves other kinds of padding alone. (That it does not
#     was suspected after reading the source.)
# Seen: it joins every Pad, of which it reads only the widths. Reflected and repeated borders, and
#     those of a constant, become zeros: outputs at the border are off by half of their size or
#     more, those inside are the same. A convolution with `padding_mode="reflect"`, as torch exports
#     it, is such a pair.
# For gyre: it exports no ONNX. There, compare the outputs before and after.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile onnxconverter-common==1.16.0 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import warnings

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxconverter_common.optimizer import optimize_onnx_model

SIZE = 8
warnings.simplefilter("error", UserWarning)
generator = np.random.default_rng(0)
weights = generator.normal(size=(4, 3, 3, 3)).astype(np.float32)
x = generator.normal(size=(1, 3, SIZE, SIZE)).astype(np.float32)


def make_model(mode, value):
    """Return Relu, Pad by one on each side, a convolution and Relu."""
    tensors = [numpy_helper.from_array(weights, "weights"),
               numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "widths")]
    inputs = ["positive", "widths"]
    if value is not None:
        tensors.append(numpy_helper.from_array(np.float32(value), "value"))
        inputs.append("value")
    nodes = [helper.make_node("Relu", ["x"], ["positive"], name="first"),
             helper.make_node("Pad", inputs, ["padded"], mode=mode, name="pad"),
             helper.make_node("Conv", ["padded", "weights"], ["sums"], name="conv"),
             helper.make_node("Relu", ["sums"], ["y"], name="last")]
    graph = helper.make_graph(
        nodes, "padding", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, SIZE, SIZE])], tensors)
    opsets = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": x})[0]


def compute(**padding):
    """Return the output by NumPy."""
    padded = np.pad(np.maximum(x[0], 0), [(0, 0), (1, 1), (1, 1)], **padding)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.maximum(np.einsum("chwij,ocij->ohw", windows, weights), 0)[None]


zeros = compute(mode="constant")
border = np.ones((SIZE, SIZE), bool)
border[1:-1, 1:-1] = False
for mode, value in [("constant", None), ("constant", 0), ("constant", -1), ("constant", 1),
                    ("reflect", None), ("edge", None)]:
    if value is None:
        expected = compute(mode=mode)
    else:
        expected = compute(mode=mode, constant_values=value)
    before = make_model(mode, value)
    after = optimize_onnx_model(make_model(mode, value))
    assert [node.op_type for node in after.graph.node] == ["Relu", "Conv", "Relu"]
    assert np.allclose(run(before), expected, atol=1e-4)
    errors = run(after) - expected
    share = np.linalg.norm(errors[..., border]) / np.linalg.norm(expected[..., border])
    print(f"{mode} {'' if value is None else value}: error at the border {share:.3f} of the size "
          f"of the output, inside {np.abs(errors[..., ~border]).max():.6f}")
    assert np.allclose(run(after), zeros, atol=1e-4)
    assert np.abs(errors[..., ~border]).max() < 1e-4
    assert share < 1e-5 if mode == "constant" and not value else share > 0.4
PYTHON
