#!/usr/bin/env bash
# OpenVINO runs ONNX's Attention with a window as attention without one.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, onnxruntime 1.32.0.
# Guess before the run: a model that converts without an error computes what ONNX defines. (The
#     effect had been met before, in a run of ONNX's own tests of single operators.)
# Seen: since opset 25, Attention has `left_window_size` and `right_window_size`. OpenVINO reads
#     such a model without a word and attends to everything, or to everything before if it is
#     causal, with a cache and a mask too. Short texts come out right: the error begins behind the
#     window. Inlined, so that the same operator is a graph of simple ones, the same model is right.
# For gyre: its models have no window, and it exports no ONNX. There, inline Attention before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile openvino==2026.4.1 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx.inliner
import onnx.parser
import onnxruntime
import openvino

HEADS, LENGTH, WIDTH = 2, 8, 16
WINDOW = 2

MODEL = f"""
<ir_version: 10, opset_import: ["": 25]>
attend (float[1, {HEADS}, {LENGTH}, {WIDTH}] q, float[1, {HEADS}, {LENGTH}, {WIDTH}] k,
        float[1, {HEADS}, {LENGTH}, {WIDTH}] v) => (float[1, {HEADS}, {LENGTH}, {WIDTH}] y)
{{
    y = Attention <is_causal = 1, left_window_size = {WINDOW}> (q, k, v)
}}
"""


def attend(window):
    """Return causal attention over the last `window` + 1 keys, in float64."""
    distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    scores = q.astype(float) @ k.swapaxes(-1, -2) / WIDTH**0.5
    weights = np.exp(np.where((distance >= 0) & (distance <= window), scores, -np.inf))
    return weights / weights.sum(-1, keepdims=True) @ v


def run_openvino(model):
    """Return what OpenVINO computes for q, k and v by a model."""
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", settings)
    return np.array(compiled([q, k, v])[0])


core = openvino.Core()
shape = (3, 1, HEADS, LENGTH, WIDTH)
q, k, v = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
model = onnx.parser.parse_model(MODEL)
onnx.checker.check_model(model, full_check=True)
session = onnxruntime.InferenceSession(model.SerializeToString())
inlined = onnx.inliner.inline_selected_functions(model, [("", "Attention")],
                                                 inline_schema_functions=True)
exact, whole = attend(WINDOW), attend(LENGTH)
for name, y, right in [("onnxruntime", session.run(None, {"q": q, "k": k, "v": v})[0], exact),
                       ("OpenVINO", run_openvino(model), whole),
                       ("OpenVINO, inlined", run_openvino(inlined), exact)]:
    errors = abs(y - exact).max((0, 1, 3))
    print(f"{name}: errors by position {errors.round(3)}")
    assert abs(y - right).max() < 1e-4
assert (abs(whole - exact).max((0, 1, 3))[WINDOW + 1:] > 0.1).all()
PYTHON
