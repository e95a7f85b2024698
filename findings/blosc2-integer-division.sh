#!/usr/bin/env bash
# In blosc2, 7 / 2 is 3 for arrays of integers, and 3.5 where two arrays are chunked differently.
#
# Versions: blosc2 4.14.1, numpy 2.4.6.
# Guess before the run: operators of NDArrays give NumPy's numbers, as their documentation says
#     ("equivalent to the Python modulus operator"), whatever types and chunks are. (None was
#     suspected: it came out of a comparison of all operators.)
# Seen: the quotient of two arrays of integers has the type float64 (or float32) and is cut to an
#     integer: the mean of 100 ratios is 1.96 for 2.43. `%` has the sign of the dividend, also for
#     floats, so that -1 % 3 is -1, which `//` does not match: it is right. All this is so where
#     both arrays have the same chunks and blocks, since another engine computes then. Those that
#     are chosen by default depend on the type and the size, so that bytes over 32-bit integers can
#     be cut with 1,000 elements and right with 1,000,000. Nothing is said. An array over a number
#     is right, and so are NumPy's arrays.
# For gyre: it has no such arrays. There, multiply the dividend by 1.0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile blosc2==4.14.1 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import blosc2
import numpy as np

numbers = np.random.default_rng(0)


def compare(name, seen, due, cut):
    """Print and check that `seen` is `due`, or else the integers `cut`."""
    seen = seen[:]
    print(f"{name}: first {np.round(seen[:4], 3).tolist()}, mean {seen.mean():.3f}, due "
          f"{np.round(due[:4], 3).tolist()}, {due.mean():.3f}")
    assert np.dtype(seen.dtype).kind == np.asarray(due).dtype.kind
    return np.allclose(seen, due, rtol=1e-5), np.allclose(seen, cut, rtol=1e-5)


for types in [("int32", "int32"), ("int64", "int64"), ("uint8", "uint8"), ("int64", "int16")]:
    a, b = (numbers.integers(1, 100, 100).astype(kind) for kind in types)
    for chunks in [(100, 100), (100, 50)]:
        x, y = (blosc2.asarray(v, chunks=(size,), blocks=(50,))
                for v, size in zip((a, b), chunks))
        name = f"{types[0]} / {types[1]}, chunks of {chunks[0]} and {chunks[1]}"
        right, is_cut = compare(name, x / y, a / b, a // b)
        assert right == (chunks[0] != chunks[1]) and is_cut != right
    assert compare("array * 1.0 / array", x * 1.0 / y, a / b, a // b)[0]
    assert compare("array / 3", x / 3, a / 3, a // 3)[0]

a, b = (numbers.integers(1, 100, 100).astype(kind) for kind in ("uint8", "int32"))
for block in (50, 25):
    x, y = (blosc2.asarray(v, chunks=(100,), blocks=(size,)) for v, size in ((a, 50), (b, block)))
    right, is_cut = compare(f"uint8 / int32, blocks of 50 and {block}", x / y, a / b, a // b)
    assert right == (block == 25) and is_cut != right

for kind in ("int32", "float64"):
    a = np.arange(-5, 6).astype(kind)
    x = blosc2.asarray(a)
    right, as_in_c = compare(f"{kind} % 3", x % 3, a % 3, np.fmod(a, 3))
    assert as_in_c and not right
    assert compare(f"{kind} // 3", x // 3, a // 3, a // 3)[0]
    assert compare("remainder", blosc2.remainder(x, 3), a % 3, np.fmod(a, 3))[1]
assert "equivalent to the Python modulus operator" in " ".join(blosc2.remainder.__doc__.split())
PYTHON
