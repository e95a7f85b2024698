#!/usr/bin/env bash
# Five of ncg-optimizer's methods of conjugate gradients divide norms where squares are due.
#
# Versions: ncg-optimizer 0.2.2, torch 2.13.0.
# Guess before the run: on a quadratic with 8 dimensions, each method with the exact line search is
#     at the minimum after 8 steps: FR, PRP, HS, CD, DY and LS are one method there. (The opposite
#     was suspected after reading the source.)
# Seen: HS and LS are there, with 1e-29 of the loss. FR, CD and DY have the norm of the gradient
#     for its square in beta, and PRP, the default, divides by the norm; HS-DY takes the smaller of
#     HS and DY. After 8 steps they have 0.6 to 3 % of the loss, and FR has 0.3 % after 50. Beta
#     has a unit with PRP, CD and DY, so that a loss times 1e4 has other steps: 11 % remain with
#     PRP instead of 2.6 %. With squares, FR written out is at the minimum after 8 steps.
# For gyre: it has no conjugate gradients. There, take HS or LS.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ncg-optimizer==0.2.2 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from ncg_optimizer import BASIC

SIZE = 8
torch.set_num_threads(1)
torch.manual_seed(0)
basis, _ = torch.linalg.qr(torch.randn(SIZE, SIZE).double())
matrix = basis @ torch.diag(torch.linspace(1, 30, SIZE).double()) @ basis.T
start = torch.randn(SIZE).double()


def loss_of(x):
    return 0.5 * x @ matrix @ x


def minimize(method, n_steps=SIZE, scale=1.0):
    """Return what share of the loss is left."""
    x = torch.nn.Parameter(start.clone())
    optimizer = BASIC([x], method=method, line_search="None", eps=1e-14)

    def closure():
        x.grad = None
        loss = scale * loss_of(x)
        loss.backward(create_graph=True)
        return loss

    for _ in range(n_steps):
        optimizer.step(closure)
    return (loss_of(x) / loss_of(start)).item()


def fletcher_reeves():
    """Return what share of the loss is left after SIZE steps with squares in beta."""
    x = start.clone()
    gradient = matrix @ x
    direction = -gradient
    for _ in range(SIZE):
        x = x - (gradient @ direction) / (direction @ matrix @ direction) * direction
        new = matrix @ x
        direction = (new @ new) / (gradient @ gradient) * direction - new
        gradient = new
    return (loss_of(x) / loss_of(start)).item()


left = {method: minimize(method) for method in ["FR", "PRP", "HS", "CD", "DY", "LS", "HS-DY"]}
for method, share in left.items():
    print(f"{method}: {share:.2g} of the loss is left after {SIZE} steps")
written_out = fletcher_reeves()
print(f"FR written out, with squares: {written_out:.2g}")
late = minimize("FR", n_steps=50)
large = minimize("PRP", scale=1e4)
print(f"FR after 50 steps: {late:.2g}; PRP for a loss times 1e4: {large:.2g}")
assert max(written_out, left.pop("HS"), left.pop("LS")) < 1e-20
assert min(left.values()) > 1e-3 and late > 1e-4
assert large / left["PRP"] > 2
PYTHON
