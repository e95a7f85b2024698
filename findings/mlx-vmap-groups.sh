#!/usr/bin/env bash
# Under mx.vmap over the weights alone, a grouped convolution mixes its groups and its models.
#
# Versions: mlx 0.32.4, NumPy 2.4.6.
# Guess before the run: `mx.vmap(f)(x)` is `mx.stack([f(row) for row in x])` for each function that vmap takes without an error.
# Seen: with three sets of weights for one input, as in an ensemble, conv1d, conv2d and conv_transpose1d are right without
#     groups. With 2 groups and more, the outputs of all sets differ from those of a loop by their own size: of a depthwise
#     convolution over four channels, two sets of weights have channels 0, 0, 1, 1 and 2, 2, 3, 3 of the input. Gradients are
#     those of these outputs: an ensemble that is fitted so is another one when its models are used one by one. vmap over the
#     inputs, and over both, is right.
# Cause: the sets are joined to the output channels of one convolution with as many groups as before, so that its groups are
#     cut across the sets (`Convolution::vmap` of mlx/primitives.cpp, `!in_vmap && w_vmap`). No issue was found.
# For gyre: it has no convolutions. There, broadcast the input to all sets, and vmap over both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile "mlx[cpu]==0.32.4" numpy==2.4.6
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
random = np.random.default_rng(0)
N_SETS = 3


def draw(*shape):
    return mx.array(random.normal(size=shape).astype(np.float32))


def measure_error(found, due):
    """Return the norm of the difference over the norm of what is due."""
    found, due = np.array(found), np.array(due)
    assert found.shape == due.shape
    return np.linalg.norm(found - due) / np.linalg.norm(due)


CASES = {"conv1d": (mx.conv1d, (9,), (3,)), "conv2d": (mx.conv2d, (6, 5), (3, 2)), "conv_transpose1d": (mx.conv_transpose1d, (7,), (3,))}
for name, (convolve, size, kernel) in CASES.items():
    for groups in (1, 2, 4):
        inputs, weights = draw(N_SETS, 2, *size, 4), draw(N_SETS, 8, *kernel, 4 // groups)

        def apply(x, w):
            return convolve(x, w, groups=groups)

        shared = mx.vmap(lambda w: apply(inputs[0], w))(weights)
        errors = {
            "weights": measure_error(shared, mx.stack([apply(inputs[0], w) for w in weights])),
            "inputs": measure_error(mx.vmap(lambda x: apply(x, weights[0]))(inputs), mx.stack([apply(x, weights[0]) for x in inputs])),
            "both": measure_error(mx.vmap(apply)(inputs, weights), mx.stack([apply(x, w) for x, w in zip(inputs, weights)])),
        }
        print(f"{name}, {groups} groups, error with vmap over", ", ".join(f"{what} {error:.2f}" for what, error in errors.items()))
        assert errors["inputs"] < 1e-5 and errors["both"] < 1e-5
        assert errors["weights"] < 1e-5 if groups == 1 else errors["weights"] > 0.7

# Which input channel does each output have? The channels are 1, 10, 100, 1000, and all weights are 1.
channels = mx.array([[[1.0, 10.0, 100.0, 1000.0]]])
ones = mx.ones((2, 4, 1, 1))
found = np.array(mx.vmap(lambda w: mx.conv1d(channels, w, groups=4))(ones)).reshape(2, 4)
print("depthwise, two sets of ones:", found.tolist(), "due:", [[1.0, 10.0, 100.0, 1000.0]] * 2)
assert found.tolist() == [[1, 1, 10, 10], [100, 100, 1000, 1000]]

# Two models are fitted to two depthwise targets at once, and used one by one.
x, truth = draw(16, 20, 4), draw(2, 4, 3, 1)
targets = mx.stack([mx.conv1d(x, w, groups=4) for w in truth])


def measure_loss(weights):
    return ((mx.vmap(lambda w: mx.conv1d(x, w, groups=4))(weights) - targets) ** 2).mean()


def measure_losses_alone(weights):
    return [float(((mx.conv1d(x, w, groups=4) - target) ** 2).mean()) for w, target in zip(weights, targets)]


weights = mx.zeros_like(truth)
before = measure_losses_alone(weights)
for _ in range(500):
    weights = weights - mx.grad(measure_loss)(weights)
    mx.eval(weights)
after = measure_losses_alone(weights)
print(f"losses of two models alone: {before[0]:.2f} and {before[1]:.2f} before training, {after[0]:.2f} and {after[1]:.2f} after it")
assert min(after) > 0.5 * min(before)
PYTHON
