#!/usr/bin/env bash
# tokie writes other letters, or nothing, for the bytes of a tokenizer with byte fallback.
#
# Versions: tokie 0.1.4, tokenizers 0.23.3.
# Guess before the run: tokie, which is "100% accurate", gives the ids of tokenizers for a BPE with
#     byte fallback too, where a character that is no piece becomes its bytes.
# Seen: only if merged pieces come before single letters, as in the files of Llama 2. The trainer of
#     tokenizers numbers letters first. Then bytes become other pieces, and a text can lose a word
#     or be empty: "naïve" is read as "navvve", and "Größe" has no id at all, not even
#     an unknown one. There is no error. Texts whose letters are all pieces are right.
# For gyre: sentencepiece, by which it trains, numbers merged pieces first. For others, encode by
#     tokenizers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tokie==0.1.4 tokenizers==0.23.3
"$folder/env/bin/python" -W ignore - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path

import tokie
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CORPUS = ["the keeper of the zoo saw that giraffes were near the old gate",
          "giraffes eat leaves and zebras eat grass , so the old keeper saw the zebras",
          "in the morning the keeper saw a bird near the gate and a zebra behind the house"] * 3
TEXTS = ["the old keeper saw a zebra", "the zebras were near the house",
         "the na\u00efve keeper saw a zebra", "the keeper paid 5 \u20ac at the gate",
         "Gr\u00f6\u00dfe"]
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{number:02X}>" for number in range(256)]
path = Path(sys.argv[1]) / "tokenizer.json"

trained = Tokenizer(models.BPE(unk_token="<unk>"))
trained.pre_tokenizer = pre_tokenizers.Metaspace()
trained.train_from_iterator(CORPUS, trainers.BpeTrainer(
    vocab_size=600, special_tokens=SPECIAL, show_progress=False))
learned = json.loads(trained.to_str())["model"]
pieces = sorted(set(learned["vocab"]) - set(SPECIAL), key=learned["vocab"].get)
letters = [piece for piece in pieces if len(piece) == 1]
merged = [piece for piece in pieces if len(piece) > 1]
assert pieces == letters + merged

wrong = {}
for name, order in [("merged pieces first, as in Llama 2", merged + letters),
                    ("letters first, as the trainer has them", letters + merged)]:
    vocabulary = {piece: number for number, piece in enumerate(SPECIAL + BYTES + order)}
    rust = Tokenizer(models.BPE(vocab=vocabulary, unk_token="<unk>", fuse_unk=True,
                                byte_fallback=True,
                                merges=[tuple(pair) for pair in learned["merges"]]))
    rust.add_special_tokens(SPECIAL)
    rust.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    rust.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                      decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    rust.save(str(path))
    other = tokie.Tokenizer.from_json(str(path))
    print(name)
    for text in TEXTS:
        due = rust.encode(text).ids
        given = list(other.encode(text).ids)
        print(f"    {text!r}: {len(due)} ids, tokie {len(given)}, that is {rust.decode(given)!r}")
        assert rust.decode(due) == text
        wrong[name, text] = given != due
for (name, text), differs in wrong.items():
    assert differs == ("letters first" in name and not text.isascii())
PYTHON
