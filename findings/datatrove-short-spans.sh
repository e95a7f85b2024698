#!/usr/bin/env bash
# datatrove's sentence deduplication cuts two thirds of the spans that it means to keep.
#
# Versions: datatrove 0.10.1, numpy 2.4.6.
# Guess before the run: `min_words_to_remove_span=20` leaves repeated spans that have fewer than 20
#     words, and removes longer ones. (That it does neither was suspected after reading the source.)
# Seen: of a span of three lines, only the first one is remembered. So its words alone are counted:
#     three repeated lines of 12 words each, 36 words, count as 12 and stay. And only the first line
#     is put back: of a repeated span of three lines with 3 words each, two lines are lost. A list in
#     the middle of a text keeps its first item. With the default of 0 all is well.
# For gyre: it removes no near-duplicates. There, leave `min_words_to_remove_span` at 0.
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

from datatrove.data import Document
from datatrove.pipeline.dedup import (
    SentDedupConfig,
    SentenceDedupFilter,
    SentenceDedupSignature,
    SentenceFindDedups,
)
from datatrove.utils.word_tokenizers import WordTokenizer

SPAN = 3
random.seed(0)
letters = "abcdefghijklmnopqrstuvwxyz"
vocabulary = ["".join(random.choices(letters, k=6)) for _ in range(5000)]


class SplitTokenizer(WordTokenizer):
    """Cut at white space, so that the filter needs no language model."""

    def word_tokenize(self, text):
        return text.split()

    def sent_tokenize(self, text):
        raise NotImplementedError

    def span_tokenize(self, text):
        raise NotImplementedError


def make_lines(n_lines, n_words):
    return [" ".join(random.choices(vocabulary, k=n_words)) for _ in range(n_lines)]


def deduplicate(name, texts, min_words):
    """Return the texts after the three stages, as lists of lines."""
    config = SentDedupConfig(n_sentences=SPAN, split_sentences=False, min_doc_words=0,
                             min_num_sentences=0, min_words_to_remove_span=min_words)
    folder = Path(sys.argv[1]) / name
    signatures, found = str(folder / "signatures"), str(folder / "found")
    documents = [Document(text, str(i)) for i, text in enumerate(texts)]
    SentenceDedupSignature(signatures, config=config, language=SplitTokenizer()).run(documents)
    SentenceFindDedups(signatures, found, config=config).run()
    step = SentenceDedupFilter(found, config=config, language=SplitTokenizer())
    return [document.text.splitlines() for document in step.run(documents)]


for n_words, min_words in [(3, 0), (3, 20), (12, 0), (12, 20)]:
    span = make_lines(SPAN, n_words)
    texts = []
    for _ in range(2):
        texts.append("\n".join(make_lines(4, 15) + span + make_lines(4, 15)))
    first, second = deduplicate(f"{n_words}-{min_words}", texts, min_words)
    total = SPAN * n_words
    left = [line for line in span if line in second]
    due = SPAN if total < min_words else 0
    print(f"a span of {SPAN} lines with {total} words, min_words_to_remove_span={min_words}: "
          f"{len(left)} of its lines are left in the second text (due {due})")
    assert first == texts[0].splitlines()
    assert [line for line in second if line not in span] == [
        line for line in texts[1].splitlines() if line not in span]
    assert left == (span[:1] if min_words else [])
PYTHON
