#!/usr/bin/env bash
# With its default weight decay, mlx's Muon follows the weights rather than the gradient.
#
# Version: mlx 0.32.4 (CPU).
# Guess before the run: a step shrinks the weight by lr * weight_decay and goes along the
#     orthogonalised gradient, as in torch, optax and the original.
# Seen: weight_decay * weight is added to the gradient before the momentum, and the Newton-Schulz
#     steps give the sum a fixed size. What counts is its size beside the gradient: with the
#     default of 0.01, weights of 0.02 and gradients of 1e-4, the weight dominates the update, and
#     the step towards zero has the full learning rate. Scaling the loss changes the direction.
# For gyre: gyre's Muon decays weights apart from the gradient. A recipe moved to mlx needs
#     weight_decay=0 there, and its own shrinking of the weights.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile "mlx[cpu]==0.32.4"
"$folder/env/bin/python" - <<'PYTHON'
import mlx.core as mx
from mlx.optimizers import Muon

SIZE = 128
WEIGHT_STD = 0.02  # as a LLaMA is initialised
mx.set_default_device(mx.cpu)
mx.random.seed(0)
weight = WEIGHT_STD * mx.random.normal((SIZE, SIZE))
direction = mx.random.normal((SIZE, SIZE))


def update_of(gradient, **options):
    """Return what the first step of a learning rate of 1 subtracts."""
    updated = Muon(1.0, **options).apply_gradients({"w": gradient}, {"w": weight})
    return weight - updated["w"]


def cosine(left, right):
    return (mx.sum(left * right) / mx.linalg.norm(left) / mx.linalg.norm(right)).item()


to_gradient = {}
to_weight = {}
for rms in [1e-2, 1e-3, 1e-4, 1e-5]:
    without = update_of(rms * direction, weight_decay=0.0)
    default = update_of(rms * direction)
    to_gradient[rms] = cosine(default, without)
    to_weight[rms] = cosine(default, weight)
    size = mx.sqrt(mx.mean(default**2)).item()
    print(f"gradient of {rms:.0e}: update of {size:.3f}; its cosine with the update without decay "
          f"is {to_gradient[rms]:.2f}, with the weight itself {to_weight[rms]:.2f}")

assert to_gradient[1e-2] > 0.99
assert to_gradient[1e-4] < 0.5
assert to_weight[1e-4] > 0.6
assert to_gradient[1e-5] < 0.1
PYTHON
