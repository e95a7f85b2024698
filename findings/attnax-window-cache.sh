#!/usr/bin/env bash
# In attnax, a decoder with a window forgets what its cache holds.
#
# Versions: attnax 0.2.0, flax 0.12.8, jax 0.10.2.
# Guess before the run: with `attention_window`, a decoder has the same outputs token by token with
#     its cache as in one pass. (That the window counts queries from 0 in each call was suspected
#     after reading the source.)
# Seen: without a window they are the same. With one, each call has two windows: a mask, which
#     counts from the length of the cache, and a change of the scores, which counts from 0, so that
#     a single query is at position 0 and sees the first key only. Where the two do not meet, all
#     scores are equal, and the output is a mean. From the second token on, outputs are off by half
#     of their size, and in chunks from the first token of the second chunk, with a window longer
#     than the text too. Nothing is said.
# For gyre: its models have no window. There, decode a model with a window without a cache.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile attnax==0.2.0 flax==0.12.8 jax==0.10.2 \
    numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import flax.nnx as nnx
import jax.numpy as jnp
import numpy as np
from attnax import TransformerConfig, TransformerDecoder, init_decoder_kv_caches_from_config

LENGTH = 16
WINDOW = 4


def decode(model, chunk):
    """Return the outputs for `ids`, given in chunks with the cache of the ones before."""
    caches = init_decoder_kv_caches_from_config(model.config, batch_size=1)
    outputs = []
    for start in range(0, LENGTH, chunk):
        output, caches = model(ids[:, start:start + chunk], layer_kv_caches=caches,
                               deterministic=True)
        outputs.append(output)
    return jnp.concatenate(outputs, 1)


ids = jnp.array(np.random.default_rng(0).integers(0, 50, (1, LENGTH)))
for window in [None, LENGTH, WINDOW]:
    config = TransformerConfig(vocab_size=50, d_model=64, num_heads=4, num_layers=1, d_ff=64,
                               max_len=LENGTH, dropout_rate=0, attention_window=window)
    model = TransformerDecoder(nnx.Rngs(0), config)
    whole = model(ids, deterministic=True)
    size = jnp.linalg.norm(whole, axis=-1)
    for chunk in [LENGTH, 1, LENGTH // 2]:
        errors = np.asarray(jnp.linalg.norm(decode(model, chunk) - whole, axis=-1) / size)[0]
        print(f"window {window}, chunks of {chunk}: relative errors {errors.round(2)}")
        if window is None or chunk == LENGTH:
            assert errors.max() < 1e-4
        else:
            assert errors[:chunk].max() < 1e-4 and errors[chunk:].min() > 0.05
PYTHON
