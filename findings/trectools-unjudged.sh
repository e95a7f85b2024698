#!/usr/bin/env bash
# trectools ignores removeUnjudged for the reciprocal rank and for R-precision.
#
# Versions: trectools 0.0.50, pandas 2.3.3, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: with removeUnjudged=True, documents without a judgement are taken out before any
#     measure that has the argument, as for precision and NDCG; the RBP of a query does not depend on other
#     queries. (That neither might hold was suspected after reading the source.)
# Seen: reciprocal rank and R-precision are the same with it and without: a filtered run is made, and the
#     unfiltered one is measured, for both values of `trec_eval`. Where 3 of 4 documents have no judgement, 0.36
#     and 0.15 stay, where 0.83 and 0.68 are due. In a run with one score for all documents, RBP averages the
#     weights over all queries as one tie, so that a perfect query has 0.05 beside 9 others, and 0.20 alone.
# For gyre: it retrieves nothing. There, take documents without a judgement out of the run first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 pandas==2.3.3 scipy==1.17.1 \
    beautifulsoup4==4.15.0 lxml==6.1.3 matplotlib==3.11.2 scikit-learn==1.9.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps trectools==0.0.50 sarge==0.1.8
MPLBACKEND=agg MPLCONFIGDIR="$folder" FOLDER="$folder" "$folder/env/bin/python" -W ignore - <<'PYTHON'
import os

import numpy as np
from trectools import TrecEval, TrecQrel, TrecRun

QUERIES, DOCUMENTS = 40, 40
generator = np.random.default_rng(0)


def evaluate(run, judgements):
    """Return the evaluation of {query: documents by rank}, read from files."""
    with open(f"{os.environ['FOLDER']}/run", "w") as file:
        for query, documents in run.items():
            for rank, (document, score) in enumerate(documents, 1):
                file.write(f"{query} Q0 {document} {rank} {score} system\n")
    with open(f"{os.environ['FOLDER']}/qrels", "w") as file:
        for (query, document), relevance in judgements.items():
            file.write(f"{query} 0 {document} {relevance}\n")
    return TrecEval(TrecRun(file.name.replace("qrels", "run")), TrecQrel(file.name))


run, judgements = {}, {}
for query in range(1, QUERIES + 1):
    run[query] = [(f"d{i:02d}", DOCUMENTS - i) for i in range(DOCUMENTS)]
    for i in generator.choice(DOCUMENTS, DOCUMENTS // 4, replace=False):
        judgements[query, f"d{i:02d}"] = int(generator.random() < 0.7)
    assert any(judgements.get((query, document), 0) for document, _ in run[query])
judged = {query: [row for row in documents if (query, row[0]) in judgements]
          for query, documents in run.items()}


def measure(documents_by_query):
    """Return reciprocal rank, R-precision and precision at 5."""
    rows = []
    for query, documents in documents_by_query.items():
        relevant = [judgements.get((query, document), 0) for document, _ in documents]
        n_relevant = sum(relevance for (name, _), relevance in judgements.items() if name == query)
        rows.append((1 / (relevant.index(1) + 1), np.mean(relevant[:n_relevant]), np.mean(relevant[:5])))
    return np.mean(rows, axis=0)


evaluation = evaluate(run, judgements)
for trec_eval in (True, False):
    for remove in (False, True):
        options = {"removeUnjudged": remove, "trec_eval": trec_eval}
        found = np.array([evaluation.get_reciprocal_rank(**options), evaluation.get_rprec(**options),
                          evaluation.get_precision(depth=5, **options)])
        due = measure(judged if remove else run)
        print(f"removeUnjudged={remove}, trec_eval={trec_eval}: reciprocal rank, R-precision and P@5 are "
              f"{found.round(3)}, where {due.round(3)} are due")
        assert np.allclose(found[2], due[2])
        assert np.allclose(found[:2], measure(run)[:2])
    assert np.all(due[:2] > 2 * found[:2])

P = 0.8
ties = {query: [(f"d{i}", 1.0) for i in range(1 if query == 1 else 20)] for query in range(1, 11)}
relevant = {(1, "d0"): 1, **{(query, "d19"): 1 for query in range(2, 11)}}
alone = evaluate({1: ties[1]}, relevant).get_rbp(p=P, per_query=True)[0].iloc[0, 0]
beside = evaluate(ties, relevant).get_rbp(p=P, per_query=True)[0]
beside = float(beside.loc[[str(name) == "1" for name in beside.index]].iloc[0, 0])
print(f"RBP of a query with one document, which is relevant: {alone:.3f} alone, {beside:.3f} beside nine "
      "queries with the same scores")
assert np.isclose(alone, 1 - P) and beside < 0.6 * alone
PYTHON
