#!/usr/bin/env bash
# ProdigyPlus' cautious updates lose the sign of the gradient: all weights only ever fall.
#
# Versions: prodigy-plus-schedule-free 2.0.1, torch 2.13.0.
# Guess before the run: with use_schedulefree=False, "all experimental features are implemented as
#     per their reference implementations", so that use_cautious=True leaves out the coordinates
#     whose momentum and gradient disagree, and learns what the optimizer learns without it. (That
#     the mask is never applied was suspected after reading the source.)
# Seen: the mask is computed and thrown away; gradient and momentum are multiplied instead. Their
#     product is positive where they agree, whatever their sign: each first step is downwards, and
#     weights whose target lies above run away from it, to -370,000 after 300 steps, while the
#     others learn. With the default settings, nothing moves, as the estimated rate d, which
#     measures progress, stays at its start. use_grams=True and the plain optimizer find the target.
#     With schedule-free (the default), the mask is applied.
# For gyre: it does not use it. There, leave use_cautious off without schedule-free.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile prodigy-plus-schedule-free==2.0.1 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

import torch
from prodigyplus.prodigy_plus_schedulefree import ProdigyPlusScheduleFree

TARGET = torch.tensor([1.0, -1.0, 2.0, -2.0])
N_STEPS = 300
torch.set_num_threads(1)


def train(**options):
    """Minimize the distance to TARGET from 0. Return the weights after 1 and all steps, and d."""
    weight = torch.nn.Parameter(torch.zeros(4))
    with contextlib.redirect_stdout(io.StringIO()):
        optimizer = ProdigyPlusScheduleFree([weight], **options)
        for step in range(N_STEPS):
            optimizer.zero_grad()
            (weight - TARGET).square().sum().backward()
            optimizer.step()
            if step == 0:
                first = weight.detach().clone()
        optimizer.eval()
    return first, weight.detach().clone(), optimizer.param_groups[0]["d"]


for name, options in [
        ("plain", {"use_schedulefree": False}),
        ("grams", {"use_schedulefree": False, "use_grams": True}),
        ("cautious with schedule-free", {"use_cautious": True}),
        ("cautious", {"use_schedulefree": False, "use_cautious": True})]:
    first, last, _ = train(d0=0.01, use_stableadamw=False, **options)
    print(f"{name}: weights after one step {[round(x, 3) for x in first.tolist()]}, after "
          f"{N_STEPS} {[round(x, 3) for x in last.tolist()]}; the targets are {TARGET.tolist()}")
    if name == "cautious":
        assert (first < 0).all()
        assert (last[TARGET > 0] < -1e4).all()
    else:
        assert (first.sign() == TARGET.sign()).all()
        assert (last - TARGET).abs().max() < 0.05

first, last, d = train(use_schedulefree=False, use_cautious=True)
print(f"cautious with the default settings: weights after {N_STEPS} steps "
      f"{['%.0e' % x for x in last.tolist()]}, d={d}")
assert last.abs().max() < 1e-2 and d == 1e-6
first, last, d = train(use_schedulefree=False)
print(f"plain with the default settings: {[round(x, 3) for x in last.tolist()]}, d={d:.3f}")
assert (last - TARGET).abs().max() < 0.1
PYTHON
