#!/usr/bin/env bash
# A second derivative through `once_differentiable` can be wrong, and nothing is said.
#
# Versions: torch 2.13.0.
# Guess before the run: with create_graph=True, a backward that is marked `once_differentiable`
#     gives a gradient that cannot be differentiated: whoever asks for the second derivative gets a
#     RuntimeError, unless the incoming gradient is a constant. (That this passes had been met
#     before, in other work.)
# Seen: `loss.backward()` raises where a weight behind the function is trained. It passes where the
#     weight is frozen, and `torch.autograd.grad(loss, x)` passes in both cases: the result of the
#     backward counts as a constant, a penalty on the gradient has no effect on x, and the terms of
#     all other paths are right. The node that raises hangs on detached copies
#     (torch/autograd/function.py), so it lies on no path to x, and `grad` does not visit it.
# For gyre: its forms with a gradient of their own raise as soon as a graph of the backward is made.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from torch.autograd.function import once_differentiable


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * gradient * x**2


def penalty(cube, is_trained):
    """Return x = 2, and x + |d out / d x|^2 where out = weight * x^3."""
    x = torch.tensor(2.0, requires_grad=True)
    weight = torch.tensor(1.0, requires_grad=is_trained)
    (first,) = torch.autograd.grad(weight * cube(x), x, create_graph=True)
    return x, x + first**2


print(f"torch {torch.__version__.partition('+')[0]}")
x, loss = penalty(lambda x: x**3, True)
print(f"right: {torch.autograd.grad(loss, x)[0].item()}")
for is_trained in (False, True):
    x, loss = penalty(Cube.apply, is_trained)
    found = torch.autograd.grad(loss, x)[0].item()
    print(f"autograd.grad, weight {'trained' if is_trained else 'frozen'}: {found}")
    assert found == 1, "the second derivative is not left out any more"
x, loss = penalty(Cube.apply, False)
loss.backward()
print(f"backward, weight frozen: {x.grad.item()}")
assert x.grad == 1, "the second derivative is not left out any more"
x, loss = penalty(Cube.apply, True)
try:
    loss.backward()
except RuntimeError as error:
    print(f"backward, weight trained: RuntimeError: {error}")
else:
    raise SystemExit("backward does not raise any more")
PYTHON
