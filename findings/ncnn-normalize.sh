#!/usr/bin/env bash
# In ncnn, `F.normalize` is always over channels and of order 2, and circular padding puts zeros.
#
# Versions: ncnn 1.0.20261020, pnnx 20261020, torch 2.13.0.
# Guess before the run: operators that pnnx converts without a word compute in ncnn what they
#     compute in torch. (None was suspected: all came out of a comparison of many operators.)
# Seen: `F.normalize(x, dim=3)`, which makes each vector in the last dimension one of length 1, as
#     attention by cosines needs, divides by the norm over the channels instead; dim=2 too, and p=1
#     is p=2. Padding with mode "circular" puts zeros, so that borders differ by as much as the
#     values. Reflected padding is right. pnnx warns of none.
# For gyre: it exports to no ncnn. There, move the dimension to the place of the channels first, and
#     concatenate the borders by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ncnn==1.0.20261020 pnnx==20261020 \
    torch==2.13.0 numpy==2.4.6
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import pathlib
import subprocess

import ncnn
import numpy as np
import pnnx
import torch
import torch.nn.functional as F
from torch import nn

PROGRAM = pathlib.Path(pnnx.__file__).parent / "pnnx"
CHANNELS, HEIGHT, WIDTH = 3, 4, 6


class Model(nn.Module):
    """A convolution that changes nothing, and an operator."""

    def __init__(self, operator):
        super().__init__()
        self.operator = operator
        self.convolution = nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False)
        nn.init.dirac_(self.convolution.weight)

    def forward(self, x):
        return self.operator(self.convolution(x))


def run_ncnn(operator, shape):
    """Return what ncnn computes for x by an operator, and what pnnx said of it."""
    torch.jit.trace(Model(operator), x).save("model.pt")
    size = "inputshape=" + str(list(x.shape)).replace(" ", "")
    done = subprocess.run([PROGRAM, "model.pt", size, "fp16=0"], capture_output=True, text=True,
                          check=True)
    net = ncnn.Net()
    assert net.load_param("model.ncnn.param") == 0 and net.load_model("model.ncnn.bin") == 0
    extractor = net.create_extractor()
    extractor.input("in0", ncnn.Mat(x[0].numpy()).clone())
    warnings = [line for line in (done.stdout + done.stderr).splitlines()
                if "not support" in line or "ignore" in line]
    return np.array(extractor.extract("out0")[1]).reshape(shape), warnings


def divide(dim, p=2):
    """Return x divided by its norm over a dimension."""
    return x.numpy() / np.linalg.norm(x.numpy(), p, axis=dim, keepdims=True)


def pad(mode):
    """Return x with one more row and column at each side."""
    return np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), mode=mode)


PROGRAM.chmod(0o755)
torch.manual_seed(0)
x = torch.randn(1, CHANNELS, HEIGHT, WIDTH)
for name, operator, exact, instead in [
        ("normalize, dim=1", lambda x: F.normalize(x, dim=1), divide(1), divide(1)),
        ("normalize, dim=2", lambda x: F.normalize(x, dim=2), divide(2), divide(1)),
        ("normalize, dim=3", lambda x: F.normalize(x, dim=3), divide(3), divide(1)),
        ("normalize, dim=1, p=1", lambda x: F.normalize(x, p=1, dim=1), divide(1, 1), divide(1)),
        ("pad, reflect", lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), pad("reflect"),
         pad("reflect")),
        ("pad, circular", lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"), pad("wrap"),
         pad("constant"))]:
    with torch.no_grad():
        by_torch = operator(x).numpy()
    by_ncnn, warnings = run_ncnn(operator, exact.shape)
    print(f"{name}: last numbers of the first row {by_ncnn[0, 0, 0, -3:].round(3)} by ncnn, "
          f"{by_torch[0, 0, 0, -3:].round(3)} by torch, {exact[0, 0, 0, -3:].round(3)} exact, "
          f"warnings {warnings}")
    assert np.allclose(by_torch, exact, atol=1e-6) and not warnings
    assert np.allclose(by_ncnn, instead, atol=1e-5)
assert abs(divide(3) - divide(1)).max() > 0.5 and abs(divide(1, 1) - divide(1)).max() > 0.2
PYTHON
