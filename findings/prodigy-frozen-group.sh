#!/usr/bin/env bash
# A parameter group with learning rate 0 goes on moving in Prodigy and D-Adaptation.
#
# Versions: prodigyopt 1.1.2, dadaptation 3.2, pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: a group whose learning rate is set to 0 stands still. 0 is the only rate by
#     which groups may differ: another one raises an error that says so. (The opposite was suspected
#     after reading the source.)
# Seen: Prodigy and DAdaptAdam keep the moments of such a group as they are, and step by them at the
#     rate of the other groups, in the same direction each time. Frozen near its optimum after 100
#     steps, a group is as far from it 200 steps later in Prodigy as it was before the training,
#     and 4 times as far in DAdaptAdam. Frozen from the first step on, it decays with weight_decay
#     as the others do. In pytorch_optimizer's Prodigy it is trained on as if its rate were not 0.
# For gyre: it adapts no rate. With these, freeze by removing the gradient (`grad = None`).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile prodigyopt==1.1.2 dadaptation==3.2 \
    pytorch_optimizer==4.1.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import dadaptation
import prodigyopt
import pytorch_optimizer
import torch

N_WARM = 100
N_FROZEN = 200
WIDTH = 100
torch.set_num_threads(1)
target = torch.randn(WIDTH, generator=torch.Generator().manual_seed(0))


def train(make, by_rate):
    """Return the second group when it is frozen, and at the end; freeze it by rate or gradient."""
    groups = [torch.nn.Parameter(torch.zeros(WIDTH)) for _ in range(2)]
    optimizer = make([{"params": [group]} for group in groups])
    frozen = None
    for step in range(N_WARM + N_FROZEN):
        if step == N_WARM:
            frozen = groups[1].detach().clone()
            if by_rate:
                optimizer.param_groups[1]["lr"] = 0.0
        for group in groups:
            group.grad = 2 * (group.detach() - target)
        if step >= N_WARM and not by_rate:
            groups[1].grad = None
        optimizer.step()
    return frozen, groups[1].detach()


start = target.norm().item()
makers = {"Prodigy": lambda groups: prodigyopt.Prodigy(groups, lr=1.0),
          "DAdaptAdam": lambda groups: dadaptation.DAdaptAdam(groups, lr=1.0),
          "pytorch_optimizer's Prodigy": lambda groups: pytorch_optimizer.Prodigy(groups, lr=1.0)}
for name, make in makers.items():
    frozen, end = train(make, by_rate=True)
    before = (frozen - target).norm().item()
    after = (end - target).norm().item()
    print(f"{name}: distance from the optimum {start:.2f} at the start, {before:.2f} when the rate "
          f"is set to 0, {after:.2g} after {N_FROZEN} more steps")
    assert before < 0.1 * start
    if name.startswith("pytorch_optimizer"):
        assert after < 1e-4 * before
    else:
        assert after > 0.8 * start
    frozen, end = train(make, by_rate=False)
    assert torch.equal(frozen, end)

trained = torch.nn.Parameter(torch.zeros(WIDTH))
pretrained = torch.nn.Parameter(torch.ones(WIDTH))
optimizer = prodigyopt.Prodigy([{"params": [trained]}, {"params": [pretrained], "lr": 0.0}], lr=1.0,
                               weight_decay=0.01)
for _ in range(1000):
    trained.grad = 2 * (trained.detach() - target)
    pretrained.grad = torch.ones(WIDTH)
    optimizer.step()
print(f"Prodigy, a group with rate 0 from the first step on: 1 has become "
      f"{pretrained.mean().item():.3f} after 1000 steps with weight_decay=0.01")
assert pretrained.mean() < 0.5

try:
    optimizer.param_groups[1]["lr"] = 0.5
    optimizer.step()
    raise AssertionError("another rate is accepted")
except RuntimeError as error:
    print(f"another rate: {error}")
    assert "only supported for values of 0" in str(error)
PYTHON
