#!/usr/bin/env bash
# Kron merges the kernels of convolutions into the least square matrix instead of the most square.
#
# Versions: kron-torch 0.3.3, torch 2.13.0.
# Guess before the run: with merge_dims, the default, a kernel of (64, 64, 3, 3) is taken as a
#     matrix of 64 rows and 576 columns, the more square of its two foldings, so that it has a
#     preconditioner for its output channels; a convolution of 1 x 1 has the preconditioners of the
#     nn.Linear that it is. (That the difference of the sides is compared with its sign was
#     suspected after reading the source.)
# Seen: it is taken as 12,288 x 3: the long side is above max_size_triangular and gets a diagonal,
#     so that only the three columns of the kernel have a full matrix. For 64 x 32 channels of 1 x
#     1, the matrix is 2,048 x 1, and the preconditioner has 4.2 million numbers for 2,048 weights,
#     where that of the nn.Linear has 5,120; for 128 x 64 channels, it would be 67 million. Kernels
#     of 32 x 16 x 3 x 3 take 2.4 million, where the other folding takes 22 thousand.
# For gyre: it has no convolutions. There, fold kernels yourself: a parameter of (64, 576).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile kron-torch==0.3.3 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import contextlib
import io
import math

import torch

torch._dynamo.config.disable = True  # needs no compiler; the shapes are the same
from kron_torch import Kron

torch.set_num_threads(1)


def preconditioners(shape):
    """Return the shapes of the preconditioners of a parameter of this shape, after one step."""
    parameter = torch.nn.Parameter(torch.zeros(shape))
    optimizer = Kron([parameter])
    parameter.grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with contextlib.redirect_stdout(io.StringIO()):  # it prints sizes
        optimizer.step()
    return [tuple(matrix.shape) for matrix in optimizer.state[parameter]["Q"]]


def size(shapes):
    return sum(math.prod(shape) for shape in shapes)


linear = preconditioners((64, 32))
print(f"nn.Linear of (64, 32): {linear}, {size(linear):,} numbers for {64 * 32:,} weights")
assert linear == [(64, 64), (32, 32)]
seen = {}
for shape in [(64, 32, 1, 1), (32, 16, 3, 3), (64, 64, 3, 3)]:
    seen[shape] = preconditioners(shape)
    folded = preconditioners((shape[0], math.prod(shape[1:])))
    print(f"kernels of {shape}: {seen[shape]}, {size(seen[shape]):,} numbers for "
          f"{math.prod(shape):,} weights; folded to {shape[0]} rows before: {folded}, "
          f"{size(folded):,}")
    assert folded[0] == (shape[0], shape[0])
    assert len(folded[1]) == 2
assert seen[64, 32, 1, 1][0] == (2048, 2048) and size(seen[64, 32, 1, 1]) > 800 * size(linear)
assert seen[32, 16, 3, 3] == [(1536, 1536), (3, 3)]
assert seen[64, 64, 3, 3] == [(12288,), (3, 3)]
PYTHON
