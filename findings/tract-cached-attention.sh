#!/usr/bin/env bash
# In tract, a new token with a cache attends to the first cached token, and to no other.
#
# Versions: tract 0.23.9, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: ONNX's Attention with `is_causal` and `past_key` gives the same outputs
#     token by token as in one pass, in each runtime that loads it. (It was not suspected: it came
#     out of a comparison of all of ONNX's tests of single operators.)
# Seen: tract's mask starts at the first cached key: the i-th new token attends to keys 0 to i, so
#     that a token alone has the first value of the text as its output, bit for bit, whatever its
#     query is. A chunk of tokens doesn't see all of the cache, nor itself. One pass without a cache
#     is right, and so are onnxruntime and ONNX's reference, with opset 23 and 24. Nothing is said.
# For gyre: it exports no ONNX. There, leave out `is_causal` where one token is decoded at a time,
#     and give chunks a mask.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tract==0.23.9 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
cd "$folder"
env/bin/python - <<'PYTHON'
import numpy as np
import onnx.parser
import onnxruntime
import tract
from onnx.reference import ReferenceEvaluator

N_TOKENS, N_HEADS, WIDTH = 6, 2, 4
generator = np.random.default_rng(0)
q, k, v = generator.normal(size=(3, 1, N_HEADS, N_TOKENS, WIDTH)).astype(np.float32)


def attend(n_cached, n_new, opset, causal, run):
    """Return the outputs of new tokens, (N_HEADS, n_new, WIDTH), behind cached ones."""
    new, old, both = (f"float[1, {N_HEADS}, {length}, {WIDTH}]"
                      for length in (n_new, n_cached, n_cached + n_new))
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> '
        f"graph ({new} q, {new} k, {new} v, {old} past_k, {old} past_v) "
        f"=> ({new} y, {both} all_k, {both} all_v) "
        f'{{ y, all_k, all_v = Attention <is_causal = {causal}> (q, k, v, "", past_k, past_v) }}')
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "model.onnx")
    news = slice(n_cached, n_cached + n_new)
    inputs = {"q": q[:, :, news], "k": k[:, :, news], "v": v[:, :, news],
              "past_k": k[:, :, :n_cached], "past_v": v[:, :, :n_cached]}
    return run(model, {name: np.ascontiguousarray(values) for name, values in inputs.items()})[0]


def run_tract(model, inputs):
    runnable = tract.onnx().load("model.onnx").into_model().into_runnable()
    return runnable.run(list(inputs.values()))[0].to_numpy()


def run_onnxruntime(model, inputs):
    return onnxruntime.InferenceSession("model.onnx").run(None, inputs)[0]


def run_reference(model, inputs):
    return ReferenceEvaluator(model).run(None, inputs)[0]


def compute(n_cached, n_new, shift):
    """Return the outputs by NumPy if new token i attends to keys 0 to i + shift."""
    outputs = np.zeros((N_HEADS, n_new, WIDTH))
    for head in range(N_HEADS):
        for i in range(n_new):
            seen = slice(0, i + shift + 1)
            scores = k[0, head, seen] @ q[0, head, n_cached + i] / WIDTH**0.5
            weights = np.exp(scores) / np.exp(scores).sum()
            outputs[head, i] = weights @ v[0, head, seen]
    return outputs


for opset in [23, 24]:
    for n_cached, n_new in [(0, N_TOKENS), (3, 3), (5, 1)]:
        exact = compute(n_cached, n_new, n_cached)
        from_start = compute(n_cached, n_new, 0)
        for name, run in [("onnxruntime", run_onnxruntime), ("ONNX's reference", run_reference),
                          ("tract", run_tract)]:
            output = attend(n_cached, n_new, opset, 1, run)
            error, other = abs(output - exact).max(), abs(output - from_start).max()
            print(f"opset {opset}, {n_new} new tokens behind {n_cached}, {name}: off by "
                  f"{error:.6f}, and by {other:.6f} from a mask that starts at the first key")
            wrong = name == "tract" and n_cached > 0
            assert (other if wrong else error) < 1e-5
            assert not wrong or error > 0.5
    alone = attend(5, 1, opset, 1, run_tract)
    assert np.array_equal(alone[:, 0], v[0, :, 0])
    without = attend(5, 1, opset, 0, run_tract)
    print(f"a token alone: its output is the first value, {alone[0, 0]}")
    assert np.allclose(without, compute(5, 1, 5), atol=1e-5)
PYTHON
