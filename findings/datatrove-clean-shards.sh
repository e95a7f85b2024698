#!/usr/bin/env bash
# datatrove's exact-substring deduplication drops all documents of a shard without duplicates.
#
# Versions: datatrove 0.10.1, tokenizers 0.23.3, numpy 2.4.6.
# Guess before the run: ESRangeRemover cuts the repeated passages out of the documents and yields
#     the others as they are: a shard in which nothing is repeated comes out as it went in. (That
#     nothing comes out was suspected after reading the source.)
# Seen: of three shards with 4 documents each, a passage is repeated in the first and the third one.
#     They give 4 documents each; the second one, which is the cleanest, gives none, without an error
#     or a warning: `if not self.dup_ranges: return` stands before the loop. With documents sorted by
#     source, the shards of the best sources are the ones that are lost.
# For gyre: it removes no near-duplicates. There, check that each shard has documents behind it, or
#     shuffle the documents before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile datatrove==0.10.1 numpy==2.4.6 regex==2026.11.19 \
    tokenizers==0.23.3 xxhash==3.7.0
TQDM_DISABLE=1 LOGURU_LEVEL=ERROR "$folder/env/bin/python" -W ignore - "$folder" <<'PYTHON'
import random
import sys
from pathlib import Path

import numpy as np
from datatrove.data import Document
from datatrove.pipeline.dedup import ESDatasetToSequence, ESMergeSequences, ESRangeRemover
from datatrove.utils.word_tokenizers import WordTokenizer
from tokenizers import Tokenizer, models, pre_tokenizers

SHARDS, DOCUMENTS, WORDS, PASSAGE = 3, 4, 60, 30
SEPARATOR = 12  # bytes before each document
folder = Path(sys.argv[1])
random.seed(0)
words = [f"w{i}" for i in range(5000)]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer.save(str(folder / "tokenizer.json"))


class SplitTokenizer(WordTokenizer):
    """Cut at white space, so that the filter needs no language model."""

    def word_tokenize(self, text):
        return text.split()

    def sent_tokenize(self, text):
        raise NotImplementedError

    def span_tokenize(self, text):
        raise NotImplementedError


def find_repeated(texts):
    """Return the byte ranges of a passage in the sequence of all documents, as the Rust tool does."""
    ranges = []
    offset = 0
    for text in texts:
        tokens = text.split()
        offset += SEPARATOR
        for start in range(len(tokens) - PASSAGE + 1):
            if tokens[start:start + PASSAGE] == passage:
                ranges.append((offset + 2 * start, offset + 2 * (start + PASSAGE)))
        offset += 2 * len(tokens)
    return ranges


def read(rank):
    return [Document(text, str(i)) for i, text in enumerate(shards[rank])]


passage = random.sample(words, PASSAGE)
shards = [[" ".join(random.choices(words, k=WORDS)) for _ in range(DOCUMENTS)]
          for _ in range(SHARDS)]
for rank in (0, 2):
    tokens = shards[rank][1].split()
    shards[rank][1] = " ".join(tokens[:20] + passage + tokens[20:])

work = str(folder / "work")
for rank in range(SHARDS):
    ESDatasetToSequence(work, str(folder / "tokenizer.json")).run(read(rank), rank, SHARDS)
ESMergeSequences(work, SHARDS).run()
sequence = (folder / "work" / "dataset.big_sequence").read_bytes()
ranges = find_repeated([text for shard in shards for text in shard])
repeated = np.array([tokenizer.token_to_id(word) for word in passage], np.uint16).tobytes()
assert len(ranges) == 2 and all(sequence[start:end] == repeated for start, end in ranges)
lines = "".join(f"{start} {end}\n" for start, end in ranges)
(folder / "work" / "dataset.bytearange").write_text("out\n" + lines)

n_kept = []
for rank in range(SHARDS):
    step = ESRangeRemover(work, str(folder / "tokenizer.json"), 0, SplitTokenizer())
    documents = list(step.run(read(rank), rank, SHARDS))
    n_kept.append(len(documents))
    print(f"shard {rank}: {DOCUMENTS} documents go in, {len(documents)} come out, "
          f"{sum(' '.join(passage) in text for text in shards[rank])} with the repeated passage")
    for document, text in zip(documents, shards[rank]):
        assert document.text.split() == text.replace(" ".join(passage), "").split()
assert n_kept == [DOCUMENTS, 0, DOCUMENTS]
PYTHON
