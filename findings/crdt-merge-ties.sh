#!/usr/bin/env bash
# In crdt-merge, TIES of n models goes an n-th of the way: it divides by the number of models twice.
#
# Versions: crdt-merge 0.11.0, numpy 2.4.6.
# Guess before the run: copies of one fine-tuned model merge into that model, as by every other
#     strategy, and where all models agree, TIES takes the mean of their differences from the base
#     (Yadav et al. 2023, arXiv:2306.01708). (That it does not was suspected after reading the
#     source.)
# Seen: "ties" and "dare_ties" go half of the way for two models, and an eighth for eight. Weights
#     are made to add up to 1, and the weighted sum is divided by the number of models whose signs
#     agree. Where only one of eight models has changed a number, its change counts an eighth, too,
#     so that TIES is never more than the mean of all models.
# For gyre: it merges nothing. There, take mergekit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile crdt-merge==0.11.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from crdt_merge.model import ModelMerge, ModelMergeSchema


def merge(strategy, models):
    """Return the merged model minus the base."""
    # Nothing is trimmed or dropped.
    merged = ModelMerge(ModelMergeSchema({"default": strategy})).merge(
        [{"weight": model} for model in models], {"weight": base},
        density=1.0, drop_rate=0.0, epsilon=0.0, sparsity=0.0)
    return np.asarray(merged.tensor["weight"]) - base


def merge_ties(steps):
    """Return the mean of the steps that have the sign of the majority, number by number."""
    merged = np.zeros(base.shape)
    for place in np.ndindex(base.shape):
        values = [step[place] for step in steps]
        sign = np.sign(sum(np.sign(value) for value in values))
        agreeing = [value for value in values if value != 0 and np.sign(value) == sign]
        if agreeing:
            merged[place] = sum(agreeing) / len(agreeing)
    return merged


rng = np.random.default_rng(0)
base = rng.normal(size=(8, 16))
step = rng.normal(size=(8, 16))
for n in [2, 3, 8]:
    for strategy in ["weight_average", "dare", "della", "model_breadcrumbs", "ties", "dare_ties"]:
        share = (merge(strategy, [base + step] * n) * step).sum() / (step**2).sum()
        print(f"{n} copies, {strategy}: {share:.3f} of the way, 1 expected")
        assert np.isclose(share, 1 / n if "ties" in strategy else 1)

for n in [3, 5, 8]:
    steps = [rng.normal(size=base.shape) * (rng.random(base.shape) < 0.3) for _ in range(n)]
    merged, expected = merge("ties", [base + step for step in steps]), merge_ties(steps)
    assert np.allclose(merged, expected / n)
    print(f"{n} sparse steps: norm {np.linalg.norm(merged):.2f}, "
          f"{np.linalg.norm(expected):.2f} expected; the mean has "
          f"{np.linalg.norm(sum(steps) / n):.2f}")
PYTHON
