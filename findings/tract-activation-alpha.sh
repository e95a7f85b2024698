#!/usr/bin/env bash
# tract's Celu has no factor alpha, and its Swish no alpha at all.
#
# Versions: tract 0.23.9, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: activations that tract loads compute what ONNX defines, with any alpha. (It
#     was not suspected: it came out of a comparison of all of ONNX's tests of single operators.)
# Seen: Celu is max(0, x) + min(0, exp(x / alpha) - 1), without alpha before the last bracket: half
#     of the exact value for alpha = 2, twice for 0.5, with a kink at 0, where Celu is made to have
#     none. Swish is x * sigmoid(x) for each alpha, so that the approximation of GELU by
#     x * sigmoid(1.702 x) is another function. Nothing is said. ONNX's own test of Celu has no
#     negative numbers, and its test of Swish has alpha = 1. Elu, Selu, LeakyRelu, ThresholdedRelu
#     and HardSigmoid are right.
# For gyre: it has SwiGLU with alpha = 1. There, write both by Exp or Sigmoid and Mul.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tract==0.23.9 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
cd "$folder"
env/bin/python - <<'PYTHON'
import numpy as np
import onnx.parser
import onnxruntime
import tract
from onnx.reference import ReferenceEvaluator

x = np.array([-3, -2, -1, -0.5, 0, 0.5, 1, 2], np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def run(operator, attributes):
    """Return the outputs of tract, and of onnxruntime or ONNX's reference."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 24]> graph (float[{len(x)}] x) '
        f"=> (float[{len(x)}] y) {{ y = {operator} <{attributes}> (x) }}")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    runnable = tract.onnx().load("model.onnx").into_model().into_runnable()
    other = (ReferenceEvaluator(model) if operator == "Swish"
             else onnxruntime.InferenceSession("model.onnx"))
    return runnable.run([x])[0].to_numpy(), other.run(None, {"x": x})[0]


for alpha in [0.5, 1.0, 2.0, 1.702]:
    low = np.minimum(x, 0)
    for operator, more, exact, by_tract in [
            ("Celu", "", np.maximum(x, 0) + alpha * (np.exp(low / alpha) - 1),
             np.maximum(x, 0) + np.exp(low / alpha) - 1),
            ("Swish", "", x * sigmoid(alpha * x), x * sigmoid(x)),
            ("Elu", "", np.maximum(x, 0) + alpha * (np.exp(low) - 1), None),
            ("Selu", ", gamma = 1.5", 1.5 * (np.maximum(x, 0) + alpha * (np.exp(low) - 1)), None),
            ("LeakyRelu", "", np.where(x < 0, alpha * x, x), None),
            ("ThresholdedRelu", "", np.where(x > alpha, x, 0), None),
            ("HardSigmoid", ", beta = 0.3", np.clip(alpha * x + 0.3, 0, 1), None)]:
        output, other = run(operator, f"alpha = {alpha}{more}")
        error = abs(output - exact).max()
        print(f"{operator}, alpha {alpha}: off by {error:.6f}")
        assert np.allclose(other, exact, atol=1e-5)
        assert np.allclose(output, exact if by_tract is None else by_tract, atol=1e-5)
        assert (error > 0.1) == (by_tract is not None and alpha != 1) and not 1e-5 < error < 0.1
PYTHON
