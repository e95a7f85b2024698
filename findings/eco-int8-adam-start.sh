#!/usr/bin/env bash
# EcoAdam of eco-int8-opt corrects the first moment's bias twice: its first step is ten times Adam's.
#
# Versions: eco-int8-opt 0.4.9, torch 2.13.0.
# Guess before the run: with a constant gradient, each step has the length of the learning rate, as with
#     Adam, and rounding changes nothing in the mean. (That the correction stands in two lines was seen
#     in the source before the run.)
# Seen: the first step is 10 learning rates, the first ten are 33, and the first fifty 77; with
#     beta1=0.99, the first ten are 296.
# Cause: the step size is lr / (bc1 * sqrt(v)), where bc1 = 1 - beta1 ** t, and is multiplied by
#     m / bc1 instead of m (ecoint8/eco.py, `EcoAdam.step`).
# For gyre: its weights are not int8 when it trains. There, warm up over several times 1 / (1 - beta1)
#     steps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps eco-int8-opt==0.4.9
export OMP_NUM_THREADS=1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import ecoint8
import torch

RATE = 1e-4


def walk(n_steps, beta1):
    """Return the mean way of the weights in learning rates, with a gradient of 1 for each of them."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 256, bias=False)
    torch.nn.init.uniform_(linear.weight, -0.02, 0.02)
    with torch.no_grad():
        linear.weight[:, 0] = 1.0  # the range of a row: no other weight leaves it
    layer = ecoint8.Int8Linear.from_float(linear)
    start = layer.w_fp32()
    optimizer = ecoint8.EcoAdam([layer], lr=RATE, betas=(beta1, 0.999), grad_clip=None)
    for _ in range(n_steps):
        layer._grad_w = torch.ones_like(start)
        optimizer.step()
    return ((start - layer.w_fp32())[:, 1:].mean() / RATE).item()


for n_steps, beta1 in [(1, 0.9), (10, 0.9), (50, 0.9), (10, 0.99)]:
    found = walk(n_steps, beta1)
    twice = sum(1 / (1 - beta1**step) for step in range(1, n_steps + 1))
    print(f"beta1={beta1}, {n_steps} steps: a mean way of {found:.1f} learning rates; Adam's is "
          f"{n_steps}, and with the correction taken twice {twice:.1f}")
    assert abs(found / twice - 1) < 0.1 and found > 1.5 * n_steps
PYTHON
