#!/usr/bin/env bash
# datasketch's minhash_many takes words of other documents for a row with stored zeros.
#
# Versions: datasketch 2.0.0, numpy 2.4.6, scipy 1.17.1.
# Guess before the run: the sketch of a document depends on its own row, and a zero that a sparse
#     matrix stores counts as one that it does not store. (That it might not was suspected after
#     reading the source.)
# Seen: the ends of the rows count all stored elements, and the list of elements leaves the zeros
#     out. So behind the first stored zero, each row has elements of the row after it. Of 1,200
#     elements in 60 documents, 14 have the weight 0: equal documents have a mean estimated
#     similarity of 0.51 instead of 1, and a third of the words in the sketches are not in their
#     documents. With more zeros than the last row has elements, there is an error. The dense matrix
#     and `minhash`, row by row, are right.
# For gyre: it removes no near-duplicates. There, call `eliminate_zeros()` first.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile datasketch==2.0.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import scipy.sparse
from datasketch import WeightedMinHashGenerator

DOCUMENTS, WORDS, LENGTH, SAMPLES = 60, 200, 20, 256
generator = np.random.default_rng(0)
counts = np.zeros((DOCUMENTS, WORDS), dtype=np.float32)
for row in counts[:DOCUMENTS // 2]:
    row[generator.choice(WORDS, LENGTH, replace=False)] = generator.integers(1, 4, size=LENGTH)
counts[DOCUMENTS // 2:] = counts[:DOCUMENTS // 2]  # each document twice
weights = np.ones(WORDS, dtype=np.float32)
weights[:2] = 0  # two words do not count

sparse = scipy.sparse.csr_matrix(counts)
sparse.data *= weights[sparse.indices]  # as scikit-learn weighs words
print(f"{sparse.nnz} elements are stored, {sparse.nnz - sparse.count_nonzero()} of them are zero")
assert 10 <= sparse.nnz - sparse.count_nonzero() < LENGTH - 2
clean = sparse.copy()
clean.eliminate_zeros()
assert (sparse.toarray() == clean.toarray()).all()

make = WeightedMinHashGenerator(WORDS, sample_size=SAMPLES)
results = {"stored zeros": make.minhash_many(sparse),
           "zeros eliminated": make.minhash_many(clean),
           "dense": make.minhash_many(sparse.toarray()),
           "minhash, row by row": [make.minhash(row) for row in sparse.toarray()]}
for name, sketches in results.items():
    similarities = [first.jaccard(second) for first, second in
                    zip(sketches[:DOCUMENTS // 2], sketches[DOCUMENTS // 2:])]
    strange = np.mean([np.mean(row[sketch.hashvalues[:, 0]] == 0)
                       for row, sketch in zip(sparse.toarray(), sketches)])
    print(f"{name}: equal documents have a mean similarity of {np.mean(similarities):.2f}, the "
          f"smallest is {min(similarities):.2f}; {strange:.0%} of the words in a sketch are not in "
          "its document")
    if name == "stored zeros":
        assert np.mean(similarities) < 0.7 and strange > 0.1
    else:
        assert min(similarities) == 1 and strange == 0
PYTHON
