#!/usr/bin/env bash
# semchunk's chunks overlap by 34 % with overlap=0.66, and by 50 % with overlap=0.5.
#
# Versions: semchunk 4.1.1, tqdm 4.70.1.
# Guess before the run: chunks of 100 tokens, which are words that can be cut anywhere, overlap by 66
#     tokens with `overlap=0.66`, "the proportion of the chunk size", and by more with a higher
#     number. (That they might not was suspected after reading the source.)
# Seen: 34 of 68 tokens. A text is cut into parts of min(overlap, 1 - overlap), as many of them as fit
#     make a chunk, and the next chunk begins one part later. Above a half, the overlap is that of
#     the parts that fit: 49 tokens for 0.51 and 66 for 0.67, but 40 for 0.6. The chunks of 0.6 are those
#     of 0.4, which are 80 long; with 0.34, they are 68 long. 60 and 66 tokens as a number do the same.
# For gyre: it cuts no chunks for retrieval. There, take an overlap of 1/2, 2/3, 3/4 and so on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tqdm==4.70.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps semchunk==4.1.1
"$folder/env/bin/python" - <<'PYTHON'
import math
from statistics import mean

import semchunk

SIZE, WORDS = 100, 5000
text = " ".join(f"w{number}" for number in range(WORDS))


def count_words(part):
    """Return the number of tokens: words."""
    return len(part.split())


chunker = semchunk.chunkerify(count_words, SIZE)
overlaps, chunks_by_overlap = {}, {}
for overlap in (0.3, 0.34, 0.4, 0.5, 0.51, 0.6, 0.66, 0.67, 0.75, 0.8, 60, 66):
    chunks, offsets = chunker(text, offsets=True, overlap=overlap)
    chunks_by_overlap[overlap] = chunks
    lengths = [count_words(chunk) for chunk in chunks]
    shared = [count_words(text[start:end])
              for (_, end), (start, _) in zip(offsets, offsets[1:])]
    overlaps[overlap] = mean(shared[:-1])
    print(f"overlap={overlap}: chunks of {mean(lengths[:-1]):.0f} words, {overlaps[overlap]:.0f} of "
          "them in the next one")
    assert max(lengths) <= SIZE

    # Parts of equal length, as many as fit in a chunk, one after the other.
    tokens = math.floor(SIZE * overlap) if overlap < 1 else overlap
    part = min(tokens, SIZE - tokens)
    step = (SIZE - tokens) // part
    assert abs(overlaps[overlap] - (SIZE // part - step) * part) < 1
assert overlaps[0.66] < 0.7 * overlaps[0.5] < overlaps[0.5] < overlaps[0.67]
assert chunks_by_overlap[0.6] == chunks_by_overlap[0.4] == chunks_by_overlap[60]
assert chunks_by_overlap[0.66] == chunks_by_overlap[0.34] == chunks_by_overlap[66]
PYTHON
