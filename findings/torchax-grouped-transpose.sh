#!/usr/bin/env bash
# torchax mixes the channels of transposed convolutions with groups.
#
# Versions: torchax 0.0.14.dev20261026, torch 2.13.0, jax 0.10.2 (the same code is in torchax 0.0.13).
# Guess before the run: a transposed convolution with groups is one for each group, as in PyTorch. (That it
#     might not be was suspected after reading the source.)
# Seen: weights of the shape (inputs, outputs / groups, kernel) are reshaped to (inputs / groups, outputs,
#     kernel) without exchanging the axes: each group gets weights of others. With 2 groups of 2 channels or
#     more, the outputs are off by as much as they are large. With one group, or one input to each group, they
#     are right, and so are plain convolutions with groups.
# For gyre: its models have no convolutions. There, write one transposed convolution for each group.
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

generator = torch.Generator().manual_seed(0)


def run(function, *tensors, **options):
    """Return the output of torchax as a tensor of torch."""
    with torchax.default_env():
        output = function(*(tensor.to("jax") for tensor in tensors), **options)
        return torch.from_numpy(np.array(output.jax()))


for dimensions, size in ((1, (9,)), (2, (5, 6))):
    for n_inputs, n_outputs, groups in ((8, 8, 1), (8, 8, 2), (8, 4, 2), (8, 8, 4), (8, 16, 8), (8, 8, 8)):
        inputs = torch.randn(2, n_inputs, *size, generator=generator)
        weight = torch.randn(n_inputs, n_outputs // groups, *(3,) * dimensions, generator=generator)
        function = {1: F.conv_transpose1d, 2: F.conv_transpose2d}[dimensions]
        found = run(function, inputs, weight, stride=2, padding=1, groups=groups)
        parts = zip(inputs.chunk(groups, 1), weight.chunk(groups, 0))
        due = torch.cat([function(part, rows, stride=2, padding=1) for part, rows in parts], 1)
        assert torch.allclose(function(inputs, weight, stride=2, padding=1, groups=groups), due, atol=1e-4)
        error = ((found - due).norm() / due.norm()).item()
        print(f"{dimensions}d, {n_inputs} to {n_outputs} channels in {groups} groups: relative error {error:.1e}")
        if groups in (1, n_inputs):
            assert error < 1e-4
        else:
            assert error > 0.5

inputs = torch.randn(2, 8, 9, generator=generator)
weight = torch.randn(8, 4, 3, generator=generator)
error = (run(F.conv1d, inputs, weight, groups=2) - F.conv1d(inputs, weight, groups=2)).abs().max().item()
print(f"a plain convolution with 2 groups: error {error:.1e}")
assert error < 1e-4
PYTHON
