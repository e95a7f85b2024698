#!/usr/bin/env bash
# AdamWClip makes steps longer: its first clipping threshold is 1e-10, and it takes hundreds of steps to grow.
#
# Versions: AdamWClip 0.1.4, torch 2.13.0.
# Guess before the run: gradients are clipped at three deviations, so that AdamW's steps are as long or
#     shorter; where all gradients are alike, nothing is clipped, and the weights are AdamW's. (That the
#     first threshold is near zero was suspected after reading the source.)
# Seen: the deviations are those of the clipped gradients, none at the first step: the threshold is 1e-10,
#     and grows with the eighth power of the step. Until it gets to the gradients, every step has the
#     largest gradient so far, three times the mean: with a gradient that never changes, 1,000 steps go
#     2.4 times as far as AdamW's for a gradient of 1, and 1.4 times for 0.001, though the thresholds are
#     to scale with the gradients. Around a minimum with noisy gradients, weights are 1.7 times as far
#     away after 400 steps. `clip_grad_warm_up=10` gives AdamW's steps.
# For gyre: it clips by the norm of all gradients. There, give `clip_grad_warm_up`, whose default is 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile AdamWClip==0.1.4 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from AdamWClip import AdamWClip
from torch.optim import AdamW

RATE = 0.001
torch.set_num_threads(1)


def walk(kind, gradient, n_steps, **options):
    """Return how far a weight goes with one and the same gradient, in units of the learning rate."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = kind([weight], lr=RATE, weight_decay=0.0, **options)
    for _ in range(n_steps):
        weight.grad = torch.full((1,), gradient)
        optimizer.step()
    return -weight.item() / RATE


def settle(kind):
    """Return the root mean square of 1,000 weights in a bowl, with noisy gradients, after 400 steps."""
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.full((1000,), 0.05))
    optimizer = kind([weights], lr=RATE, weight_decay=0.0)
    for _ in range(400):
        weights.grad = weights.detach() + 0.1 * torch.randn(1000)
        optimizer.step()
    return weights.detach().square().mean().sqrt().item()


seen = {}
print("constant gradient: distance after 1,000 steps, in learning rates")
for gradient in [1.0, 0.001]:
    plain = walk(AdamW, gradient, 1000)
    clipped = walk(AdamWClip, gradient, 1000)
    warm = walk(AdamWClip, gradient, 1000, clip_grad_warm_up=10)
    seen[gradient] = clipped / plain
    print(f"{gradient:5}: AdamW {plain:.0f}, AdamWClip {clipped:.0f}, with a warm-up {warm:.0f}")
    assert abs(plain - 1000) < 1 and abs(warm - 1000) < 5
assert seen[1.0] > 2 and 1.2 < seen[0.001] < 1.6

plain, clipped = settle(AdamW), settle(AdamWClip)
print(f"noisy bowl: AdamW ends {plain:.4f} from the minimum, AdamWClip {clipped:.4f}")
assert clipped > 1.4 * plain
PYTHON
