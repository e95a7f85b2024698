#!/usr/bin/env bash
# In optax, the triplet loss with `norm_degree=1` adds up differences with their signs.
#
# Versions: optax 0.2.8, jax 0.10.2.
# Guess before the run: `triplet_margin_loss(norm_degree=p)` takes the p-norm of the difference, as
#     `torch.nn.TripletMarginLoss(p=p)` does: city-block distances with 1. (That it does not was suspected
#     after reading the source.)
# Seen: no absolute value is taken. With 1, a "distance" is the difference of two sums, and may be
#     negative: two vectors with the same sum are the same. The loss of random triplets is off by more
#     than the margin, and a training ends with a loss of 0, where half of the negatives are nearer than
#     the positives by the city-block distance. With 3, most losses are nan. 2 is right.
# For gyre: it has no such loss. There, keep `norm_degree=2`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile optax==0.2.8 jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np
import optax

MARGIN = 1.0
generator = np.random.default_rng(0)


def due(anchors, positives, negatives, degree):
    """Return the triplet losses with p-norms in float64."""
    near = (np.abs(anchors - positives) ** degree).sum(-1) ** (1 / degree)
    far = (np.abs(anchors - negatives) ** degree).sum(-1) ** (1 / degree)
    return np.maximum(near - far + MARGIN, 0)


triplets = generator.normal(size=(3, 1000, 16))
print("degree: largest difference from the loss with p-norms, share of nan")
seen = {}
for degree in [1, 2, 3]:
    losses = np.asarray(optax.losses.triplet_margin_loss(*map(jnp.asarray, triplets), norm_degree=degree))
    missing = np.isnan(losses)
    off = np.abs(losses - due(*triplets, degree))[~missing].max()
    seen[degree] = off, missing.mean()
    print(f"{degree}: {off:.4f}, {missing.mean():.2f}")
assert seen[1][0] > 5 and seen[2][0] < 0.001 and seen[3][1] > 0.5

same_sum = jnp.array([[3.0, -3.0]]), jnp.array([[0.0, 0.0]])
loss = optax.losses.triplet_margin_loss(same_sum[0], same_sum[1], same_sum[0], norm_degree=1)
print(f"anchor (3, -3), positive (0, 0), negative equal to the anchor: loss {loss[0]:.2f}, due 7.00")
assert abs(loss[0] - MARGIN) < 0.001

anchors, positives, negatives = map(jnp.asarray, triplets)


def total(pair):
    """Return the mean loss with city-block distances, as optax has them."""
    return optax.losses.triplet_margin_loss(anchors, *pair, norm_degree=1).mean()


pair = positives, negatives
for _ in range(500):
    pair = jax.tree.map(lambda row, slope: row - 10 * slope, pair, jax.grad(total)(pair))
right = due(*map(np.asarray, (anchors, *pair)), 1)
nearer = (right > MARGIN).mean()
print(f"trained: loss {total(pair):.4f}, due {right.mean():.2f}; nearer negatives: {nearer:.2f}")
assert total(pair) < 0.001 and right.mean() > 1 and nearer > 0.2
PYTHON
