#!/usr/bin/env bash
# With `normalize`, LM-Polygraph's Mahalanobis distance is reversed, and another one in each batch.
#
# Versions: lm-polygraph 0.7.0, torch 2.13.0, transformers 5.24.0, pillow 13.0.0, numpy 2.4.6.
# Guess before the run: MahalanobisDistanceSeq(normalize=True) maps the distances to between 0 and 1
#     and keeps their order, higher values being more uncertain, as in all estimators there. (That
#     the order is reversed was suspected after reading the source.)
# Seen: the farthest text has 0 and the nearest 1, so that its rank correlation with the distance is
#     -1, and texts unlike those of the training are the most certain ones. The ends of the scale are
#     the smallest and the largest distance of all calls so far: one text has 1 beside a farther one,
#     0 beside a nearer one, NaN alone in the first call, and other values if the batches come in
#     another order. RelativeMahalanobisDistanceSeq has the same lines.
# For gyre: it measures no uncertainty of answers. There, leave `normalize` out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 transformers==5.24.0 \
    pillow==13.0.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lm-polygraph==0.7.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.metadata
import sys
from types import ModuleType

import numpy as np

# The package imports thirty others, which the estimator has no use for: load its modules alone.
root = importlib.metadata.distribution("lm-polygraph").locate_file("lm_polygraph")
for name in ["lm_polygraph", "lm_polygraph.estimators", "lm_polygraph.utils"]:
    package = ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package
from lm_polygraph.estimators.mahalanobis_distance import MahalanobisDistanceSeq  # noqa: E402

WIDTH = 8
generator = np.random.default_rng(0)
training = generator.normal(size=(2000, WIDTH)).astype(np.float32)
texts = (np.arange(6)[:, None] * np.ones(WIDTH)).astype(np.float32)


def estimate(batches, normalize):
    """Return the estimates for texts in these batches, by the number of the text."""
    estimator = MahalanobisDistanceSeq("decoder", normalize=normalize)
    given = {}
    for batch in batches:
        values = estimator({"embeddings_decoder": texts[batch],
                            "train_embeddings_decoder": training})
        given.update(zip(batch, values.tolist()))
    return np.array([given[number] for number in sorted(given)])


distances = estimate([[0, 1, 2, 3, 4, 5]], False)
centred = texts - training.mean(0)
inverse = np.linalg.inv(np.cov(training.T))
assert np.allclose(distances, np.sqrt((centred @ inverse * centred).sum(1)), rtol=1e-3)
normalized = estimate([[0, 1, 2, 3, 4, 5]], True)
print("distances ", distances.round(2).tolist())
print("normalized", normalized.round(2).tolist())
assert (np.diff(distances) > 1).all() and (np.diff(normalized) < -0.1).all()
assert normalized[0] == 1 and normalized[-1] == 0

pairs = estimate([[0, 1], [2, 3], [4, 5]], True)
backwards = estimate([[4, 5], [2, 3], [0, 1]], True)
alone = estimate([[number] for number in range(6)], True)
print("in pairs  ", pairs.round(2).tolist())
print("backwards ", backwards.round(2).tolist())
print("alone     ", alone.round(2).tolist())
assert pairs[1] == 0 and pairs[4] > 0.1 and backwards[4] == 1 and backwards[0] == 1
assert np.isnan(alone[0]) and (alone[1:] == 0).all()
PYTHON
