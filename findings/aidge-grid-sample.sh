#!/usr/bin/env bash
# aidge's linear and cubic GridSample give other pixels for a grid that samples each pixel as it is.
#
# Versions: aidge_core, aidge_backend_cpu and aidge_onnx 0.10.1, onnx 1.23.2, onnxruntime 1.32.0,
#     numpy 2.4.6.
# Guess before the run: a model that is loaded without a warning computes what onnxruntime computes.
#     (None was suspected: it came out of a comparison of all of ONNX's tests of single operators.)
# Seen: "nearest" is right. With "linear", a grid at the centers of the pixels, which gives the
#     picture itself, gives neighbours with the other sign, and 0 in the last row and column. With
#     "cubic", values of 1 become values of hundreds. So it is with random grids, and with
#     `align_corners` and without. Nothing is said.
# For gyre: its models have no pictures. There, keep to "nearest".
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
import onnx.parser
import onnxruntime

HEIGHT, WIDTH = 5, 6


def run_aidge(model, inputs):
    graph = aidge_onnx.load_onnx(model.SerializeToString())
    assert aidge_onnx.has_native_coverage(graph)
    graph.set_backend("cpu")
    graph.set_datatype(aidge_core.dtype.float32)
    graph.forward_dims([list(value.shape) for value in inputs], True)
    scheduler = aidge_core.SequentialScheduler(graph)
    scheduler.forward(data=[aidge_core.Tensor(np.ascontiguousarray(value)) for value in inputs])
    node, i = graph.get_ordered_outputs()[0]
    return np.array(node.get_operator().get_output(i))


def sample_linear(picture, grid):
    """Sample a picture at grid (height, width, 2) of x and y from -1 to 1, borders included."""
    result = np.zeros(grid.shape[:2])
    for place in np.ndindex(result.shape):
        x, y = (grid[place] + 1) / 2 * (WIDTH - 1, HEIGHT - 1)
        for row, column in np.ndindex(HEIGHT, WIDTH):
            weight = max(0, 1 - abs(x - column)) * max(0, 1 - abs(y - row))
            result[place] += weight * picture[row, column]
    return result


aidge_core.Log.set_console_level(aidge_core.Level.Warn)
rng = np.random.default_rng(0)
x = rng.normal(size=(1, 1, HEIGHT, WIDTH)).astype(np.float32)
shape = f"1, 1, {HEIGHT}, {WIDTH}"
for align in [0, 1]:
    # The centers of the pixels.
    rows, columns = (np.linspace(-1, 1, n) * (1 if align else 1 - 1 / n) for n in (HEIGHT, WIDTH))
    centers = np.stack(np.meshgrid(columns, rows), -1)[None].astype(np.float32)
    grids = {"centers": centers,
             "random": rng.uniform(-0.95, 0.95, centers.shape).astype(np.float32)}
    for mode in ["nearest", "linear", "cubic"]:
        model = onnx.parser.parse_model(
            f'<ir_version: 9, opset_import: ["": 20]> '
            f"sample (float[{shape}] x, float[1, {HEIGHT}, {WIDTH}, 2] grid) => (float[{shape}] y) "
            f'{{ y = GridSample <align_corners = {align}, mode = "{mode}"> (x, grid) }}')
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        for name, grid in grids.items():
            by_onnxruntime = session.run(None, {"x": x, "grid": grid})[0]
            by_aidge = run_aidge(model, [x, grid])
            if name == "centers":
                assert np.allclose(by_onnxruntime, x, atol=1e-4)
            elif mode == "linear" and align:
                assert np.allclose(by_onnxruntime[0, 0], sample_linear(x[0, 0], grid[0]), atol=1e-4)
            error = np.linalg.norm(by_aidge - by_onnxruntime) / np.linalg.norm(by_onnxruntime)
            print(f"{mode}, align_corners {align}, {name}: error {error:.2f}, last row by aidge "
                  f"{by_aidge[0, 0, -1].round(2)}")
            assert error < 1e-6 if mode == "nearest" else error > 0.5
PYTHON
