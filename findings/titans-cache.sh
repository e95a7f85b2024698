#!/usr/bin/env bash
# With a cache, two attentions of titans-pytorch look at the first token of the text only.
#
# Versions: titans-pytorch 0.5.5, rotary-embedding-torch 0.9.1, torch 2.13.0.
# Guess before the run: NestedAttention and ImplicitMLPAttention have the output for a last token
#     that is computed with the cache of the tokens before it, as for the whole text, within
#     rounding. (That they look at the first key only was suspected after reading the source.)
# Seen: not by far: the relative errors are 1.8 and 4.8. `is_causal=True` of torch's attention puts
#     the query at the place of the first key, so that a new token sees that one key alone: other
#     values of all tokens between the first and the last one change nothing. The example in the
#     source checks only the shape. Without a cache, all is well.
# For gyre: a single query sees all keys, and more have a mask. There, decode without the cache.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
# Only these two modules are loaded, for the package itself imports much more.
"$folder/env/bin/pip" install --quiet --no-compile --no-deps titans-pytorch==0.5.5
"$folder/env/bin/pip" install --quiet --no-compile rotary-embedding-torch==0.9.1 einops==0.8.2 \
    torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import importlib.util

import torch

DIM = 32
LENGTH = 20

torch.set_num_threads(1)
root = importlib.util.find_spec("titans_pytorch").submodule_search_locations[0]


def load(name):
    spec = importlib.util.spec_from_file_location(name, f"{root}/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nested():
    return load("nested_attention").NestedAttention(DIM, dim_head=16, heads=2)


def implicit():
    return load("implicit_mlp_attention").ImplicitMLPAttention(
        DIM, (16, 32, 16), activation=torch.nn.ReLU(), heads=2)


@torch.no_grad()
def measure(make):
    """Return errors with the cache, and how far the output follows the tokens in between."""
    torch.manual_seed(0)
    layer = make()
    tokens = torch.randn(1, LENGTH, DIM)
    other = tokens.clone()
    other[:, 1:-1] = torch.randn(1, LENGTH - 2, DIM)

    def last_with_cache(tokens):
        _, cache = layer(tokens[:, :-1], return_kv_cache=True)
        output, _ = layer(tokens[:, -1:], cache=cache, return_kv_cache=True)
        return output[:, 0]

    whole = layer(tokens)[:, -1]
    cached = last_with_cache(tokens)
    error = ((cached - whole).norm() / whole.norm()).item()
    without = ((layer(other)[:, -1] - whole).norm() / whole.norm()).item()
    follows = ((last_with_cache(other) - cached).norm() / cached.norm()).item()
    return error, without, follows


for make in (nested, implicit):
    error, without, follows = measure(make)
    print(f"{make.__name__}: relative error with the cache {error:.2f}; other tokens in between "
          f"change the output by {without:.2f} without it, by {follows:.2g} with it")
    assert error > 0.5 and without > 0.3 and follows < 1e-5
PYTHON
