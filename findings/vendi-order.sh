#!/usr/bin/env bash
# The Vendi score of a sparse kernel of 100 unrelated texts is 1.3, and score_X knows one order.
#
# Versions: vendi-score 0.0.3, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6.
# Guess before the run: 100 texts without any likeness count as 100, whether the matrix of
#     likenesses is sparse or not; score_X and score_dual give the same for each order q, as they
#     do for q = 1. (That they do not was suspected after reading the source.)
# Seen: of a sparse matrix, the 6 largest eigenvalues are taken, which is scipy's default: 100
#     unrelated texts count as 1.3, fewer than two unrelated ones, and 1000 as 1.04. score_X takes
#     q and computes the order 1: 4.8 instead of 3.6 for q = inf. Nothing is said in either case.
# For gyre: it does not measure diversity. There, give dense kernels, and score_K or score_dual.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile vendi-score==0.0.3 scikit-learn==1.9.1 \
    scipy==1.17.1 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
from scipy.sparse import csr_matrix
from vendi_score import vendi

sparse = {}
for n in [7, 10, 100, 1000]:
    dense = vendi.score_K(np.eye(n))
    sparse[n] = vendi.score_K(csr_matrix(np.eye(n)))
    print(f"{n} unrelated texts: dense {dense:.2f}, sparse {sparse[n]:.2f}")
    assert abs(dense - n) < 1e-6
assert sparse[100] < 1.4 < sparse[10] and sparse[1000] < 1.1

vectors = np.random.default_rng(0).normal(size=(50, 5))
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
for q in [0.5, 1, 2, "inf"]:
    by_x = vendi.score_X(vectors, q=q)
    by_dual = vendi.score_dual(vectors, q=q)
    by_kernel = vendi.score_K(vectors @ vectors.T, q=q)
    print(f"order {q}: score_X {by_x:.3f}, score_dual {by_dual:.3f}, score_K {by_kernel:.3f}")
    assert abs(by_dual - by_kernel) < 1e-3
    assert abs(by_x - vendi.score_X(vectors, q=1)) < 1e-12
assert by_x > 1.3 * by_dual
PYTHON
