"""The tokenizer: sentencepiece BPE that gives every string back unchanged, or an imported one.

Ours has Llama 2's conventions (ids unk 0, bos 1, eos 2, bytes 3..258, no padding id), so that the
file loads wherever sentencepiece does; but documents begin with eos, and bos is never used. Unlike
Llama 2's own, it adds no space in front and normalises nothing: `decode(encode(s)) == s` for every
`s`, and the pieces of a text are as many bytes as the text.

Imported ones are a sentencepiece file as Llama 2's, or a `tokenizer.json` as Llama 3's, and give
the ids that transformers gives. `open_tokenizer` decides which of them a folder holds.
"""

import functools
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import sentencepiece

from errors import UserError
from files import first_line, read_json

MODEL, JSON, SETTINGS = "tokenizer.model", "tokenizer.json", "tokenizer_config.json"
GENERATION, CHAT = "generation_config.json", "chat_template.jinja"
FILES = (MODEL, JSON, SETTINGS, GENERATION, CHAT)  # the last one is read by others alone
# What older versions of transformers wrote beside a sentencepiece file.
ADDED, SPECIAL = "added_tokens.json", "special_tokens_map.json"


class Added(msgspec.Struct):
    """A token that stands beside the learned pieces."""

    content: str


class Settings(msgspec.Struct):
    """What is read of a tokenizer_config.json, or of a special_tokens_map.json."""

    bos_token: str | Added | None = None
    eos_token: str | Added | None = None
    pad_token: str | Added | None = None
    added_tokens_decoder: dict[str, Added] | None = None
    tokenizer_class: str | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    add_prefix_space: bool | None = None
    split_special_tokens: bool | None = None


SPACE = "\u2581"  # sentencepiece's mark for a space; in a text it can only be spelt in bytes
SAMPLE = 20_000_000  # characters that training looks at: more costs time and changes few pieces
SENTENCE = 4_000  # characters of one training sentence; sentencepiece is slow on longer ones

# A text that every usable tokenizer gives back unchanged. NFC does, which many have and few texts
# notice: it composes accents that stand alone.
PROBE = "  A\tb\n\n    \ufb01\r\n\u00e9\u4e2d\U0001f600 "


CHANGES_TEXT = ("{} is a tokenizer that does not give text back unchanged: it lacks byte fallback, "
                "or normalises, or its end is missing")


def tokenizer_files(folder: Path) -> list[Path]:
    """The files in this folder that make up its tokenizer, or say how texts are asked for and end;
    they are copied together."""
    return [folder / name for name in FILES if (folder / name).is_file()]


def settings_of(folder: Path, name: str = SETTINGS) -> dict[str, Any]:
    """Return the tokenizer_config.json of a folder; empty where it has none.

    Numbers that JSON does not have become None: Python writes an endless model_max_length.
    """
    file = folder / name
    if not file.is_file():
        return {}
    settings = json.loads(json.dumps(read_json(file)), parse_constant=lambda word: None)
    try:
        msgspec.convert(settings, Settings)
    except msgspec.ValidationError as error:
        raise UserError(f"{file} is damaged ({first_line(error)}): restore it") from None
    return settings


def open_tokenizer(folder: str | Path) -> "Tokenizer":
    """The tokenizer of a folder: tokenizer.json where it has one, as transformers does, else
    tokenizer.model. Raises UserError where it has neither, or one that cannot be read."""
    folder = Path(folder)
    if (folder / JSON).is_file():
        return JsonTokenizer(folder / JSON)
    if (folder / MODEL).is_file():
        return Tokenizer(folder / MODEL)
    raise UserError(f"{folder} has no tokenizer: neither {JSON} nor {MODEL} is there")


class Tokenizer:
    """A sentencepiece file: text to ids and back.

    Beside an imported one stands the tokenizer_config.json of transformers; LlamaTokenizer begins
    every text with bos unless that says otherwise. `prefix_ids` is what such a text begins with,
    `eos_ids` what it may end with (`eos_id` ends documents in training), `bytes` the text of every
    id, and `adds_space` whether encoding puts a space in front.

    Raises UserError on a file that is none, is damaged, or does not give text back unchanged.
    """

    def __init__(self, path: Path) -> None:
        model = path.read_bytes()
        self.processor = sentencepiece.SentencePieceProcessor()
        try:
            self.processor.LoadFromSerializedProto(model)
            self.vocab_size: int = self.processor.vocab_size()
            self.bytes = [self._bytes_of(i) for i in range(self.vocab_size)]
        except (RuntimeError, UnicodeDecodeError) as error:
            raise UserError(f"{path} is not a sentencepiece model, or a damaged one (Llama 3's "
                            "tokenizer.model is none either, but a list of ranked byte pairs: put "
                            "the tokenizer.json and the tokenizer_config.json of its Hugging Face "
                            "folder in its place)") from error
        self.sha256 = hashlib.sha256(model).hexdigest()
        self.unk_id: int = self.processor.unk_id()
        self.adds_space: bool = self.processor.normalize("a") == SPACE + "a"
        self.pad_id: int | None = self.unk_id  # in no text, since every byte has a piece
        self._space_ids = [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE.encode()]
        # Ours begins documents with EOS, and has no files beside it.
        self.eos_id: int = self.processor.eos_id()
        self.bos_id: int | None = self.eos_id
        self.prefix_ids: list[int] = []
        self.eos_ids = [self.eos_id]
        if any(path.with_name(name).is_file() for name in (SETTINGS, GENERATION, ADDED, SPECIAL)):
            self._read_settings(path)
        if self.eos_id < 0:
            raise UserError(f"{path} has no piece that ends a text (eos)")
        probe = b"".join(self.bytes[i] for i in self.processor.encode(PROBE)).decode()
        if probe.removeprefix(" " if self.adds_space else "") != PROBE:
            raise UserError(CHANGES_TEXT.format(path))

    def _read_settings(self, path: Path) -> None:
        """Take over what the files of transformers say of special tokens."""
        settings = settings_of(path.parent)
        self._refuse_what_is_not_read(settings, path)
        eos_id = self._id_of("eos_token", settings, path)
        self.eos_id = self.eos_id if eos_id is None else eos_id
        self.bos_id = self.eos_id
        self.eos_ids = _eos_ids(path, self.eos_id)
        if path.with_name(SETTINGS).is_file():
            self.bos_id = self._id_of("bos_token", settings, path)
            if self.bos_id is None and self.processor.bos_id() >= 0:
                self.bos_id = self.processor.bos_id()
            if settings.get("add_bos_token", True) and self.bos_id is not None:
                self.prefix_ids = [self.bos_id]

    def _refuse_what_is_not_read(self, settings: dict[str, Any], path: Path) -> None:
        """UserError where transformers makes another tokenizer of this file: by `settings`, or by
        the files that its older versions wrote."""
        piece_of = {str(i): self.processor.id_to_piece(i) for i in range(self.vocab_size)}
        pairs = [(i, token["content"])
                 for i, token in (settings.get("added_tokens_decoder") or {}).items()]
        if (file := path.with_name(ADDED)).is_file():
            pairs += [(str(i), text) for text, i in read_json(file).items()]
        _refuse_added([text for i, text in pairs if piece_of.get(i) != text], path)
        if settings.get("add_eos_token"):
            raise UserError(f"{path.with_name(SETTINGS)} has add_eos_token: with EOS behind it, a "
                            "prompt could not go on; set it to false")
        if settings.get("add_prefix_space") not in (None, self.adds_space):
            raise UserError(f"{path.with_name(SETTINGS)} says add_prefix_space "
                            f"{settings['add_prefix_space']}, and {path} does otherwise: which is "
                            "the model's?")
        if (file := path.with_name(SPECIAL)).is_file():
            beside, ids = settings_of(path.parent, SPECIAL), self.processor
            for name, i in {"bos_token": ids.bos_id(), "eos_token": ids.eos_id()}.items():
                ours = _content(settings.get(name)) or piece_of.get(str(i))
                if _content(beside.get(name)) not in (None, ours):
                    raise UserError(f"{file} has {name} {_content(beside[name])!r}, and elsewhere "
                                    f"in the folder it is {ours!r}: correct the one that is wrong")

    def _id_of(self, name: str, settings: dict[str, Any], path: Path) -> int | None:
        """The id of a special token of the settings; None where they name none."""
        token = _content(settings.get(name))
        if token is None:
            return None
        i = self._id(token)
        if i is None:
            raise UserError(f"{name} {token!r} of {path.with_name(SETTINGS)} is not in {path}")
        return i

    def _id(self, piece: str) -> int | None:
        i = self.processor.piece_to_id(piece)  # that of unk where there is no such piece
        return i if self.processor.id_to_piece(i) == piece else None

    def _bytes_of(self, i: int) -> bytes:
        """The text of one piece, as bytes: a byte piece may be a fraction of a character."""
        piece = self.processor.id_to_piece(i)
        has_text = not self.processor.is_control(i) and not self.processor.is_unknown(i)
        return _byte_fallback(piece) if has_text else b""

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, path: Path) -> "Tokenizer":
        """Learn `vocab_size` pieces from `texts`, write them to `path`; equal texts, equal files.

        Raises UserError where the text is too small, or has too many different characters.
        """
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(_sample(texts)), model_writer=model,
                model_type="bpe", vocab_size=vocab_size, byte_fallback=True,
                normalization_rule_name="identity", add_dummy_prefix=False,
                remove_extra_whitespaces=False, unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
                allow_whitespace_only_pieces=True,  # indentation is one piece
                required_chars=SPACE,  # else a text without spaces leaves none but the mark's bytes
                max_sentence_length=8 * SENTENCE,  # in bytes; longer ones would be dropped
                num_threads=2,  # written into the file: the machine's own number would change it
                minloglevel=3,
            )
        except (RuntimeError, ValueError) as error:
            raise _vocabulary_error(vocab_size, str(error)) from error
        path.write_bytes(model.getvalue())
        return cls(path)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without bos or eos. Raises UserError on a lone surrogate."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"the text holds {text[error.start]!r}, half of a surrogate pair, "
                            "which is no character and has no UTF-8 form") from error
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Like `encode`, on all cores. Texts out of files hold no lone surrogate."""
        if self.adds_space:  # an imported one: for its reference, the mark in a text is a space
            return self.processor.encode(texts)
        # What stands between two marks is encoded apart, and the marks as their bytes.
        parts = [part for text in texts for part in text.split(SPACE)]
        rows = iter(self.processor.encode(parts))
        batch = []
        for text in texts:
            ids = next(rows)
            for _ in range(text.count(SPACE)):
                ids += self._space_ids
                ids += next(rows)
            batch.append(ids)
        return batch

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, without the space that encoding put in front. Control ids have no
        text; bytes that are not UTF-8 become U+FFFD."""
        text = b"".join(map(self.piece, ids)).decode(errors="replace")
        return text.removeprefix(" ") if self.adds_space else text

    def piece(self, i: int) -> bytes:
        """The text of one id. Imported models may have more ids than their tokenizer has pieces."""
        return self.bytes[i] if i < self.vocab_size else b""


class JsonTokenizer(Tokenizer):
    """A tokenizer.json, read through `tokenizers`; the tokenizer_config.json beside it says which
    token ends a text.

    Text that spells a special token becomes that token, as it does in transformers; and where a
    text begins with a space, some files add none, though decoding takes one away.
    """

    def __init__(self, path: Path) -> None:
        import tokenizers  # here, as only imported models need it

        content = path.read_bytes()
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
            decoder = dict(json.loads(content).get("decoder") or {})
        except Exception as error:  # tokenizers raises nothing narrower
            raise UserError(f"{path} is not a tokenizer.json, or a damaged one: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.sha256 = hashlib.sha256(content).hexdigest()
        settings = settings_of(path.parent)
        self._tokenizer.encode_special_tokens = bool(settings.get("split_special_tokens"))
        self.bos_id = self._id_of("bos_token", settings, path)
        eos_id = self._id_of("eos_token", settings, path)
        if eos_id is None:
            raise UserError(f"{path.with_name(SETTINGS)} is missing, or has no eos_token: which "
                            "one ends a text?")
        self.eos_id, self.eos_ids = eos_id, _eos_ids(path, eos_id)
        added = (settings.get("added_tokens_decoder") or {}).values()
        id_of = self._tokenizer.token_to_id
        self.pad_id = id_of(_content(settings.get("pad_token")) or "")
        _refuse_added([t["content"] for t in added if id_of(t["content"]) is None], path)
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        if self.vocab_size > len(content):  # a list of so many would fill the memory
            raise UserError(f"{path} has an id {self.vocab_size - 1}, but far fewer tokens")
        steps = _decoding_steps(decoder, path)
        self.adds_space = "Strip" in steps
        bytes_of = _byte_level if "ByteLevel" in steps else _byte_fallback
        added_tokens = self._tokenizer.get_added_tokens_decoder()
        self.bytes = [b""] * self.vocab_size
        try:
            for piece, i in vocabulary.items():
                if i not in added_tokens:
                    self.bytes[i] = bytes_of(piece)
                elif not added_tokens[i].special:
                    self.bytes[i] = piece.encode()
        except KeyError as error:
            raise UserError(f"{path} has a piece with {error}, which stands for no byte") from None
        self.prefix_ids = self._prefix(settings, path)
        for probe in [PROBE.lstrip()] if self.adds_space else [PROBE, PROBE.lstrip()]:
            if self.decode(self.encode(probe)) != probe:
                raise UserError(CHANGES_TEXT.format(path))

    def _id(self, piece: str) -> int | None:
        return self._tokenizer.token_to_id(piece)

    def _prefix(self, settings: dict[str, Any], path: Path) -> list[int]:
        """What transformers puts in front of a text: what the file says, and with the classes of
        Llama, of which one is the default, what add_bos_token says."""
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a").ids
        front = whole[: len(whole) - len(plain)]
        if front + plain != whole:
            raise UserError(f"{path} puts tokens behind a text, which then could not go on")
        adds_bos = settings.get("add_bos_token")
        reads_it = "Llama" in (settings.get("tokenizer_class") or "LlamaTokenizer")
        if not reads_it or adds_bos is None or adds_bos == bool(front):
            return front
        return [self.bos_id] if adds_bos and self.bos_id is not None else []

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Like `encode`, on all cores."""
        rows = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [row.ids for row in rows]


def stated_eos_ids(file: Path) -> list[int]:
    """The `eos_token_id` of a generation_config.json or config.json: one id, several or none."""
    stated = read_json(file).get("eos_token_id") if file.is_file() else None
    ids = stated if isinstance(stated, list) else [] if stated is None else [stated]
    if not all(type(i) is int for i in ids):
        raise UserError(f"{file}: eos_token_id is {stated!r}, neither an id nor a list of ids")
    return ids


def _eos_ids(path: Path, eos_id: int) -> list[int]:
    """What the generation_config.json beside a tokenizer ends texts with, and its own `eos_id`."""
    return list(dict.fromkeys([*stated_eos_ids(path.with_name(GENERATION)), eos_id]))


def _content(token: str | dict[str, str] | None) -> str | None:
    """The text of a special token, which settings spell alone or in a table."""
    return token["content"] if isinstance(token, dict) else token


def _refuse_added(tokens: list[str], path: Path) -> None:
    """UserError for tokens that the files beside `path` add to it, which lacks them."""
    if tokens:
        raise UserError(f"{path.with_name(SETTINGS)} or {ADDED} adds a token {tokens[0]!r} that "
                        f"{path} has not, or has with another id: save the tokenizer again with "
                        "transformers, as a tokenizer.json")


def _decoding_steps(decoder: dict[str, Any], path: Path) -> list[str]:
    """The types of the decoders in a tokenizer.json; UserError where none turns pieces to bytes."""
    steps = [step["type"] for step in decoder.get("decoders", [decoder]) if step]
    if not {"ByteLevel", "ByteFallback"} & set(steps):
        raise UserError(f"{path} decodes with {', '.join(steps) or 'nothing'}: we know ByteLevel "
                        "and ByteFallback")
    return steps


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level BPE: printable ones for themselves, the
    others from U+0100 on, in order (GPT-2)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


def _byte_level(piece: str) -> bytes:
    return bytes(_byte_alphabet()[character] for character in piece)


def _byte_fallback(piece: str) -> bytes:
    if re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return bytes([int(piece[1:-1], 16)])
    return piece.replace(SPACE, " ").encode()


def _sample(texts: Iterable[str]) -> list[str]:
    """Every 2^k-th sentence of the text, with the smallest k that keeps it within `SAMPLE`.

    One pass and bounded memory, evenly over the whole text, and no random numbers.
    """
    kept: list[str] = []
    size, stride = 0, 1
    for number, sentence in enumerate(_sentences(texts)):
        if number % stride:
            continue
        kept.append(sentence.translate(_UNTRAINABLE))
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
        for start in range(0, len(text), SENTENCE):
            yield text[start : start + SENTENCE]


def _vocabulary_error(vocab_size: int, message: str) -> UserError:
    """sentencepiece's refusal in words; it alone knows the limit."""
    if found := re.search(r"value <= (\d+)", message):
        return UserError(f"vocab_size {vocab_size} is more than this text allows: at most "
                         f"{found[1]} (lower --data.vocab_size, or give more text)")
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return UserError(f"vocab_size {vocab_size} is too small for the characters of this text: "
                         f"at least {found[1]} (raise --data.vocab_size)")
    if "sentences_.empty()" in message:
        return UserError("no tokenizer can be trained: the training text is empty")
    return UserError(f"no tokenizer can be trained on this text: {message.splitlines()[0]}")
