#!/usr/bin/env bash
# In torchax, the sum of two masks is an array of 0, 1 and 2, which then picks rows by number.
#
# Versions: torchax 0.0.14.dev20261026, torch 2.13.0, jax 0.10.2.
# Guess before the run: the sum of two boolean tensors is boolean, as in PyTorch and in JAX: true
#     where one of the two is. (That it is not was met in another work before. What it does to
#     indices was not known.)
# Seen: a second mask is multiplied by `alpha`, which is 1, so that it becomes an integer, and so
#     does the sum. As an index, it does not select rows any more but names them: `x[a + b]` of four
#     rows is rows 2, 1, 0, 1 instead of the three that are marked. `~(a + b)` is -1 to -3, all of
#     which are true. A row that both masks mark counts twice in a masked mean. Nothing is said.
#     `a | b`, `a * b`, `a += b` and sums over a dimension are right.
# For gyre: it adds no masks. There, write `a | b`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 jax==0.10.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torchax==0.0.14.dev20261026
JAX_PLATFORMS=cpu "$folder/env/bin/python" -W ignore - <<'PYTHON'
import jax.numpy as jnp
import torch
import torchax

rows = torch.arange(12.0).reshape(4, 3)
first = torch.tensor([True, True, False, False])
second = torch.tensor([True, False, False, True])


def run_both(name, compute):
    """Print and return the result of PyTorch and of torchax, both as CPU tensors."""
    exact = compute(rows, first, second)
    with torchax.default_env():
        seen = compute(*(x.to("jax") for x in (rows, first, second))).cpu()
    print(f"{name}: {seen.tolist()}, due {exact.tolist()}")
    return exact, seen


exact, seen = run_both("a + b", lambda x, a, b: a + b)
assert exact.dtype == torch.bool and seen.dtype == torch.int32 and seen.tolist() == [2, 1, 0, 1]
assert (jnp.array(first.numpy()) + jnp.array(second.numpy())).dtype == bool
exact, seen = run_both("x[a + b]", lambda x, a, b: x[a + b])
assert torch.equal(exact, rows[[0, 1, 3]]) and torch.equal(seen, rows[[2, 1, 0, 1]])
exact, seen = run_both("~(a + b)", lambda x, a, b: (~(a + b)).bool())
assert exact.tolist() == [False, False, True, False] and seen.all()


def average(x, a, b):
    mask = (a + b)[:, None]
    return (x * mask).sum(0) / mask.sum()


exact, seen = run_both("mean of the marked rows", average)
assert torch.allclose(exact, rows[[0, 1, 3]].mean(0))
assert torch.allclose(seen, rows[[0, 0, 1, 3]].mean(0))
for name, compute in [("a | b", lambda x, a, b: a | b), ("a * b", lambda x, a, b: a * b),
                      ("a += b", lambda x, a, b: a.clone().add_(b)),
                      ("counts", lambda x, a, b: torch.stack([a, b]).sum(0))]:
    exact, seen = run_both(name, compute)
    assert torch.equal(exact, seen.to(exact.dtype))
    assert name == "counts" or seen.dtype == torch.bool
PYTHON
