#!/usr/bin/env bash
# Hummingbird converts nearest neighbours of every p into those of the Euclidean distance.
#
# Versions: hummingbird-ml 0.4.12, scikit-learn 1.9.1, torch 2.13.0.
# Guess before the run: KNeighborsClassifier(p=1), converted to torch, has the neighbours of
#     scikit-learn, or is refused. (That it has others was suspected after reading the source.)
# Seen: p is looked for in `metric_params` alone, where scikit-learn does not have it. So p=1 and
#     p=3 are converted as p=2: with 12 dimensions of unequal scales, 26 and 18 % of the labels are
#     others, and so are the values of a regressor. `metric="manhattan"`, which means the same as
#     p=1, is converted right.
# For gyre: it converts no such models. There, give `metric="manhattan"`, and no p above 2.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile hummingbird-ml==0.4.12 scikit-learn==1.9.1 \
    torch==2.13.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import hummingbird.ml
import numpy as np
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

N_TRAINED, N_ASKED, N_DIMENSIONS, N_NEIGHBORS = 300, 200, 12, 5
generator = np.random.default_rng(0)
spread = np.exp(generator.normal(size=N_DIMENSIONS))
trained = (generator.normal(size=(N_TRAINED, N_DIMENSIONS)) * spread).astype(np.float32)
asked = (generator.normal(size=(N_ASKED, N_DIMENSIONS)) * spread).astype(np.float32)
labels = generator.integers(0, 3, N_TRAINED)
values = generator.normal(size=N_TRAINED)


def convert(model):
    return hummingbird.ml.convert(model, "torch", asked, extra_config={"batch_size": N_ASKED})


def vote(p):
    """Return the shares of the labels among the neighbours, by NumPy."""
    distances = np.linalg.norm((asked[:, None] - trained).astype(float), ord=p, axis=-1)
    neighbors = labels[distances.argsort(1)[:, :N_NEIGHBORS]]
    return (neighbors[..., None] == np.arange(3)).mean(1)


for options, p, right in [({}, 2, True), ({"p": 2}, 2, True), ({"metric": "manhattan"}, 1, True),
                          ({"p": 1}, 1, False), ({"p": 3}, 3, False)]:
    original = KNeighborsClassifier(N_NEIGHBORS, **options).fit(trained, labels)
    converted = convert(original)
    assert np.allclose(original.predict_proba(asked), vote(p), atol=1e-5)
    assert np.allclose(converted.predict_proba(asked), vote(p if right else 2), atol=1e-5)
    others = np.mean(converted.predict(asked) != original.predict(asked))
    regressor = KNeighborsRegressor(N_NEIGHBORS, **options).fit(trained, values)
    error = np.abs(convert(regressor).predict(asked).ravel() - regressor.predict(asked))
    print(f"{options}: {others:.1%} of the labels are others, values are off by {error.mean():.3f} "
          f"with a deviation of {regressor.predict(asked).std():.3f}")
    assert (others == 0 and error.max() < 1e-5) if right else (others > 0.1 and error.mean() > 0.1)
PYTHON
