#!/usr/bin/env bash
# In optax, a class that a batch lacks takes the generalized Dice loss away from all other classes.
#
# Versions: optax 0.2.8, jax 0.10.2.
# Guess before the run: `multiclass_generalized_dice_loss` weighs classes by the inverse of their squared
#     size, as in the paper; a class without a pixel in the batch costs a little if it is predicted, and
#     leaves the loss of the others as it is. (That it does not was suspected after reading the source.)
# Seen: such a class gets a weight of 1e7, next to about 1e-3 for the others, before the weights are
#     normalized. With two classes in an image and a third one that is absent, the loss is 0.00 when all
#     pixels are right and when all are wrong; without the third class, it is 0.00 and 0.97. A training
#     ends with each pixel's class by chance (44 % are right), where the plain `dice_loss` gets all.
# For gyre: it segments nothing. There, give `dice_loss` weights from the whole data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile optax==0.2.8 jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import optax

SIDE, N_STEPS = 8, 300
labels = jnp.zeros((1, SIDE, SIDE), int).at[:, :, SIDE // 2:].set(1)  # left half 0, right half 1
generalized = optax.losses.multiclass_generalized_dice_loss


def plain(logits, targets):
    """Return the mean over images of the unweighted Dice loss."""
    return optax.losses.dice_loss(logits, targets).mean()


def train(loss, targets):
    """Return the share of pixels that are right after a training of one logit per pixel and class."""
    logits = jax.random.normal(jax.random.key(0), targets.shape)
    optimizer = optax.adam(0.1)
    state = optimizer.init(logits)
    for _ in range(N_STEPS):
        update, state = optimizer.update(jax.grad(loss)(logits, targets), state)
        logits = optax.apply_updates(logits, update)
    return (logits.argmax(-1) == labels).mean()


seen = {}
print("classes: loss if all pixels are right, all wrong; right after a training, with the plain loss")
for n_classes in [2, 3]:
    targets = jax.nn.one_hot(labels, n_classes)
    wrong = jax.nn.one_hot(1 - labels, n_classes)
    losses = generalized(20 * targets, targets), generalized(20 * wrong, targets)
    shares = train(generalized, targets), train(plain, targets)
    seen[n_classes] = [*map(float, losses), *map(float, shares)]
    print(f"{n_classes}: {losses[0]:.4f}, {losses[1]:.4f}; {shares[0]:.2f}, {shares[1]:.2f}")
right, wrong, share, share_plain = seen[2]
assert right < 0.001 and wrong > 0.9 and share == share_plain == 1.0
right, wrong, share, share_plain = seen[3]
assert right < 0.001 and wrong < 0.001 and 0.3 < share < 0.7 and share_plain == 1.0
PYTHON
