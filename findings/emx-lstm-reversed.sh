#!/usr/bin/env bash
# The C code of emx-onnx-cgen has the outputs of a backward LSTM in the reverse order.
#
# Versions: emx-onnx-cgen 1.4.0, onnx 1.23.2, onnxruntime 1.32.0.
# Guess before the run: a model that compiles without a warning computes what onnxruntime does, to 1e-5: at each step,
#     an LSTM of two directions has what its backward half has seen from the end up to that step. (It was met
#     in a comparison of many operators, before the guess was written down.)
# Seen: forward LSTMs are right. With `direction="reverse"`, and in the second half of a bidirectional
#     one, Y is that of the mirrored sequence: Y[0] belongs to the last step. With `sequence_lens`, each sequence is
#     mirrored within its length. Y_h and Y_c, the last states, are right, so that a classifier on them shows nothing.
# Cause: the inputs are read at `t`, which runs backwards, and the outputs written at `step`, which runs forwards
#     (emx_onnx_cgen/templates/lstm_op.c.j2). Its command `verify` sees it, `compile` does not look.
# For gyre: it exports no ONNX. There, run `verify` on each model, or mirror Y in the graph.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 emx-onnx-cgen==1.4.0
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import ctypes
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

T, B, INPUT, HIDDEN = 5, 2, 3, 4
draw = np.random.default_rng(0)


def compute(direction, lengths):
    """Return Y, Y_h and Y_c of onnxruntime and those of the compiled C code."""
    n_directions = 2 if direction == "bidirectional" else 1
    constants = {"w": (n_directions, 4 * HIDDEN, INPUT), "r": (n_directions, 4 * HIDDEN, HIDDEN), "b": (n_directions, 8 * HIDDEN)}
    constants = {name: draw.normal(size=shape).astype(np.float32) for name, shape in constants.items()}
    if lengths is not None:
        constants["lengths"] = np.array(lengths, dtype=np.int32)
    shapes = {"y": (T, n_directions, B, HIDDEN), "y_h": (n_directions, B, HIDDEN), "y_c": (n_directions, B, HIDDEN)}
    node = helper.make_node("LSTM", ["x", *constants], list(shapes), direction=direction, hidden_size=HIDDEN)
    graph = helper.make_graph(
        [node], "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [T, B, INPUT])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model)
    name = f"{direction}_{'full' if lengths is None else 'lengths'}"
    onnx.save(model, f"{name}.onnx")
    subprocess.run([sys.executable, "-m", "emx_onnx_cgen", "compile", f"{name}.onnx", f"{name}.c"], check=True,
                   capture_output=True)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"{name}.c", "-o", f"{name}.so", "-lm"], check=True)
    inputs = draw.normal(size=(T, B, INPUT)).astype(np.float32)
    found = [np.zeros(shape, dtype=np.float32) for shape in shapes.values()]
    code = ctypes.CDLL(f"./{name}.so")
    code.model(*(array.ctypes.data_as(ctypes.c_void_p) for array in [inputs, *found]))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": inputs}), found


def mirror(outputs, lengths):
    """Return outputs (T, B, HIDDEN) with the time of each sequence reversed within its length."""
    mirrored = outputs.copy()
    for row, length in enumerate(lengths or [T] * B):
        mirrored[:length, row] = outputs[:length, row][::-1]
    return mirrored


for direction in ["forward", "reverse", "bidirectional"]:
    for lengths in [None, [3, 5]]:
        due, found = compute(direction, lengths)
        assert np.allclose(found[1], due[1], atol=1e-5) and np.allclose(found[2], due[2], atol=1e-5)
        for half in range(due[0].shape[1]):
            is_backward = direction == "reverse" or half == 1
            difference = np.abs(found[0][:, half] - due[0][:, half]).max()
            mirrored = np.abs(mirror(found[0][:, half], lengths) - due[0][:, half]).max()
            print(f"{direction}, lengths {lengths}, half {half}: Y is off by {difference:.0e}, mirrored by {mirrored:.0e}")
            assert (difference > 0.1 and mirrored < 1e-5) if is_backward else difference < 1e-5
PYTHON
