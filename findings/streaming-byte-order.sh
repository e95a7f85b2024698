#!/usr/bin/env bash
# mosaicml-streaming loses the byte order of arrays: big-endian numbers come back with their bytes swapped.
#
# Versions: mosaicml-streaming 0.13.0, torch 2.13.0, numpy 2.4.6.
# Guess before the run: an array in a column "ndarray" of an MDS file comes back with its values, whatever its
#     strides, order of axes and byte order are, or is refused.
# Seen: transposed, strided and Fortran arrays do. Big-endian ones, as they come from FITS, netCDF 3 and the
#     IDX files of MNIST, are written in silence and come back swapped: 1, 2, 3 as int32 is 16,777,216,
#     33,554,432 and 50,331,648, and 1.0 as float32 is 4.6e-41. A column of a fixed type, "ndarray:int32",
#     refuses them, saying that it expected int32 and got int32.
# Cause: the type is written as `dtype.name`, which is the same for both orders, and the values by
#     `tobytes`, which keeps theirs (format/mds/encodings.py, `NDArray.encode`).
# For gyre: it stores token ids by numpy with a fixed type. There, convert to `dtype.newbyteorder("=")`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 Brotli==1.2.1 catalogue==2.0.10 \
    python-snappy==0.7.3 requests==2.34.2 tqdm==4.70.1 xxhash==4.1.0 zstd==1.5.7.2 pillow==13.0.0 filelock==4.3.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps mosaicml-streaming==0.13.0
cd "$folder"
export HOME="$folder"
"$folder/env/bin/python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { tail -20 "$folder/errors"; exit 1; }
import importlib.machinery
import sys
import types


class Empty(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Stub:
    """Stand-ins for packages that streaming imports and that are not used here."""
    def find_spec(self, name, path=None, target=None):
        unused = name.split(".")[0] in {"transformers", "torchvision"}
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if unused else None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Stub())

import numpy as np
from streaming import MDSWriter, StreamingDataset

NUMBERS = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
ARRAYS = {"plain": NUMBERS, "transposed": NUMBERS.T, "strided": NUMBERS[::2, ::3], "Fortran": np.asfortranarray(NUMBERS),
          "big-endian int32": NUMBERS.astype(">i4"), "big-endian int16": NUMBERS.astype(">i2"),
          "big-endian float32": NUMBERS.astype(">f4"), "big-endian float64": NUMBERS.astype(">f8")}

with MDSWriter(out="data", columns={"array": "ndarray"}) as writer:
    for array in ARRAYS.values():
        writer.write({"array": array})
data = StreamingDataset(local="data", batch_size=1)
for row, (name, array) in enumerate(ARRAYS.items()):
    found = data[row]["array"]
    right = np.array_equal(found, array)
    print(f"{name}: {array.ravel()[:3].tolist()} comes back as {found.dtype} {found.ravel()[:3].tolist()}")
    assert found.shape == array.shape and right == ("big" not in name)
    assert right or np.array_equal(found.byteswap(), array)

try:
    with MDSWriter(out="fixed", columns={"array": "ndarray:int32"}) as writer:
        writer.write({"array": ARRAYS["big-endian int32"]})
except ValueError as error:
    print(f"ndarray:int32, big-endian int32: {error}")
else:
    raise AssertionError("not refused")
PYTHON
