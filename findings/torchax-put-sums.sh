#!/usr/bin/env bash
# torchax's put with accumulate=True adds one value to a place, however many are meant for it.
#
# Versions: torchax 0.0.14.dev20261026, torch 2.13.0, jax 0.10.2.
# Guess before the run: `put(index, values, accumulate=True)` adds up values with the same index, as in PyTorch.
#     (That it does not was met in another work before.)
# Seen: values are put into zeros first, where the last one with an index wins, and these are added: of 1,000 ones
#     at 10 places, 10 arrive. Counts and sums made in this way are 1 and one value, and so are the gradients of
#     `take`, which are made of it. `index_put` with `accumulate`, `index_add` and `scatter_add` are right.
# For gyre: it uses `index_add`. There, too.
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
index = torch.randint(10, (1000,))
values = torch.randn(1000)


def run(function, *tensors):
    """Return the output of torchax as a tensor of torch."""
    with torchax.default_env():
        return torch.from_numpy(np.array(function(*(tensor.to("jax") for tensor in tensors)).jax()))


counts = torch.from_numpy(np.bincount(index.numpy(), minlength=10)).float()
sums = torch.from_numpy(np.bincount(index.numpy(), values.numpy(), 10)).float()
last = torch.zeros(10)
for place, value in zip(index.tolist(), values.tolist()):
    last[place] = value


def put(zeros, index, values):
    return zeros.put(index, values, accumulate=True)


assert torch.allclose(put(torch.zeros(10), index, values), sums, atol=1e-4)
found = run(put, torch.zeros(10), index, torch.ones(1000))
print(f"1,000 ones at 10 places: {counts.int().tolist()} are due, torchax has {found.int().tolist()}")
assert (found == 1).all()
found = run(put, torch.zeros(10), index, values)
print(f"sums: due {sums[:3].numpy().round(2)} ..., torchax {found[:3].numpy().round(2)} ...")
assert torch.allclose(found, last, atol=1e-5)

others = {"index_put": lambda x, i, v: x.index_put((i,), v, accumulate=True),
          "index_add": lambda x, i, v: x.index_add(0, i, v),
          "scatter_add": lambda x, i, v: x.scatter_add(0, i, v)}
for name, function in others.items():
    right = torch.allclose(run(function, torch.zeros(10), index, values), sums, atol=1e-4)
    print(f"{name}: right={right}")
    assert right


def differentiate_take(device):
    """Return the gradient of a table of which 1,000 entries are taken."""
    table = torch.zeros(10, device=device, requires_grad=True)
    table.take(index.to(device)).sum().backward()
    return table.grad


with torchax.default_env():
    gradient = torch.from_numpy(np.array(differentiate_take("jax").jax()))
print(f"gradient of take: torch {differentiate_take('cpu').int().tolist()}, torchax {gradient.int().tolist()}")
assert torch.equal(differentiate_take("cpu"), counts)
assert (gradient == 1).all()
PYTHON
