#!/usr/bin/env bash
# floc-simhash's transformer keeps 64 bits of however many are asked for, and half of the hashes negative.
#
# Versions: floc-simhash 0.1.0, scikit-learn 1.7.0, NumPy 2.3.1 (Python 3.11).
# Guess before the run: hashes of 128 bits of two vectors differ in 128 times their angle divided by pi
#     bits, and two hashes are equal next to never. (Suspected after reading the source.)
# Seen: the bits are multiplied by powers of 2 in 64-bit integers, where those from 2**64 on are 0: of 128
#     or 1,024 bits, only the first 64 are kept, without an error. For independent vectors, 32 bits
#     differ for 64. The 64th is the sign of the number, so that half of the hashes are texts as "-0x1f..",
#     with the digits of the complement. The README has 32 bits for the transformer, which are right, and
#     128 for `SimHash`, which takes Python's integers.
# For gyre: nothing. There, ask for 63 bits at most.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --only-binary :all: scikit-learn==1.7.0 numpy==2.3.1
"$folder/env/bin/pip" install --quiet --no-deps floc-simhash==0.1.0
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
from floc_simhash import SimHashTransformer

N_PAIRS = 2000

np.random.seed(0)
vectors = np.random.randn(2 * N_PAIRS, 50)
for n_bits in (32, 63, 64, 128, 1024):
    hashes = SimHashTransformer(n_bits=n_bits).fit(vectors).transform(vectors)
    numbers = [int(text, 16) for text in hashes]
    # Python's negative integers have a sign that goes on for ever, so look at the lowest 64 bits.
    used = sum(len({number >> bit & 1 for number in numbers}) == 2 for bit in range(min(n_bits, 64)))
    gaps = [((numbers[i] ^ numbers[i + N_PAIRS]) & ((1 << 64) - 1)).bit_count() for i in range(N_PAIRS)]
    negative = np.mean([number < 0 for number in numbers])
    print(f"{n_bits} bits: {used} are used, {np.mean(gaps):.1f} differ, due {n_bits / 2}; {negative:.2f} are negative, "
          f"longest {max(map(len, hashes))} characters")
    assert used == min(n_bits, 64) and abs(np.mean(gaps) - min(n_bits, 64) / 2) < 1
    assert max(abs(number) for number in numbers) <= 1 << min(n_bits, 63)
    assert negative == 0 if n_bits < 64 else 0.45 < negative < 0.55
PYTHON
