#!/usr/bin/env bash
# After one step without a gradient, APOLLO does not train a matrix for more than 1,000 steps.
#
# Versions: apollo-torch 1.0.3, torch 2.13.0.
# Guess before the run: a matrix whose gradient is zero in one step loses that step. A residual
#     block whose output projection starts at zero trains with APOLLO as with AdamW, a step later.
# Seen: the norm of an update may exceed that of the update before by 1 %, of which 1e-8 is the
#     least. After a zero it needs 1,850 steps to be back at 1. The matrix before a projection that
#     starts at zero has a zero gradient in the first step: after 1,000 steps it has moved by a
#     hundredth, and with disable_nl=True by 4.3. A matrix that is on its way stands still from the
#     step of a zero gradient on, such as one of a batch whose targets are all ignored, or of an
#     expert without tokens. Nothing is said; the loss falls slowly by what other matrices do.
#     optim="apollo_adamw" of transformers' Trainer is this class, with this default.
# For gyre: its weights start at random, and its batches have no ignored targets. With APOLLO, start
#     no matrix at zero, or give disable_nl=True.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile apollo-torch==1.0.3 torch==2.13.0 \
    transformers==5.24.0 bitsandbytes==0.50.2 numpy==2.4.6
"$folder/env/bin/python" - 2> "$folder/errors.txt" <<'PYTHON' \
    || { cat "$folder/errors.txt"; exit 1; }
import torch
from apollo_torch import APOLLOAdamW

WIDTH = 32
RATE = 0.01
N_STEPS = 1000
torch.set_num_threads(1)


def make(weights, limited):
    """Return APOLLO for `weights`, with or without its limit on the growth of an update."""
    group = {"params": weights, "rank": 8, "proj": "random", "scale_type": "channel", "scale": 1.0,
             "update_proj_gap": 200, "proj_type": "std"}
    return APOLLOAdamW([group], lr=RATE, disable_nl=not limited)


def train_block(make_optimizer, projection):
    """Return how far the first matrix of a block moves, and the loss, after N_STEPS steps.

    The second matrix, the block's output projection, starts at random numbers times `projection`.
    """
    generator = torch.Generator().manual_seed(0)

    def draw():
        return torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5

    first = torch.nn.Parameter(draw())
    second = torch.nn.Parameter(projection * draw())
    targets = draw(), draw()
    start = first.detach().clone()
    optimizer = make_optimizer([first, second])
    for _ in range(N_STEPS):
        x = torch.randn(64, WIDTH, generator=generator)
        y = x + torch.tanh(x @ targets[0]) @ targets[1]
        loss = (x + torch.tanh(x @ first) @ second - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (first.detach() - start).norm().item(), loss.item()


def approach(limited, zero_step):
    """Return the mean of a matrix on its way from 0 to 1, after 50 and after N_STEPS steps."""
    weight = torch.nn.Parameter(torch.zeros(16, WIDTH))
    generator = torch.Generator().manual_seed(1)
    optimizer = make([weight], limited)
    means = {}
    for step in range(N_STEPS):
        means[step] = weight.mean().item()
        weight.grad = weight.detach() - 1 + 0.3 * torch.randn(16, WIDTH, generator=generator)
        if step == zero_step:
            weight.grad.zero_()
        optimizer.step()
    return means[50], weight.mean().item()


makers = {"AdamW": lambda weights: torch.optim.AdamW(weights, lr=RATE, weight_decay=0),
          "APOLLO": lambda weights: make(weights, True),
          "APOLLO without the limit": lambda weights: make(weights, False)}
moved = {}
for projection in [0.1, 0.0]:
    for name, maker in makers.items():
        moved[name, projection], loss = train_block(maker, projection)
        print(f"{name}, output projection starts at {projection} of its usual size: after "
              f"{N_STEPS} steps, the matrix before it has moved by "
              f"{moved[name, projection]:.2f}; loss {loss:.4f}")
assert moved["APOLLO", 0.0] < 0.1
assert moved["APOLLO", 0.1] > 1
assert moved["APOLLO without the limit", 0.0] > 2
assert moved["AdamW", 0.0] > 2

for limited in [True, False]:
    for zero_step in [-1, 50]:
        before, after = approach(limited, zero_step)
        case = "no zero" if zero_step < 0 else f"a zero gradient in step {zero_step}"
        print(f"APOLLO, {'with' if limited else 'without'} the limit, {case}: "
              f"at {before:.3f} after 50 steps, at {after:.3f} after {N_STEPS}")
        if limited and zero_step > 0:
            assert after - before < 0.01
        else:
            assert after > 0.9
PYTHON
