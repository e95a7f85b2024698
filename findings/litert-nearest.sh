#!/usr/bin/env bash
# litert-torch shifts enlarged and shrunk pictures by half a pixel, and makes zeros of pool indices.
#
# Versions: litert-torch 0.10.0, ai-edge-litert 2.3.0, torch 2.13.0.
# Guess before the run: modules that convert without an error compute what torch computes. (That
#     indices of max pooling are zeros was suspected after reading the source.)
# Seen: 1. `F.interpolate` with `mode="nearest"`, its default, becomes "nearest-exact": from 8
#     pixels to 5, torch takes pixels 0, 1, 3, 4 and 6, the converted model 0, 2, 4, 5 and 7. With
#     factors that are whole numbers both are one. From 8 x 8 to 12 x 12, 56 % of a random picture's
#     numbers are others. Nothing is said.
#     2. `max_pool2d` with `return_indices=True` has the right maxima, and 0 for every index.
# For gyre: it has no pictures. There, resize by a whole factor, or give "nearest-exact" in torch,
#     and train so; take the argmax of unfolded windows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6 jax==0.10.2 \
    ai-edge-litert==2.3.0 litert-converter==0.5.0 ai-edge-quantizer==0.10.0 torchao==0.18.0 \
    absl-py multipledispatch tabulate jaxtyping fire rich safetensors packaging
env/bin/pip install --quiet --no-compile --no-deps litert-torch==0.10.0
env/bin/python -W ignore - 2> log <<'PYTHON' | grep -E "^[a-z0-9]+ (pixels|pool)"
import numpy as np
import litert_torch
import torch
import torch.nn.functional as F

torch.manual_seed(0)


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def run(function, x):
    """Return the outputs of torch and of the converted module, as lists of arrays."""
    module = Module(function).eval()
    exact, converted = module(x), litert_torch.convert(module, (x,))(x)
    if isinstance(exact, torch.Tensor):
        exact, converted = [exact], [converted]
    return [x.numpy() for x in exact], list(converted)


row = torch.arange(8.0).reshape(1, 1, 1, 8)
for width in [3, 5, 11, 16]:
    (exact,), (converted,) = run(lambda x: F.interpolate(x, (1, width), mode="nearest"), row)
    exact, converted = exact.ravel().astype(int), converted.ravel().astype(int)
    print(f"8 pixels to {width}: {exact.tolist()} by torch, {converted.tolist()} by LiteRT")
    # This is the definition in torch, and that of "nearest-exact".
    assert exact.tolist() == [i * 8 // width for i in range(width)]
    assert converted.tolist() == [(2 * i + 1) * 8 // (2 * width) for i in range(width)]
    assert (exact == converted).all() == (width == 16)

picture = torch.randn(1, 3, 8, 8)
for size, due in [((12, 12), False), ((16, 16), True), ((5, 11), False)]:
    (exact,), (converted,) = run(lambda x: F.interpolate(x, size), picture)
    share = (exact != converted).mean()
    print(f"8 pixels squared to {size}: {share:.2f} of the numbers are others")
    assert share == 0 if due else share > 0.5
    assert (converted == F.interpolate(picture, size, mode="nearest-exact").numpy()).all()

for pooled in [2, 4]:
    exact, converted = run(lambda x: F.max_pool2d(x, pooled, return_indices=True), picture)
    assert np.allclose(exact[0], converted[0])
    taken = picture.numpy().reshape(1, 3, 64)
    for name, (_, indices) in [("torch", exact), ("LiteRT", converted)]:
        there = np.take_along_axis(taken, indices.reshape(1, 3, -1).astype(int), 2)
        right = (there == exact[0].reshape(1, 3, -1)).mean()
        print(f"max pool, {pooled} pixels wide, by {name}: {right:.2f} of the indices point at "
              f"maxima, {(indices == 0).mean():.2f} are 0")
        assert right == 1 if name == "torch" else (indices == 0).all() and right < 0.2
PYTHON
