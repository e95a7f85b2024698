#!/usr/bin/env bash
# Parameters that get gradients late step too far, or hardly count, in many optimizers.
#
# Versions: schedulefree 1.4.1, pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: a layer that is frozen at first, or an expert without tokens, has no
#     gradient and is left out; from its first gradient on it is trained as any other was.
# Seen: so it is in torch, which counts the steps of each parameter. These packages count those of
#     the group. After 500 steps, AdamP moves the late parameter 3.8 times as far in its first 20
#     steps as one that is trained from the start, LaProp 10 times (its first step is 20 times as
#     large), and LAMB a tenth. AdEMAMix, Apollo and GaLore of pytorch_optimizer are like AdamP.
#     AdamWScheduleFree, too, steps too far, and then evaluates the layer by an average in which all
#     steps of the group weigh. 500 steps after it is unfrozen, such a layer is at 0.19 of the way
#     where AdamW has arrived. Added by add_param_group at that time, it is at 0.90.
# For gyre: all its parameters have gradients at all steps. With these, unfreeze by add_param_group.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile schedulefree==1.4.1 pytorch_optimizer==4.1.0 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import pytorch_optimizer
import torch
from schedulefree import AdamWScheduleFree

SHAPE = (8, 8)


def draw(seed):
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def movement(make, n_frozen):
    """Return how far a parameter moves in 20 steps, after n_frozen steps without a gradient."""
    early = torch.nn.Parameter(torch.zeros(SHAPE))
    late = torch.nn.Parameter(torch.zeros(SHAPE))
    optimizer = make([early, late])
    for step in range(n_frozen + 20):
        early.grad = 1 + draw(1000 + step)
        if step >= n_frozen:
            late.grad = 1 + draw(step - n_frozen)
        optimizer.step()
    return late.detach().abs().mean().item()


ratios = {}
for make in [torch.optim.AdamW, torch.optim.NAdam, pytorch_optimizer.AdamP,
             pytorch_optimizer.LaProp, pytorch_optimizer.Lamb]:
    name = f"{make.__module__.split('.')[0]}'s {make.__name__}"
    ratios[make] = movement(make, 500) / movement(make, 0)
    print(f"{name}: a parameter frozen for 500 steps moves {ratios[make]:.2f} times as far in its "
          "first 20 steps as one that never was")
assert abs(ratios[torch.optim.AdamW] - 1) < 0.01
assert abs(ratios[torch.optim.NAdam] - 1) < 0.15
assert 3 < ratios[pytorch_optimizer.AdamP] < 5
assert ratios[pytorch_optimizer.LaProp] > 7
assert ratios[pytorch_optimizer.Lamb] < 0.2


def unfreeze(make, added):
    """Return where a layer gets on its way from 0 to 1 in 500 steps, in training and evaluated.

    Another layer is trained from the start, and this one after 10,000 steps.
    """
    early = torch.nn.Parameter(torch.zeros(SHAPE))
    late = torch.nn.Parameter(torch.zeros(SHAPE))
    optimizer = make([early] if added else [early, late], lr=0.005, weight_decay=0)
    if make is AdamWScheduleFree:
        optimizer.train()
    for step in range(10_500):
        early.grad = early.detach() - 1 + 0.1 * draw(step)
        if step == 10_000 and added:
            optimizer.add_param_group({"params": [late], "train_mode": True})
        if step >= 10_000:
            late.grad = late.detach() - 1 + 0.1 * draw(50_000 + step)
        optimizer.step()
    in_training = late.detach().mean().item()
    if make is AdamWScheduleFree:
        optimizer.eval()
    return in_training, late.detach().mean().item()


means = {}
for name, make, added in [("AdamW", torch.optim.AdamW, False),
                          ("AdamWScheduleFree", AdamWScheduleFree, False),
                          ("AdamWScheduleFree, by add_param_group", AdamWScheduleFree, True)]:
    in_training, means[name] = unfreeze(make, added)
    print(f"{name}: 500 steps after it is unfrozen, a layer is at {in_training:.2f} in training "
          f"and at {means[name]:.2f} when it is evaluated; 1 is the best")
assert means["AdamWScheduleFree"] < 0.3
assert means["AdamW"] > 0.9
assert means["AdamWScheduleFree, by add_param_group"] > 0.8
PYTHON
