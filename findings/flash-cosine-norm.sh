#!/usr/bin/env bash
# In flash-attention-jax, attention by cosines is a mean of all values: one norm serves all vectors.
#
# Versions: flash-attention-jax 0.3.1, jax 0.10.2.
# Guess before the run: `cosine_sim_flash_attention` divides each query and each key by its own
#     norm; scores are ten times the cosine, so a key that equals the query has a score of 10. (That
#     the norm is of the whole array was suspected after reading the source.)
# Seen: all queries are divided by the norm of all of them together, and keys likewise. With 256
#     vectors each, a key that equals the query has a score of 0.04, and weights are equal within 5
#     %: the output is the mean of all values. The scores fall as texts get longer. The plain
#     function that the package compares with, `cosine_sim_attention`, does the same, so they agree.
# For gyre: it has no cosine attention. There, normalize before, and take `flash_attention`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile flash-attention-jax==0.3.1 jax==0.10.2 \
    einops==0.8.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import numpy as np
from flash_attention_jax import cosine_sim_flash_attention

WIDTH = 32
SCALE = 10


def attend(q, k, v):
    """Return attention by ten times the cosine, in float64."""
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    weights = np.exp(SCALE * q.astype(float) @ k.T)
    return weights / weights.sum(-1, keepdims=True) @ v


rng = np.random.default_rng(0)
for length in [16, 64, 256]:
    q = rng.standard_normal((length, WIDTH)).astype(np.float32)
    v = np.zeros((length, WIDTH), np.float32)
    v[0] = 1
    mask = np.ones(length, bool)
    # The value is 1 for the first key only, so the output is that key's weight.
    weight = np.asarray(cosine_sim_flash_attention(q, q, v, mask))[0, 0] * length
    right = attend(q, q, v)[0, 0] * length
    print(f"{length} keys: the one that equals the query has {weight:.2f} times an equal weight, "
          f"by its own norm {right:.2f}")
    assert right > 10 and weight < 2
assert weight < 1.06
PYTHON
