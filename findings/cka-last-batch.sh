#!/usr/bin/env bash
# ckatorch's similarity of two models is that of the last batch: the other batches are overwritten.
#
# Versions: ckatorch 1.0.3, torch 2.13.0, numpy 2.4.6.
# Guess before the run: `CKA(...)(loader)` is the minibatch CKA of Nguyen et al. over the whole loader, as
#     its docstring says: other data in the first batches give another matrix. (That they might not
#     was suspected after reading the source.)
# Seen: each batch is written over the one before, so that the matrix is the mean over the epochs of
#     what the last batch has. That is also the shortest: a loader with drop_last is refused. With
#     64 * 4 + 2 texts in batches of 64, two texts decide. Two models that agree in all texts
#     but these two have a similarity near 0, and two that agree in nothing else have 1. Without
#     shuffling, ten epochs are the same number ten times.
# For gyre: it does not compare layers. There, give one batch with all the data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --no-deps torch==2.13.0 numpy==2.4.6 \
    ckatorch==1.0.3 seaborn==0.13.2
"$folder/env/bin/python" - <<'PYTHON'
PYTHON
