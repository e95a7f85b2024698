#!/usr/bin/env bash
# In pytorch_optimizer, the first step of Lamb is ten times as long as its trust ratio says.
#
# Versions: pytorch_optimizer 4.1.0, torch 2.13.0.
# Guess before the run: Lamb's trust ratio gives each update the length of `lr` times the norm of the
#     weights, whatever the gradients are. The docstring says that there is no bias correction. (That
#     there is one was suspected after reading the source.)
# Seen: behind the trust ratio, the step is divided by 1 - beta1^t: it is 10 times as long as due in the
#     first step, 5.3 times in the second, 1.5 times in the tenth. The correction is one of a momentum
#     that starts at zero, but the normalized update has lost that scale already. With the rates for
#     which Lamb was made, say 0.1, the first step is as long as the weights are.
# For gyre: it has no Lamb. There, give `adam_debias=True`, which means no correction here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pytorch_optimizer==4.1.0 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from pytorch_optimizer import Lamb

BETA1 = 0.9
torch.set_num_threads(1)


def lengths(rate, **options):
    """Return the lengths of 30 steps of a matrix of norm 1, by `lr` times its norm."""
    torch.manual_seed(0)
    start = torch.randn(16, 16, dtype=torch.float64)
    weight = torch.nn.Parameter(start / start.norm())
    optimizer = Lamb([weight], lr=rate, betas=(BETA1, 0.999), **options)
    direction = torch.randn_like(weight)
    moves = []
    for _ in range(30):
        old = weight.detach().clone()
        weight.grad = direction + 0.5 * torch.randn_like(weight)
        optimizer.step()
        moves.append(((weight.detach() - old).norm() / old.norm() / rate).item())
    return moves


for rate in [0.001, 0.01]:
    plain, fixed = lengths(rate), lengths(rate, adam_debias=True)
    print(f"lr={rate}: step, length by lr * norm, with adam_debias=True, 1 / (1 - beta1^t)")
    for step in [1, 2, 3, 5, 10, 30]:
        factor = 1 / (1 - BETA1 ** step)
        print(f"    {step:2}  {plain[step - 1]:6.3f}  {fixed[step - 1]:6.3f}  {factor:6.3f}")
        assert abs(plain[step - 1] / factor - 1) < 1e-3 and abs(fixed[step - 1] - 1) < 1e-3
share = 0.1 * lengths(0.1)[0]
print(f"lr=0.1: the first step is {share:.4f} times as long as the weights are")
assert abs(share - 1) < 1e-3
PYTHON
