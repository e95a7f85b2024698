#!/usr/bin/env bash
# Hummingbird's probabilities of three classes are not those of a logistic regression.
#
# Versions: hummingbird-ml 0.4.12, scikit-learn 1.9.1, torch 2.13.0.
# Guess before the run: a LogisticRegression of several classes, converted to torch, has the
#     probabilities of scikit-learn. (That it has others was suspected after reading the source.)
# Seen: softmax is taken only if the model has an attribute `multi_class`, which scikit-learn has
#     removed. Without it, each score goes through a sigmoid, and is divided by the sum: with
#     three classes, probabilities are off by up to 0.5, and the log loss is twice as large. The
#     labels are right, and so are the probabilities of two classes.
# For gyre: it converts no such models. There, take softmax of the decision function.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile hummingbird-ml==0.4.12 scikit-learn==1.9.1 \
    torch==2.13.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import hummingbird.ml
import numpy as np
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

N_ROWS = 2000
generator = np.random.default_rng(0)
x = generator.normal(size=(N_ROWS, 6)).astype(np.float32)
for count in [2, 3, 5, 10]:
    scores = 2 * x @ generator.normal(size=(6, count)) + generator.gumbel(size=(N_ROWS, count))
    labels = scores.argmax(1)
    original = LogisticRegression(max_iter=1000).fit(x, labels)
    converted = hummingbird.ml.convert(original, "torch", x)
    scores = original.decision_function(x)
    if count == 2:
        due = np.stack([expit(-scores), expit(scores)], axis=1)
    else:
        due = softmax(scores, axis=1)
    probabilities = converted.predict_proba(x)
    loss, due_loss = log_loss(labels, probabilities), log_loss(labels, due)
    print(f"{count} classes: probabilities off by {np.abs(probabilities - due).max():.3f}, "
          f"log loss {loss:.3f}, due {due_loss:.3f}")
    assert np.allclose(original.predict_proba(x), due, atol=1e-6)
    assert np.array_equal(converted.predict(x), original.predict(x))
    if count == 2:
        assert np.allclose(probabilities, due, atol=1e-5)
    else:
        shares = expit(scores) / expit(scores).sum(1, keepdims=True)
        assert np.allclose(probabilities, shares, atol=1e-4)
        assert np.abs(probabilities - due).max() > 0.25 and loss > 1.5 * due_loss
PYTHON
