#!/usr/bin/env bash
# torch.onnx.export takes an epsilon of 1e-8 or less for 0 and drops it: 0 / (0 + 1e-9) is NaN.
#
# Versions: torch 2.13.0, onnxscript 0.7.2, onnx-ir 1.1.0, onnx 1.23.2, onnxruntime 1.32.0,
#     numpy 2.4.6.
# Guess before the run: the exporter leaves out operations that change no bit, as `x + 0`, and no
#     others. (That it compares constants with a tolerance was suspected after reading the source.)
# Seen: by default, the exported model is optimized by onnxscript's rules, one of which makes `x` of
#     `x + 0`. It takes a constant for 0 if it is below 1e-8, and for 1 if it is closer than 1e-5.
#     So `x / (x.sum() + 1e-9)` has no epsilon and gives NaN for rows of zeros, where torch gives 0,
#     and `log(p + 1e-9)` is -inf instead of -20.7, which makes an entropy NaN. A factor of 0.999995
#     is left out too, however often it is applied. Nothing is said. An epsilon of 2e-8 stays, and
#     so does any with `optimize=False`. `onnxscript.optimizer.optimize` and
#     `onnxscript.rewriter.rewrite` do the same to any file.
# For gyre: it exports no ONNX. There, take `clamp(min=...)` instead of adding, or 1e-7.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 onnxscript==0.7.2 \
    onnx-ir==1.1.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import logging

import numpy as np
import onnx.parser
import onnxruntime
import onnxscript.optimizer
import onnxscript.rewriter
import torch
from torch import nn

logging.disable(logging.WARNING)
x = torch.tensor([[0.0, 0, 0], [1, 2, 5]])


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def run(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {model.graph.input[0].name: inputs})[0]


def export(function, **options):
    """Return the outputs of the exported function."""
    program = torch.onnx.export(Model(function), (x,), dynamo=True, verbose=False, **options)
    return run(program.model_proto, x.numpy())


def share(x, epsilon):
    return x / (x.sum(-1, keepdim=True) + epsilon)


def entropy(x, epsilon):
    return -(x * torch.log(x + epsilon)).sum(-1)


for name, function in [("share", share), ("entropy", entropy)]:
    for epsilon in [1e-12, 1e-9, 1e-8, 2e-8, 1e-6]:
        exact = function(x, epsilon).numpy()
        assert np.isfinite(exact).all()
        exported = export(lambda x: function(x, epsilon))
        kept = export(lambda x: function(x, epsilon), optimize=False)
        print(f"{name}, epsilon {epsilon:g}, first row: {exact[0]} by torch, {exported[0]} "
              f"exported, {kept[0]} exported with optimize=False")
        assert np.allclose(kept, exact, atol=1e-6)
        assert np.isnan(exported[0]).all() if epsilon <= 1e-8 else np.allclose(exported, exact)
        assert np.allclose(exported[1], exact[1], atol=1e-6)

logs = export(lambda x: torch.log(x + 1e-9))
print(f"log(0 + 1e-9) exported: {logs[0]}")
assert np.isneginf(logs[0]).all()


def decay(x, factor):
    for _ in range(100):
        x = x * factor
    return x


for factor in [1 - 5e-6, 1 - 2e-5]:
    exported = export(lambda x: decay(x, factor))
    print(f"100 products with {factor}: {exported[1, 0]} exported, {factor**100:.6f} exact")
    assert (exported[1, 0] == 1) == (factor == 1 - 5e-6)

model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 20]> graph (float[3] x) => (float[3] y) '
    "{ epsilon = Constant <value = float {1e-9}> () y = Add (x, epsilon) }")
for name, optimize in [("optimizer", onnxscript.optimizer.optimize),
                       ("rewriter", onnxscript.rewriter.rewrite)]:
    optimized = optimize(model)
    zeros = np.zeros(3, np.float32)
    before, after = run(model, zeros), run(optimized, zeros)
    print(f"0 + 1e-9 in a file: {before[0]}, after onnxscript's {name}: {after[0]}")
    assert (before == np.float32(1e-9)).all() and (after == 0).all()
PYTHON
