#!/usr/bin/env bash
# pyprobables' cuckoo filter finds up to 500 times as many unknown keys as it is made for.
#
# Version: pyprobables 0.7.0.
# Guess before the run: CuckooFilter.init_error_rate(0.001, capacity=10000), which has 40,000 places,
#     finds a tenth of a percent of the unknown keys with 8,000 known ones.
# Seen: 53 to 69 %, by the keys. With 1,000 keys and rates of 10, 1 and 0.1 %, it finds 100 %, 78 %
#     and 4 % of 3,000 unknown keys. Both places of a key are computed from its fingerprint, where the
#     paper takes the first one from a hash of the key. So equal fingerprints are in equal places, and
#     the filter is a set of fingerprints, whatever its capacity: with 10 bits, 1,000 keys are 764. It
#     counts those as its elements, and its `error_rate` is the one asked for. With the default of 32
#     bits, errors are rare, but grow with each key. Its Bloom filter has the rate that it is made for.
# For gyre: it has no such filter. There, take BloomFilter, or a rate that is smaller by the capacity.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile pyprobables==0.7.0
"$folder/env/bin/python" - <<'PYTHON'
from probables import BloomFilter, CuckooFilter

CAPACITY, UNKNOWN = 10_000, 3_000


def fill(step, n_keys):
    """Return the share of unknown keys that are found after adding `n_keys` others."""
    for number in range(n_keys):
        step.add(f"document {number}")
    assert all(step.check(f"document {number}") for number in range(n_keys))
    return sum(step.check(f"other {number}") for number in range(UNKNOWN)) / UNKNOWN


for rate, n_keys in [(0.1, 1000), (0.01, 1000), (0.001, 1000), (0.001, 8000)]:
    cuckoo = CuckooFilter.init_error_rate(rate, capacity=CAPACITY)
    bloom = BloomFilter(est_elements=n_keys, false_positive_rate=rate)
    errors, bloom_errors = fill(cuckoo, n_keys), fill(bloom, n_keys)
    bits = cuckoo.fingerprint_size_bits
    fingerprints = 1 - (1 - 2**-bits)**n_keys
    print(f"error rate {rate}, {n_keys} keys in {CAPACITY * cuckoo.bucket_size} places: "
          f"{errors:.1%} of unknown keys are found; Bloom filter {bloom_errors:.1%}; "
          f"{cuckoo.elements_added} elements; {fingerprints:.1%} of {bits}-bit fingerprints are taken")
    assert cuckoo.error_rate == rate
    assert errors > 9 * rate and errors > 0.2 * fingerprints
    assert bloom_errors < 2 * rate
PYTHON
