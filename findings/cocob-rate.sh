#!/usr/bin/env bash
# The learning rate of optax's COCOB changes nothing, and a warm-up shortens no first step.
#
# Versions: optax 0.2.8, jax 0.10.2.
# Guess before the run: COCOB needs no learning rate; if one is given all the same,
#     `learning_rate=0.01` makes each step a hundredth as long, and a warm-up makes the first steps
#     short. (That the rate cancels was suspected after reading the source.)
# Seen: the rate scales the gradients before COCOB gets them, and its bets are ratios of sums of
#     gradients. With rates of 1, 0.1 and 0.01, the weights are the same after every step. With a
#     warm-up from 0.001 to 1, the first step is as long as without it, 1,000 times as long as due,
#     and the longest step is longer than any without a warm-up: gradients outgrow those that the
#     bets are made of.
# For gyre: it has no COCOB. There, give neither rate nor warm-up.
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

N_STEPS = 200
START = jnp.array([3.0, -2.0, 5.0])
NOISE = 0.1 * jax.random.normal(jax.random.key(0), (N_STEPS, 3))


def train(rate):
    """Train in a noisy bowl around 0. Return weights and mean step length after each step."""
    optimizer = optax.contrib.cocob(rate)

    def step(carry, noise):
        weights, state = carry
        update, state = optimizer.update(weights + noise, state, weights)
        weights = optax.apply_updates(weights, update)
        return (weights, state), (weights, jnp.abs(update).mean())

    _, (weights, lengths) = jax.lax.scan(step, (START, optimizer.init(START)), NOISE)
    return np.array(weights), np.array(lengths)


weights, lengths = train(1.0)
for rate in [0.1, 0.01]:
    scaled, scaled_lengths = train(rate)
    difference = np.abs(scaled - weights).max()
    print(f"rate {rate}: the first step is {scaled_lengths[0]:.5f} long (due "
          f"{rate * lengths[0]:.5f}); weights differ from those of rate 1 by {difference:.1e}")
    assert abs(scaled_lengths[0] / lengths[0] - 1) < 0.01
    assert difference < 0.01

warmup = optax.exponential_decay(0.001, 1, 1000 ** 0.01, end_value=1.0)
_, warm_lengths = train(warmup)
print(f"warm-up from 0.001 to 1 in 100 steps: the first step is {warm_lengths[0]:.5f} long (due "
      f"{0.001 * lengths[0]:.5f}), the longest {warm_lengths.max():.2f} (without a warm-up "
      f"{lengths.max():.2f})")
assert abs(warm_lengths[0] / lengths[0] - 1) < 0.01
assert warm_lengths.max() > 1.5 * lengths.max()
PYTHON
