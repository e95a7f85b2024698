#!/usr/bin/env bash
# torchzero clips the norm of each column instead of the matrix if the first parameter is a vector.
#
# Versions: torchzero 0.4.4, torch 2.13.0.
# Guess before the run: `ClipNorm(1)` leaves each gradient with a norm of 1 at most, in any order of
#     the parameters; a decay of order 3 shrinks weights of either sign. (That neither is so was
#     suspected after reading the source.)
# Seen: the dimensions of the first parameter serve for all. With a vector first, a gradient of 64
#     columns comes out with norm 8, as each column has its own; with the same two parameters the
#     other way round, it has norm 1. `Normalize` and `Centralize` do the same. A decay of order 3
#     drives negative weights away from zero: -1 becomes -2.63 while 1 becomes 0.61.
# For gyre: it clips all gradients together, by torch. There, give `dim="global"`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torchzero==0.4.4 scipy==1.17.1 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
import torchzero as tz

DIM = 64

torch.set_num_threads(1)


def step(module, first):
    """Return the update of a matrix with a large gradient, if this parameter is the first."""
    torch.manual_seed(0)
    vector = torch.nn.Parameter(torch.zeros(DIM))
    matrix = torch.nn.Parameter(torch.zeros(DIM, DIM))
    vector.grad = 100 * torch.randn(DIM) + 50
    matrix.grad = 100 * torch.randn(DIM, DIM) + 50
    params = [vector, matrix] if first == "vector" else [matrix, vector]
    tz.Optimizer(params, module(), tz.m.LR(1)).step()
    return -matrix.detach()


def clip():
    return tz.m.ClipNorm(1)


def clip_together():
    return tz.m.ClipNorm(1, dim="global")


def normalize():
    return tz.m.Normalize(1)


def centralize():
    return tz.m.Centralize()


for module in (clip, clip_together, normalize):
    norms = {}
    for first in ("matrix", "vector"):
        norms[first] = step(module, first).norm().item()
    print(f"{module.__name__}: the matrix has norm {norms['matrix']:.3f} if it is the first, and "
          f"{norms['vector']:.3f} if a vector is")
    if module is clip_together:
        assert norms["matrix"] < 1 and abs(norms["vector"] - norms["matrix"]) < 1e-3
    else:
        assert abs(norms["matrix"] - 1) < 1e-3 and abs(norms["vector"] - DIM**0.5) < 1e-2
spread = {}
for first in ("matrix", "vector"):
    spread[first] = step(centralize, first).mean(dim=0).abs().mean().item()
print(f"centralize: columns have a mean of {spread['matrix']:.3f} if the matrix is the first, and "
      f"{spread['vector']:.3f} if a vector is")
assert spread["matrix"] > 1 and spread["vector"] < 1e-3

weight = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
optimizer = tz.Optimizer([weight], tz.m.WeightDecay(0.01, ord=3), tz.m.LR(1))
for _ in range(63):
    weight.grad = torch.zeros(2)
    optimizer.step()
print(f"decay of order 3: 1 and -1 have become {weight[0].item():.2f} and {weight[1].item():.2f}")
assert 0 < weight[0] < 0.7 and weight[1] < -2
PYTHON
