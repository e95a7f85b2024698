#!/usr/bin/env bash
# ranx fuses runs that were built by add_score in the order in which documents were added.
#
# Versions: ranx 0.3.21, numba 0.68.1, numpy 2.4.6.
# Guess before the run: a fusion by ranks ranks documents by their scores, so that a run gives one
#     fusion, whether it was made of a dictionary or by `add_score`, before and after it is
#     evaluated. (That it might not was suspected after reading the source.)
# Seen: `add_score` leaves a run unsorted, and fuse() takes the order of the documents in it for
#     their ranking. With documents added in the order of their names, reciprocal rank fusion and
#     Borda rank by name: the mean reciprocal rank of the best document is 0.11 instead of 0.87.
#     evaluate() sorts a run in place, so that the same call gives another fusion after it. Sums of
#     scores are right.
# For gyre: it retrieves nothing. There, make runs of dictionaries, or call `run.sort()` before
#     fuse().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile ranx==0.3.21 numba==0.68.1 numpy==2.4.6 \
    pandas==3.1.1 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from ranx import Qrels, Run, evaluate, fuse

N_DOCS = 20
N_QUERIES = 20
names = [f"d{i:02}" for i in range(N_DOCS)]
generator = np.random.default_rng(0)
relevance = generator.normal(size=(N_QUERIES, N_DOCS))
qrels = Qrels({f"q{q:02}": {names[relevance[q].argmax()]: 1} for q in range(N_QUERIES)})
scores = [relevance + 0.3 * generator.normal(size=relevance.shape) for _ in range(3)]


def from_dictionary(table):
    return Run({f"q{q:02}": dict(zip(names, map(float, row))) for q, row in enumerate(table)})


def by_add_score(table):
    run = Run()
    for q, row in enumerate(table):
        for name, score in zip(names, row):
            run.add_score(f"q{q:02}", name, float(score))
    return run


for method in ["rrf", "bordafuse", "sum"]:
    runs = [by_add_score(table) for table in scores]
    found = {"from dictionaries": fuse([from_dictionary(t) for t in scores], method=method),
             "by add_score": fuse(runs, method=method)}
    for run in runs:
        evaluate(qrels, run, "mrr")
    found["after evaluate"] = fuse(runs, method=method)
    mrr = {how: float(evaluate(qrels, run, "mrr")) for how, run in found.items()}
    print(f"{method}: mean reciprocal rank of the fusion",
          {how: round(value, 2) for how, value in mrr.items()})
    assert mrr["from dictionaries"] == mrr["after evaluate"] > 0.8
    if method == "sum":
        assert mrr["by add_score"] == mrr["after evaluate"]
    else:
        assert mrr["by add_score"] < 0.3

tables = [{"q": {"a": 1.0, "b": 2.0, "c": 3.0}}] * 3
runs = [Run() for _ in tables]
for run in runs:
    for name, score in tables[0]["q"].items():
        run.add_score("q", name, score)
before = list(fuse(runs, method="rrf").run["q"])
after = list(fuse([Run(table) for table in tables], method="rrf").run["q"])
print(f"three equal runs, scores {tables[0]['q']}: by add_score {before}, by dictionary {after}")
assert before == ["a", "b", "c"] and after == ["c", "b", "a"]
PYTHON
