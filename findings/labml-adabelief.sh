#!/usr/bin/env bash
# AdaBelief of labml-nn is AMSGrad unless something else is switched off.
#
# Versions: labml-nn 0.5.1, labml 0.5.3, torch 2.13.0.
# Guess before the run: AdaBelief() has amsgrad=False, as its signature says, so a gradient 1000
#     times as large as usual is forgotten after some thousand steps. (That it is not was suspected
#     after reading the source.)
# Seen: its arguments reach the parent one place too early: degenerate_to_sgd, which is True, is
#     taken as amsgrad, and amsgrad as optimized_update. So the largest variance is kept for good:
#     10,000 steps after one such gradient, steps are 0.15 as large as without it. With
#     degenerate_to_sgd=False it is forgotten, and amsgrad=True has no effect then. The parent,
#     RAdam, has the steps of torch's, and forgets it.
# For gyre: it has no AdaBelief. There, give degenerate_to_sgd=False, or set the group's "amsgrad".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps labml-nn==0.5.1 labml==0.5.3
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 pyyaml==6.0.4 \
    gitpython==3.2.1
cd "$folder"
env/bin/python - <<'PYTHON'
import torch
from labml_nn.optimizers.ada_belief import AdaBelief
from labml_nn.optimizers.radam import RAdam

N_STEPS = 10_000
N_LAST = 100
torch.set_num_threads(1)


def step_size(make, spike):
    """Return the mean size of the last steps, with or without one large gradient early on."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(torch.zeros(100))
    optimizer = make([weights])
    sizes = []
    for step in range(N_STEPS):
        weights.grad = 0.01 * torch.randn(100, generator=generator)
        if spike and step == 100:
            weights.grad *= 1000
        before = weights.detach().clone()
        optimizer.step()
        sizes.append((weights.detach() - before).abs().mean().item())
    return sum(sizes[-N_LAST:]) / N_LAST


makers = {
    "AdaBelief()": AdaBelief,
    "AdaBelief(degenerate_to_sgd=False)": lambda p: AdaBelief(p, degenerate_to_sgd=False),
    "AdaBelief(amsgrad=True, degenerate_to_sgd=False)":
        lambda p: AdaBelief(p, amsgrad=True, degenerate_to_sgd=False),
    "RAdam()": RAdam,
    "torch's RAdam()": torch.optim.RAdam,
}
ratios = []
sizes = []
for name, make in makers.items():
    sizes.append(step_size(make, False))
    ratios.append(step_size(make, True) / sizes[-1])
    print(f"{name}: long after one large gradient, steps are {ratios[-1]:.3f} as large as without")
assert ratios[0] < 0.2
assert all(abs(ratio - 1) < 0.1 for ratio in ratios[1:])
assert abs(sizes[3] / sizes[4] - 1) < 0.01
PYTHON
