#!/usr/bin/env bash
# lm-polygraph's direct semantic entropy counts each meaning as often as it was sampled.
#
# Versions: lm-polygraph 0.7.0, numpy 2.4.6.
# Guess before the run: with `entropy_estimation="direct"`, semantic entropy is the sum of
#     -p log p over the meanings, as in the paper that it names, so that ten samples with ten
#     meanings are the most uncertain. (That they might not be was suspected after reading the
#     source.)
# Seen: the sum is over the samples: a meaning of five samples counts five times. Ten samples that
#     fall into two meanings of five are 1.5 times as uncertain as ten samples with ten meanings,
#     and with 20 samples 3.5 times as twenty. Only where all meanings differ is it the entropy. The
#     default, "mean", is right.
# For gyre: it estimates no uncertainty of texts. There, leave `entropy_estimation` at "mean".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps lm-polygraph==0.7.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib
import importlib.metadata
import pathlib
import sys
import types

import numpy as np

# Import one estimator without the packages around it, which need torch, transformers and more.
root = pathlib.Path(importlib.metadata.distribution("lm-polygraph").locate_file("lm_polygraph"))
for name in ["lm_polygraph", "lm_polygraph.utils", "lm_polygraph.estimators"]:
    package = types.ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package
common = types.ModuleType("lm_polygraph.utils.common")
common.polygraph_module_init = lambda function: function  # it logs the name of the class
sys.modules[common.__name__] = common
module = importlib.import_module("lm_polygraph.estimators.semantic_entropy")
SemanticEntropy = module.SemanticEntropy


def estimate(sizes, entropy_estimation, log_probs=None):
    """Return the semantic entropy of samples whose meanings were drawn so many times each."""
    ends = np.cumsum(sizes)
    classes = [list(range(end - size, end)) for size, end in zip(sizes, ends)]
    found = {sample: label for label, samples in enumerate(classes) for sample in samples}
    stats = {"sample_texts": [[f"meaning {found[sample]}" for sample in range(ends[-1])]],
             "semantic_classes_entail": {"class_to_sample": {0: classes},
                                         "sample_to_class": {0: found}}}
    if log_probs is None:
        how = {"class_probability_estimation": "frequency"}
    else:
        stats["sample_log_probs"] = [log_probs]
        how = {"class_probability_estimation": "sum", "use_unique_responses": True}
    return float(SemanticEntropy(entropy_estimation=entropy_estimation, **how)(stats)[0])


values = {}
for sizes in [[10], [9, 1], [5, 5], [4, 3, 3], [2] * 5, [1] * 10, [10, 10], [1] * 20]:
    shares = np.array(sizes) / sum(sizes)
    due = float(-(shares * np.log(shares)).sum())
    direct, mean = estimate(sizes, "direct"), estimate(sizes, "mean")
    values[tuple(sizes)] = direct
    print(f"meanings of {sizes} samples: direct {direct:.3f}, mean {mean:.3f}, entropy {due:.3f}")
    assert abs(mean - due) < 1e-9
    assert abs(direct + (np.array(sizes) * shares * np.log(shares)).sum()) < 1e-9
assert values[5, 5] > 1.4 * values[(1,) * 10] and values[10, 10] > 2 * values[(1,) * 20]

# The same with the model's probabilities: one text of probability 0.9 and one of 0.1, each exact.
log_probs = np.log([0.9] * 9 + [0.1])
direct = estimate([9, 1], "direct", log_probs)
due = float(-(0.9 * np.log(0.9) + 0.1 * np.log(0.1)))
print(f"two texts with probabilities 0.9 and 0.1, drawn 9 times and once: {direct:.3f}, "
      f"{due:.3f} is due")
assert abs(direct + 9 * 0.9 * np.log(0.9) + 0.1 * np.log(0.1)) < 1e-9 and direct > 3 * due
PYTHON
