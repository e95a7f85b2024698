#!/usr/bin/env bash
# Two rotary embeddings of equinox with different bases rotate alike: they share one table.
#
# Version: equinox 0.13.8, jax 0.10.2.
# Guess before the run: RotaryPositionalEmbedding rotates by its own `theta`, whatever other
#     embeddings of the process do.
# Seen: all embeddings of one size and dtype share a table, and `theta` is no part of its key. The
#     first call of the process decides for all, until a longer sequence comes: then the table is
#     made again with the base of that call, and the outputs of the other embeddings change, for
#     the same input. A function under `jax.jit` keeps the table of its first call, so it parts
#     from the same function without jit.
# For gyre: a model makes its own table. With equinox, a comparison of bases in one process compares
#     nothing, and layers with two bases, as in Gemma, cannot use it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile equinox==0.13.8 jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import equinox
import jax
import numpy as np

SIZE = 16
LOCAL = 10_000.0
GLOBAL = 1_000_000.0


def rotate(x, theta):
    """Return x (T, D), rotated as RotaryPositionalEmbedding documents it, in float64."""
    frequencies = theta ** (-np.arange(0, SIZE, 2) / SIZE)
    angles = np.outer(np.arange(len(x)), frequencies)
    cos = np.tile(np.cos(angles), 2)
    sin = np.tile(np.sin(angles), 2)
    halves = np.concatenate([-x[:, SIZE // 2:], x[:, :SIZE // 2]], axis=1)
    return x * cos + halves * sin


def find_theta(output, x):
    """Return the base by which x was rotated."""
    bases = [theta for theta in [LOCAL, GLOBAL]
             if np.allclose(output, rotate(x, theta), atol=1e-4)]
    assert len(bases) == 1
    return bases[0]


x = np.random.default_rng(0).standard_normal((128, SIZE)).astype(np.float32)
local = equinox.nn.RotaryPositionalEmbedding(SIZE, theta=LOCAL)
other = equinox.nn.RotaryPositionalEmbedding(SIZE, theta=GLOBAL)
jitted = jax.jit(local)

seen = []
for name, embedding, length in [("local", local, 32), ("global", other, 32),
                                ("local under jit", jitted, 32), ("global", other, 64),
                                ("local", local, 32), ("local under jit", jitted, 32),
                                ("local", local, 128), ("global", other, 32)]:
    theta = find_theta(np.asarray(embedding(x[:length])), x[:length])
    print(f"{name}, {length} positions: rotated by a base of {theta:,.0f}")
    seen.append(theta)
assert seen == [LOCAL, LOCAL, LOCAL, GLOBAL, GLOBAL, LOCAL, LOCAL, LOCAL]
PYTHON
