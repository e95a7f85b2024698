#!/usr/bin/env bash
# peftml's learned step sizes make all weights zero, and its SmoothQuant changes the model.
#
# Versions: peftml 2.0.0, torch 2.13.0.
# Guess before the run: LSQ with 8 bits changes outputs by a few percent before any training;
#     SmoothQuant changes outputs by nothing but rounding, "so the mathematical output is
#     unchanged". (That both fail was suspected after reading the source.)
# Seen: the step is set to 2 * mean(|w|) / sqrt(largest integer), as in the paper, and is then taken
#     through a softplus: 0.01 becomes 0.7. Weights of a layer with 64 inputs are below 0.13, and
#     all are rounded to 0: the model gives its bias for each input, and after 300 steps with 8 bits
#     it still does, where the same model without quantization has learned three quarters of its
#     task. SmoothQuant scales the inputs of a layer by the size of its outputs (the observer records
#     these), which fails unless the layer is square; divides a norm once for each layer that is
#     behind it; and scales layers behind an activation without anything that makes up for it:
#     outputs are off by 20 % to 75 % of their size.
# For gyre: it trains without quantization. There, take torchao.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile peftml==2.0.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import copy
import logging

import torch
from peftml.quantization.lsq import replace_with_lsq
from peftml.quantization.observers import ActivationObserver
from peftml.quantization.smoothquant import apply_smoothquant
from torch import nn

logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(512, 64)


def error(actual, expected):
    return ((actual - expected).norm() / expected.norm()).item()


model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
expected = model(x).detach()
for bits in [8, 4]:
    quantized = replace_with_lsq(copy.deepcopy(model), bits=bits)
    actual = quantized(x).detach()
    step = quantized[0].step_size.item()
    used = torch.nn.functional.softplus(torch.tensor(step)).item()
    weight = model[0].weight
    limit = 2 ** (bits - 1)
    due = ((weight / step).round().clamp(-limit, limit - 1) * step - weight).norm()
    print(f"LSQ, {bits} bits: step {step:.4f}, used {used:.4f}, largest weight "
          f"{weight.abs().max().item():.4f}; error of the outputs {error(actual, expected):.2f}, "
          f"of the first weights with the step as it is set {(due / weight.norm()).item():.3f}; "
          f"deviation over inputs {actual.std(0).max().item()}")
    assert used > 0.69 and actual.std(0).max() == 0
    assert due < 0.25 * weight.norm()

teacher = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
for name in ["without quantization", "8 bits"]:
    student = copy.deepcopy(model)
    if name == "8 bits":
        student = replace_with_lsq(student, bits=8)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    for _ in range(300):
        inputs = torch.randn(128, 64)
        loss = (student(inputs) - teacher(inputs)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    unexplained = ((student(x) - teacher(x)).square().mean() / teacher(x).var(0).mean()).item()
    print(f"after 300 steps, {name}: {unexplained:.2f} of the variance is left, deviation over "
          f"inputs {student(x).std(0).max().item():.3f}")
    if name == "8 bits":
        assert unexplained > 0.95 and student(x).std(0).max() == 0
    else:
        assert unexplained < 0.3


class Gated(nn.Module):
    """A norm that two layers follow, as in attention and in gated feed-forward layers."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 64)
        self.gate = nn.Linear(64, 64)

    def forward(self, x):
        x = self.norm(x)
        return self.up(x) * torch.sigmoid(self.gate(x))


one = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64))
plain = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
for name, model in [("one layer behind a norm", one), ("two layers behind a norm", Gated()),
                    ("a layer behind an activation", plain)]:
    expected = model(x).detach()
    observer = ActivationObserver(model)
    observer.calibrate([x], device="cpu")
    apply_smoothquant(model, observer)
    print(f"SmoothQuant, {name}: error {error(model(x), expected):.2g}")
    assert error(model(x), expected) < 1e-5 if name.startswith("one") \
        else error(model(x), expected) > 0.1
wide = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256))
observer = ActivationObserver(wide)
observer.calibrate([x], device="cpu")
try:
    apply_smoothquant(wide, observer)
except RuntimeError as problem:
    print(f"SmoothQuant, 64 inputs and 256 outputs: {problem}")
else:
    raise SystemExit("a layer that is not square is smoothed")
PYTHON
