#!/usr/bin/env bash
# orbaxport writes queries, keys and values of the right shape and in the wrong order.
#
# Versions: orbaxport 1.3.0, orbax-checkpoint 0.12.8, jax 0.10.2.
# Guess before the run: converted from a checkpoint of Gemma or LLaMA in JAX, `k_proj.weight` makes
#     the keys that the fused matrix makes, or it has another shape, so that a model refuses it.
#     (That heads are reshaped instead of transposed was suspected after reading the source.)
# Seen: a fused matrix has the axes (3, heads, width, head_dim). For Hugging Face, the axes of each
#     part must be exchanged before they are joined. They are joined as they lie in memory, so that
#     the matrix has the right shape, each row mixes parts of several rows, and the keys have
#     nothing to do with those of the model. `transpose=True` does not help. Only with key heads of
#     their own does `q_proj` keep three axes, which a model refuses. Nothing is said.
# For gyre: it reads no such checkpoints. There, give `split_qkv=False` and split by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile orbaxport==1.3.0 orbax-checkpoint==0.12.8 jax==0.10.2 \
    safetensors==0.8.0 numpy==2.4.6
JAX_PLATFORMS=cpu env/bin/python - <<'PYTHON'
from pathlib import Path

import numpy as np
import orbax.checkpoint
import orbaxport
from safetensors.numpy import load_file

WIDTH, HEADS, HEAD_DIM = 16, 4, 4
KEYS = "model.layers.0.self_attn.k_proj.weight"

rng = np.random.default_rng(0)
fused = rng.standard_normal((3, HEADS, WIDTH, HEAD_DIM)).astype(np.float32)
output = rng.standard_normal((HEADS, HEAD_DIM, WIDTH)).astype(np.float32)
attention = {"qkv_einsum": {"w": fused}, "attn_vec_einsum": {"w": output}}
norm = {"scale": np.zeros(WIDTH, np.float32)}
tree = {"embedder": {"input_embedding": rng.standard_normal((10, WIDTH)).astype(np.float32)},
        "layers": {"0": {"attn": attention, "pre_ffw_norm": norm, "post_ffw_norm": norm}},
        "final_norm": norm}
path = Path("checkpoint").absolute()
checkpointer = orbax.checkpoint.StandardCheckpointer()
checkpointer.save(path, tree)
checkpointer.wait_until_finished()

x = rng.standard_normal((100, WIDTH)).astype(np.float32)
exact = np.einsum("td,ndh->tnh", x, fused[1]).reshape(100, -1)
for transpose in [False, True]:
    orbaxport.convert(path, "model.safetensors", transpose=transpose, verbose=False)
    weight = load_file("model.safetensors")[KEYS]
    assert weight.shape == (HEADS * HEAD_DIM, WIDTH)
    keys = x @ weight.T
    error = np.linalg.norm(keys - exact) / np.linalg.norm(exact)
    correlation = np.corrcoef(keys.ravel(), exact.ravel())[0, 1]
    print(f"transpose={transpose}: k_proj {weight.shape}, keys are off by {error:.2f}, "
          f"with a correlation of {correlation:.2f}")
    assert error > 1 and abs(correlation) < 0.4
by_hand = fused[1].transpose(0, 2, 1).reshape(HEADS * HEAD_DIM, WIDTH)
assert np.allclose(x @ by_hand.T, exact, atol=1e-4)
PYTHON
