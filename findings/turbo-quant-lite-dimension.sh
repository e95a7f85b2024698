#!/usr/bin/env bash
# turbo-quant-lite quantizes vectors of every dimension with the codebook of 512 dimensions.
#
# Versions: turbo-quant-lite 0.1.1, numpy 2.4.6.
# Guess before the run: squared errors of 11.7 %, 3.4 % and 0.9 % with 2, 3 and 4 bits whatever the
#     dimension is, as its README says (below 17, 4.3 and 1.1 %, "for any vector").
# Seen: so it is with 512 dimensions. With 384 it is 12, 3.7 and 1.1 %; with 128 dimensions it is 26, 13
#     and 6.5 %, with 64 it is 40, 25 and 16 %, and with 1,536, as embeddings have, 23, 6.7 and 1.9 %. A
#     vector's inner product with itself is 0.63 of what is due in 64 dimensions with 4 bits.
# Cause: coordinates of unit vectors have a deviation of 1 / sqrt(dim). `_get_codebook(bits)` has levels
#     for dim=512 and is not told the dimension (turbo_quant_lite/core.py).
# For gyre: it stores no embeddings. There, set `centroids` and `boundaries` to sqrt(512 / dim) times
#     what they are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 turbo-quant-lite==0.1.1
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
from turbo_quant_lite import TurboQuant

DUE = {2: 0.17, 3: 0.043, 4: 0.011}  # the README's bounds
errors, mended, selves = {}, {}, {}
for dim in [64, 128, 384, 512, 1536]:
    vectors = np.random.default_rng(0).standard_normal((100, dim))
    for bits in DUE:
        quantizer = TurboQuant(dim=dim, bits=bits)
        for found in [errors, mended]:
            codes = quantizer.encode_batch(vectors)
            decoded = quantizer.decode_batch(*codes)
            found[dim, bits] = np.sum((decoded - vectors) ** 2) / np.sum(vectors**2)
            if found is errors:
                selves[dim, bits] = (quantizer.similarity(vectors[0], codes[0][0], codes[1][0])
                                     / (vectors[0] @ vectors[0]))
            quantizer.centroids = quantizer.centroids * np.sqrt(512 / dim)
            quantizer.boundaries = quantizer.boundaries * np.sqrt(512 / dim)
        print(f"{dim} dimensions, {bits} bits: error {errors[dim, bits]:.1%} ({DUE[bits]:.1%} is due), "
              f"{mended[dim, bits]:.1%} with scaled levels; similarity with itself {selves[dim, bits]:.2f}")
for bits, due in DUE.items():
    assert errors[512, bits] < due
    assert all(mended[dim, bits] < 1.02 * due for dim in [64, 128, 384, 1536])
    assert errors[64, bits] > 2 * due and errors[128, bits] > 1.5 * due and errors[1536, bits] > 1.3 * due
assert errors[128, 4] > 5 * DUE[4] and selves[64, 4] < 0.7
PYTHON
