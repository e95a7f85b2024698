#!/usr/bin/env bash
# MLstatkit's DeLong test gives a model and itself p = 0.
#
# Versions: mlstatkit 0.1.91, numpy 2.4.6, scipy 1.17.1, scikit-learn 1.9.1, tqdm 4.67.1.
# Guess before the run: where two models rank all samples alike, as before and after temperature
#     scaling, there is nothing to test: p = 1, or nan with a warning, "aligned with R's pROC" as
#     the docstring says, which gives 1. (That it might not be was suspected after reading the
#     source.)
# Seen: p = 0 and z = 0. The variance of the difference is 0, so a bootstrap takes over, whose p is
#     twice the smaller one of the shares of differences at most 0 and above 0: all are 0, and none
#     is above. So a model and itself, a model and its calibrated form, and two models that both
#     rank all samples right differ with certainty, for any number of resamples.
# For gyre: it measures no AUC. There, look at z first: it is 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mlstatkit==0.1.91 numpy==2.4.6 scipy==1.17.1 \
    scikit-learn==1.9.1 tqdm==4.67.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from MLstatkit import Delong_test
from sklearn.metrics import roc_auc_score

SAMPLES = 100
generator = np.random.default_rng(0)
labels = (generator.uniform(size=SAMPLES) < 0.5).astype(int)
logits = labels + 1.5 * generator.normal(size=SAMPLES)
others = labels + 1.5 * generator.normal(size=SAMPLES)
perfect = labels + 0.5 * generator.uniform(size=SAMPLES)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def permute(first, second, count=200):
    """Return the p-value of a test that exchanges the ranks of two models sample by sample."""
    ranks = np.stack([np.argsort(np.argsort(scores)) for scores in (first, second)])

    def difference(pair):
        return abs(roc_auc_score(labels, pair[0]) - roc_auc_score(labels, pair[1]))

    swaps = generator.integers(2, size=(count, SAMPLES)).astype(bool)
    found = [difference(np.where(swap, ranks[::-1], ranks)) for swap in swaps]
    return (1 + sum(value >= difference(ranks) - 1e-12 for value in found)) / (count + 1)


for name, first, second in [("a model and itself", logits, logits),
                            ("logits and probabilities", logits, sigmoid(logits)),
                            ("temperatures 1 and 2", sigmoid(logits), sigmoid(logits / 2)),
                            ("two models without an error", perfect, perfect**2)]:
    assert (np.argsort(first) == np.argsort(second)).all()
    for resamples in [10, 60]:
        z, p, _, _, auc, other, info = Delong_test(labels, first, second, n_boot=resamples,
                                                   random_state=0)
        print(f"{name}: AUC {auc:.3f} and {other:.3f}, z = {z}, p = {p} by {info['method']} with "
              f"{resamples} resamples")
        assert auc == other and z == 0 and p == 0 and info["method"] == "bootstrap"
    p = permute(first, second)
    print(f"    by permutation: p = {p:.2f}")
    assert p == 1
z, p, _, _, auc, other, info = Delong_test(labels, logits, others)
due = permute(logits, others)
print(f"two independent models: AUC {auc:.3f} and {other:.3f}, z = {z:.2f}, p = {p:.3f} by "
      f"{info['method']}; by permutation {due:.3f}")
assert info["method"] == "delong" and abs(p - due) < 0.15
PYTHON
