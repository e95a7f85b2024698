#!/usr/bin/env bash
# haliax's `mask_to_bias` turns a mask around: a causal mask makes a model that sees the future only.
#
# Versions: haliax 1.4.dev453, jax 0.10.2, equinox 0.13.8.
# Guess before the run: `mask_to_bias(mask)` is the bias that does what the mask does: attention with
#     `bias=mask_to_bias(causal_mask(...))` is that with `mask=causal_mask(...)`. (That it is turned
#     around was suspected after reading the source.)
# Seen: masks of haliax are true where a query may look, as for `mask=` and in `causal_mask`. The bias
#     is -1e9 there, and 0 elsewhere. So a query sees only what comes after it, and the last one, which
#     has nothing after it, sees all. A prefix mask loses its prefix. Nothing is said, and a training
#     with it has a low loss, because each token sees the next one.
# For gyre: its masks are made by its attention. There, give `mask=`, or `mask_to_bias(~mask)`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile haliax==1.4.dev453 jax==0.10.2 equinox==0.13.8 \
    jaxtyping==0.3.11 jmp==0.0.4 aqtp==0.9.0 safetensors==0.8.0 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import haliax as hax
import jax
import numpy as np
from haliax.nn import attention

LENGTH = 6

Query = hax.Axis("position", LENGTH)
Key = hax.Axis("key_position", LENGTH)
Width = hax.Axis("width", 8)
query_key, key_key, value_key = jax.random.split(jax.random.key(0), 3)
queries = hax.random.normal(query_key, (Query, Width))
keys = hax.random.normal(key_key, (Key, Width))
values = hax.random.normal(value_key, (Key, Width))


def looks(**options):
    """Return which key positions each query gives a weight, as a matrix."""
    weights = attention.dot_product_attention_weights(Width, Key, queries, keys, **options)
    return np.array(weights.rearrange((Query, Key)).array) > 1e-6


lower = np.tril(np.ones((LENGTH, LENGTH), bool))
upper = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
causal = attention.causal_mask(Query, Key)
by_mask = looks(mask=causal)
by_bias = looks(bias=attention.mask_to_bias(causal))
by_negation = looks(bias=attention.mask_to_bias(~causal))
print("keys that get a weight, by the mask:", by_mask.astype(int), sep="\n")
print("by its bias:", by_bias.astype(int), sep="\n")
assert (by_mask == lower).all()
assert (by_bias[:-1] == upper[:-1]).all() and by_bias[-1].all()
assert (by_negation == lower).all()
prefix = attention.prefix_lm_mask(Query, Key, 3)
assert looks(mask=prefix)[:, :3].all()
assert not looks(bias=attention.mask_to_bias(prefix))[:-1, :3].any()
PYTHON
