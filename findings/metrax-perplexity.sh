#!/usr/bin/env bash
# The perplexity of metrax over several batches weighs batches by rows, not by tokens.
#
# Versions: google-metrax 0.2.4, jax 0.10.2.
# Guess before the run: merged over batches, Perplexity is what its docstring says, exp of the sum
#     of w * -log p over the sum of w: the same for any cut into batches.
# Seen: a batch counts by its rows, whatever its number of tokens that have a weight. 8 rows of 2
#     hard tokens and 16 rows of 64 easier ones have a perplexity of 10.4. In batches of rows of one
#     length, as a loader makes them that saves padding, it is given as 21.5; in mixed batches, or
#     in one, as 10.4.
# For gyre: it adds nats and tokens. With metrax, divide sums of one's own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile google-metrax==0.2.4 clu==0.0.12 flax==0.12.8 \
    jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import math

import jax.numpy as jnp
import metrax
import numpy as np

N_VOCAB = 128
LENGTH = 64

# 8 rows of 2 tokens, which have probability 1/100, and 16 rows of 64 tokens with 1/10.
lengths = np.repeat([2, LENGTH], [8, 16])
probabilities = np.repeat([0.01, 0.1], [8, 16])
n_rows = len(lengths)
labels = np.zeros((n_rows, LENGTH), np.int32)
weights = (np.arange(LENGTH) < lengths[:, None]).astype(np.float32)
rows = np.repeat(((1 - probabilities) / (N_VOCAB - 1))[:, None], N_VOCAB, axis=1)
rows[:, 0] = probabilities
logits = np.repeat(np.log(rows)[:, None].astype(np.float32), LENGTH, axis=1)

nats = -(weights * np.log(probabilities)[:, None]).sum()
right = math.exp(nats / weights.sum())


def measure(name, batches):
    """Print and return the perplexity over batches of row numbers."""
    metric = metrax.Perplexity.empty()
    for batch in batches:
        metric = metric.merge(metrax.Perplexity.from_model_output(
            jnp.array(logits[batch]), jnp.array(labels[batch]), jnp.array(weights[batch]),
            from_logits=True))
    perplexity = metric.compute().item()
    print(f"{name}: perplexity {perplexity:.2f}; over all tokens it is {right:.2f}")
    return perplexity


order = np.arange(n_rows)
assert math.isclose(measure("one batch", [order]), right, rel_tol=1e-3)
mixed = np.split(order.reshape(3, 8).T.ravel(), 4)
assert math.isclose(measure("batches of rows of both lengths", mixed), right, rel_tol=1e-3)
assert measure("batches of rows of one length", np.split(order, 3)) > 1.5 * right
PYTHON
