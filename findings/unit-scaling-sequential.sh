#!/usr/bin/env bash
# unit-scaling's transforms leave an nn.Sequential alone, but for its weights, which become large.
#
# Versions: unit-scaling 0.3.5, torch 2.13.0.
# Guess before the run: `unit_scale(model)` and `simulate_fp8(model)` have one effect whether the
#     model is an nn.Sequential or a class with that nn.Sequential inside: outputs of a size near 1,
#     and an error of a few percent. Docstrings say that tracing recurses into modules, "whether
#     defined in libraries, or by the user". (Not suspected; a first look at another guess gave 0.)
# Seen: if the model itself is a class of torch.nn, as nn.Linear or nn.Sequential, its graph is
#     never captured: `simulate_fp8` changes no bit, in silence. `unit_scale` divides the weights by
#     their deviation all the same, and so the outputs of four layers of width 64 are 800 in size,
#     where those of the same layers in a class are below 1. Inside a class, the projections of
#     nn.MultiheadAttention are not rounded either.
# For gyre: its models are classes of their own, and it does not use this. There, wrap the model.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps unit-scaling==0.3.5
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 einops==0.8.2 \
    docstring-parser==0.18.0 tabulate==0.10.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from torch import nn
from unit_scaling.transforms import simulate_fp8, unit_scale

WIDTH, ROWS = 64, 256
torch.set_num_threads(1)


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def forward(self, x):
        return self.inner(x[None], x[None], x[None], need_weights=False)[0]


def make_layers():
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(4)
                           for layer in [nn.Linear(WIDTH, WIDTH), nn.ReLU()]])


def fp8_error(model):
    """Return the error of the model with simulated float8, relative to the size of its outputs."""
    torch._dynamo.reset()
    expected = model(x)
    return ((simulate_fp8(model)(x) - expected).norm() / expected.norm()).item()


x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
errors, sizes = {}, {}
for name, model in [("nn.Linear", nn.Linear(WIDTH, WIDTH)), ("nn.Sequential", make_layers()),
                    ("a class with the nn.Sequential", Wrapper(make_layers())),
                    ("a class with nn.MultiheadAttention", Attention())]:
    errors[name] = fp8_error(model)
    print(f"simulate_fp8 of {name}: relative error {errors[name]:.3f}")
for name, model in [("nn.Sequential", make_layers()),
                    ("a class with the nn.Sequential", Wrapper(make_layers()))]:
    torch._dynamo.reset()
    sizes[name] = unit_scale(model)(x).square().mean().sqrt().item()
    print(f"unit_scale of {name}: outputs have a root mean square of {sizes[name]:.3f}, "
          f"before {model(x).square().mean().sqrt().item():.3f}")
assert errors["nn.Linear"] == errors["nn.Sequential"] == 0
assert errors["a class with nn.MultiheadAttention"] == 0
assert errors["a class with the nn.Sequential"] > 0.01
assert sizes["nn.Sequential"] > 100 and sizes["a class with the nn.Sequential"] < 2
PYTHON
