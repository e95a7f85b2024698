#!/usr/bin/env bash
# With budtiktok, the second tokenizer of a process gives ids of the first one.
#
# Versions: budtiktok 0.1.0, tokenizers 0.23.3.
# Guess before the run: budtiktok, a "drop-in replacement" for tokenizers, gives the same ids for
#     byte-level BPE, however many tokenizers a process has loaded.
# Seen: words that one BPE tokenizer has encoded are kept for all of them, in each thread. The
#     second one gives the first one's ids for each word that the first one has seen before, which
#     are other words in its vocabulary, without an error; words that are new to both are right.
#     Which one is wrong depends on the order of the calls, and loading it again does not help.
#     Alone in its process, each is right.
# For gyre: a target and a draft, or an old and a new vocabulary, are such a pair. There, one
#     tokenizer to a process.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile budtiktok==0.1.0 tokenizers==0.23.3 numpy==2.4.6
cat > "$folder/check.py" <<'PYTHON'
import sys

import budtiktok
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CORPORA = {
    "zoo": ["the keeper of the zoo saw the zebras near the gate and the old giraffe"] * 3,
    "bank": ["the bank sold bonds and stocks fell near the end of the old year"] * 3,
}
SHARED = ["the keeper sold the bonds near the gate", "stocks fell and the old zebras saw the end"]
NEW = "many people wrote letters"


def train(corpus):
    rust = Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    rust.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return rust


right = []
order = sys.argv[1:]
for name in order:
    rust = train(CORPORA[name])
    other = budtiktok.Tokenizer.from_str(rust.to_str())
    given = [other.encode(text).ids for text in SHARED]
    right.append(sum(ids == rust.encode(text).ids for ids, text in zip(given, SHARED)))
    print(f"    {name}: {right[-1]} of {len(SHARED)} texts right; the first is "
          f"{rust.decode(given[0])!r}")
    if right[-1] < len(SHARED):
        again = budtiktok.Tokenizer.from_str(rust.to_str())
        assert again.encode(SHARED[0]).ids == given[0]
        assert other.encode(NEW).ids == rust.encode(NEW).ids
assert right == [len(SHARED)] + [0] * (len(order) - 1)
PYTHON
for order in "zoo" "bank" "zoo bank" "bank zoo"; do
    echo "tokenizers of one process, in this order: $order"
    # shellcheck disable=SC2086
    "$folder/env/bin/python" -W ignore "$folder/check.py" $order
done
