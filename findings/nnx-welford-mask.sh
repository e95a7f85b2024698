#!/usr/bin/env bash
# In a MultiMetric with a mask, flax's Average leaves out the padding and Welford counts it.
#
# Versions: flax 0.12.8, jax 0.10.2.
# Guess before the run: the mask goes "to all the metrics", as the docstring of MultiMetric says, so
#     Average and Welford have one mean. (That Welford has no use for a mask was suspected after
#     reading the source.)
# Seen: Welford takes any keyword and ignores all but its values. Of losses in padded rows, where
#     the padding has the loss 0, the two means differ: 2.0 and 1.2. The deviation is twice what it
#     should be, and the standard error 1.6 times. Alone, with `mask=`, it ignores it too. Nothing
#     is said.
# For gyre: it measures with no mask. There, give Welford the values that count, `losses[mask]`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile flax==0.12.8 jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" - <<'PYTHON'
import jax.numpy as jnp
import numpy as np
from flax import nnx

rng = np.random.default_rng(0)
lengths = rng.integers(8, 65, 256)
mask = np.arange(64) < lengths[:, None]
losses = np.where(mask, 2 + 0.5 * rng.standard_normal(mask.shape), 0)
metric = nnx.MultiMetric(average=nnx.metrics.Average(), welford=nnx.metrics.Welford())
for rows in range(0, 256, 64):
    metric.update(values=jnp.array(losses[rows:rows + 64]), mask=jnp.array(mask[rows:rows + 64]))
average, welford = metric.compute().values()
exact = losses[mask]
error = exact.std() / len(exact)**0.5
print(f"exact: mean {exact.mean():.3f}, deviation {exact.std():.3f}, standard error {error:.4f}")
print(f"in a MultiMetric: Average {average:.3f}; Welford's mean {welford.mean:.3f}, deviation "
      f"{welford.standard_deviation:.3f}, standard error {welford.standard_error_of_mean:.4f}")
alone = nnx.metrics.Welford()
alone.update(values=jnp.array(losses), mask=jnp.array(mask))
print(f"Welford alone with the mask: mean {alone.compute().mean:.3f}")
kept = nnx.metrics.Welford()
kept.update(values=jnp.array(exact))
print(f"Welford of the values that count: mean {kept.compute().mean:.3f}")
assert abs(average - exact.mean()) < 1e-3 and abs(kept.compute().mean - exact.mean()) < 1e-3
assert abs(welford.mean - losses.mean()) < 1e-3 and abs(alone.compute().mean - losses.mean()) < 1e-3
assert welford.mean < 0.65 * exact.mean() and welford.standard_deviation > 1.8 * exact.std()
PYTHON
