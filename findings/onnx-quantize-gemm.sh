#!/usr/bin/env bash
# onnx-quantize forgets alpha and beta of Gemm.
#
# Versions: onnx-quantize 0.2.0, onnxruntime 1.32.0, onnx 1.23.2, onnx-ir 1.1.0, onnxscript 0.7.2,
#     numpy 2.4.6.
# Guess before the run: a quantized Gemm is the Gemm but for the rounding, or is left alone. (That
#     alpha and beta are lost was suspected after reading the source.)
# Seen: Gemm is alpha * x @ w + beta * b. The quantized model computes x @ w + b, in each of the
#     modes (weights only, static, dynamic): `torch.addmm(b, x, w, alpha=0.5)` comes out with twice
#     its product, and an error of 0.4 where rounding makes 0.01. Nothing is said. With
#     alpha = beta = 1, and with transB, all is right.
# For gyre: it exports no ONNX. There, fold both numbers into weight and bias first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile onnxruntime==1.32.0 onnx==1.23.2 \
    onnx-ir==1.1.0 onnxscript==0.7.2 onnx-quantize==0.2.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import copy

import numpy as np
import onnx.parser
import onnxruntime
from onnx import numpy_helper
from onnx_quantize import QConfig, quantize

N_TOKENS, N_INPUTS, N_OUTPUTS = 64, 96, 48
generator = np.random.default_rng(0)
x = generator.normal(size=(N_TOKENS, N_INPUTS)).astype(np.float32)
weights = 0.1 * generator.normal(size=(N_INPUTS, N_OUTPUTS)).astype(np.float32)
bias = generator.normal(size=N_OUTPUTS).astype(np.float32)


def measure_error(outputs, exact):
    return np.linalg.norm(outputs - exact) / np.linalg.norm(exact)


def run(model):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


for alpha, beta, transposed in [(1, 1, 0), (1, 1, 1), (0.5, 1, 0), (1, 3, 0), (2, 0.25, 1)]:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> graph (float[{N_TOKENS}, {N_INPUTS}] x) '
        f"=> (float[{N_TOKENS}, {N_OUTPUTS}] y) {{ y = Gemm <alpha = {alpha:.2f}, "
        f"beta = {beta:.2f}, transB = {transposed}> (x, w, b) }}")
    stored = np.ascontiguousarray(weights.T) if transposed else weights
    model.graph.initializer.extend(
        [numpy_helper.from_array(stored, "w"), numpy_helper.from_array(bias, "b")])
    onnx.checker.check_model(model, full_check=True)
    exact = alpha * x @ weights + beta * bias
    assert measure_error(run(model), exact) < 1e-5
    for name, options in [("weights only", {"weights_only": True}),
                          ("static", {"is_static": True, "calibration_data": x}),
                          ("dynamic", {"is_static": False})]:
        output = run(quantize(copy.deepcopy(model), QConfig(**options)))
        error = measure_error(output, exact)
        from_plain = measure_error(output, x @ weights + bias)
        print(f"alpha {alpha}, beta {beta}, transB {transposed}, {name}: error {error:.4f}, "
              f"{from_plain:.4f} from x @ w + b")
        assert from_plain < 0.02
        assert error < 0.02 if alpha == beta == 1 else error > 0.3
PYTHON
