#!/usr/bin/env bash
# numcodecs' Delta filter gives back a boolean mask that is true from its first true value to the end of the chunk.
#
# Versions: numcodecs 0.16.6, zarr 3.1.6, numpy 2.4.6.
# Guess before the run: `decode(encode(x))` is x for booleans, as it is for whole numbers.
# Seen: of 1,000 values in chunks of 100, of which 70 % are true, zarr reads 1,000 as true, in both of its formats;
#     without the filter, or with PackBits, all are right. The stored bytes are right, until one value is
#     assigned: zarr reads the chunk, and writes the wrong one back.
# Cause: the difference of booleans is "not equal" in numpy's `diff`, and their sum is "or" in `cumsum`, which is
#     no inverse of it (numcodecs/delta.py, `decode`). The pull request 595 of numcodecs says that booleans just
#     worked, and the issue 43 (XOR of neighbours) was closed with it.
# For gyre: it stores no masks in zarr. There, decode by `np.logical_xor.accumulate`, or take Delta of uint8.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6 numcodecs==0.16.6 zarr==3.1.6
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numcodecs
import numpy as np
import zarr
from zarr.codecs.numcodecs import Delta

mask = np.arange(1000) % 10 < 7
SIZE = 100
FILTERS = {"no filter": (2, None), "PackBits": (2, [numcodecs.PackBits()]), "Delta, format 2": (2, [numcodecs.Delta(dtype="?")]),
           "Delta, format 3": (3, [Delta(dtype="bool")])}

for name, (zarr_format, filters) in FILTERS.items():
    options = {} if filters is None else {"filters": filters}
    array = zarr.create_array(zarr.storage.MemoryStore(), shape=mask.shape, chunks=(SIZE,), dtype=bool,
                              zarr_format=zarr_format, **options)
    array[:] = mask
    print(f"{name}: {array[:].sum()} of {mask.size} are true, {mask.sum()} are due")
    if "Delta" in name:
        assert array[:].all()
    else:
        assert np.array_equal(array[:], mask)

# Whole numbers of one byte come back, and so do booleans with the inverse of what `encode` did.
numbers = mask.astype("u1")
codec = numcodecs.Delta(dtype="u1")
assert np.array_equal(codec.decode(codec.encode(numbers)), numbers)
codec = numcodecs.Delta(dtype="?")
assert np.array_equal(np.logical_xor.accumulate(codec.encode(mask)), mask)
chunk = np.array([0, 1, 0, 0, 1, 0], dtype=bool)
print("encoded and decoded:", chunk.astype(int), codec.decode(codec.encode(chunk)).astype(int))
assert np.array_equal(codec.decode(codec.encode(chunk)), np.logical_or.accumulate(chunk))

# One assignment spoils what is stored.
store = zarr.storage.MemoryStore()
array = zarr.create_array(store, shape=mask.shape, chunks=(SIZE,), dtype=bool, zarr_format=2, compressors=None,
                          filters=[codec])
array[:] = mask


def read_stored(number):
    """Return a chunk of the store, decoded by the inverse of `encode`."""
    stored = np.frombuffer(store._store_dict[str(number)].to_bytes(), dtype=bool)
    return np.logical_xor.accumulate(stored)


before = read_stored(3)
array[305] = True
after = read_stored(3)
print(f"stored in a chunk: {before.sum()} true, {after.sum()} after the assignment of one that was true already")
assert mask[305] and np.array_equal(before, mask[300:400]) and after.all()
PYTHON
