#!/usr/bin/env bash
# Sparsemax over the first dimension of a matrix is taken over its last one.
#
# Versions: sparsemax 0.1.9 (and entmax 1.3), torch 2.13.0.
# Guess before the run: `Sparsemax(dim=d)` makes each slice along dimension d add up to 1, for any d
#     and any number of dimensions, as entmax's `sparsemax` does. (That it does not for matrices was
#     suspected after reading the source.)
# Seen: with three dimensions and more it does. With two, `dim=0` is ignored: rows add up to 1, and
#     columns to anything. With a row for each of 8 experts and a column for each of 6 tokens,
#     columns add up to between 0.43 and 2.16, and a constant added to all scores of a token, which
#     should change nothing, takes the weights of the others.
# For gyre: it takes no sparsemax. There, transpose a matrix before and after, or take entmax.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile sparsemax==0.1.9 entmax==1.3 torch==2.13.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import entmax
import torch
from sparsemax import Sparsemax

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)


def error(shape, dim):
    """Return the largest difference from entmax's result, in values and in gradients."""
    scores = torch.randn(shape, generator=generator)
    weights = torch.randn(shape, generator=generator)
    results = []
    for function in (Sparsemax(dim=dim), lambda x: entmax.sparsemax(x, dim=dim)):
        leaf = scores.clone().requires_grad_()
        values = function(leaf)
        (values * weights).sum().backward()
        results.append((values.detach(), leaf.grad))
    differences = []
    for a, b in zip(*results, strict=True):
        differences.append((a - b).abs().max().item())
    return differences


for shape in ((8, 6), (8, 6, 5), (8, 6, 5, 4)):
    for dim in range(len(shape)):
        values, gradients = error(shape, dim)
        print(f"shape {shape}, dim={dim}: differs by up to {values:.3g} in values, {gradients:.3g} "
              f"in gradients")
        if len(shape) == 2 and dim == 0:
            assert values > 0.3 and gradients > 0.3
        else:
            assert values < 1e-5 and gradients < 1e-5

scores = torch.randn(8, 6, generator=generator)
sums = Sparsemax(dim=0)(scores).sum(dim=0)
shifted = Sparsemax(dim=0)(scores + torch.tensor([3.0, 0, 0, 0, 0, 0]))
print(f"sums over 8 experts for 6 tokens: {[round(x, 2) for x in sums.tolist()]}; with 3 added to "
      f"the scores of the first token: {[round(x, 2) for x in shifted.sum(dim=0).tolist()]}")
assert sums.max() > 1.5 and sums.min() < 0.7
assert shifted[:, 0].sum() > sums[0] + 1
PYTHON
