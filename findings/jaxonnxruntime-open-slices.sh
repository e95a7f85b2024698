#!/usr/bin/env bash
# jaxonnxruntime drops the last element of a slice without an end: x[:, 1:] is x[:, 1:-1].
#
# Versions: jaxonnxruntime 0.3.0, jax 0.10.2, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: operators that run without a warning compute what ONNX defines. (The slices
#     came out of a comparison of 60 small models. The other two were suspected after reading the
#     source.)
# Seen: "to the end" is 2**63 - 1 in a file, which is what torch's exporter writes. JAX keeps 32
#     bits of it, which is -1: the last element is missing. The mean over all tokens but the first
#     is that of all but the first and the last, and the last of 100 tokens with a step of -1 or 2
#     is lost as well. Shapes before a mean or a pooling do not matter, so nothing fails and nothing
#     is said. An end that is written as 100 is right, and so are all with `jax_enable_x64`.
#     LogSoftmax is the logarithm of Softmax: -inf where -150 is due. Softmax of a file of opset 11
#     is over one dimension, where it is defined over all from `axis` on.
# For gyre: it exports no ONNX. There, set `jax_enable_x64`, and convert to opset 13 or later.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile jax==0.10.2 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6 absl-py==2.5.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps jaxonnxruntime==0.3.0
cat > "$folder/compare.py" <<'PYTHON'
import sys

import jax
import numpy as np
import onnx.parser
import onnxruntime

WIDE = sys.argv[1] == "64"
if WIDE:
    jax.config.update("jax_enable_x64", True)
from jaxonnxruntime.backend import Backend

TO_END = 2**63 - 1
N_ROWS, N_TOKENS, WIDTH = 2, 100, 3
x = np.random.default_rng(0).normal(size=(N_ROWS, N_TOKENS, WIDTH)).astype(np.float32)


def run_both(body, given, opset=17, constants=""):
    """Return the outputs of onnxruntime and jaxonnxruntime."""
    sizes = ", ".join(map(str, given.shape))
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> '
        f"graph (float[{sizes}] x) => (float[a, b, c] y) {constants} {{ {body} }}")
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": given})[0], np.asarray(Backend.prepare(model).run([given])[0])


print(f"JAX with {sys.argv[1]} bits")
slices = [("1:", 1, TO_END, 1), ("-5:", -5, TO_END, 1), ("1::2", 1, TO_END, 2),
          ("1:100", 1, N_TOKENS, 1), ("1:-1", 1, -1, 1)]
for text, start, end, step in slices:
    exact, by_jax = run_both(
        "part = Slice (x, start, end, axis, step) y = ReduceMean <axes = [1]> (part)", x,
        constants=f"<int64[1] start = {{{start}}}, int64[1] end = {{{end}}}, "
                  f"int64[1] axis = {{1}}, int64[1] step = {{{step}}}>")
    due = x[:, start:None if end == TO_END else end:step].mean(1, keepdims=True)
    short = x[:, start:-1:step].mean(1, keepdims=True)
    right = WIDE or end != TO_END
    print(f"mean of x[:, {text}]: {by_jax[0, 0, 0]:.4f}, exact {due[0, 0, 0]:.4f}, "
          f"up to the last but one {short[0, 0, 0]:.4f}")
    assert np.allclose(exact, due, atol=1e-5)
    assert np.allclose(by_jax, due if right else short, atol=1e-5)
    assert right or abs(by_jax - due).max() > 0.003

logits = np.array([[[0, 50, 150]]], np.float32)
exact, by_jax = run_both("y = LogSoftmax (x)", logits)
print(f"LogSoftmax of 0, 50, 150: {by_jax.ravel()}, exact {exact.ravel()}")
assert np.allclose(exact, [[[-150, -100, 0]]])
assert WIDE or (by_jax.ravel()[0] == -np.inf and by_jax.ravel()[2] == 0)

for opset in (11, 13):
    exact, by_jax = run_both("y = Softmax <axis = 1> (x)", x, opset)
    print(f"Softmax from axis 1 on, opset {opset}: adds up to {by_jax[0].sum():.2f}, "
          f"exact {exact[0].sum():.2f}")
    assert abs(exact[0].sum() - (1 if opset == 11 else WIDTH)) < 1e-3
    assert abs(by_jax[0].sum() - WIDTH) < 1e-3
PYTHON
for bits in 32 64; do
    if ! JAX_PLATFORMS=cpu "$folder/env/bin/python" "$folder/compare.py" "$bits" \
            2> "$folder/log"; then
        cat "$folder/log"
        exit 1
    fi
    if grep -iE "warn|trunc|overflow|int64" "$folder/log"; then
        exit 1
    fi
done
