#!/usr/bin/env bash
# nadir's RMSProp is SGD.
#
# Versions: nadir 0.1.1, torch 2.13.0.
# Guess before the run: its steps are those of torch.optim.RMSprop, but for where epsilon is: as
#     long for gradients of 1e-3 as for those of 1. (The opposite was suspected after reading the
#     source.)
# Seen: the class has a constructor and no update, so that it inherits that of the base class,
#     learning rate times gradient. beta_2 and eps have no effect, and the weights are those of
#     torch.optim.SGD bit for bit. adaptive=False is refused as an invalid value. Adam of the same
#     package divides by its average.
# For gyre: it does not use it. There, take Adam with beta_1=0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile nadir==0.1.1 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import nadir
import torch

RATE = 0.01
N_STEPS = 50
torch.set_num_threads(1)


def train(make, scale):
    """Return the weights after N_STEPS random gradients of a size."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(100))
    optimizer = make([weight])
    for _ in range(N_STEPS):
        weight.grad = scale * torch.randn(100)
        optimizer.step()
    return weight.detach()


makers = {
    "nadir RMSProp": lambda p: nadir.RMSProp(p, nadir.RMSPropConfig(lr=RATE, beta_2=0.9)),
    "nadir RMSProp, beta_2=0.99":
        lambda p: nadir.RMSProp(p, nadir.RMSPropConfig(lr=RATE, beta_2=0.99, eps=1.0)),
    "nadir Adam, beta_1=0":
        lambda p: nadir.Adam(p, nadir.AdamConfig(lr=RATE, beta_1=0.0, beta_2=0.9)),
    "torch RMSprop": lambda p: torch.optim.RMSprop(p, lr=RATE, alpha=0.9),
    "torch SGD": lambda p: torch.optim.SGD(p, lr=RATE),
}
sizes = {}
for name, make in makers.items():
    sizes[name] = [train(make, scale).square().mean().sqrt().item() / RATE for scale in [0.01, 1.0]]
    print(f"{name}: weights move by {sizes[name][0]:.2g} learning rates with gradients of 0.01, "
          f"by {sizes[name][1]:.2g} with those of 1")
for name in ["nadir RMSProp", "nadir RMSProp, beta_2=0.99"]:
    for scale in [0.01, 1.0]:
        assert torch.equal(train(makers[name], scale), train(makers["torch SGD"], scale))
    assert abs(sizes[name][1] / sizes[name][0] - 100) < 1
for name in ["nadir Adam, beta_1=0", "torch RMSprop"]:
    assert 0.8 < sizes[name][1] / sizes[name][0] < 1.25
PYTHON
