#!/usr/bin/env bash
# Three equal models disagree in torch-uncertainty, and three that never agree do not.
#
# Versions: torch-uncertainty 0.13.0, torchmetrics 1.9.0, torch 2.13.0.
# Guess before the run: VariationRatio of probabilities (B, N, C), for a batch of B texts and N
#     models, is 0 if the models are equal, and has one value a text with reduction="none". (That
#     it has not was suspected after reading the source.)
# Seen: 0.67 for three equal models whose texts are of three classes, and 0 for three models of
#     which no two ever agree. There is one value a model. The probabilities are transposed, and the
#     texts of a batch are compared, for each model: the value says how mixed their classes are, and
#     changes with their order. The example in the documentation is one of these, too (0.45, where
#     0.35 is right). Disagreement and MutualInformation have the axes as documented.
# For gyre: it has no ensembles. There, give this metric probs.transpose(0, 1), all at once.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torch-uncertainty==0.13.0
"$folder/env/bin/pip" install --quiet --no-compile torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sys
import types

import torch

# The metric needs torchmetrics only, and importing the package needs Lightning.
place = importlib.util.find_spec("torch_uncertainty").submodule_search_locations[0]
for part in ["", "/metrics", "/metrics/classification"]:
    name = "torch_uncertainty" + part.replace("/", ".")
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [place + part]
from torch_uncertainty.metrics.classification.disagreement import Disagreement  # noqa: E402
from torch_uncertainty.metrics.classification.variation_ratio import VariationRatio  # noqa: E402

N_TEXTS = 6
N_MODELS = 3
N_CLASSES = 3


def measure(votes):
    """Return both metrics of the models' votes (B, N), and the variation ratio by hand."""
    probabilities = torch.nn.functional.one_hot(votes, N_CLASSES).float()
    seen = []
    for metric in [VariationRatio(probabilistic=False, reduction="none"),
                   VariationRatio(probabilistic=False), Disagreement()]:
        metric.update(probabilities)
        seen.append(metric.compute())
    commonest = probabilities.sum(1).amax(1)
    return *seen, (1 - commonest / N_MODELS).mean().item()


texts = torch.arange(N_TEXTS)
models = torch.arange(N_MODELS)
cases = {
    "all models vote alike": (texts[:, None] % N_CLASSES).expand(-1, N_MODELS),
    "no two models agree, ever": models.expand(N_TEXTS, -1),
    "all say the same class of all texts": torch.zeros(N_TEXTS, N_MODELS, dtype=torch.long),
}
results = {}
for name, votes in cases.items():
    each, ratio, disagreement, by_hand = measure(votes)
    results[name] = ratio.item()
    print(f"{name}: variation ratio {ratio:.3f} of {len(each)} values, by hand {by_hand:.3f}; "
          f"disagreement {disagreement:.3f}")
    assert len(each) == N_MODELS
assert [round(ratio, 3) for ratio in results.values()] == [0.667, 0, 0]

# The example of the documentation, two texts and three models.
example = torch.tensor([[[0.7, 0.3], [0.6, 0.4], [0.8, 0.2]], [[0.4, 0.6], [0.5, 0.5], [0.3, 0.7]]])
values = []
for probabilities in [example, example.transpose(0, 1)]:
    metric = VariationRatio()
    metric.update(probabilities)
    values.append(round(metric.compute().item(), 4))
by_hand = round((1 - example.mean(1).amax(1)).mean().item(), 4)
print(f"the documentation's example: {values[0]}, by hand {by_hand}, transposed {values[1]}")
assert values == [0.45, 0.35] and by_hand == 0.35
PYTHON
