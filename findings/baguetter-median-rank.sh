#!/usr/bin/env bash
# baguetter's fusion by the median rank puts the worst documents first.
#
# Versions: baguetter 0.1.1, numpy 2.4.6, numba 0.66.0, huggingface_hub 1.24.0, python-dotenv 1.2.2.
# Guess before the run: `Fuser(algorithm="median_rank")` orders documents by their median rank, the smallest
#     first, and gives it the highest score. (That it does not was suspected after reading the source.)
# Seen: all fused scores are sorted from the largest one down, and the median rank is taken for a score. Of
#     three equal lists of ten documents, the result is the list backwards, and with `top_k=5` the last
#     five documents remain. Of three noisy lists of 100, none of the ten most relevant documents
#     is among the first ten, where the right order has 7.8 of them on average.
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

# The package imports its indexes (faiss, usearch), which the fusion does not need.
place = importlib.util.find_spec("baguetter").submodule_search_locations[0]
for name, path in [("baguetter", place), ("baguetter.indices", f"{place}/indices")]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
import numpy as np
from baguetter.fuser.fuser import Fuser
from baguetter.indices.base import SearchResults

fuser = Fuser(algorithm="median_rank")
equal = [SearchResults(keys=list("abcdefghij"), scores=np.linspace(1, 0, 10), normalized=True)
         for _ in range(3)]
everything = fuser.merge(equal)
five = fuser.merge(equal, top_k=5)
print(f"three times {''.join(equal[0].keys)}: {''.join(everything.keys)}; the first five of it are "
      f"{''.join(five.keys)}")
assert everything.keys == list("jihgfedcba") and five.keys == list("jihgf")

generator = np.random.default_rng(0)
rows = []
for _ in range(50):
    relevance = generator.normal(size=100)
    noisy = relevance + generator.normal(0, 0.5, (3, 100))
    orders = [np.argsort(-scores) for scores in noisy]
    lists = [SearchResults(keys=order.tolist(), scores=scores[order], normalized=False)
             for scores, order in zip(noisy, orders)]
    ranks = np.array([np.argsort(order) for order in orders])
    best = set(np.argsort(-relevance)[:10].tolist())
    due = np.argsort(np.median(ranks, axis=0), kind="stable")[:10].tolist()
    counted = Fuser(algorithm="borda_count").merge(lists).keys[:10]
    seen = fuser.merge(lists).keys[:10]
    rows.append([len(best & set(seen)), len(best & set(due)), len(best & set(counted))])
seen, due, counted = np.mean(rows, axis=0)
print(f"three noisy lists of 100: of the ten most relevant documents, {seen:.1f} are among the first ten; "
      f"by median ranks {due:.1f} are due; by Borda counts {counted:.1f}")
assert seen == 0 and due > 6 and counted > 6
PYTHON
