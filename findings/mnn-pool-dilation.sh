#!/usr/bin/env bash
# MNN pools neighbours where a model pools every second pixel.
#
# Versions: mnn 3.6.1, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: operators that MNN converts without a warning compute what ONNX defines.
#     (None was suspected: it came out of a comparison of all of ONNX's tests of single operators.)
# Seen: `dilations` of MaxPool and AveragePool is dropped. Outputs are those of windows without
#     gaps, on more places: a picture of 8 x 8 and a kernel of 3 x 3 give 6 x 6 numbers instead of
#     4 x 4. Where a global pool follows, the shape is right again, and the numbers are not. The
#     converter says "Converted Success!". Convolutions with dilations are right.
# For gyre: it exports no ONNX. There, pool the slices of every second pixel.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mnn==3.6.1 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6
cd "$folder"
# The converter is called by its module, since the command `mnnconvert` first installs a package to
# report its use, by whichever pip is first in the path.
env/bin/python - > "$folder/log" <<'PYTHON'
import sys

import _tools
import MNN.expr
import MNN.nn
import numpy as np
import onnx.parser
import onnxruntime
from onnx import numpy_helper

SIZE, KERNEL = 8, 3
generator = np.random.default_rng(0)
x = generator.normal(size=(1, 2, SIZE, SIZE)).astype(np.float32)
kernel = generator.normal(size=(2, 2, KERNEL, KERNEL)).astype(np.float32)


def run_both(body, shape):
    """Return the outputs of onnxruntime and MNN."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 19]> graph (float{list(x.shape)} x) '
        f"=> (float{shape} y) {{ {body} }}")
    if "Conv" in body:
        model.graph.initializer.append(numpy_helper.from_array(kernel, "w"))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    exact = onnxruntime.InferenceSession("model.onnx").run(None, {"x": x})[0]
    _tools.mnnconvert(["MNNConvert", "-f", "ONNX", "--modelFile", "model.onnx", "--MNNModel",
                       "model.mnn", "--bizCode", "test"])
    network = MNN.nn.load_module_from_file("model.mnn", ["x"], ["y"])
    given = MNN.expr.const(x, list(x.shape), MNN.expr.NCHW, MNN.expr.float)
    output = MNN.expr.convert(network.forward([given])[0], MNN.expr.NCHW)
    return exact, np.array(output.read())


def pool(function, dilation):
    """Return what a pool gives, by NumPy."""
    width = (KERNEL - 1) * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(x, (width, width), axis=(2, 3))
    return function(windows[..., ::dilation, ::dilation], axis=(4, 5))


for operator, function in [("MaxPool", np.max), ("AveragePool", np.mean)]:
    for dilation in [1, 2]:
        expected, plain = pool(function, dilation), pool(function, 1)
        node = f"{operator} <kernel_shape = [{KERNEL}, {KERNEL}], strides = [1, 1], " \
            f"dilations = [{dilation}, {dilation}]> (x)"
        exact, by_mnn = run_both(f"y = {node}", list(expected.shape))
        assert np.allclose(exact, expected, atol=1e-5)
        assert by_mnn.shape == plain.shape and np.allclose(by_mnn, plain, atol=1e-5)
        exact, mean = run_both(f"p = {node} y = GlobalAveragePool (p)", [1, 2, 1, 1])
        print(f"{operator}, dilation {dilation}: shape {by_mnn.shape[2:]} by MNN, "
              f"{expected.shape[2:]} exact; its mean {mean.ravel()} by MNN, {exact.ravel()} exact",
              file=sys.stderr)
        assert np.allclose(mean, plain.mean((2, 3), keepdims=True), atol=1e-4)
        assert np.allclose(mean, exact, atol=1e-4) == (dilation == 1)

exact, by_mnn = run_both("y = Conv <dilations = [2, 2]> (x, w)", [1, 2, SIZE - 4, SIZE - 4])
print(f"Conv, dilation 2: off by {abs(exact - by_mnn).max():.6f}", file=sys.stderr)
assert np.allclose(exact, by_mnn, atol=1e-3)
PYTHON
grep -c "Converted Success!" "$folder/log"
! grep -iE "warn|not support|error" "$folder/log"
