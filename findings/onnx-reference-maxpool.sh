#!/usr/bin/env bash
# ONNX's reference evaluator returns wrong indices from MaxPool, and swaps its pads.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: the evaluator that comes with the standard computes what the standard says,
#     for attributes that its tests do not cover too. (The indices came out of a check of gradients
#     that use them. The order of the pads was suspected after reading the source.)
# Seen: with strides and dilations of 1, which are the defaults, another function computes MaxPool.
#     Its indices are positions in the plane instead of the whole tensor, so all channels but the
#     first point into the first one, and a place in the window is read with the width of the output
#     instead of the kernel's: in one plane too, half of them point at smaller numbers. With pads,
#     they can be negative. Pads are read as top, bottom, left, right instead of top, left, bottom,
#     right: `pads=[1, 0, 1, 0]` pads the top and the left, and the output has another shape.
#     Nothing is said. With a stride of 2, all is right, and so is onnxruntime.
# For gyre: it exports no ONNX. There, test against onnxruntime, or give the pads to a Pad.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import itertools

import numpy as np
import onnx.parser
import onnxruntime
from onnx.reference import ReferenceEvaluator

generator = np.random.default_rng(0)


def compute(x, kernel, stride, pads):
    """Return maxima and their indices in the flat input, by a loop over all windows."""
    sizes = [(x.shape[2 + i] + pads[i] + pads[2 + i] - kernel[i]) // stride + 1 for i in range(2)]
    y = np.zeros((*x.shape[:2], *sizes), np.float32)
    indices = np.zeros(y.shape, np.int64)
    for n, c, i, j in np.ndindex(y.shape):
        top, left = i * stride - pads[0], j * stride - pads[1]
        rows = range(max(0, top), min(x.shape[2], top + kernel[0]))
        columns = range(max(0, left), min(x.shape[3], left + kernel[1]))
        best = max(itertools.product(rows, columns), key=lambda place: x[n, c, *place])
        y[n, c, i, j] = x[n, c, *best]
        indices[n, c, i, j] = np.ravel_multi_index((n, c, *best), x.shape)
    return y, indices


def run(x, kernel, stride, pads):
    """Return maxima and indices by onnxruntime and by ONNX's reference."""
    y, _ = compute(x, kernel, stride, pads)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 12]> graph (float{list(x.shape)} x) '
        f"=> (float{list(y.shape)} y, int64{list(y.shape)} indices) {{ y, indices = MaxPool "
        f"<kernel_shape = {kernel}, strides = [{stride}, {stride}], pads = {pads}> (x) }}")
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": x}), ReferenceEvaluator(model).run(None, {"x": x})


for shape, kernel, stride, pads in [
        ((1, 1, 8, 8), [2, 2], 1, [0, 0, 0, 0]), ((2, 3, 8, 8), [2, 2], 1, [0, 0, 0, 0]),
        ((1, 1, 8, 8), [3, 3], 1, [1, 1, 1, 1]), ((2, 3, 8, 8), [2, 2], 2, [0, 0, 0, 0]),
        ((2, 3, 8, 8), [3, 3], 2, [1, 1, 1, 1])]:
    x = generator.permutation(np.prod(shape)).reshape(shape).astype(np.float32)
    y, indices = compute(x, kernel, stride, pads)
    by_runtime, by_reference = run(x, kernel, stride, pads)
    assert np.array_equal(by_runtime[0], y) and np.array_equal(by_runtime[1], indices)
    assert np.array_equal(by_reference[0], y)
    right = (by_reference[1] == indices).mean()
    print(f"input {shape}, kernel {kernel}, stride {stride}, pads {pads}: {right:.0%} of the "
          f"reference's indices are right, the lowest is {by_reference[1].min()}")
    assert right == 1 if stride == 2 else right < 0.7
    assert (by_reference[1].min() < 0) == (stride == 1 and pads[0] > 0)

x = generator.normal(size=(1, 1, 6, 6)).astype(np.float32)
for pads in [[1, 0, 1, 0], [0, 1, 0, 1], [2, 1, 0, 1]]:
    y, _ = compute(x, [3, 3], 1, pads)
    by_runtime, by_reference = run(x, [3, 3], 1, pads)
    swapped, _ = compute(x, [3, 3], 1, [pads[0], pads[2], pads[1], pads[3]])
    print(f"pads {pads}: shape {y.shape[2:]} exact, {by_reference[0].shape[2:]} by the reference")
    assert np.array_equal(by_runtime[0], y)
    assert np.array_equal(by_reference[0], swapped)
    assert y.shape != swapped.shape
PYTHON
