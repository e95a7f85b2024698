#!/usr/bin/env bash
# onnx2pytorch multiplies from the right by a constant matrix that stands on the left.
#
# Versions: onnx2pytorch 0.6.0, onnx 1.23.2, torch 2.13.0.
# Guess before the run: a constant matrix can be either factor of MatMul, and the product of ONNX
#     comes out, or an error. (That the other product does was suspected after reading the source.)
# Seen: the constant becomes a linear layer, wherever it stands: W @ x is computed as x @ W. If both
#     are square, nothing is said. The cosine transform of 8 x 8 blocks, D @ x @ D.T, gives the
#     blocks back: x @ D @ D.T is x. If x isn't square, it is an error of torch about shapes.
# For gyre: it exports no ONNX. There, transpose both factors and the product.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile onnx==1.23.2 torch==2.13.0 numpy==2.4.6 \
    scipy==1.17.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps onnx2pytorch==0.6.0
# Other operators of onnx2pytorch import torchvision. An empty module stands for it.
mkdir -p "$folder/empty/torchvision"
echo > "$folder/empty/torchvision/__init__.py"
echo "decode_image = ImageReadMode = None" > "$folder/empty/torchvision/io.py"
echo "deform_conv2d = roi_align = roi_pool = None" > "$folder/empty/torchvision/ops.py"
PYTHONPATH="$folder/empty" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx2pytorch import ConvertModel
from scipy.fft import dct, dctn

SIZE = 8
torch.set_num_threads(1)
generator = np.random.default_rng(0)
transform = dct(np.eye(SIZE), norm="ortho", axis=0).astype(np.float32)


def make_model(nodes, tensors, width):
    shape = [3, SIZE, width]
    graph = helper.make_graph(
        nodes, "product", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model, x):
    """Return the outputs of ONNX's reference and of the converted model."""
    with torch.no_grad():
        converted = ConvertModel(model, experimental=True)(torch.from_numpy(x)).numpy()
    return ReferenceEvaluator(model).run(None, {"x": x})[0], converted


def compare(name, model, x, expected, seen):
    reference, converted = run(model, x)
    error = np.linalg.norm(converted - expected) / np.linalg.norm(expected)
    print(f"{name}: error {error:.3f}")
    assert np.allclose(reference, expected, atol=1e-5)
    assert np.allclose(converted, seen, atol=1e-5)
    assert (error < 1e-5) == (seen is expected)


x = generator.normal(size=(3, SIZE, SIZE)).astype(np.float32)
weights = generator.normal(size=(SIZE, SIZE)).astype(np.float32)
right = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weights}, SIZE)
expected = x @ weights
compare("x @ W", right, x, expected, expected)
left = make_model([helper.make_node("MatMul", ["w", "x"], ["y"])], {"w": weights}, SIZE)
compare("W @ x", left, x, weights @ x, x @ weights)
nodes = [helper.make_node("MatMul", ["d", "x"], ["rows"]),
         helper.make_node("MatMul", ["rows", "dt"], ["y"])]
blocks = make_model(nodes, {"d": transform, "dt": transform.T.copy()}, SIZE)
compare("cosine transform of blocks", blocks, x, dctn(x, norm="ortho", axes=(1, 2)), x)

narrow = make_model([helper.make_node("MatMul", ["w", "x"], ["y"])], {"w": weights}, SIZE - 1)
try:
    run(narrow, x[:, :, 1:].copy())
except RuntimeError as problem:
    print(f"W @ x with 7 columns: {problem}")
else:
    raise SystemExit("a product that is not square is computed")
PYTHON
