#!/usr/bin/env bash
# onnx_shrink_ray makes 0 of a large constant of 1/1024, and NaN of a mask with minus infinity.
#
# Versions: onnx_shrink_ray 0.0.11, onnx_graphsurgeon 0.6.1, onnx 1.23.2, onnxruntime 1.32.0,
#     numpy 2.4.6.
# Guess before the run: 8 bits for the range of a tensor keep each number within half of a 255th of
#     the range; a tensor of equal numbers has no range, and is exact. A mask of 0 and minus
#     infinity stays one, or is left alone. (That both fail was suspected after reading the source.)
# Seen: where all numbers are equal, the range is taken for 1: they are rounded to a 255th, 1/1024
#     to 0 and 0.01 to 0.0118, so that a mean over 1,024 rows by a matrix product is 0. A causal
#     mask of 128 x 128 becomes NaN throughout, and so do the outputs. Nothing is said. Random
#     weights are right.
# For gyre: it exports no ONNX. There, write masks with -10,000, and means as ReduceMean.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile onnx_shrink_ray==0.0.11 \
    onnx_graphsurgeon==0.6.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnx.parser
import onnxruntime
from onnx import numpy_helper
from onnx_shrink_ray.shrink import quantize_weights


def run(model, x):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def apply(operator, constant, x, **options):
    """Return the outputs of an operator on x and a constant, before and after quantizing."""
    shapes = [", ".join(str(size) for size in array.shape) for array in (x, constant)]
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18]> '
        f"one (float[{shapes[0]}] x) => (float[N, M] y) <float[{shapes[1]}] constant> "
        f"{{ y = {operator} (x, constant) }}")
    model.graph.initializer.add().CopyFrom(numpy_helper.from_array(constant, "constant"))
    onnx.checker.check_model(model)
    return run(model, x), run(quantize_weights(model, **options), x)


rng = np.random.default_rng(0)
x = rng.normal(loc=1, size=(4, 1024)).astype(np.float32)
weights = rng.normal(size=(1024, 16)).astype(np.float32)
for per_channel in [False, True]:
    options = {"per_channel": per_channel}
    before, after = apply("MatMul", weights, x, **options)
    error = np.linalg.norm(after - before) / np.linalg.norm(before)
    print(f"per_channel {per_channel}: random weights, error {error:.4f}")
    assert error < 0.02
    for number in [1 / 1024, 0.01, 0.5]:
        equal = np.full((1024, 16), number, np.float32)
        before, after = apply("MatMul", equal, x, **options)
        ratio = after[0, 0] / before[0, 0]
        print(f"  numbers of {number:.5f}: {ratio:.4f} of the output, "
              f"{np.rint(number * 255) / 255 / number:.4f} by a step of a 255th")
        assert np.allclose(before, x.sum(1, keepdims=True) * number, rtol=1e-3)
        assert np.allclose(after, np.rint(np.float32(number) * 255) / 255 / number * before,
                           rtol=1e-3)
    scores = rng.normal(size=(128, 128)).astype(np.float32)
    mask = np.triu(np.full((128, 128), -np.inf, np.float32), 1)
    before, after = apply("Add", mask, scores, **options)
    print(f"  causal mask: {np.isnan(before).mean():.2f} of the scores are NaN before, "
          f"{np.isnan(after).mean():.2f} after")
    assert not np.isnan(before).any() and np.isnan(after).mean() > 0.5
PYTHON
