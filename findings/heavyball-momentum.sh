#!/usr/bin/env bash
# By default, heavyball's Muon follows the last gradient more than the hundred before it.
#
# Versions: heavyball 3.2.1, torch 2.13.0.
# Guess before the run: with equal momentum, its update points where that of torch.optim.Muon does.
#     Packages differ by a factor only.
# Seen: with nesterov=True, the default, the whole gradient is added to the moving average of
#     gradients. torch takes (1 - momentum) of the gradient there. With a momentum of 0.95,
#     the last gradient weighs 1.05 and all before it 0.95; in torch 0.1 and 0.9. So the noise of
#     one batch has half of the direction. heavyball_momentum=True mixes as torch does.
# For gyre: gyre/optim.py mixes as torch does. Compare it with heavyball only with
#     heavyball_momentum=True; betas=(0.9, 0.99) is another default there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile heavyball==3.2.1 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import heavyball
import torch

SIZE = 64
MOMENTUM = 0.95
N_OLD = 100
BETAS = (MOMENTUM, 0.99)
torch.manual_seed(0)
old = torch.randn(SIZE, SIZE)
new = torch.randn(SIZE, SIZE)
heavyball.utils.compile_mode = None


def last_update(make, **options):
    """Return the update after N_OLD equal gradients and one other of the same size."""
    weight = torch.nn.Parameter(torch.zeros(SIZE, SIZE))
    optimizer = make([weight], lr=1.0, weight_decay=0.0, **options)
    for gradient in [*[old] * N_OLD, new]:
        before = weight.detach().clone()
        weight.grad = gradient.clone()
        optimizer.step()
    return before - weight.detach()


def cosine(left, right):
    return torch.nn.functional.cosine_similarity(left.flatten(), right.flatten(), dim=0).item()


updates = {
    "torch.optim.Muon": last_update(torch.optim.Muon, momentum=MOMENTUM),
    "heavyball.Muon": last_update(heavyball.Muon, betas=BETAS),
    "heavyball.Muon, nesterov=False":
        last_update(heavyball.Muon, betas=BETAS, nesterov=False),
    "heavyball.Muon, heavyball_momentum=True":
        last_update(heavyball.Muon, betas=BETAS, heavyball_momentum=True),
}
to_new = {}
for name, update in updates.items():
    to_new[name] = cosine(update, new)
    print(f"{name}: cosine with the {N_OLD} old gradients {cosine(update, old):.2f}, "
          f"with the last one {to_new[name]:.2f}")

default = to_new.pop("heavyball.Muon")
assert default > cosine(updates["heavyball.Muon"], old)
assert default > 0.5
assert max(to_new.values()) < 0.2
PYTHON
