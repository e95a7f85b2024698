#!/usr/bin/env bash
# With Kahan summation in bfloat16, optimi's decoupled weight decay does nothing.
#
# Versions: torch-optimi 0.3.3, torch 2.13.0.
# Guess before the run: Kahan summation keeps what bfloat16 would round away, so that weights in
#     bfloat16 decay as those in float32 do. (The opposite was suspected after reading the source.)
# Seen: only the optimizer's step goes through the compensation. The decay multiplies the bfloat16
#     weight itself by 1 - lr * weight_decay, which rounds back to the same weight for any product
#     below 1/512. At a learning rate of 1e-3, a decay of 0.1 has shrunk the weights to 0.82 after
#     2,000 steps in float32, and one of 1 to 0.13; in bfloat16 they are at 1.00 with each, to the
#     last bit as without decay. So it is with the fully decoupled decay (decouple_lr=True) of 1e-5,
#     which is the example of the package's README for bfloat16, and in Lion, RAdam and StableAdamW.
# For gyre: its weights are float32. There, too, keep weights in float32 that are to decay.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch-optimi==0.3.3 torch==2.13.0 \
    packaging==26.4 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import math
import warnings

import optimi
import torch

N_STEPS = 2000
RATE = 1e-3
WIDTH = 1000
torch.set_num_threads(1)
warnings.simplefilter("ignore")


def train(optimizer_class, dtype, **options):
    """Return weights that begin at 1, after steps with gradients that are noise."""
    noise = torch.Generator().manual_seed(0)
    weight = torch.nn.Parameter(torch.ones(WIDTH, dtype=dtype))
    optimizer = optimizer_class([weight], lr=RATE, triton=False, foreach=False, **options)
    for _ in range(N_STEPS):
        weight.grad = torch.randn(WIDTH, generator=noise).to(dtype)
        optimizer.step()
    return weight.detach().float()


cases = [("AdamW", {"weight_decay": 0.1}, RATE * 0.1), ("AdamW", {"weight_decay": 1.0}, RATE),
         ("AdamW", {"weight_decay": 1e-5, "decouple_lr": True}, 1e-5),
         ("Lion", {"weight_decay": 1.0}, RATE),
         ("RAdam", {"weight_decay": 1.0, "decouple_wd": True}, RATE),
         ("StableAdamW", {"weight_decay": 1.0}, RATE)]
for name, options, shrinkage in cases:
    optimizer_class = getattr(optimi, name)
    full = train(optimizer_class, torch.float32, **options).mean().item()
    half = train(optimizer_class, torch.bfloat16, **options)
    without = train(optimizer_class, torch.bfloat16, **{**options, "weight_decay": 0.0})
    due = math.exp(-N_STEPS * shrinkage)
    print(f"{name}, {options}: mean weight {full:.3f} in float32, {half.mean().item():.3f} in "
          f"bfloat16; {due:.3f} is due; without decay {without.mean().item():.3f} in bfloat16")
    assert abs(full - due) < 0.03
    assert torch.equal(half, without)
    assert half.mean() > 0.98
PYTHON
