#!/usr/bin/env bash
# esp-ppq adds a constant for each channel along the width, behind a convolution with a bias.
#
# Versions: esp-ppq 1.3.12, torch 2.13.0, onnx 1.19.1, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: a loaded model computes what onnxruntime computes, before it is quantized.
#     (It was met by chance, while another script was written.)
# Seen: esp-ppq wants to make an added constant of shape (1, C, 1, 1) the bias of the convolution
#     before it, and squeezes it to (C,). If there is a bias already, it stops there and leaves Add,
#     which now adds along the last axis. Where the width is C, as with 8 channels of 8 x 8, nothing
#     is said, and outputs are off by half of their size. Where it is 1, as behind global pooling,
#     (1, C, 1, 1) becomes (1, C, 1, C). Other widths raise an error. Without a bias, and with Sub,
#     all is right.
# For gyre: its exports have no convolutions. There, compare with onnxruntime before quantizing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile esp-ppq==1.3.12 torch==2.13.0 onnx==1.19.1 \
    onnxruntime==1.32.0 numpy==2.4.6
env/bin/python - 2> log <<'PYTHON' || { cat log; exit 1; }
import contextlib
import io

import numpy as np
import onnx.parser
import onnxruntime
import torch
from esp_ppq.api import load_onnx_graph
from esp_ppq.executor import TorchExecutor

CHANNELS = 8
generator = np.random.default_rng(0)
w, bias, shift = (generator.normal(size=shape).astype(np.float32)
                  for shape in [(CHANNELS, 3, 1, 1), CHANNELS, (1, CHANNELS, 1, 1)])


def run_both(width, operator, with_bias):
    """Return the input and the outputs of onnxruntime and esp-ppq."""
    inputs = "x, w, bias" if with_bias else "x, w"
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> '
        f"g (float[1, 3, {width}, {width}] x) => (float[1, {CHANNELS}, {width}, {width}] y) "
        f"{{ c = Conv ({inputs}) y = {operator} (c, shift) }}")
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name)
        for name, value in [("w", w), ("bias", bias), ("shift", shift)]
        if name != "bias" or with_bias)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    x = generator.normal(size=(1, 3, width, width)).astype(np.float32)
    exact = onnxruntime.InferenceSession("model.onnx").run(None, {"x": x})[0]
    with contextlib.redirect_stdout(io.StringIO()):
        executor = TorchExecutor(load_onnx_graph("model.onnx"), device="cpu")
        output = executor.forward(torch.from_numpy(x))[0].numpy()
    return x, exact, output


for width, operator, with_bias in [(8, "Add", True), (1, "Add", True), (8, "Add", False),
                                   (8, "Sub", True), (1, "Sub", True)]:
    x, exact, output = run_both(width, operator, with_bias)
    conv = np.einsum("oc,nchw->nohw", w[:, :, 0, 0], x) + bias[:, None, None] * with_bias
    sign = 1 if operator == "Add" else -1
    assert np.allclose(exact, conv + sign * shift, atol=1e-4)
    right = operator == "Sub" or not with_bias
    expected = exact if right else conv + shift.ravel()  # along the width
    error = np.linalg.norm(output - exact) / np.linalg.norm(exact)
    print(f"width {width}, {operator}, {'with' if with_bias else 'without'} a bias: shape "
          f"{output.shape} for {exact.shape}, relative error {error:.2g}")
    assert output.shape == expected.shape and np.allclose(output, expected, atol=1e-4)
    assert right == (error < 1e-5)
PYTHON
