#!/usr/bin/env bash
# fastai's focal loss raises the probability to the power of the class weight.
#
# Versions: fastai 2.8.12, torch 2.13.0.
# Guess before the run: FocalLossFlat with `weight` is weight * (1 - p)^gamma * (-log p), as its
#     documentation says ("alpha, can be implemented through pytorch `weight`"): a class of weight 4
#     has 4 times the loss of weight 1 at each p; with gamma=0 it is CrossEntropyLossFlat. (That p is
#     taken from the weighted loss was read in the source before the run.)
# Seen: p to the power of the weight stands for p. At p = 0.9, the loss of a class of weight 4 is 47
#     times that of weight 1, and that of weight 0.25 a 58th of it, where 4 and a quarter are due.
#     Between weights of 4 and 0.25, that is a factor of 2,720 instead of 16; at p = 0.1 they are 4.9
#     and a 17th. With gamma=0 and the mean, the sum is divided by the number of rows, by
#     CrossEntropyLossFlat by the sum of the weights.
# For gyre: its loss has no class weights. There, give none, and multiply the loss of each row.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 torchvision==0.28.0 numpy==2.4.6 \
    pandas==2.3.3 matplotlib==3.11.2 scipy==1.17.1 scikit-learn==1.9.1 requests \
    pyyaml packaging cloudpickle rich
"$folder/env/bin/pip" install --quiet --no-compile --no-deps fastai==2.8.12 fastcore==2.2.41 \
    fastprogress==1.0.3 fasttransform==0.0.5 fastdownload==0.0.8 plum-dispatch==2.9.0 \
    beartype==0.23.1
export HOME="$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from fastai.losses import CrossEntropyLossFlat, FocalLossFlat

WEIGHTS = torch.tensor([0.25, 1.0, 4.0])
LABELS = torch.arange(3)
focal = FocalLossFlat(weight=WEIGHTS, reduction="none")
plain = FocalLossFlat(reduction="none")

for p in [0.1, 0.5, 0.9]:
    # one row for each class, whose label has the probability p
    probabilities = torch.full((3, 3), (1 - p) / 2)
    probabilities[LABELS, LABELS] = p
    logits = probabilities.log()
    losses = focal(logits, LABELS).as_subclass(torch.Tensor)
    due = WEIGHTS * (1 - p) ** 2 * -torch.log(torch.tensor(p))
    powers = p ** WEIGHTS
    assert torch.allclose(plain(logits, LABELS).as_subclass(torch.Tensor), due / WEIGHTS)
    assert torch.allclose(losses, (1 - powers) ** 2 * -powers.log(), rtol=1e-3)
    print(f"p = {p}: losses {[round(x, 5) for x in losses.tolist()]}, by the paper "
          f"{[round(x, 5) for x in due.tolist()]}; to that of weight 1 "
          f"{losses[0] / losses[1]:.3f} and {losses[2] / losses[1]:.1f}")
assert losses[2] / losses[1] > 40 and losses[1] / losses[0] > 50

torch.manual_seed(0)
logits, labels = torch.randn(300, 3), torch.randint(3, (300,))
without = FocalLossFlat(gamma=0.0, weight=WEIGHTS)(logits, labels).item()
entropy = CrossEntropyLossFlat(weight=WEIGHTS)(logits, labels).item()
print(f"gamma = 0: {without:.3f}, CrossEntropyLossFlat {entropy:.3f}, mean weight "
      f"{WEIGHTS[labels].mean():.3f}")
assert abs(without / entropy - WEIGHTS[labels].mean().item()) < 1e-3
assert without > 1.3 * entropy
PYTHON
