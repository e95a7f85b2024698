#!/usr/bin/env bash
# tinygrad's cross entropy with ignore_index=-1, the default, divides by the ignored tokens too.
#
# Version: tinygrad 0.14.0.
# Guess before the run: sparse_categorical_crossentropy ignores targets of -1 as PyTorch, to whose
#     page its docstring links, ignores those equal to ignore_index: the mean is over the others.
# Seen: so it is with -100. But -1 means that nothing is ignored. A target of -1 then has the loss
#     0 and counts: where 3 of 4 tokens are padding, the loss and all gradients are a quarter of
#     what they should be. With label smoothing, ignored tokens have a gradient as well: the model
#     learns to be uniform there.
# For gyre: its targets have no ignored tokens. With tinygrad, mark them with -100: nanoGPT's sign
#     for them is -1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tinygrad==0.14.0 numpy==2.4.6
XDG_CACHE_HOME="$folder" DEV=PYTHON "$folder/env/bin/python" - <<'PYTHON'
import numpy as np
from tinygrad import Tensor

logits = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
targets = np.array([1, 4, -1, -1, -1, -1, -1, -1])
SEEN = targets >= 0

exponentials = np.exp(logits)
log_probabilities = np.log(exponentials / exponentials.sum(axis=1, keepdims=True))
expected = {}
for smoothing in [0.0, 0.1]:
    chosen = log_probabilities[SEEN, targets[SEEN]]
    uniform = log_probabilities[SEEN].mean(axis=1)
    expected[smoothing] = -np.mean((1 - smoothing) * chosen + smoothing * uniform)


def compute(ignored, smoothing):
    """Return the loss and the largest gradients of seen and of ignored tokens."""
    x = Tensor(logits)
    y = Tensor(np.where(SEEN, targets, ignored).astype(np.int32))
    loss = x.sparse_categorical_crossentropy(y, ignore_index=ignored, label_smoothing=smoothing)
    gradient = np.abs(loss.gradient(x)[0].numpy())
    return loss.item(), gradient[SEEN].max(), gradient[~SEEN].max()


results = {}
for smoothing in [0.0, 0.1]:
    for ignored in [-100, -1]:
        results[ignored, smoothing] = compute(ignored, smoothing)
        loss, seen, unseen = results[ignored, smoothing]
        print(f"ignore_index={ignored}, label_smoothing={smoothing}: loss {loss:.3f}, right is "
              f"{expected[smoothing]:.3f}; largest gradient of a seen token {seen:.3f}, of an "
              f"ignored one {unseen:.4f}")
    loss, seen, unseen = results[-100, smoothing]
    assert abs(loss - expected[smoothing]) < 1e-4
    assert unseen == 0

share = SEEN.mean()
loss, seen, unseen = results[-1, 0.0]
assert abs(loss - share * expected[0.0]) < 1e-4
assert abs(seen - share * results[-100, 0.0][1]) < 1e-4
assert unseen == 0
assert results[-1, 0.1][2] > 1e-3
PYTHON
