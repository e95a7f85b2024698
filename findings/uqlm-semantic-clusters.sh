#!/usr/bin/env bash
# uqlm's semantic entropy is 0 for answers that contradict each other, if a vague one comes first.
#
# Versions: uqlm 0.6.7, transformers 4.57.6, torch 2.13.0, numpy 2.4.6.
# Guess before the run: answers are clustered as in Farquhar et al. (2024), to which the docstring
#     points: two answers mean the same if each entails the other, and each answer is in one cluster.
#     (That neither might hold was suspected after reading the source.)
# Seen: one direction is enough. "in France" is entailed by "in Paris, France" and by "in Lyon, France".
#     If it comes first, all three are one cluster, and the entropy is 0; if it comes last, there
#     are two, and it is in both: 0.69, where three clusters and 1.10 are due. An answer goes on to the
#     next cluster after it has found one, so that six answers count as eight. The order of the
#     samples decides: 0 to 0.69 for the same six answers, where 1.10 is due. Answers that entail
#     each other or not are clustered right.
# For gyre: it asks no judge. There, nothing: there is no option.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 transformers==4.57.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps uqlm==0.6.7
HF_HOME="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import itertools
import math
import sys
import types

import numpy as np

# Import the parts that are needed, without those that import packages for chat models.
root = importlib.util.find_spec("uqlm").submodule_search_locations[0]
for name in ("uqlm", "uqlm.nli", "uqlm.utils"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [root + name[4:].replace(".", "/")]
from uqlm.nli.cluster import SemanticClusterer
from uqlm.nli.entropy_utils import compute_semantic_entropy
from uqlm.nli.nli import NLI


class WordJudge(NLI):
    """A judge without a model: a text entails another if it has all of its words."""

    def __init__(self):
        self.label_mapping = ["contradiction", "neutral", "entailment"]
        self.probabilities = {}

    def predict_batch(self, pairs):
        """Return probabilities (N, 3) of contradiction, neutral and entailment."""
        entailed = [set(hypothesis.split()) <= set(premise.split()) for premise, hypothesis in pairs]
        return np.array([[0.02, 0.02, 0.96] if entails else [0.02, 0.96, 0.02]
                         for entails in entailed])


def cluster_by_uqlm(answers):
    """Return the clusters, as lists of positions, and the discrete semantic entropy."""
    shares = [1 / len(answers)] * len(answers)
    _, _, probabilities, clusters = SemanticClusterer(nli=WordJudge()).evaluate(
        answers, response_probabilities=shares)
    assert abs(sum(probabilities) - 1) < 1e-9
    return [list(cluster) for cluster in clusters], compute_semantic_entropy(probabilities)


def cluster_by_paper(answers):
    """Return the same by Farquhar et al.: an answer joins the first cluster that means the same."""
    clusters = []
    for position, answer in enumerate(answers):
        for cluster in clusters:
            if set(answers[cluster[0]].split()) == set(answer.split()):
                cluster.append(position)
                break
        else:
            clusters.append([position])
    shares = [len(cluster) / len(answers) for cluster in clusters]
    return clusters, -sum(share * math.log(share) for share in shares)


FRANCE, PARIS, LYON = "in France", "in Paris France", "in Lyon France"
PARIS_TOO, BERLIN = "France in Paris", "in Berlin"
for answers in ([PARIS, LYON, BERLIN], [PARIS, PARIS_TOO, BERLIN]):
    assert cluster_by_uqlm(answers) == cluster_by_paper(answers)
for answers in ([FRANCE, PARIS, LYON], [PARIS, LYON, FRANCE]):
    clusters, entropy = cluster_by_uqlm(answers)
    due_clusters, due = cluster_by_paper(answers)
    print(f"{answers}: clusters {clusters} and entropy {entropy:.3f}, where {due_clusters} and "
          f"{due:.3f} are due")
    assert abs(due - math.log(3)) < 1e-9
assert cluster_by_uqlm([FRANCE, PARIS, LYON])[0] == [[0, 1, 2]]
assert cluster_by_uqlm([PARIS, LYON, FRANCE])[0] == [[0, 2], [1, 2]]

answers = [PARIS] * 2 + [LYON] * 2 + [FRANCE] * 2
entropies, counted = set(), set()
for order in set(itertools.permutations(answers)):
    clusters, entropy = cluster_by_uqlm(list(order))
    entropies.add(round(entropy, 3))
    counted.add(sum(len(cluster) for cluster in clusters))
    assert abs(cluster_by_paper(list(order))[1] - math.log(3)) < 1e-9
print(f"six answers in all orders: entropies {sorted(entropies)}, and {sorted(counted)} answers in "
      f"the clusters; {math.log(3):.3f} and 6 are due in each order")
assert min(entropies) == 0 and max(entropies) < 0.7 and max(counted) > 6
PYTHON
