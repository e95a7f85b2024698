#!/usr/bin/env bash
# jax2onnx turns the label -1 into the last class, and cuts slices short at the end of an array.
#
# Versions: jax2onnx 0.17.1, jax 0.10.2, onnx 1.23.2, onnxruntime 1.32.0.
# Guess before the run: functions that jax2onnx converts without a word compute what JAX computes,
#     where indices are out of range too, as JAX defines that. (None was suspected: both came out of
#     a comparison of 260 functions.)
# Seen: `jax.nn.one_hot` has a row of zeros for -1, which is how ignored targets are marked. In the
#     exported model, -1 is the last class, -2 the one before. `lax.dynamic_slice` moves a slice
#     that would end behind the array back into it; the exported one ends at the array, so that it
#     is shorter than its declared shape, and begins with another element. `lax.round` rounds halves
#     away from 0, the exported one to even numbers. Nothing is said. `jnp.take_along_axis` and
#     `dynamic_update_slice` are right.
# For gyre: it exports no ONNX. There, compare labels with `arange`, and clip starts by hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile jax2onnx==0.17.1 jax==0.10.2 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
JAX_PLATFORMS=cpu "$folder/env/bin/python" -W ignore - <<'PYTHON'
import logging

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
from jax import lax
from jax2onnx import to_onnx

N_CLASSES = 4


def run_exported(function, x):
    """Return what onnxruntime computes by the exported function."""
    model = to_onnx(function, [jax.ShapeDtypeStruct(x.shape, x.dtype)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def same(a, b):
    return a.shape == b.shape and np.array_equal(a, b)


logging.disable(logging.CRITICAL)
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
numbers = jnp.arange(10.0, 16.0)
labels = np.array([0, 3, -1, -2], np.int32)
classes = np.eye(N_CLASSES)[[0, 3, 3, 2]]
exact = np.where(labels[:, None] >= 0, np.eye(N_CLASSES)[labels], 0)
for name, function, x, exact, instead in [
        ("one_hot", lambda x: jax.nn.one_hot(x, N_CLASSES), labels, exact, classes),
        ("compared with arange", lambda x: (x[:, None] == jnp.arange(N_CLASSES)).astype(float),
         labels, exact, exact),
        ("dynamic_slice from 2", lambda x: lax.dynamic_slice(numbers, (x,), (3,)),
         np.array(2, np.int32), np.array([12, 13, 14]), np.array([12, 13, 14])),
        ("dynamic_slice from 5", lambda x: lax.dynamic_slice(numbers, (x,), (3,)),
         np.array(5, np.int32), np.array([13, 14, 15]), np.array([15])),
        ("round", lambda x: lax.round(x), np.array([-2.5, -0.5, 0.5, 1.5, 2.5], np.float32),
         np.array([-3, -1, 1, 2, 3]), np.array([-2, 0, 0, 2, 2]))]:
    by_jax, exported = np.asarray(function(x)), run_exported(function, x)
    print(f"{name}({x.tolist()}): {exported.tolist()} exported, {by_jax.tolist()} by JAX, "
          f"{exact.tolist()} exact")
    assert same(by_jax, exact) and same(exported, instead)
    assert same(exact, instead) == (name in ("compared with arange", "dynamic_slice from 2"))
PYTHON
