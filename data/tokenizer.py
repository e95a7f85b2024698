"""The tokenizer: sentencepiece BPE that gives every string back unchanged.

Llama 2's conventions (ids unk 0, bos 1, eos 2, bytes 3..258, no padding id), so that the file loads
wherever sentencepiece does. Unlike Llama 2's own, it adds no space in front and normalises nothing:
`decode(encode(s)) == s` for every `s`, and the pieces of a text are as many bytes as the text.
"""

import codecs
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from errors import UserError

SPACE = "\u2581"  # sentencepiece's mark for a space; in a text it can only be spelt in bytes
SAMPLE = 20_000_000  # characters that training looks at: more costs time and changes few pieces
SENTENCE = 4_000  # characters of one training sentence; sentencepiece is slow on longer ones

_PROBE = "  a\tb\n\n    c\r\n\u00e9\u4e2d\U0001f600 "


class Tokenizer:
    """A sentencepiece file: text to ids and back."""

    def __init__(self, path: str | Path) -> None:
        model = Path(path).read_bytes()
        self._processor = SentencePieceProcessor()
        try:
            if not model:
                raise RuntimeError("the file is empty")
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise UserError(
                f"{path} is not a sentencepiece model, or a damaged one (Llama 3's tokenizer.model "
                "is none either, but a list of ranked byte pairs)"
            ) from error
        self.sha256 = hashlib.sha256(model).hexdigest()
        self.vocab_size: int = self._processor.vocab_size()
        self.unk_id: int = self._processor.unk_id()
        self.bos_id: int = self._processor.bos_id()
        self.eos_id: int = self._processor.eos_id()
        self.bytes = [self._bytes_of(i) for i in range(self.vocab_size)]
        byte_ids = self._processor.piece_to_id([f"<0x{byte:02X}>" for byte in SPACE.encode()])
        self._space_ids = list(byte_ids)
        if self.decode(self.encode(_PROBE)) != _PROBE:
            raise UserError(
                f"{path} is a sentencepiece model that does not give text back unchanged: it lacks "
                "byte fallback, adds a space or normalises, or its end is missing"
            )

    def _bytes_of(self, i: int) -> bytes:
        """The text of one piece, as bytes: a byte piece may be a fraction of a character."""
        piece = self._processor.id_to_piece(i)
        if self._processor.is_control(i) or self._processor.is_unknown(i):
            return b""
        if self._processor.is_byte(i):
            return bytes([int(piece[1:-1], 16)])
        return piece.replace(SPACE, " ").encode()

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, path: str | Path) -> "Tokenizer":
        """Learn `vocab_size` pieces from `texts`, write them to `path`; equal texts, equal files.

        Raises UserError where the text is too small, or has too many different characters.
        """
        sample = _sample(texts)
        model = io.BytesIO()
        try:
            SentencePieceTrainer.train(
                sentence_iterator=iter(sample),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                byte_fallback=True,
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                required_chars=SPACE,  # else a text without spaces leaves none but the mark's bytes
                allow_whitespace_only_pieces=True,  # indentation is one piece
                unk_id=0,
                bos_id=1,
                eos_id=2,
                pad_id=-1,
                max_sentence_length=8 * SENTENCE,  # in bytes; longer ones would be dropped
                num_threads=2,  # written into the file: the machine's own number would change it
                minloglevel=3,
            )
        except (RuntimeError, ValueError) as error:
            raise _vocabulary_error(vocab_size, str(error)) from error
        Path(path).write_bytes(model.getvalue())
        return cls(path)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without bos or eos. Raises UserError on a lone surrogate."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Like `encode`, on all cores."""
        # What stands between two marks is encoded apart, and the marks as their bytes.
        parts = [part for text in texts for part in text.split(SPACE)]
        try:
            rows = iter(self._processor.encode([part.encode() for part in parts]))
        except UnicodeEncodeError as error:
            raise UserError(
                f"the text holds {error.object[error.start]!r}, half of a surrogate pair, which is "
                "no character and has no UTF-8 form"
            ) from error
        batch = []
        for text in texts:
            ids = next(rows)
            for _ in range(text.count(SPACE)):
                ids += self._space_ids
                ids += next(rows)
            batch.append(ids)
        return batch

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`. Control ids have none; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.bytes[i] for i in ids).decode(errors="replace")


class Stream:
    """Decodes one id at a time: what `push` and `flush` return adds up to the one-shot decode.

    A character whose last byte has not come yet is held back.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes = tokenizer.bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, i: int) -> str:
        return self._decoder.decode(self._bytes[i])

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


def _sample(texts: Iterable[str]) -> list[str]:
    """Every 2^k-th sentence of the text, with the smallest k that keeps it within `SAMPLE`.

    One pass and bounded memory, evenly over the whole text, and no random numbers.
    """
    kept: list[str] = []
    size, stride = 0, 1
    for number, sentence in enumerate(_sentences(texts)):
        if number % stride:
            continue
        kept.append(sentence)
        size += len(sentence)
        if size > SAMPLE:
            kept = kept[::2]
            size = sum(map(len, kept))
            stride *= 2
    return kept


# sentencepiece skips a sentence that holds NUL or U+2585, its own marks. They stay in the text and
# are encoded as bytes; only training does not see them.
_UNTRAINABLE = str.maketrans({"\0": " ", SPACE: " ", "\u2585": " "})


def _sentences(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        text = text.translate(_UNTRAINABLE)
        for start in range(0, len(text), SENTENCE):
            yield text[start : start + SENTENCE]


def _vocabulary_error(vocab_size: int, message: str) -> UserError:
    """sentencepiece's refusal in words; it alone knows the limit."""
    if found := re.search(r"value <= (\d+)", message):
        return UserError(
            f"vocab_size {vocab_size} is more than this text allows: at most {found[1]} "
            "(lower --data.vocab_size, or give more text)"
        )
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"vocab_size {vocab_size} is too small for the characters of this text: at least "
            f"{found[1]} (raise --data.vocab_size)"
        )
    if "sentences_.empty()" in message:
        return UserError("no tokenizer can be trained: the training text is empty")
    return UserError(f"no tokenizer can be trained on this text: {message.splitlines()[0]}")
