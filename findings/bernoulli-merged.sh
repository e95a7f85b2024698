#!/usr/bin/env bash
# Two masks drawn by Bernoulli become one: in torch's export to ONNX, and in onnxruntime.
#
# Versions: torch 2.13.0, onnx 1.23.2, onnxscript 0.7.2, onnx-ir 1.1.0, onnxruntime 1.32.0.
# Guess before the run: two draws stay two draws: who removes common subexpressions leaves random
#     operators alone. (The effect had been met by chance in a comparison of ONNX optimizers, before
#     the guess was written down.)
# Seen: `torch.onnx.export` makes one Bernoulli of two `torch.bernoulli(p)`, and onnxruntime
#     makes one of two nodes in a file, from its level "basic" on, which is below the default. The
#     list of random operators that the exporter leaves alone lacks Bernoulli. Two masks with the
#     same probabilities are equal in every element. `torch.rand_like(p) < p` stays two draws.
# For gyre: it exports no ONNX, and its exports draw nothing. There, compare uniform numbers with p.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 \
    onnx-ir==1.1.0 onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import logging

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import torch
from torch import nn

SHAPE = (64, 64)
LEVELS = onnxruntime.GraphOptimizationLevel

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
mask (float[64, 64] x, float[64, 64] p) => (float[64, 64] first, float[64, 64] second)
{
    one = Bernoulli (p)
    other = Bernoulli (p)
    first = Mul (x, one)
    second = Mul (x, other)
}
"""


class TwoMasks(nn.Module):
    """Two masks with the same probabilities, by torch.bernoulli or by uniform numbers."""

    def __init__(self, by_uniform):
        super().__init__()
        self.by_uniform = by_uniform

    def draw(self, p):
        return (torch.rand_like(p) < p).float() if self.by_uniform else torch.bernoulli(p)

    def forward(self, x, p):
        return x * self.draw(p), x * self.draw(p)


def share_of_equal(first, second):
    """Return the share of elements in which two masks agree."""
    return float(np.mean(np.asarray(first) == np.asarray(second)))


def run(model, level):
    """Return the share of equal elements by onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return share_of_equal(*session.run(None, {"x": x.numpy(), "p": p.numpy()}))


logging.disable(logging.WARNING)
x, p = torch.ones(SHAPE), torch.full(SHAPE, 0.5)
for by_uniform, n_expected in [(False, 1), (True, 2)]:
    module = TwoMasks(by_uniform)
    exported = torch.onnx.export(module, (x, p), input_names=["x", "p"], verbose=False)
    exported = exported.model_proto
    n_draws = sum(node.op_type in ("Bernoulli", "RandomUniformLike", "RandomUniform")
                  for node in exported.graph.node)
    in_torch = share_of_equal(*module(x, p))
    in_onnx = run(exported, LEVELS.ORT_DISABLE_ALL)
    name = "uniform numbers" if by_uniform else "torch.bernoulli"
    print(f"{name}: {n_draws} draws in the exported file, {in_onnx:.3f} of the elements of the "
          f"masks are equal, {in_torch:.3f} in torch, 0.5 expected")
    assert n_draws == n_expected
    assert abs(in_torch - 0.5) < 0.05 and abs(in_onnx - (0.5 if by_uniform else 1)) < 0.05

model = onnx.parser.parse_model(MODEL)
onnx.checker.check_model(model, full_check=True)
for name, level, expected in [("none", LEVELS.ORT_DISABLE_ALL, 0.5),
                              ("basic", LEVELS.ORT_ENABLE_BASIC, 1),
                              ("default", LEVELS.ORT_ENABLE_ALL, 1)]:
    share = run(model, level)
    print(f"onnxruntime, optimizations {name}: {share:.3f} are equal, 0.5 expected")
    assert abs(share - expected) < 0.05
PYTHON
