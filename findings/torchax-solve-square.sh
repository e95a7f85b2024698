#!/usr/bin/env bash
# torchax solves A X = B for the rows of B if B is square.
#
# Versions: torchax 0.0.14.dev20261026, torch 2.13.0, jax 0.10.2 (the same code is in torchax 0.0.13).
# Guess before the run: torch.linalg.solve(A, B) has the X with A X = B for each shape of B. (That it might
#     not for a square one was suspected after reading the source.)
# Seen: a B with as many columns as A is taken for a batch of vectors: the result is solve(A, B^T)^T. With the
#     identity it is the inverse transposed; the Newton step of several right sides, or a whitening, is that of
#     another problem, and the residual is larger than B. One column more or less, and all is right. Inverses
#     by `torch.linalg.inv` are right.
# For gyre: it solves no systems. There, give B with another column, or one column at a time.
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

N = 6
generator = torch.Generator().manual_seed(0)
matrix = torch.randn(N, N, generator=generator) + 3 * torch.eye(N)

for n_columns in (1, N - 1, N, N + 1):
    sides = torch.randn(N, n_columns, generator=generator)
    with torchax.default_env():
        found = torch.linalg.solve(matrix.to("jax"), sides.to("jax"))
        found = torch.from_numpy(np.array(found.jax()))
    residual = ((matrix @ found - sides).norm() / sides.norm()).item()
    print(f"B of {N} x {n_columns}: |A X - B| / |B| is {residual:.1e}")
    if n_columns == N:
        assert residual > 0.5
        assert torch.allclose(found, torch.linalg.solve(matrix, sides.T).T, atol=1e-4)
    else:
        assert residual < 1e-4
    residual = ((matrix @ torch.linalg.solve(matrix, sides) - sides).norm() / sides.norm()).item()
    assert residual < 1e-4

with torchax.default_env():
    identity = torch.eye(N)
    found = torch.from_numpy(np.array(torch.linalg.solve(matrix.to("jax"), identity.to("jax")).jax()))
    inverse = torch.from_numpy(np.array(torch.linalg.inv(matrix.to("jax")).jax()))
print(f"B = identity: the transposed inverse, to {(found - inverse.T).abs().max():.0e}")
assert torch.allclose(found, inverse.T, atol=1e-4) and not torch.allclose(found, inverse, atol=0.05)
assert torch.allclose(inverse, torch.linalg.inv(matrix), atol=1e-4)
PYTHON
