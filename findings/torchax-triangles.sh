#!/usr/bin/env bash
# torchax does not care which triangle of a matrix is meant.
#
# Versions: torchax 0.0.14.dev20261026, torch 2.13.0, jax 0.10.2.
# Guess before the run: `eigh` and `eigvalsh` read the triangle that `UPLO` names and nothing else, and
#     `cholesky_inverse(U, upper=True)` inverts U^T U, as in PyTorch.
# Seen: eigenvalues are those of the mean of both triangles, whatever `UPLO` says: where only one triangle is filled,
#     everything beside the diagonal counts half. The inverse with `upper=True` is that of U U^T, which is another
#     matrix. Symmetric matrices, lower factors and `cholesky` of one triangle are right. (The test of eigh there
#     allows errors of 50.)
# For gyre: Muon takes no eigenvalues, and its matrices are whole. There, make matrices symmetric first, and take
#     lower factors.
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

torch.manual_seed(0)
factor = torch.randn(5, 5)
matrix = factor @ factor.T + torch.eye(5)


def run(function, tensor):
    """Return the output of torchax as a tensor of torch."""
    with torchax.default_env():
        return torch.from_numpy(np.array(function(tensor.to("jax")).jax()))


due = torch.from_numpy(np.linalg.eigvalsh(matrix.numpy()))
half = torch.from_numpy(np.linalg.eigvalsh((matrix / 2 + matrix.diag().diag() / 2).numpy()))
print(f"eigenvalues of the matrix: {due.numpy().round(2)}")
for name, stored, uplo in (("whole", matrix, "L"), ("lower", matrix.tril(), "L"), ("upper", matrix.triu(), "U")):
    for function in (torch.linalg.eigvalsh, lambda x, UPLO: torch.linalg.eigh(x, UPLO=UPLO)[0]):
        theirs = run(lambda x: function(x, UPLO=uplo), stored)
        assert torch.allclose(function(stored, UPLO=uplo), due, atol=1e-4)
        assert torch.allclose(theirs, due if name == "whole" else half, atol=1e-4)
    print(f"torchax, {name} matrix stored, UPLO={uplo}: {theirs.numpy().round(2)}")
assert (half - due).abs().max() > 0.5

ours, theirs = torch.linalg.cholesky(matrix.tril()), run(torch.linalg.cholesky, matrix.tril())
print(f"cholesky of the lower half: error of torch {(ours @ ours.T - matrix).abs().max():.1g}, "
      f"of torchax {(theirs @ theirs.T - matrix).abs().max():.2g}")

inverse = torch.from_numpy(np.linalg.inv(matrix.numpy()))
for upper in (False, True):
    root = torch.linalg.cholesky(matrix, upper=upper)
    function = lambda x: torch.cholesky_inverse(x, upper=upper)  # noqa: E731
    theirs = run(function, root)
    assert torch.allclose(function(root), inverse, atol=1e-3)
    error = ((theirs - inverse).norm() / inverse.norm()).item()
    print(f"cholesky_inverse with upper={upper}: relative error {error:.2g}")
    if upper:
        assert torch.allclose(theirs, torch.linalg.inv(root @ root.T), atol=1e-3)
        assert error > 0.2
    else:
        assert error < 1e-3
PYTHON
