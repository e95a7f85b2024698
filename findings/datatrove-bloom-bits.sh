#!/usr/bin/env bash
# datatrove's Bloom filter calls nearly all documents duplicates, because it uses a handful of bits.
#
# Versions: datatrove 0.10.1, numpy 2.4.6.
# Guess before the run: SingleBloomFilter(m_bytes=2**20, k=7) has 8 million bits. Of 500 different
#     documents with 88 n-grams each it keeps all: the library itself computes a probability of
#     1e-10 that an n-gram is taken for a known one. (That it drops nearly all was suspected after
#     reading the source.)
# Seen: it keeps 1 of 500. A hash is brought to the length of the filter by a bitwise AND with
#     `m_bytes`, where the remainder of a division by the number of bits is due. So positions have
#     ones only where `m_bytes` has: 2 positions for each power of two, 128 for 1,000,000 bytes. They
#     are full after the first document. With 2**20 - 1 all bits below are ones, and all is well,
#     with an eighth of the filter. The optimal number of hashes is 8 times too large too, because
#     bits are given where bytes are expected: 1058 for 133.
# For gyre: it removes no near-duplicates. There, give 2**n - 1 bytes and `k`; or take its MinHash.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile datatrove==0.10.1 numpy==2.4.6 regex==2026.11.19 \
    tokenizers==0.23.3 xxhash==3.7.0
TQDM_DISABLE=1 LOGURU_LEVEL=ERROR "$folder/env/bin/python" -W ignore - "$folder" <<'PYTHON'
import math
import random
import sys

from datatrove.data import Document
from datatrove.pipeline.dedup.bloom_filter import (
    BloomFilterConfig,
    SingleBloomFilter,
    get_false_positive_prob,
)
from datatrove.utils.word_tokenizers import WordTokenizer

DOCUMENTS, WORDS, N, HASHES = 500, 100, 13, 7
random.seed(0)
letters = "abcdefghijklmnopqrstuvwxyz"
vocabulary = ["".join(random.choices(letters, k=8)) for _ in range(5000)]
texts = [" ".join(random.choices(vocabulary, k=WORDS)) for _ in range(DOCUMENTS)]


class SplitTokenizer(WordTokenizer):
    """Cut at white space, so that the filter needs no language model."""

    def word_tokenize(self, text):
        return text.split()

    def sent_tokenize(self, text):
        raise NotImplementedError

    def span_tokenize(self, text):
        raise NotImplementedError


def n_grams(text):
    words = text.split()
    return [tuple(words[start:start + N]) for start in range(len(words) - N + 1)]


seen = set()
n_new = 0
for text in texts:
    n_new += not seen.intersection(n_grams(text))
    seen.update(n_grams(text))
print(f"{DOCUMENTS} documents, {n_new} of them without any n-gram of the others")
assert n_new == DOCUMENTS

kept = {}
for m_bytes in (2**18, 2**20, 2**20 - 1, 10**6):
    config = BloomFilterConfig(m_bytes=m_bytes, k=HASHES)
    step = SingleBloomFilter(sys.argv[1] + "/filter", config, language=SplitTokenizer())
    kept[m_bytes] = sum(step.step(Document(text, str(i))) for i, text in enumerate(texts))
    n_set = sum(byte.bit_count() for byte in step.bit_vector)
    claimed = get_false_positive_prob(m_bytes, len(seen), HASHES)
    optimal = math.log(2) * 8 * m_bytes / len(seen)
    default = BloomFilterConfig(m_bytes=m_bytes, expected_elements=len(seen)).k
    print(f"m_bytes={m_bytes}: {kept[m_bytes]} documents are kept (probability of a false n-gram: "
          f"{claimed:.0e}); {n_set} bits are set; k is {default} (due {math.ceil(optimal)})")
    assert claimed < 1e-5
    assert 7.9 < default / optimal < 8.1
    if m_bytes == 2**20 - 1:
        assert kept[m_bytes] == DOCUMENTS and n_set > 100_000
    else:
        assert kept[m_bytes] <= 2 and n_set == 2**m_bytes.bit_count()
PYTHON
