#!/usr/bin/env bash
# In baguetter's reciprocal rank fusion, a higher score makes a document count less.
#
# Versions: baguetter 0.1.1, numpy 2.4.6, numba 0.66.0, huggingface_hub 1.24.0, python-dotenv 1.2.2.
# Guess before the run: the default, "reciprocal_rank", adds up 1 / (60 + rank), as in the paper: scores
#     do not matter, and a document that is third in both of two lists comes before those that one list
#     has at its top and the other one lacks. (That it does not was suspected after reading the source.)
# Seen: it adds up 1 / (rank from 0 + normalized score). The third in both lists comes behind both of
#     those. At the same ranks, the score of a document falls from 0.91 to 0.53 if its score in the list
#     rises from 0.1 to 0.9, so that other documents pass it. Five noisy lists with 20 of 100 documents
#     each give 4.1 of the ten most relevant ones in the first ten places, where 4.6 are due.
# For gyre: it retrieves nothing. There, take "borda_count".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 numba==0.66.0 huggingface_hub==1.24.0 \
    python-dotenv==1.2.2
"$folder/env/bin/pip" install --quiet --no-compile --no-deps baguetter==0.1.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sys
import types
from collections import defaultdict

# The package imports its indexes (faiss, usearch), which the fusion does not need.
place = importlib.util.find_spec("baguetter").submodule_search_locations[0]
for name, path in [("baguetter", place), ("baguetter.indices", f"{place}/indices")]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
import numpy as np
from baguetter.fuser.fuser import Fuser, _reciprocal_rank_fusion
from baguetter.indices.base import SearchResults


def found(scores):
    """Return search results from a dictionary of keys and scores, best first."""
    keys = sorted(scores, key=scores.get, reverse=True)
    return SearchResults(keys=keys, scores=np.array([scores[key] for key in keys], float), normalized=False)


def due(lists):
    """Return the keys by the sums of 1 / (60 + rank), best first."""
    sums = defaultdict(float)
    for results in lists:
        for rank, key in enumerate(results.keys, 1):
            sums[key] += 1 / (60 + rank)
    return sorted(sums, key=sums.get, reverse=True)


lists = [found({"a": 10, "b": 9, "both": 8, "c": 0}), found({"d": 10, "e": 9, "both": 8, "f": 0})]
right = due(lists)
seen = Fuser().merge(lists).keys
print(f"third in both lists: place {seen.index('both') + 1}, due {right.index('both') + 1}")
assert right[0] == "both" and seen.index("both") >= 2

parts = {}
for score in [1, 9]:
    results = SearchResults(keys=["x", "y", "z"], scores=np.array([1.0, score / 10, 0.0]), normalized=True)
    parts[score] = _reciprocal_rank_fusion([results])["y"]
    print(f"second of three with a score of {score / 10}: counts {parts[score]:.2f}")
assert parts[1] > parts[9] + 0.3

generator = np.random.default_rng(0)
rows = []
for _ in range(300):
    relevance = generator.normal(size=100)
    best = set(np.argsort(-relevance)[:10].tolist())
    lists = []
    for _ in range(5):
        scores = relevance + generator.normal(0, 2, 100)
        lists.append(found({int(key): scores[key] for key in np.argsort(-scores)[:20]}))
    right = due(lists)[:10]
    seen = Fuser().merge(lists).keys[:10]
    rows.append([len(best & set(seen)), len(best & set(right))])
seen, right = np.mean(rows, axis=0)
print(f"five noisy lists: of the ten most relevant documents, {seen:.2f} are among the first ten, due "
      f"{right:.2f}")
assert seen < right - 0.2
PYTHON
