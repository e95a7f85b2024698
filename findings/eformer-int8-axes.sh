#!/usr/bin/env bash
# eformer multiplies by an int8 matrix along its first axis, whatever axis was asked for.
#
# Versions: eformer 0.0.101, jax 0.10.2.
# Guess before the run: each product with a quantized square matrix is that with the rounded one,
#     within 1 %. (That the axes are not read was suspected after reading the source.)
# Seen: `Array8B` replaces JAX's `dot_general`, and does not look at its dimension numbers: it
#     always contracts the first axis of the matrix. `x @ w` and `x @ w.T` are right, because the
#     latter transposes first. `einsum("bd,ed->be", x, w)`, the usual form for weights of shape
#     (out, in), and `lax.dot_general` over the second axis compute `x @ w`: with square matrices,
#     as those of queries and outputs are, the error is 1.4 times the output, in silence. With other
#     shapes it is an error. `ArrayNF4` of the same package is right.
# For gyre: its int8 weights are its own. There, write `x @ w.T`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile jax==0.10.2 chex==0.1.92 beartype==0.23.1 rich==15.0.0 \
    cloudpickle==3.1.3 etils==1.15.0 filelock==4.3.1 numpy==2.4.6
env/bin/pip install --quiet --no-compile --no-deps eformer==0.0.101 plum-dispatch==2.3.2
JAX_PLATFORMS=cpu env/bin/python - <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np
from eformer.jaximus import implicit
from eformer.ops.quantization import Array8B, ArrayNF4

WIDTH = 256
OVER_SECOND = (((1,), (1,)), ((), ()))
PRODUCTS = {
    "x @ w": lambda x, w: x @ w,
    "x @ w.T": lambda x, w: x @ w.T,
    "einsum bd,de->be": lambda x, w: jnp.einsum("bd,de->be", x, w),
    "einsum bd,ed->be": lambda x, w: jnp.einsum("bd,ed->be", x, w),
    "dot_general over the second axes": lambda x, w: jax.lax.dot_general(x, w, OVER_SECOND),
}


def relate(y, right):
    """Return the relative error of y."""
    return np.linalg.norm(np.asarray(y, float) - right) / np.linalg.norm(right)


rng = np.random.default_rng(0)
weight = jnp.array(rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5, jnp.float32)
x = jnp.array(rng.standard_normal((8, WIDTH)), jnp.float32)
for name, product in PRODUCTS.items():
    exact = np.asarray(product(x, weight), float)
    eight = implicit(product)(x, Array8B.quantize(weight))
    four = implicit(product)(x, ArrayNF4.quantize(weight))
    print(f"{name}: error {relate(eight, exact):.4f} with int8, {relate(four, exact):.4f} "
          f"with NF4; int8 is off by {relate(eight, np.asarray(x @ weight, float)):.4f} from x @ w")
    assert relate(four, exact) < 0.2
    if name in ["einsum bd,ed->be", "dot_general over the second axes"]:
        assert relate(eight, exact) > 1 and relate(eight, np.asarray(x @ weight, float)) < 0.02
    else:
        assert relate(eight, exact) < 0.02
PYTHON
