#!/usr/bin/env bash
# Tauon orthogonalizes a quarter of a square, and leaves the rest of a matrix to its raw gradient.
#
# Versions: tauon-optimizer 0.1.4, torch 2.13.0.
# Guess before the run: as its README says, an update is orthogonal: all of its singular values are about equal,
#     and a factor of the gradient changes nothing, as in Muon. (That columns beyond the square are not
#     touched was read in the source before the run.)
# Seen: of the 64 singular values of a square update, 48 are 0, and the others go from 0.58 to 0.03, where
#     Muon's go from 1.16 to 0.08. In a matrix of 64 rows and 256 columns, three quarters of the columns get
#     the gradient as it is: with a deviation of 1, they move 43 times as far as the others, with one of 0.001 a
#     23rd, with one of 1000 43,000 times as far; more rows than columns are cut in the same way. So a loss
#     that is 100 times as large is another training, which it is not with Muon.
# Cause: `process` takes `G_work[:S, :S]`, and copies the result into a clone of the gradient; the iteration
#     runs on the lowest quarter of a cosine transform, and the inverse transform is 0 elsewhere (optimizer.py).
# For gyre: its Muon orthogonalizes whole matrices. There, take torch's Muon.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps tauon-optimizer==0.1.4
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from tauon import tauon

torch.set_num_threads(1)


def update(make_optimizer, gradient):
    """Return the first update of a matrix of zeros, at a learning rate of 1."""
    weight = torch.nn.Parameter(torch.zeros_like(gradient))
    optimizer = make_optimizer([weight])
    weight.grad = gradient.clone()
    optimizer.step()
    return -weight.detach()


def make_tauon(weights):
    return tauon(weights, lr=1.0, momentum=0.0, nesterov=False, weight_decay=0.0)


def make_muon(weights):
    return torch.optim.Muon(weights, lr=1.0, momentum=0.0, nesterov=False, weight_decay=0.0)


torch.manual_seed(0)
square = torch.randn(64, 64)
for name, make in [("Tauon", make_tauon), ("Muon", make_muon)]:
    values = torch.linalg.svdvals(update(make, square))
    n_zero = (values < 1e-4).sum().item()
    print(f"{name}, 64 x 64: singular values from {values[0]:.2f} to {values[-1]:.2f}, {n_zero} are 0")
    assert n_zero == (48 if name == "Tauon" else 0)

for shape in [(64, 256), (256, 64)]:
    torch.manual_seed(0)
    gradient = torch.randn(shape)
    for factor in [1e-3, 1.0, 1e3]:
        step = update(make_tauon, factor * gradient)
        wide = step if shape[0] == 64 else step.T
        square, rest = wide[:, :64], wide[:, 64:]
        raw = (factor * gradient if shape[0] == 64 else factor * gradient.T)[:, 64:]
        ratio = (rest.square().mean() / square.square().mean()).sqrt().item()
        lengths = (rest.norm() / raw.norm()).item()
        cosine = torch.cosine_similarity(rest.flatten(), raw.flatten(), dim=0).item()
        print(f"{shape[0]} x {shape[1]}, gradient times {factor:g}: behind the square, a number moves {ratio:.3g} times "
              f"as far as in it, by {lengths:.2f} times its gradient (cosine {cosine:.4f})")
        assert cosine > 0.9999 and abs(lengths - max(1, shape[0] / shape[1]) ** 0.5) < 1e-3
        assert (0.01 < ratio / (40 * factor) < 2) and abs(ratio / factor / 43 - 1) < 0.1

generator = torch.Generator().manual_seed(1)
inputs, targets = torch.randn(200, 64, generator=generator), torch.randn(200, 64, generator=generator)


def train(make_optimizer, unit):
    """Return the loss after 50 steps on the loss in another unit."""
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(64, 256) / 8), torch.nn.Parameter(torch.randn(256, 64) / 16)]
    optimizer = make_optimizer(weights)
    for _ in range(50):
        optimizer.zero_grad()
        loss = ((torch.tanh(inputs @ weights[0]) @ weights[1] - targets) ** 2).mean()
        (unit * loss).backward()
        optimizer.step()
    return loss.item()


losses = {name: [train(lambda weights: kind(weights, lr=0.02), unit) for unit in [0.01, 1.0, 100.0]]
          for name, kind in [("Tauon", tauon), ("Muon", torch.optim.Muon)]}
for name, found in losses.items():
    print(f"{name}: loss after 50 steps {', '.join(f'{loss:.3g}' for loss in found)} if the loss that is "
          "trained is 0.01, 1 and 100 times as large")
assert max(losses["Muon"]) / min(losses["Muon"]) < 1.05
assert max(losses["Tauon"]) / min(losses["Tauon"]) > 3
PYTHON
