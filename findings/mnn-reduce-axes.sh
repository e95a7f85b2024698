#!/usr/bin/env bash
# MNN's converter drops the axes of ReduceL2 and four others: a row is divided by everybody's norm.
#
# Versions: mnn 3.6.1, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: operators that MNN converts without a warning compute what ONNX defines.
#     (None was suspected: it came out of a comparison of all of ONNX's tests of single operators.)
# Seen: since opset 18, axes are an input. ReduceSum, Mean, Max, Min and Prod read it. ReduceL1, L2,
#     SumSquare, LogSum and LogSumExp do not, and reduce over all axes. With `keepdims`, the result
#     still broadcasts, so all shapes are right: what torch exports for `F.normalize(x, dim=-1)`
#     gives rows with norms of 0.2 to 0.7 instead of 1, which depend on the rest of the batch, and
#     probabilities by log-sum-exp add up to 1 over the batch. The converter says "Converted
#     Success!". With opset 17, where axes are an attribute, the same operators are right.
# For gyre: it exports no ONNX. There, convert to opset 17, or write the norm by ReduceSum.
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

N_ROWS, WIDTH = 4, 6
x = np.random.default_rng(0).normal(size=(N_ROWS, WIDTH)).astype(np.float32)


def say(text):
    print(text, file=sys.stderr)


def run_both(body, opset, shape=(N_ROWS, WIDTH)):
    """Return the outputs of onnxruntime and MNN, both (N_ROWS, WIDTH)."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> '
        f"graph (float[{N_ROWS}, {WIDTH}] x) => (float[{shape[0]}, {shape[1]}] y) {{ {body} }}")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    exact = onnxruntime.InferenceSession("model.onnx").run(None, {"x": x})[0]
    _tools.mnnconvert(["MNNConvert", "-f", "ONNX", "--modelFile", "model.onnx", "--MNNModel",
                       "model.mnn", "--bizCode", "test"])
    network = MNN.nn.load_module_from_file("model.mnn", ["x"], ["y"])
    given = MNN.expr.const(x, list(x.shape), MNN.expr.NCHW, MNN.expr.float)
    output = MNN.expr.convert(network.forward([given])[0], MNN.expr.NCHW)
    return exact, np.array(output.read())


axes = "axes = Constant <value_ints = [-1]> ()"
for name, computed in [
        ("Sum", np.sum), ("Mean", np.mean), ("Max", np.max), ("Min", np.min), ("Prod", np.prod),
        ("L1", lambda a, **kw: abs(a).sum(**kw)), ("L2", lambda a, **kw: (a**2).sum(**kw)**0.5),
        ("SumSquare", lambda a, **kw: (a**2).sum(**kw)),
        ("LogSum", lambda a, **kw: np.log(a.sum(**kw))),
        ("LogSumExp", lambda a, **kw: np.log(np.exp(a).sum(**kw)))]:
    read = name in ("Sum", "Mean", "Max", "Min", "Prod")
    given = "square = Mul (x, x) " if name == "LogSum" else "square = Identity (x) "
    numbers = x**2 if name == "LogSum" else x
    by_row, of_all = computed(numbers, axis=1, keepdims=True), computed(numbers)
    for opset in (17, 18):
        # An element of zeros gives the result the shape of the input.
        if opset == 17 and name != "Sum":
            reduced = f"{given} r = Reduce{name} <axes = [-1], keepdims = 1> (square)"
        else:
            reduced = f"{given} {axes} r = Reduce{name} <keepdims = 1> (square, axes)"
        exact, by_mnn = run_both(f"{reduced} zeros = Sub (x, x) y = Add (zeros, r)", opset)
        assert np.allclose(exact, np.broadcast_to(by_row, x.shape), atol=1e-4)
        right = opset == 17 or read
        expected = by_row if right else of_all
        say(f"Reduce{name}, opset {opset}: first row {by_mnn[0, 0]:.4f} by MNN, "
            f"{by_row[0, 0]:.4f} exact, {of_all:.4f} over all axes")
        assert np.allclose(by_mnn, np.broadcast_to(expected, x.shape), atol=1e-4)
        assert right == np.allclose(by_mnn, exact, atol=0.05)

# This is what torch's exporter writes for F.normalize.
_, normalized = run_both(
    f"{axes} low = Constant <value = float {{1e-12}}> () norm = ReduceL2 <keepdims = 1> (x, axes) "
    "most = Max (norm, low) y = Div (x, most)", 20)
norms = (normalized**2).sum(1)**0.5
say(f"norms of normalized rows by MNN: {norms.round(3)}, of all {(norms**2).sum():.4f}")
assert (norms < 0.9).all() and abs((norms**2).sum() - 1) < 1e-4
_, probabilities = run_both(
    f"{axes} total = ReduceLogSumExp <keepdims = 1> (x, axes) "
    "logs = Sub (x, total) y = Exp (logs)", 20)
say(f"sums of probabilities by MNN: {probabilities.sum(1).round(3)}")
assert (probabilities.sum(1) < 0.9).all() and abs(probabilities.sum() - 1) < 1e-4
PYTHON
grep -c "Converted Success!" "$folder/log"
! grep -iE "warn|not support|error" "$folder/log"
