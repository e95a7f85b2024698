#!/usr/bin/env bash
# With any max_sup above 0, CrossEntropyMaxSupLoss of torch-uncertainty weighs no classes.
#
# Versions: torch-uncertainty 0.13.0, torch 2.13.0. The file of losses is loaded alone: the package
#     imports Lightning.
# Guess before the run: the loss is nn.CrossEntropyLoss plus max_sup times a penalty, so that
#     with max_sup=1e-9 it is that of max_sup=0, for each weight and reduction. (The opposite was
#     suspected after reading the source.)
# Seen: class weights become one factor, their mean, for all samples: with weights of 10 and 1,
#     samples of both classes have gradients of one size, 5.5 times as large as without weights.
#     With max_sup=0, those of the first class have 10 times the gradient. With reduction="none",
#     each sample has the mean of all samples, in the shape (samples, 1), and with weights
#     (samples, classes). Nothing is said.
# For gyre: its classes are tokens, without weights. There, weigh samples instead.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torch-uncertainty==0.13.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
from importlib.metadata import distribution

import torch

WEIGHTS = torch.tensor([10.0, 1.0]).double()
torch.set_num_threads(1)
torch.manual_seed(0)
file = distribution("torch-uncertainty").locate_file("torch_uncertainty/losses/classification.py")
spec = importlib.util.spec_from_file_location("loaded", file)
loaded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loaded)
classes = torch.tensor([0, 1] * 4)


def gradients(max_sup, weight):
    """Return the size of the gradient of a sample of each class, at logits of 0."""
    logits = torch.zeros(8, 2).double().requires_grad_()
    loss = loaded.CrossEntropyMaxSupLoss(max_sup=max_sup, weight=weight)
    loss(logits, classes).backward()
    return logits.grad.norm(dim=1)[:2].tolist()


base = gradients(0.0, None)[0]
for max_sup in [0.0, 1e-9]:
    sizes = [x / base for x in gradients(max_sup, WEIGHTS)]
    print(f"max_sup={max_sup}, weights {WEIGHTS.tolist()}: gradients of a sample of each class "
          f"{sizes[0]:.2f} and {sizes[1]:.2f} times those without weights")
    ratio = sizes[0] / sizes[1]
    assert abs(ratio - (10 if max_sup == 0 else 1)) < 1e-6
    if max_sup > 0:
        assert abs(sizes[0] - WEIGHTS.mean()) < 1e-6
logits = torch.randn(8, 2).double()
each = {}
for max_sup in [0.0, 1e-9]:
    loss = loaded.CrossEntropyMaxSupLoss(max_sup=max_sup, reduction="none")
    each[max_sup] = loss(logits, classes)
    print(f"max_sup={max_sup}, no reduction: shape {tuple(each[max_sup].shape)}, losses",
          [round(x, 3) for x in each[max_sup].flatten().tolist()])
assert each[1e-9].shape == (8, 1) and each[0.0].std() > 0.1
assert (each[1e-9] - each[0.0].mean()).abs().max() < 1e-6
both = loaded.CrossEntropyMaxSupLoss(max_sup=1e-9, reduction="none", weight=WEIGHTS)
print("with weights, shape", tuple(both(logits, classes).shape))
assert both(logits, classes).shape == (8, 2)
PYTHON
