#!/usr/bin/env bash
# Looking up one number in a sorted array reads and copies all of it.
#
# Version: numpy 2.4.6.
# Guess before the run: searchsorted is a binary search. One key in 20 million uint32 takes about
#     25 comparisons, and since NumPy 2 a Python integer takes the dtype of the array.
# Seen: with the Python integer 5 the whole array is converted to int64 first: 160 MB for one
#     lookup. A key of the array's own dtype, np.uint32(5), needs none. A file that is mapped to
#     be read in places is read whole.
# For gyre: keys get the dtype of the array: data/prepare.py and ablation/ngrams.py search float64
#     and equal dtypes. Offsets in a mapped file would need np.uint32(key).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile numpy==2.4.6
env/bin/python - <<'PYTHON'
import tracemalloc

import numpy as np

N = 20_000_000
np.arange(N, dtype=np.uint32).tofile("offsets.bin")
offsets = np.memmap("offsets.bin", dtype=np.uint32, mode="r")
megabytes = {}
for name, key in {"5": 5, "np.int64(5)": np.int64(5), "np.uint32(5)": np.uint32(5)}.items():
    tracemalloc.start()
    found = offsets.searchsorted(key)
    megabytes[name] = round(tracemalloc.get_traced_memory()[1] / 1e6)
    tracemalloc.stop()
    print(f"searchsorted({name}) finds {found} and allocates {megabytes[name]} MB "
          f"beside an array of {offsets.nbytes // 10**6} MB")
    assert found == 5
dtype = (offsets[:1] + 5).dtype
print(f"the dtype of offsets + 5 is {dtype}")

assert dtype == np.uint32
assert megabytes == {"5": 160, "np.int64(5)": 160, "np.uint32(5)": 0}
PYTHON
