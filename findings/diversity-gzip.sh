#!/usr/bin/env bash
# The compression ratio of `diversity` is that of a text compressed twice: it exceeds gzip's limit.
#
# Versions: diversity 0.3.1 (Python 3.11 with zlib).
# Guess before the run: `compression_ratio` is the size of the texts divided by that of their gzip,
#     at most 1,032, the limit of the format. (That it might not be was suspected after reading the
#     source.)
# Seen: the compressed bytes are written through gzip again. Ordinary texts lose a little (23 bytes:
#     1.67 for 1.84 with one document). In repeated ones the second pass finds what repeats in the
#     output of the first, which has a window of 32 kB: 100 copies of a document have 137 for 88,
#     and 1,000 copies 1,250 for 182. "xz" is right. So ratios cannot be compared with those of
#     another program, and the more copies, the less.
# For gyre: it does not measure diversity. There, take `len(text) / len(gzip.compress(text))`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile --no-deps diversity==0.3.1
env/bin/python -W ignore - <<'PYTHON'
import gzip
import lzma
import random
import site
import sys
import types
from pathlib import Path

# The package imports spaCy and sentence-transformers, which this ratio does not use.
package = types.ModuleType("diversity")
package.__path__ = [str(Path(folder) / "diversity") for folder in site.getsitepackages()]
sys.modules["diversity"] = package
from diversity.compression import compression_ratio  # noqa: E402

random.seed(0)
WORDS = ["".join(random.choices("abcdefghij", k=random.randint(2, 8))) for _ in range(2000)]


def write():
    return " ".join(random.choices(WORDS, k=100))


document = write()
cases = {"one document": [document], "100 documents": [write() for _ in range(100)],
         "100 copies": [document] * 100, "1,000 copies": [document] * 1000,
         "300,000 copies of a word": ["word"] * 300_000}
ratios = {}
for name, texts in cases.items():
    data = " ".join(texts).encode()
    once = len(data) / len(gzip.compress(data))
    twice = len(data) / len(gzip.compress(gzip.compress(data)))
    ratios[name] = compression_ratio(texts), once
    xz = compression_ratio(texts, algorithm="xz")
    print(f"{name}: {ratios[name][0]:.2f}; once is {once:.2f}, and twice {twice:.2f}. With xz: "
          f"{xz:.2f}; {len(data) / len(lzma.compress(data)):.2f} is due")
    assert abs(len(data) / ratios[name][0] - len(data) / twice) < 20  # a name is in the header
    assert abs(xz / (len(data) / len(lzma.compress(data))) - 1) < 0.001
assert ratios["one document"][0] < 0.95 * ratios["one document"][1]
assert ratios["100 copies"][0] > 1.3 * ratios["100 copies"][1]
assert ratios["1,000 copies"][0] > 5 * ratios["1,000 copies"][1]
assert ratios["300,000 copies of a word"][0] > 1032 > ratios["300,000 copies of a word"][1]
PYTHON
