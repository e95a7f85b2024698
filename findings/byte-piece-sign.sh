#!/usr/bin/env bash
# A piece "<0x+A>" is decoded as a line feed.
#
# Version: tokenizers 0.23.3.
# Guess before the run: the ByteFallback decoder takes "<0x", two hexadecimal digits and ">" for a
#     byte. "<0x+A>" is not that, so it stays as it is.
# Seen: "<0x+A>" becomes "\n", as "<0x0A>" does. "<0x-A>", "<0x A>" and "<0xG1>" stay. A sign is
#     accepted where a number is parsed, so 16 more pieces are bytes: "<0x+0>" to "<0x+F>".
# For gyre: data/tokenizer.py and formats/tokenizers.py take two hexadecimal digits only. A
#     vocabulary with such a piece would be decoded differently. We know of none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile tokenizers==0.23.3
"$folder/env/bin/python" - <<'PYTHON'
from tokenizers import Tokenizer, decoders, models

decoder = decoders.ByteFallback()
pieces = ["<0x0A>", "<0x+A>", "<0x-A>", "<0x A>", "<0xG1>"]
seen = {piece: decoder.decode([piece]) for piece in pieces}
for piece, text in seen.items():
    print(f"{piece} is decoded as {text!r}")
signed = [f"<0x+{digit}>" for digit in "0123456789ABCDEF"]
n_bytes = sum(decoder.decode([piece]) == chr(number) for number, piece in enumerate(signed))
print(f"{n_bytes} of {len(signed)} pieces with a plus are bytes")

# The same in a tokenizer: a text that contains this piece does not come back.
tokenizer = Tokenizer(models.BPE(vocab={"<unk>": 0, "a": 1}, merges=[], unk_token="<unk>"))
tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
tokenizer.add_tokens(["<0x+A>"])
ids = tokenizer.encode("a<0x+A>a").ids
text = tokenizer.decode(ids)
print(f"a tokenizer: 'a<0x+A>a' -> {ids} -> {text!r}")

assert seen == {"<0x0A>": "\n", "<0x+A>": "\n", "<0x-A>": "<0x-A>", "<0x A>": "<0x A>",
                "<0xG1>": "<0xG1>"}
assert n_bytes == 16
assert text == "a\na"
PYTHON
