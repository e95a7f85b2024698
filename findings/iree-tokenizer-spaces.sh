#!/usr/bin/env bash
# iree-tokenizer decodes the text of a Llama tokenizer without its spaces.
#
# Versions: iree-tokenizer 0.3.0, tokenizers 0.23.3, numpy 2.4.6.
# Guess before the run: a `tokenizer.json` with the decoder of Llama 2 and Mistral gives the text that
#     Hugging Face's tokenizers gives: of the fused text, one space is removed at the start.
# Seen: the step "Strip" removes a space from the start of each token: "the quick brown fox" comes back as
#     "thequickbrownfox", in one call, in a batch and in a stream; of double spaces, one remains. Without
#     "Strip", or with the decoder "Metaspace", it is right. The ids are right.
# For gyre: its exports have such a decoder; there, replace it by "Metaspace".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-compile --no-deps iree-tokenizer==0.3.0 tokenizers==0.23.3
"$folder/env/bin/python" - <<'PYTHON'
from iree.tokenizer import Tokenizer as IreeTokenizer
from tokenizers import Tokenizer, decoders, models, normalizers

TEXTS = ["the quick brown fox", "x = 1;  y = 2", "a fox"]
LLAMA = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]

# Bytes, characters, and each word with its space.
pieces = ["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)] + sorted(set("".join(TEXTS)) - {" "}) + ["▁"]
merges = []
for word in " ".join(TEXTS).split():
    left = "▁"
    for character in word:
        if left + character not in pieces:
            merges.append((left, character))
            pieces.append(left + character)
        left += character
vocabulary = {piece: i for i, piece in enumerate(pieces)}


def make(decoder):
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoder
    return tokenizer, IreeTokenizer.from_str(tokenizer.to_str())


def stream(tokenizer, ids):
    with tokenizer.decode_stream() as decoder:
        parts = [decoder.feed([token]) for token in ids]
        return "".join(part or "" for part in [*parts, decoder.finalize()])


for name, decoder, keeps in [("Llama 2", decoders.Sequence(LLAMA), False),
                             ("without Strip", decoders.Sequence(LLAMA[:-1]), True),
                             ("Metaspace", decoders.Metaspace(), True)]:
    tokenizer, other = make(decoder)
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert list(other.encode(text)) == ids
        due = tokenizer.decode(ids)
        seen = other.decode(ids)
        print(f"{name}: {[tokenizer.id_to_token(i) for i in ids]} is {seen!r}, due {due!r}")
        assert due.removeprefix(" ") == text
        assert other.decode_batch([ids]) == [seen] and stream(other, ids) == seen
        if keeps:
            assert seen == due
        else:
            # Each token loses one space.
            tokens = (tokenizer.id_to_token(i).replace("▁", " ") for i in ids)
            assert seen == "".join(token.removeprefix(" ") for token in tokens) != due
PYTHON
