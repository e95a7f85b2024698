#!/usr/bin/env bash
# ASDL's Shampoo adds its damping to the statistics again at each update.
#
# Versions: asdfghjkl 0.1a5 (the package of ASDL), torch 2.13.0.
# Guess before the run: damping=0.001 adds a thousandth of the largest eigenvalue to the statistics
#     whenever a root is taken, and block_size splits matrices into blocks. (The opposite was
#     suspected after reading the source.)
# Seen: the root adds it in place, so that it stays. With the sum of all gradients, the default, the
#     smallest eigenvalue is a thousandth of the largest after one update, a twentieth after 100 and
#     a seventh after 300, where the gradients have none in that direction; with an average and
#     ema_decay=0.01 it is a twelfth. Directions in which there was no gradient yet have a root
#     that is 1.6 instead of 5.6 times that of the others: Shampoo becomes SGD. block_size has no
#     effect in one process: the gradients are equal bit for bit.
# For gyre: its optimizers have no such roots. There, divide the damping by the number of updates.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile asdfghjkl==0.1a5 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from asdl.precondition import PreconditioningConfig, ShampooGradientMaker
from torch import nn

DAMPING = 1e-3
SIZE = 6
torch.set_num_threads(1)


def train(n_steps, ema_decay=-1, **options):
    """Return statistics, roots and the gradient after equal gradients of rank one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(SIZE, SIZE, bias=False))
    config = PreconditioningConfig(damping=DAMPING, ema_decay=ema_decay, data_size=1)
    maker = ShampooGradientMaker(model, config, **options)
    x, target = torch.randn(2, 1, SIZE).unbind()
    for _ in range(n_steps):
        model.zero_grad()
        outputs = maker.setup_model_call(model, x)
        maker.setup_loss_call(nn.functional.mse_loss, outputs, target)
        maker.forward_and_backward()
    matrix = maker.preconditioners[0]
    return matrix.statistics[0], matrix.preconditioners[0], model[0].weight.grad.clone()


def ratio(matrix):
    """Return the smallest eigenvalue as a share of the largest."""
    values = torch.linalg.eigvalsh(matrix.double())
    return (values[0] / values[-1]).item()


for ema_decay in [-1, 0.01]:
    name = "sum" if ema_decay == -1 else f"average, ema_decay={ema_decay}"
    for n_steps in [1, 100, 300]:
        statistics, root, _ = train(n_steps, ema_decay)
        share = ratio(statistics)
        print(f"{name}, {n_steps} updates: smallest eigenvalue {share:.4f} of the largest, damping "
              f"{DAMPING}; largest root {1 / ratio(root):.2f} times the smallest, due "
              f"{(DAMPING / (1 + DAMPING)) ** -0.25:.2f}")
        if n_steps == 1:
            assert abs(share / DAMPING - 1) < 0.01
        if n_steps == 300:
            assert share > 50 * DAMPING
gradients = [train(3, **options)[2] for options in [{}, {"block_size": 2}, {"block_size": 3}]]
print("block_size=2 and 3 change the gradients:",
      [not torch.equal(gradients[0], gradient) for gradient in gradients[1:]])
assert all(torch.equal(gradients[0], gradient) for gradient in gradients)
PYTHON
