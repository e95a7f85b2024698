#!/usr/bin/env bash
# Muon's update of a gradient of rank one is mostly rounding noise.
#
# Version: torch 2.13.0.
# Guess before the run: the Newton-Schulz steps keep a zero singular value at zero. The update of a
#     gradient of rank one has rank one: its other singular values are below 0.05 of the first.
# Seen: the steps run in bfloat16. Rounding the gradient adds singular values of about 2**-9 of the
#     first, and five steps multiply small ones by 3.4445**5 = 485. Most of the update's energy
#     is outside the direction of the gradient. The same steps in float32 have none there.
# For gyre: gyre/optim.py has the same steps, and bfloat16 as its default. Gradients of few
#     tokens, such as those of tiny tests, have a low rank.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch

SIZE = 512


def update_of(gradient):
    """Return Muon's first update, of a learning rate of 1, without momentum and decay."""
    weight = torch.nn.Parameter(torch.zeros(SIZE, SIZE))
    optimizer = torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False)
    weight.grad = gradient.clone()
    optimizer.step()
    return -weight.detach().double()


def update_in_float32(gradient):
    """Return the same five steps in float32; the defaults of torch.optim.Muon."""
    x = gradient / gradient.norm()
    for _ in range(5):
        product = x @ x.T
        x = 3.4445 * x + (-4.775 * product + 2.0315 * product @ product) @ x
    return x.double()


torch.manual_seed(0)
left = torch.nn.functional.normalize(torch.randn(SIZE), dim=0)
right = torch.nn.functional.normalize(torch.randn(SIZE), dim=0)
gradient = torch.outer(left, right)
outside = {}
for name, function in {"torch.optim.Muon": update_of, "in float32": update_in_float32}.items():
    update = function(gradient)
    along = left.double() @ update @ right.double()
    outside[name] = 1 - (along**2 / update.square().sum()).item()
    values = ", ".join(f"{value:.3f}" for value in torch.linalg.svdvals(update)[:5])
    print(f"{name}: {outside[name]:.0%} of the energy is outside the gradient's direction; "
          f"singular values {values} ...")

assert outside["torch.optim.Muon"] > 0.4
assert outside["in float32"] < 0.001
PYTHON
