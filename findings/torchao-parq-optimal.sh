#!/usr/bin/env bash
# In torchao's PARQ, `optimal=True` has larger errors than heuristics, for three levels and four.
#
# Versions: torchao 0.18.0, torch 2.13.0.
# Guess before the run: `LSBQuantizer(optimal=True)` has the smallest squared error that three
#     levels (b=0) or four levels of two signs (b=2) can have, for a tensor and for each row; the
#     default is a heuristic and has a little more. (That this fails for three levels to a tensor
#     was suspected after reading the source; that it fails for four levels to a row came out of the
#     comparison.)
# Seen: for normal weights and one set of levels to a tensor, which is the default of PARQ, three
#     optimal levels have an error of 0.59, where the heuristic has 0.49 and 0.44 is possible: the
#     levels are half as large as they should be. With levels for each row, the same option has
#     0.44. Four optimal levels for each row have an error of 0.42, where the heuristic has 0.36 and
#     0.34 is possible, and here the tensor as a whole is right. Nothing is said.
# For gyre: it does not train quantized weights. There, leave `optimal` off, or take it for three
#     levels to a row and four to a tensor.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torchao==0.18.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - 2> "$folder/log" <<'PYTHON'
import torch
from torchao.prototype.parq.quant import LSBQuantizer

ROWS, WIDTH = 64, 256


def least_error(values, n_levels):
    """Return the least squared error of values (n,) with levels that are symmetric around 0.

    The largest magnitudes have one level, the others another one, which is 0 for three levels."""
    magnitudes = values.abs().sort(descending=True).values.double()
    n = torch.arange(1, len(values) + 1)
    sums = magnitudes.cumsum(0)
    # A group's error is the sum of its squares minus its size times its mean squared.
    gains = sums.square() / n
    if n_levels == 4:
        gains[:-1] += (sums[-1] - sums[:-1]).square() / (len(values) - n[:-1])
    return magnitudes.square().sum() - gains.max()


torch.manual_seed(0)
weights = torch.randn(ROWS, WIDTH)
for bits, n_levels in [(0, 3), (2, 4)]:
    for dim, by in [(None, "tensor"), (-1, "row")]:
        parts = [weights.ravel()] if dim is None else weights
        possible = sum(least_error(part, n_levels) for part in parts).sqrt() / weights.norm()
        errors = {}
        for optimal in [False, True]:
            quantized, levels = LSBQuantizer(optimal=optimal).quantize(weights, bits, dim=dim)
            assert levels.shape[-1] == n_levels
            errors[optimal] = ((quantized - weights).norm() / weights.norm()).item()
        print(f"{n_levels} levels to a {by}: error {errors[True]:.3f} optimal, {errors[False]:.3f} "
              f"by the heuristic, {possible:.3f} possible; largest optimal level of the first "
              f"{levels.reshape(-1, n_levels)[0].max():.2f}")
        assert errors[False] > possible
        if (n_levels, by) in [(3, "tensor"), (4, "row")]:
            assert errors[True] > errors[False] + 0.02
        else:
            assert abs(errors[True] - possible) < 0.005
PYTHON
