#!/usr/bin/env bash
# Memory-efficient attention counts keys twice if their number is no multiple of 4096.
#
# Versions: memory-efficient-attention 0.1.3, jax 0.10.2, torch 2.13.0.
# Guess before the run: for any number of keys, `efficient_dot_product_attention_jax` computes
#     softmax attention, within the rounding of float32. (That the last chunk overlaps was suspected
#     after reading the source; of the function for torch it was not.)
# Seen: keys come in chunks of 4096, and the last one begins earlier if there are fewer left,
#     because a slice that ends outside is moved. So it has keys that the chunk before has had, and
#     these have twice the weight they should have: with 5120 keys, 3,072 of them do, and outputs
#     are off by 26 %; with one query and 5000 keys, by 26 % too. The function for torch does the
#     same. Nothing is said. With a `key_chunk_size` that divides, all is right.
# For gyre: its attention is torch's. There, give a `key_chunk_size` that divides the number of
#     keys.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile memory-efficient-attention==0.1.3 jax==0.10.2 \
    torch==2.13.0 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
from memory_efficient_attention import (efficient_dot_product_attention_jax,
                                        efficient_dot_product_attention_pt)

WIDTH = 8
CHUNK = 4096


def attend(q, k, v, times=1):
    """Return softmax attention, in float64; key j counts as `times[j]` keys."""
    scores = np.einsum("qhd,khd->hqk", q, k, dtype=float) / WIDTH**0.5
    weights = np.exp(scores) * times
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)


def relate(y, right):
    """Return the relative error of y."""
    return np.linalg.norm(y - right) / np.linalg.norm(right)


rng = np.random.default_rng(0)
for n_queries, n_keys in [(1, 4096), (16, 4096), (1, 5000), (16, 5120), (1, 8192)]:
    q = rng.standard_normal((n_queries, 1, WIDTH)).astype(np.float32)
    k, v = rng.standard_normal((2, n_keys, 1, WIDTH)).astype(np.float32)
    exact = attend(q, k, v)
    twice = np.ones(n_keys)
    if n_keys % CHUNK:
        twice[-CHUNK:-(n_keys % CHUNK)] = 2
    error = relate(np.asarray(efficient_dot_product_attention_jax(q, k, v)), exact)
    explained = relate(np.asarray(efficient_dot_product_attention_jax(q, k, v)),
                       attend(q, k, v, twice))
    divided = relate(np.asarray(
        efficient_dot_product_attention_jax(q, k, v, key_chunk_size=n_keys // 4)), exact)
    in_torch = relate(efficient_dot_product_attention_pt(
        torch.from_numpy(q), torch.from_numpy(k), torch.from_numpy(v)).numpy(), exact)
    print(f"{n_queries} queries, {n_keys} keys: error {error:.5f}, in torch {in_torch:.5f}, "
          f"by chunks that divide {divided:.5f}, by {int(twice.sum() - n_keys)} keys counted twice "
          f"{explained:.5f}")
    assert explained < 1e-4 and divided < 1e-4 and abs(in_torch - error) < 1e-4
    assert error > 0.2 if n_keys % CHUNK else error < 1e-4
PYTHON
