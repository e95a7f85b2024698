#!/usr/bin/env bash
# torchax's cdist gives 1 for all distances of the maximum norm.
#
# Versions: torchax 0.0.14.dev20261026, torch 2.13.0, jax 0.10.2.
# Guess before the run: `torch.cdist(x, y, p=inf)` is the largest difference in a coordinate, as in PyTorch.
# Seen: it is 1 for all pairs of points, near and far ones: sums of infinite powers are taken to the power 1/inf,
#     which is 0. The nearest neighbour of every point is the first one. `torch.nn.functional.pdist`, `dist`,
#     `norm` and `pairwise_distance` with the same p are right, and so is cdist with p of 0, 1, 2 and 3. (The test
#     of cdist there allows errors of 50.)
# For gyre: it computes no distances. There, take `(x[:, None] - y[None]).abs().amax(-1)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 jax==0.10.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchax==0.0.14.dev20261026
JAX_PLATFORMS=cpu "$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
import torchax
from torch.nn import functional as F

torch.manual_seed(0)
INF = float("inf")
x = torch.randn(40, 3)
order = torch.randperm(40)
y = 1000 * x[order] + torch.rand(40, 3)


def run(function, *tensors):
    """Return the output of torchax as a tensor of torch."""
    with torchax.default_env():
        output = function(*(tensor.to("jax") for tensor in tensors))
        return torch.from_numpy(np.array(output.jax()))


due = (1000 * x[:, None] - y[None]).abs().amax(-1)  # (40, 40)
ours = torch.cdist(1000 * x, y, p=INF)
theirs = run(lambda x, y: torch.cdist(1000 * x, y, p=INF), x, y)
print(f"distances: due from {due.min():.2f} to {due.max():.0f}; torchax from {theirs.min():.2f} to {theirs.max():.2f}")
assert torch.allclose(ours, due)
assert (theirs == 1).all()

neighbours = order.argsort()
found = {"torch": ours.argmin(1), "torchax": theirs.argmin(1)}
for name, indices in found.items():
    print(f"{name} finds {(indices == neighbours).sum().item()} of 40 neighbours")
assert (found["torch"] == neighbours).all()
assert (found["torchax"] == 0).all()

for p in (0.0, 1.0, 2.0, 3.0):
    right = torch.allclose(run(lambda x: torch.cdist(x, x.flip(0), p=p), x), torch.cdist(x, x.flip(0), p=p), atol=1e-2)
    print(f"cdist with p={p}: right={right}")
    assert right
for name, function in {"pdist": lambda x: F.pdist(x, INF), "dist": lambda x: torch.dist(x, x.flip(0), INF),
                       "norm": lambda x: torch.norm(x, INF, dim=1),
                       "pairwise_distance": lambda x: F.pairwise_distance(x, x.flip(0), p=INF)}.items():
    right = torch.allclose(run(function, x), function(x), atol=1e-5)
    print(f"{name} with p=inf: right={right}")
    assert right
PYTHON
