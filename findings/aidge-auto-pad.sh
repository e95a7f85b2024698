#!/usr/bin/env bash
# aidge pads by the kernel minus the stride, whatever the size, and its pooling on the wrong side.
#
# Versions: aidge_core, aidge_backend_cpu and aidge_onnx 0.10.1, onnx 1.23.2, onnxruntime 1.32.0,
#     numpy 2.4.6.
# Guess before the run: with `auto_pad` of SAME_UPPER or SAME_LOWER, as in models from TensorFlow,
#     an output has ceil(size / stride) pixels, and the odd pixel of padding is behind or in front.
#     (None was suspected: it came out of a comparison of all of ONNX's tests of single operators.)
# Seen: the padding is the kernel minus the stride. This is right if the stride divides the size;
#     with a stride of 2, 9 pixels give 4 instead of 5, and the last is not seen. In MaxPool and
#     AveragePool, SAME_UPPER is SAME_LOWER and the other way round: outputs are moved by a pixel.
#     In Conv the sides are right. Nothing is said.
# For gyre: its models have no pictures. There, write `pads` into the model first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile aidge_core==0.10.1 aidge_backend_cpu==0.10.1 \
    aidge_onnx==0.10.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import aidge_backend_cpu
import aidge_core
import aidge_onnx
import numpy as np
import onnxruntime
from onnx import TensorProto, checker, helper, numpy_helper

OTHER = {"SAME_UPPER": "SAME_LOWER", "SAME_LOWER": "SAME_UPPER"}


def build(operator, kernel, size, output, **attributes):
    weights = rng.normal(size=(1, 1, kernel, kernel)).astype(np.float32)
    is_conv = operator == "Conv"
    node = helper.make_node(operator, ["x", "w"] if is_conv else ["x"], ["y"],
                            kernel_shape=[kernel, kernel], **attributes)
    graph = helper.make_graph(
        [node], "one", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, output, output])],
        [numpy_helper.from_array(weights, "w")] if is_conv else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    checker.check_model(model, full_check=True)
    return model


def run_aidge(model, x):
    graph = aidge_onnx.load_onnx(model.SerializeToString())
    assert aidge_onnx.has_native_coverage(graph)
    graph.set_backend("cpu")
    graph.set_datatype(aidge_core.dtype.float32)
    graph.forward_dims([list(x.shape)], True)
    aidge_core.SequentialScheduler(graph).forward(data=[aidge_core.Tensor(x)])
    node, i = graph.get_ordered_outputs()[0]
    return np.array(node.get_operator().get_output(i))


def run_onnxruntime(model, x):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


aidge_core.Log.set_console_level(aidge_core.Level.Warn)
rng = np.random.default_rng(0)
for operator in ["Conv", "MaxPool", "AveragePool"]:
    for kernel, stride, size in [(3, 1, 9), (2, 1, 9), (3, 2, 8), (3, 2, 9), (5, 2, 9), (3, 3, 10)]:
        for side in ["SAME_UPPER", "SAME_LOWER"]:
            x = rng.normal(size=(1, 1, size, size)).astype(np.float32)
            sizes = operator, kernel, size, -(-size // stride)
            model = build(*sizes, strides=[stride, stride], auto_pad=side)
            due, seen = run_onnxruntime(model, x), run_aidge(model, x)
            assert due.shape[-1] == -(-size // stride)
            same = due.shape == seen.shape and np.allclose(due, seen, atol=1e-4)
            print(f"{operator}, {side}, kernel {kernel}, stride {stride}, {size} pixels: "
                  f"{due.shape[-1]} by onnxruntime, {seen.shape[-1]} by aidge, "
                  f"{'equal' if same else 'not equal'}")
            assert (due.shape == seen.shape) == (size % stride == 0)
            if size % stride == 0:
                is_odd = (kernel - stride) % 2 == 1
                assert same == (operator == "Conv" or not is_odd)
                other = build(*sizes, strides=[stride, stride], auto_pad=OTHER[side])
                assert same or np.allclose(run_onnxruntime(other, x), seen, atol=1e-4)
PYTHON
