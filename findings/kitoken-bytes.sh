#!/usr/bin/env bash
# In a unigram vocabulary, kitoken writes the bytes of a rare character from the last to the first.
#
# Versions: kitoken 0.11.1, beside sentencepiece 0.2.3.
# Guess before the run: kitoken loads a sentencepiece model and gives the same ids; at most, ties
#     between equal scores are broken otherwise.
# Seen: so it is for BPE and for unigram within the vocabulary. With byte_fallback, a character that
#     is no piece becomes its UTF-8 bytes in reverse: "é" is <0xA9> <0xC3>. No error, and as many
#     ids as from sentencepiece. Kitoken decodes in order, so it does not give back its own text.
# For gyre: data/bpe.py trains BPE. Ids that kitoken made for a unigram model have to be made again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile kitoken==0.11.1 sentencepiece==0.2.3
"$folder/env/bin/python" - <<'PYTHON'
import io
from pydoc_data.topics import topics

import kitoken
import sentencepiece

lines = [line for text in topics.values() for line in text.splitlines() if line.strip()]
ascii_lines = [line for line in lines if line.isascii()]
for model_type in ["bpe", "unigram"]:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ascii_lines), model_writer=model, model_type=model_type,
        vocab_size=1500, byte_fallback=True, num_threads=1, minloglevel=2)
    judge = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    encoder = kitoken.Kitoken.from_sentencepiece(model.getvalue())
    for text in ["café", "a – b", "日本"]:
        right = judge.encode(text)
        ids = list(encoder.encode(text, False))
        back = encoder.decode(ids, False)
        print(f"{model_type}, {text}: sentencepiece {judge.id_to_piece(right)}, kitoken "
              f"{judge.id_to_piece(ids)}, which kitoken decodes as {back}")
        backwards = b"".join(character.encode()[::-1] for character in text)
        assert encoder.decode(right, False) == text.encode()
        assert back == (text.encode() if model_type == "bpe" else backwards)
    others = [line for line in lines if not line.isascii()]
    n_wrong = sum(judge.encode(line) != list(encoder.encode(line, False)) for line in others)
    print(f"{model_type}: {n_wrong} of {len(others)} lines with a rare character get other ids")
    assert (n_wrong == 0) == (model_type == "bpe")
PYTHON
