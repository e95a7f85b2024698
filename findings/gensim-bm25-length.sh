#!/usr/bin/env bash
# gensim's BM25 models made from a corpus take the number of different words for the length.
#
# Versions: gensim 4.4.0, rank-bm25 0.2.2, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: OkapiBM25Model gives the same weights whether it is made from a corpus or
#     from the dictionary of this corpus, and both are those of rank-bm25. (That the mean length is
#     another one was suspected after reading the source.)
# Seen: from a dictionary, weights are those of rank-bm25. From a corpus, the mean length of a
#     document counts each word once, while the length of a single document counts all its words:
#     the mean is 79 for documents of 223 words. So each document is a long one, and short ones win:
#     of 100 queries of three words, 30 have another first document, and the first ones have 183
#     words on average instead of 220. The models of Lucene and ATIRE have the same mean length.
# For gyre: it retrieves nothing. There, give the dictionary.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile gensim==4.4.0 rank-bm25==0.2.2 numpy==2.4.6 \
    scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from gensim.corpora import Dictionary
from gensim.models import AtireBM25Model, LuceneBM25Model, OkapiBM25Model
from rank_bm25 import BM25Okapi

DOCUMENTS = 300
QUERIES = 100
generator = np.random.default_rng(0)

# Words with frequencies as in texts, and a topic of 20 words in each document.
documents = []
for _ in range(DOCUMENTS):
    common = np.minimum(generator.zipf(1.3, generator.integers(40, 360)), 5000)
    topic = generator.integers(0, 5000, 20)[generator.integers(0, 20, generator.integers(5, 45))]
    documents.append([str(word) for word in np.concatenate([common, topic])])
dictionary = Dictionary(documents)
corpus = [dictionary.doc2bow(document) for document in documents]
length = np.mean([len(document) for document in documents])
different = np.mean([len(set(document)) for document in documents])
reference = BM25Okapi(documents)
print(f"mean length {length:.1f}, mean number of different words {different:.1f}")

weights = {}
for name, source in [("dictionary", {"dictionary": dictionary}), ("corpus", {"corpus": corpus})]:
    models = [kind(**source) for kind in [OkapiBM25Model, LuceneBM25Model, AtireBM25Model]]
    print(f"    made from a {name}: mean length {models[0].avgdl:.1f}")
    due = length if name == "dictionary" else different
    assert all(abs(model.avgdl - due) < 1e-9 for model in models)
    weights[name] = [dict(models[0][row]) for row in corpus]

first = {"dictionary": 0, "corpus": 0}
lengths = {"dictionary": [], "corpus": [], "rank-bm25": []}
for _ in range(QUERIES):
    document = documents[generator.integers(DOCUMENTS)]
    query = list(generator.choice(document, 3))
    due = reference.get_scores(query)
    best = due.argmax()
    lengths["rank-bm25"].append(len(documents[best]))
    for name, rows in weights.items():
        ids = dictionary.doc2idx(query)
        scores = np.array([sum(row.get(number, 0.0) for number in ids) for row in rows])
        if name == "dictionary":
            assert np.allclose(scores, due)
        first[name] += scores.argmax() != best
        lengths[name].append(len(documents[scores.argmax()]))
for name in weights:
    print(f"    made from a {name}: {first[name]} of {QUERIES} queries have another first document "
          f"than in rank-bm25; mean length of the first ones {np.mean(lengths[name]):.0f} "
          f"(rank-bm25 {np.mean(lengths['rank-bm25']):.0f})")
assert first["dictionary"] == 0 and first["corpus"] >= 15
PYTHON
