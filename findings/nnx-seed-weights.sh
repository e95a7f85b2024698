#!/usr/bin/env bash
# Data drawn in JAX from seed 0 are the first weights of a Flax NNX model of seed 0.
#
# Versions: flax 0.12.8, jax 0.10.2.
# Guess before the run: `nnx.Rngs(0)` has its own way from a seed to keys. A model made from it has
#     nothing to do with data made from `jax.random.split(jax.random.key(0))`, the same seed.
# Seen: the i-th key that Rngs gives is fold_in(key(0), i), and JAX made this equal to
#     split(key(0), n)[i], for any n. JAX's generator also gives the same first numbers for any
#     shape. So the first kernel is the data, scaled and with its tails cut: they are correlated by
#     0.996. A student of the same seed as its linear teacher has learned it before the first step;
#     with streams (`params=0`) as well. With another seed the correlation is 0.
#     jax.debug_key_reuse says nothing. (Under unsafe_rbg, split and fold_in differ.)
# For gyre: it hashes a seed with a name for each use. With NNX, give model and data other seeds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile flax==0.12.8 jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu JAX_DEBUG_KEY_REUSE=1 "$folder/env/bin/python" - <<'PYTHON'
import jax
import numpy as np
from flax import nnx

N_INPUTS = 64
N_OUTPUTS = 32


def correlation(left, right):
    return np.corrcoef(np.ravel(left), np.ravel(right))[0, 1]


for impl in ["threefry2x32", "rbg"]:
    for n_keys in [2, 5]:
        keys = jax.random.split(jax.random.key(0, impl=impl), n_keys)
        for i in range(n_keys):
            assert keys[i] == jax.random.fold_in(jax.random.key(0, impl=impl), i)
print("split(key, n)[i] is fold_in(key, i), with threefry2x32 and with rbg")

correlations = {}
for seed in [0, 1]:
    for name, rngs in [("Rngs(seed)", nnx.Rngs(seed)),
                       ("Rngs(params=seed)", nnx.Rngs(params=seed))]:
        student = nnx.Linear(N_INPUTS, N_OUTPUTS, rngs=rngs)
        teacher_key, data_key = jax.random.split(jax.random.key(0))
        teacher = jax.random.normal(teacher_key, (N_INPUTS, N_OUTPUTS)) / N_INPUTS**0.5
        x = jax.random.normal(data_key, (100, N_INPUTS))
        correlations[name, seed] = correlation(student.kernel[...], teacher)
        explained = 1 - np.var(x @ teacher - student(x)) / np.var(x @ teacher)
        print(f"{name}, seed {seed}, teacher and data of seed 0: the correlation of an untrained "
              f"student's weights with the teacher's is {correlations[name, seed]:.3f}; it "
              f"explains {explained:.3f} of the variance")
        if seed == 0:
            assert correlations[name, seed] > 0.99
            assert explained > 0.98
        else:
            assert abs(correlations[name, seed]) < 0.1
            assert explained < 0

rngs = nnx.Rngs(0)
layers = [nnx.Linear(16, 16, use_bias=False, rngs=rngs) for _ in range(3)]
batch_keys = jax.random.split(jax.random.key(0), 3)
for layer, batch_key in zip(layers, batch_keys, strict=True):
    batch = jax.random.normal(batch_key, (16, 16))
    print(f"correlation of a layer's weights with the batch of its number: "
          f"{correlation(layer.kernel[...], batch):.3f}")
    assert correlation(layer.kernel[...], batch) > 0.99
PYTHON
