#!/usr/bin/env bash
# landscaper's random orthogonal directions are one direction, and its plots have swapped axes.
#
# Versions: landscaper 1.3.1, torch 2.13.0.
# Guess before the run: generate_random_orthogonal_directions(model, n) gives "orthogonal
#     directions" (its docstring), whose cosines are 0; a contour plot has the first direction on
#     the axis that is labelled as the first. (Both were suspected otherwise after reading the
#     source.)
# Seen: Gram-Schmidt is done with vectors that don't have norm 1, and what is subtracted is longer
#     than the vector by far: of a network of 241 weights, |cosine| of the first two is 0.93 to
#     1.00, of the second and third 1.00, and norms are 15, 45 to 370, and 7e5 to 3e7. The landscape
#     is one line, drawn obliquely: 99 to 100 % of its variance is explained by i + j, or i - j,
#     alone (with orthogonal directions of norm 1, 55 to 85 %). show_contour takes the first index
#     for y: of a loss that depends on the first direction alone, all contour lines are horizontal.
#     In `coords`, the coordinates of the topological analysis, axes are swapped, too.
# For gyre: it draws no landscapes. There, make directions by torch.linalg.qr, and transpose.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile landscaper==1.3.1 torch==2.13.0 numpy==1.26.4
MPLBACKEND=agg "$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io

import numpy as np
import torch
from landscaper import LossLandscape
from landscaper.compute import compute_loss_landscape
from landscaper.utils import generate_random_orthogonal_directions

STEPS = 21
torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(200, 10)
targets = torch.sin(inputs[:, :1])
model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))


def loss_of(model, data):
    return torch.nn.functional.mse_loss(model(data[0]), data[1]).item()


def quietly(function, *arguments, **options):
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        return function(*arguments, **options)


def line_share(directions):
    # how much of the variance of the loss is explained by i + j, or i - j, alone
    losses, _ = quietly(compute_loss_landscape, model, (inputs, targets), directions, loss_of,
                        steps=STEPS, distance=1.0, dim=2, device="cpu")
    shares = []
    for table in [losses, losses[:, ::-1]]:
        within = 0.0
        for offset in range(1 - STEPS, STEPS):
            diagonal = np.diagonal(table, offset)
            within += ((diagonal - diagonal.mean()) ** 2).sum()
        shares.append(1 - within / ((losses - losses.mean()) ** 2).sum())
    return max(shares)


shapes = [parameter.shape for parameter in model.parameters()]
sizes = [parameter.numel() for parameter in model.parameters()]
for _ in range(5):
    directions = generate_random_orthogonal_directions(model, 3)
    rows = torch.stack([torch.cat([part.flatten() for part in parts]) for parts in directions])
    unit_rows = rows / rows.norm(dim=1, keepdim=True)
    cosines = unit_rows @ unit_rows.T
    share = line_share(directions)
    print(f"norms {', '.join(f'{norm:.3g}' for norm in rows.norm(dim=1))}; cosines of 1 and 2 "
          f"{cosines[0, 1]:.3f}, of 2 and 3 {cosines[1, 2]:.3f}; {share:.3f} of the landscape's "
          "variance is that of a line")
    assert cosines[0, 1].abs() > 0.9 and cosines[1, 2].abs() > 0.99 and share > 0.98
    basis = torch.linalg.qr(torch.randn(sum(sizes), 2)).Q.T
    exact = [[part.reshape(shape) for part, shape in zip(row.split(sizes), shapes)]
             for row in basis]
    share = line_share(exact)
    print(f"    with directions of torch.linalg.qr: {share:.3f}")
    assert share < 0.95

# a loss that depends on the first direction alone
positions = np.linspace(-1, 1, STEPS)
losses = 1 + positions[:, None] ** 2 + np.zeros([STEPS, STEPS])
landscape = LossLandscape(losses, [positions, positions])
axes = quietly(landscape.show_contour, show=False).axes[0]
spans = []
for path in axes.collections[1].get_paths():
    for line in path.to_polygons(closed_only=False):
        spans.append(np.ptp(line, axis=0))
spans = np.array(spans)
print(f"x axis: {axes.get_xlabel()!r}; contour lines of a loss of the first direction alone span "
      f"{spans[:, 0].min():.2f} in x, at most {spans[:, 1].max():.2f} in y")
assert "First" in axes.get_xlabel() and spans[:, 0].min() > 0.9 and spans[:, 1].max() < 1e-6
# the same in the coordinates of the topological analysis
is_first = np.allclose(1 + landscape.coords[:, 0] ** 2, losses.flatten())
is_second = np.allclose(1 + landscape.coords[:, 1] ** 2, losses.flatten())
print(f"in coords, a function of the first coordinate: {is_first}, of the second: {is_second}")
assert is_second and not is_first
PYTHON
