#!/usr/bin/env bash
# optax's Mechanic, which tunes the scale of steps, does not start if its first steps round to 0.
#
# Versions: optax 0.2.8, jax 0.10.2.
# Guess before the run: mechanize() finds the scale of steps "automatically", for a base rate of
#     "1.0 (or any other constant)", as its docstring says: weights of size 1 reach the minimum of a
#     bowl within 5,000 steps with each base rate. (That small rates do not start in float32 was
#     suspected after reading the source.)
# Seen: the sum of the base steps is not kept. It is computed back from the weights, as their
#     distance from the first ones divided by the scale, which begins at 1e-6. With Adam at a rate
#     of 0.01 or 0.001, the first steps of 1e-8 are rounded away, so the sum stays 0, and with it
#     the scale: no weight ever moves. With a rate of 1, or with all in float64, it reaches the
#     minimum. A single bias that starts at 0 starts the others, too, as it rounds nothing away.
# For gyre: it tunes no rate. There, give a base rate of 1 to an optimizer whose steps do not follow
#     the size of the gradient, or a larger `s_init`.
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

N_STEPS = 5000
CENTRE = np.array([2.0, -3.0, 4.0, -1.0])


def train(base, start, dtype):
    """Return how far from the minimum of a bowl the weights end, as a share of the start."""
    optimizer = optax.contrib.mechanize(base)
    weights = jnp.array(start, dtype)
    centre = jnp.array(CENTRE, dtype)

    def step(carry, _):
        weights, state = carry
        update, state = optimizer.update(0.1 * (weights - centre), state, weights)
        return (optax.apply_updates(weights, update), state), None

    (weights, _), _ = jax.lax.scan(step, (weights, optimizer.init(weights)), length=N_STEPS)
    return (jnp.abs(weights - centre).max() / np.abs(start - CENTRE).max()).item()


ones = np.ones(4)
one_zero = np.array([1.0, 1.0, 1.0, 0.0])
for name, base, stuck in [("adam(1.0)", optax.adam(1.0), False),
                          ("adam(0.01)", optax.adam(0.01), True),
                          ("adam(0.001)", optax.adam(0.001), True),
                          ("sgd(0.01)", optax.sgd(0.01), True)]:
    shares = {}
    for dtype in ["float32", "float64"]:
        jax.config.update("jax_enable_x64", dtype == "float64")
        shares[dtype] = train(base, ones, dtype)
        if dtype == "float32":
            shares["float32, one weight starts at 0"] = train(base, one_zero, dtype)
    text = "; ".join(f"{label} {share:.3f}" for label, share in shares.items())
    print(f"mechanize({name}), distance left: {text}")
    assert shares["float64"] < 0.1
    assert shares["float32, one weight starts at 0"] < 0.1
    if stuck:
        assert shares["float32"] == 1
    else:
        assert shares["float32"] < 0.1
PYTHON
