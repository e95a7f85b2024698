#!/usr/bin/env bash
# ndonnx computes logaddexp as log(exp(a) + exp(b)).
#
# Versions: ndonnx 0.23.0, spox 0.18.2, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: what the functions of ndonnx's array API give, as constants and as exported graphs, is
#     what NumPy gives.
# Seen: nearly all do, but `logaddexp` is wrong, as a constant and in the graph: infinite above 88.7 in float32
#     and 709 in float64, minus infinity below -104 and -745, where the result is within 0.7 of the larger
#     argument. The log probability of one of two longer texts is minus infinity, whatever they are. Nothing is
#     said, and the exported file has Exp, Add and Log.
# For gyre: exports no ONNX. There, write maximum(a, b) + log1p(exp(-abs(a - b))).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ndonnx==0.23.0 spox==0.18.2 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import ndonnx as ndx
import numpy as np
import onnxruntime

LARGE = {"float32": (60, 89, 1000, -60, -104, -1000), "float64": (60, 710, 1000, -60, -746, -1000)}
for name, numbers in LARGE.items():
    first = np.array(numbers, dtype=name)
    second = first - first.dtype.type(0.5)
    constant = ndx.logaddexp(ndx.asarray(first), ndx.asarray(second)).unwrap_numpy()
    inputs = [ndx.argument(shape=("N",), dtype=getattr(ndx, name)) for _ in range(2)]
    model = ndx.build({"a": inputs[0], "b": inputs[1]}, {"y": ndx.logaddexp(*inputs)})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    exported = session.run(None, {"a": first, "b": second})[0]
    print(name, "operators:", sorted({node.op_type for node in model.graph.node}))
    for row in zip(first, np.logaddexp(first, second), constant, exported):
        print("    logaddexp({0}, {0} - 0.5) is {1:.4f}; ndonnx {2:.4f}, in onnxruntime {3:.4f}".format(*row))
    for values in (constant, exported):
        assert np.allclose(values[[0, 3]], np.logaddexp(first, second)[[0, 3]], rtol=1e-4)
        assert np.all(values[[1, 2]] == np.inf) and np.all(values[[4, 5]] == -np.inf)
    assert np.all(np.isfinite(np.logaddexp(first, second)))
PYTHON
