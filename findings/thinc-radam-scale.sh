#!/usr/bin/env bash
# thinc's RAdam ignores `lr_scale`, and starts at its second step.
#
# Versions: thinc 9.1.1, numpy 2.4.6.
# Guess before the run: `lr_scale=0.1`, an argument of each call of an optimizer, makes its step a
#     tenth as long, and RAdam's first step is the gradient times the rate, as in the paper, because
#     the first moment is corrected. (That neither holds was suspected after reading the source.)
# Seen: with Adam and SGD, weights with lr_scale=0.1 move a tenth as far, and with 0 not at all. With
#     RAdam they move as far as all others, with 0 too. The step is counted before the update and
#     once more in it: the corrections are those of the next step throughout, so that the first
#     step is 0.53 times the gradient, and 20 steps go 0.038 far where the paper's go 0.059.
# For gyre: it has no RAdam. There, take Adam with a warm-up for rates by layer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile thinc==9.1.1 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from thinc.api import Adam, RAdam, SGD

RATE, STEPS, BETA1, BETA2 = 0.01, 20, 0.9, 0.999


def run(create, scale, gradients):
    """Return the weights after each step, from 1."""
    optimizer = create(RATE, grad_clip=0.0, use_averages=False)
    weights = np.ones(4, dtype="f")
    seen = []
    for gradient in gradients:
        weights, _ = optimizer((0, "W"), weights, gradient.copy(), lr_scale=scale)
        seen.append(weights.copy())
    return np.array(seen)


def paper(gradients, offset):
    """RAdam of the paper in float64, with its step counted from 1 + offset."""
    weights, first, second, seen = np.ones(4), 0.0, 0.0, []
    longest = 2 / (1 - BETA2) - 1
    for step, gradient in enumerate(gradients, 1 + offset):
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * gradient**2
        power = BETA2**step
        length = longest - 2 * step * power / (1 - power)
        update = first / (1 - BETA1**step)
        if length >= 5:
            rectification = np.sqrt((length - 4) * (length - 2) * longest
                                    / ((longest - 4) * (longest - 2) * length))
            update = rectification * update / (np.sqrt(second / (1 - power)) + 1e-8)
        weights = weights - RATE * update
        seen.append(weights)
    return np.array(seen)


gradients = np.random.default_rng(0).normal(1, 0.3, size=(STEPS, 4)).astype("f")
for name, create in [("SGD", SGD), ("Adam", Adam), ("RAdam", RAdam)]:
    moved = [float(np.abs(run(create, scale, gradients)[-1] - 1).mean()) for scale in [1, 0.1, 0]]
    print(f"{name}: {STEPS} steps go {moved[0]:.4f} far, with lr_scale=0.1 {moved[1]:.4f}, "
          f"with lr_scale=0 {moved[2]:.4f}")
    if name == "RAdam":
        assert moved[0] == moved[1] == moved[2] > 0
    else:
        assert abs(moved[1] / moved[0] - 0.1) < 0.001 and moved[2] == 0

own, due, late = run(RAdam, 1, gradients), paper(gradients, 0), paper(gradients, 1)
first = float(((1 - own[0]) / (RATE * gradients[0])).mean())
print(f"RAdam's first step is {first:.4f} times rate and gradient, the paper's "
      f"{((1 - due[0]) / (RATE * gradients[0])).mean():.4f}")
print(f"{STEPS} steps go {np.abs(own[-1] - 1).mean():.4f} far, the paper's "
      f"{np.abs(due[-1] - 1).mean():.4f}; largest difference from the paper "
      f"{np.abs(own - due).max():.5f}, from the paper with steps counted from 2 "
      f"{np.abs(own - late).max():.1e}")
assert abs(first - 0.1 / 0.19) < 0.001 and np.abs(own - late).max() < 1e-5
assert np.abs(own - due).max() > 1e-3
PYTHON
