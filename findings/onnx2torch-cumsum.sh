#!/usr/bin/env bash
# onnx2torch adds up from the end: positions that a model counts in its mask come out reversed.
#
# Versions: onnx2torch 1.5.15, onnx 1.23.2, onnxruntime 1.32.0, torch 2.13.0.
# Guess before the run: of ONNX's own tests of single operators, onnx2torch computes those right
#     that it converts.
# Seen: CumSum runs from the last element to the first, unless the model says `reverse=0`, which is
#     ONNX's default and which exporters leave out. A model that takes its positions from the mask,
#     as decoders do for prompts with padding on the left, gives the first token of a text the
#     highest position and the last one 0. Nothing is said. NonZero is wrong too: it is transposed.
# For gyre: it exports no ONNX. There, write `reverse=0` into each CumSum.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile onnx==1.23.2 onnxruntime==1.32.0 torch==2.13.0 numpy==2.4.6
env/bin/pip install --quiet --no-compile --no-deps onnx2torch==1.5.15
# Two other operators of onnx2torch import torchvision. An empty module stands for it.
mkdir -p empty/torchvision
echo > empty/torchvision/__init__.py
echo "roi_align = None" > empty/torchvision/ops.py
PYTHONPATH=empty env/bin/python - <<'PYTHON'
import numpy as np
import onnx.parser
import onnxruntime
import torch
from onnx2torch import convert

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
count (int64[2, 6] mask) => (int64[2, 6] positions)
<int64 axis = { 1 }, int64 one = { 1 }>
{
    counted = CumSum ATTRIBUTES (mask, axis)
    last = Sub (counted, one)
    positions = Mul (last, mask)
}
"""

mask = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]])
right = [[0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 1, 2]]
reversed_positions = [[5, 4, 3, 2, 1, 0], [0, 0, 0, 2, 1, 0]]
for attributes, seen in [("", reversed_positions), ("<reverse = 0>", right)]:
    model = onnx.parser.parse_model(MODEL.replace("ATTRIBUTES", attributes))
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    exact = session.run(None, {"mask": mask})[0].tolist()
    converted = convert(model)(torch.from_numpy(mask)).tolist()
    print(f"CumSum {attributes or 'without attributes'}: positions {exact} by onnxruntime, "
          f"{converted} by onnx2torch")
    assert exact == right and converted == seen
PYTHON
