#!/usr/bin/env bash
# bm25-turbo's BM25L, made for documents of different lengths, ignores their lengths.
#
# Versions: bm25-turbo 0.2.0, numpy 2.4.6.
# Guess before the run: each of the five methods gives its formula; BM25L has the frequency divided by
#     1 - b + b * length / mean length, in its paper and in its peers. "All variants support tunable k1,
#     b", says the README.
# Seen: "bm25l" takes the plain frequency: a document of 42 words scores as one of 2, the order is that of
#     the frequencies, and `b` has no effect, from 0 to 1. In a corpus of 200 documents, 15 of 25 words
#     have another first document. The other four methods give their formulas.
# For gyre: it retrieves nothing. There, take "lucene".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps bm25-turbo==0.2.0
"$folder/env/bin/python" - <<'PYTHON'
import math
import random
from collections import Counter

from bm25_turbo_python import BM25

K1 = 1.5
B = 0.75
DELTA = 0.5
N_DOCUMENTS = 200
random.seed(0)
WORDS = [a + b for a in ("river", "stone", "cloud", "tiger", "grape")
         for b in ("lamp", "park", "dock", "farm", "gold")]


def formula(method, document, word, n_with, n_documents, mean_length, b=B):
    """Return the score of a word in a document that has it."""
    frequency = document.count(word)
    norm = 1 - b + b * len(document) / mean_length
    saturated = frequency / (frequency + K1 * norm)
    if method == "lucene":
        return math.log(1 + (n_documents - n_with + 0.5) / (n_with + 0.5)) * saturated
    if method == "robertson":
        return max(0, math.log((n_documents - n_with + 0.5) / (n_with + 0.5))) * saturated
    if method == "atire":
        return math.log(n_documents / n_with) * (K1 + 1) * saturated
    if method == "bm25plus":
        return math.log((n_documents + 1) / n_with) * ((K1 + 1) * saturated + DELTA)
    shifted = frequency / norm + DELTA
    return math.log((n_documents + 1) / (n_with + 0.5)) * (K1 + 1) * shifted / (K1 + shifted)


def search(documents, query, method, b=B):
    engine = BM25(method=method, k1=K1, b=b, delta=DELTA)
    engine.index([" ".join(document) for document in documents])
    return dict(zip(*engine.search(query, k=len(documents))))


documents = [["river", "stone"], ["river", "stone"] + 40 * ["cloud"], 2 * ["river"] + 10 * ["lamp"], ["tiger"],
             ["grape", "moon"]]
mean = sum(map(len, documents)) / len(documents)
for b in (0.0, 0.75, 1.0):
    seen = search(documents, "river", "bm25l", b)
    due = [formula("bm25l", document, "river", 3, 5, mean, b) for document in documents[:3]]
    print(f"BM25L, b {b}: {[round(seen[i], 3) for i in range(3)]}, due {[round(x, 3) for x in due]}")
    plain = [formula("bm25l", document, "river", 3, 5, mean, 0) for document in documents[:3]]
    assert all(abs(seen[i] - plain[i]) < 1e-3 for i in range(3)) and seen[0] == seen[1]

# Frequent words first, and lengths from 5 to 200.
weights = [1 / rank for rank in range(1, len(WORDS) + 1)]
corpus = [random.choices(WORDS, weights, k=random.randint(5, 200)) for _ in range(N_DOCUMENTS)]
counts = Counter(word for document in corpus for word in set(document))
mean = sum(map(len, corpus)) / N_DOCUMENTS
for method in ("lucene", "robertson", "atire", "bm25plus", "bm25l"):
    error = other_first = 0
    for word in WORDS:
        seen = search(corpus, word, method)
        due = {i: formula(method, document, word, counts[word], N_DOCUMENTS, mean)
               for i, document in enumerate(corpus) if word in document}
        error = max([error] + [abs(seen.get(i, 0) - score) for i, score in due.items()])
        other_first += due[max(due, key=lambda i: seen.get(i, 0))] < max(due.values()) - 1e-3
    print(f"{method}: largest error {error:.4f}; another first document for {other_first} of {len(WORDS)} words")
    if method == "bm25l":
        assert error > 0.1 and other_first > len(WORDS) / 2
    else:
        assert error < 1e-3 and other_first == 0
PYTHON
