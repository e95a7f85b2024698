#!/usr/bin/env bash
# Sampling from bfloat16 logits, JAX almost never draws a token that is 8 nats below the best.
#
# Version: jax 0.10.2, the newest for Python 3.11. 0.12.0.1 does the same.
# Guess before the run: logits that bfloat16 holds exactly give the frequencies of their softmax,
#     within the noise of the sample and a few per cent of rounding; equal logits give every token.
# Seen: the noise that random.categorical adds has the dtype of the logits. It is made of uniform
#     numbers of which bfloat16 has 128, and so ends at 4.8. Tokens that are 6 and 8 nats below the
#     best come at 0.12 and 0.01 of their rate. Equal noise is common, and argmax takes the first:
#     of 4096 equal tokens, none of the upper half is drawn. float16 loses tokens too. The
#     documentation speaks of float32 below 1e-7. mode="high" repairs the rates; so does float32.
# For gyre: model/sampling.py computes in float64. Samples of an export in JAX need
#     logits.astype(float32).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np

N_DRAWN = 1_000_000
N_EQUAL = 4096
nats = np.array([0.0, -2.0, -4.0, -6.0, -8.0])
right = np.exp(nats) / np.exp(nats).sum()


def measure(dtype, mode):
    """Return the rates over the right ones, and the share of the upper half of equal tokens."""
    drawn = jax.random.categorical(jax.random.key(0), jnp.array(nats, dtype), shape=(N_DRAWN,),
                                   mode=mode)
    rates = np.bincount(np.asarray(drawn), minlength=len(nats)) / N_DRAWN / right
    equal = jax.random.categorical(jax.random.key(1), jnp.zeros(N_EQUAL, dtype), shape=(10_000,),
                                   mode=mode)
    upper = np.mean(np.asarray(equal) >= N_EQUAL // 2)
    print(f"{jnp.dtype(dtype).name}, mode {mode}: {nats} nats come at {np.round(rates, 2)} of "
          f"their rate; of {N_EQUAL} equal tokens the upper half comes at {upper:.2f}")
    return rates, upper


rates, upper = measure(jnp.float32, None)
assert np.all(np.abs(rates - 1) < 0.2)
assert 0.45 < upper < 0.55
rates, upper = measure(jnp.bfloat16, "high")
assert np.all(np.abs(rates - 1) < 0.2)
assert 0.4 < upper < 0.55
rates, upper = measure(jnp.float16, None)
assert rates[-1] < 0.5
rates, upper = measure(jnp.bfloat16, None)
assert rates[-2] < 0.25
assert rates[-1] < 0.05
assert upper == 0
PYTHON
