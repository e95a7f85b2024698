#!/usr/bin/env bash
# In ncnn, powers of negative numbers are 2.4e38, and quotients are not rounded as in torch.
#
# Versions: ncnn 1.0.20261020, pnnx 20261020, torch 2.13.0.
# Guess before the run: operators that pnnx converts without a word compute in ncnn what they
#     compute in torch. (None was suspected: all came out of a comparison of many operators.)
# Seen: `x**3`, `x**4`, `x**5` and `1 / x` written as `x**-1` are 2.4e38 wherever x is negative, by
#     exp(n * log(x)); `x**2` has an operator of its own and is right. `torch.div(x, n,
#     rounding_mode="floor")` is not rounded at all, "trunc" is rounded down, and `x % n` is the
#     distance from the nearest multiple of n: 1.5 % 2 is -0.5. `x // n` and `torch.fmod` are right.
#     pnnx warns of none of these.
# For gyre: it exports to no ncnn. There, write powers as products, take `//`, and write
#     x - n * (x // n) for remainders.
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
from torch import nn

PROGRAM = pathlib.Path(pnnx.__file__).parent / "pnnx"


class Model(nn.Module):
    """A convolution that changes nothing, and an operator."""

    def __init__(self, operator):
        super().__init__()
        self.operator = operator
        self.convolution = nn.Conv2d(1, 1, 1, bias=False)
        nn.init.ones_(self.convolution.weight)

    def forward(self, x):
        return self.operator(self.convolution(x))


def run_ncnn(operator):
    """Return what ncnn computes for x by an operator, and what pnnx said of it."""
    torch.jit.trace(Model(operator), x).save("model.pt")
    shape = "inputshape=" + str(list(x.shape)).replace(" ", "")
    done = subprocess.run([PROGRAM, "model.pt", shape, "fp16=0"], capture_output=True, text=True,
                          check=True)
    net = ncnn.Net()
    assert net.load_param("model.ncnn.param") == 0 and net.load_model("model.ncnn.bin") == 0
    extractor = net.create_extractor()
    extractor.input("in0", ncnn.Mat(x[0].numpy()).clone())
    warnings = [line for line in (done.stdout + done.stderr).splitlines()
                if "not support" in line or "ignore" in line]
    return np.array(extractor.extract("out0")[1]).ravel(), warnings


PROGRAM.chmod(0o755)
x = torch.tensor([-2.5, -1.5, -1, -0.5, 0.5, 1, 1.5, 2.5]).reshape(1, 1, 2, 4)
numbers = x.numpy().ravel()
print(f"x: {numbers}")
for name, operator, exact, right in [
        ("x**2", lambda x: x**2, numbers**2, True),
        ("x**3", lambda x: x**3, numbers**3, False),
        ("x**4", lambda x: x**4, numbers**4, False),
        ("x**5", lambda x: x**5, numbers**5, False),
        ("x**-1", lambda x: x**-1, 1 / numbers, False),
        ("x // 2", lambda x: x // 2, np.floor(numbers / 2), True),
        ("div(x, 2, floor)", lambda x: torch.div(x, 2, rounding_mode="floor"),
         np.floor(numbers / 2), False),
        ("div(x, 2, trunc)", lambda x: torch.div(x, 2, rounding_mode="trunc"),
         np.trunc(numbers / 2), False),
        ("fmod(x, 2)", lambda x: torch.fmod(x, 2), np.fmod(numbers, 2), True),
        ("x % 2", lambda x: x % 2, np.mod(numbers, 2), False)]:
    by_torch = operator(x).numpy().ravel()
    by_ncnn, warnings = run_ncnn(operator)
    print(f"{name}: {by_ncnn} by ncnn, {by_torch} by torch, {exact} exact, warnings {warnings}")
    assert np.allclose(by_torch, exact) and not warnings
    assert np.allclose(by_ncnn, exact, atol=1e-3) == right
    if "**" in name and not right:
        assert not (abs(by_ncnn - exact)[numbers < 0] < 1e3).any()
        assert np.allclose(by_ncnn[numbers > 0], exact[numbers > 0], atol=1e-3)
PYTHON
