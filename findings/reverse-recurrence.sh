#!/usr/bin/env bash
# tract and MNN run a recurrent layer with direction "reverse" forwards.
#
# Versions: tract 0.23.9, mnn 3.6.1, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: operators that the two load without a word compute what ONNX defines. (None
#     was suspected: it came out of a comparison of all of ONNX's tests of single operators.)
# Seen: RNN, GRU and (tract) LSTM with `direction="reverse"` have the outputs of "forward" with the
#     same weights: the first output has seen the first element instead of all of them. Nothing is
#     said. With "bidirectional", where the second half runs in reverse, both are right.
# For gyre: it has no recurrent layers. There, make such a layer bidirectional and drop the half
#     that runs forwards, or reverse its input and its output.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tract==0.23.9 mnn==3.6.1 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
cd "$folder"
# The converter is called by its module, since the command `mnnconvert` first installs a package to
# report its use, by whichever pip is first in the path.
env/bin/python - > "$folder/log" <<'PYTHON'
import sys

import _tools
import MNN.expr
import MNN.nn
import numpy as np
import onnx
import onnxruntime
import tract
from onnx import TensorProto, helper, numpy_helper

STEPS, N_ROWS, N_INPUTS, WIDTH = 6, 2, 3, 4
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
generator = np.random.default_rng(0)


def write_model(operator, direction, weights):
    """Write a layer that returns all of its outputs, (STEPS, directions, N_ROWS, WIDTH)."""
    attributes = {"linear_before_reset": 1} if operator == "GRU" else {}
    node = helper.make_node(operator, ["x", "w", "r", "b"], ["y"], direction=direction,
                            hidden_size=WIDTH, **attributes)
    shape = [STEPS, len(weights["w"]), N_ROWS, WIDTH]
    graph = helper.make_graph(
        [node], "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, N_ROWS, N_INPUTS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")


def run_onnxruntime(x):
    return onnxruntime.InferenceSession("model.onnx").run(None, {"x": x})[0]


def run_tract(x):
    runnable = tract.onnx().load("model.onnx").into_model().into_runnable()
    return runnable.run([x])[0].to_numpy()


def run_mnn(x):
    _tools.mnnconvert(["MNNConvert", "-f", "ONNX", "--modelFile", "model.onnx", "--MNNModel",
                       "model.mnn", "--bizCode", "test"])
    network = MNN.nn.load_module_from_file("model.mnn", ["x"], ["y"])
    given = MNN.expr.const(x, list(x.shape), MNN.expr.NCHW, MNN.expr.float)
    return np.array(MNN.expr.convert(network.forward([given])[0], MNN.expr.NCHW).read())


def run_rnn_by_hand(weights, x):
    """Return the outputs of the RNN that runs from the last element to the first."""
    w, r, b = (weights[name][0] for name in "wrb")
    state, outputs = np.zeros((N_ROWS, WIDTH)), []
    for element in x[::-1]:
        state = np.tanh(element @ w.T + state @ r.T + b[:WIDTH] + b[WIDTH:])
        outputs.append(state)
    return np.array(outputs[::-1])[:, None]


x = generator.normal(size=(STEPS, N_ROWS, N_INPUTS)).astype(np.float32)
for operator, n_gates in GATES.items():
    for direction in ["forward", "reverse", "bidirectional"]:
        n_directions = 2 if direction == "bidirectional" else 1
        shapes = {"w": (n_gates * WIDTH, N_INPUTS), "r": (n_gates * WIDTH, WIDTH),
                  "b": (2 * n_gates * WIDTH,)}
        weights = {name: generator.normal(size=(n_directions, *shape)).astype(np.float32)
                   for name, shape in shapes.items()}
        other = "forward" if n_directions == 1 else direction
        write_model(operator, other, weights)
        forward = run_onnxruntime(x)
        write_model(operator, direction, weights)
        exact = run_onnxruntime(x)
        if operator == "RNN" and direction == "reverse":
            assert np.allclose(run_rnn_by_hand(weights, x), exact, atol=1e-4)
        # MNN returns no outputs of an LSTM here.
        for name, run in [("tract", run_tract), ("MNN", run_mnn)][:1 if operator == "LSTM" else 2]:
            output = run(x).reshape(exact.shape)
            error, from_forward = abs(output - exact).max(), abs(output - forward).max()
            print(f"{operator}, {direction}, by {name}: off by {error:.6f} from the exact output, "
                  f"by {from_forward:.6f} from that of {other}", file=sys.stderr)
            assert from_forward < 1e-4
            assert (error > 0.5) == (direction == "reverse") and not 1e-4 < error < 0.5
PYTHON
