"""The tokenizer: sentencepiece BPE that gives every string back unchanged, or an imported one.

Ours has Llama 2's conventions (ids unk 0, bos 1, eos 2, bytes 3..258, no padding id), so that the
file loads wherever sentencepiece does; but documents begin with eos, and bos is never used. Unlike
Llama 2's own, it adds no space in front and normalises nothing: `decode(encode(s)) == s` for every
`s`, and the pieces of a text have as many bytes as the text.

Imported ones are a sentencepiece file as Llama 2's, or a `tokenizer.json` as Llama 3's, and give
the ids of sentencepiece or of `tokenizers`. For some texts transformers gives others
(docs/interop.md#tokenizers). `open_tokenizer` decides which of them a folder holds.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from data.bpe import SPACE
from errors import UserError, require_modules
from files import first_line, read_json

MODEL_FILE = "tokenizer.model"
JSON_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
GENERATION_FILE = "generation_config.json"
CHAT_FILE = "chat_template.jinja"
TOKENIZER_FILES = (MODEL_FILE, JSON_FILE, SETTINGS_FILE, GENERATION_FILE, CHAT_FILE)
PARAMS_FILE = "params.json"  # in Meta's folders, which describe the model with it
# Older versions of transformers wrote it beside a sentencepiece file.
ADDED_FILE = "added_tokens.json"

# The special tokens that the settings can name.
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
           "mask_token")

# A text that every usable tokenizer gives back unchanged.
PROBE = "  A\tb\n\n    \ufb01\r\n\u00e9\u4e2d\U0001f600 "

# The only texts that a `Replace` of a normalizer may replace: a space, and another sign for it.
# What its other steps change shows in PROBE, but for NFC, which many tokenizers have and few texts
# notice.
SPACES = ({"String": " "}, {"String": SPACE})

# Regex of the types of decoder steps, each followed by a space, whose text is the sum of the texts
# of the ids.
TEXT_BY_ID = "ByteLevel (Fuse )*|(Replace )*(ByteFallback )?((Fuse )+(Strip )?)?"
ONE_SPACE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files in a folder that make up its tokenizer, or say how texts begin and end."""
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]


def read_optional(file: Path) -> dict[str, Any]:
    """Return the object in a file of JSON; empty if there is no file.

    Numbers that JSON does not have become None: transformers may write Infinity.
    """
    if not file.is_file():
        return {}
    # read_json has made floats of Infinity and NaN; the second reading makes None of them.
    return json.loads(json.dumps(read_json(file)), parse_constant=lambda word: None)


def open_tokenizer(path: str | Path) -> "Tokenizer":
    """Return the tokenizer of a file, or of a folder: of its tokenizer.json if it has one, as in
    transformers, else of its tokenizer.model. Raises UserError if it cannot be used."""
    path = Path(path)
    if path.is_dir():
        path = path / JSON_FILE if (path / JSON_FILE).is_file() else path / MODEL_FILE
    if not path.is_file():
        raise UserError(_describe_missing(path))
    try:
        return JsonTokenizer(path) if path.name == JSON_FILE else Tokenizer(path)
    except (UserError, KeyboardInterrupt, SystemExit):  # export.py makes one of SIGTERM
        raise
    except BaseException as error:  # of a damaged file; a panic of Rust is no Exception
        raise UserError(f"{path} is no tokenizer for us, or it or a file beside it is damaged "
                        f"({type(error).__name__}: {first_line(error)}). If it is Llama 3's "
                        f"{MODEL_FILE}, use its {JSON_FILE} and {SETTINGS_FILE} instead") from error


def _describe_missing(path: Path) -> str:
    """Return what to do about a tokenizer file that is not there."""
    if path.with_name(PARAMS_FILE).is_file():
        return f"{path} is missing; Meta's download keeps it one folder up: copy it in"
    if path.with_name("vocab.json").is_file():
        return (f"{path.parent} has a vocab.json but no {JSON_FILE}: load its tokenizer with "
                f"transformers and save it there again, which writes the {JSON_FILE}")
    if path.name == JSON_FILE:
        return f"{path} is missing: copy the one of the model there"
    return (f"{path.parent} has no tokenizer: {path.name} is missing, and {JSON_FILE} too; copy "
            f"the one that belongs to the model there, with its {SETTINGS_FILE}")


class Tokenizer:
    """A sentencepiece file: text to ids and back.

    Beside an imported one stands the tokenizer_config.json of transformers. Every text begins with
    bos unless that says otherwise, as by LlamaTokenizer of transformers 4.

    prefix_ids: ids in front of every text
    eos_id: stands before every document in training, and so ends the one before
    eos_ids: what a text may end with
    bytes: the text of every id that has one
    adds_space: whether encoding puts a space in front
    processor, unk_id: of a sentencepiece file only; a JsonTokenizer has neither
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = read_optional(path.with_name(SETTINGS_FILE))
        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(path.read_bytes())
        self.processor = processor
        self.vocab_size: int = processor.vocab_size()
        self.bytes: dict[int, bytes] = {}
        for i in range(self.vocab_size):
            is_special = processor.is_control(i) or processor.is_unknown(i)
            if not is_special and not processor.is_unused(i):
                self.bytes[i] = fallback_bytes(processor.id_to_piece(i))
        self.adds_space: bool = self.processor.normalize("a") == SPACE + "a"
        self.unk_id: int = self.processor.unk_id()
        self.pad_id: int | None = self.unk_id  # in no text, since every byte has a piece
        self._mark_ids = [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE.encode()]
        self.prefix_ids: list[int] = []
        eos_id = self._special_id("eos_token", none_if_negative(self.processor.eos_id()))
        # Ours has no settings beside it. Its documents begin with EOS, so that is what exports name
        # as bos, too.
        self.bos_id = eos_id
        if path.with_name(SETTINGS_FILE).is_file():
            self.bos_id = self._special_id("bos_token", none_if_negative(self.processor.bos_id()))
            if self.settings.get("add_bos_token", True) and self.bos_id is not None:
                self.prefix_ids = [self.bos_id]
        space = self.settings.get("add_prefix_space")
        if self.settings.get("add_eos_token") or space not in (None, self.adds_space):
            raise UserError(f"{path.with_name(SETTINGS_FILE)} has add_eos_token, which would end "
                            f"every prompt, or an add_prefix_space that contradicts {path}")
        self._check_added_tokens()
        self.eos_id, self.eos_ids = self._find_ends(eos_id)
        self._check_round_trip()

    def _special_id(self, name: str, default: int | None = None) -> int | None:
        """Return the id of a special token of the settings, or `default` if they name none."""
        text = token_text(self.settings.get(name))
        if text is None:
            return default
        i = self._id(text)
        if i is None:
            raise UserError(f"{name} {text!r} of {self.path.with_name(SETTINGS_FILE)} is not in "
                            f"{self.path}")
        return i

    def _check_added_tokens(self) -> None:
        """Raise UserError if transformers would give an added token another id."""
        settings_file = self.path.with_name(SETTINGS_FILE)
        added = read_optional(self.path.with_name(ADDED_FILE))
        for i, token in (self.settings.get("added_tokens_decoder") or {}).items():
            added[token["content"]] = int(i)
        for text, i in added.items():
            if self._id(text) != i:
                raise UserError(f"{settings_file} or {ADDED_FILE} gives the id {i} to {text!r}, "
                                f"but {self.path} has {self._id(text)}: save the tokenizer again "
                                "with transformers, as a tokenizer.json")

    def _find_ends(self, eos_id: int | None) -> tuple[int, list[int]]:
        """Return `eos_id`, and all ids that may end a text. UserError if it is None, or the id of
        ordinary text."""
        if eos_id is None or eos_id in self.bytes:
            raise UserError(f"{self.path.with_name(SETTINGS_FILE)} is missing, or has no eos_token "
                            f"that is a special token of {self.path}: what ends a text?")
        stated = stated_eos_ids(self.path.with_name(GENERATION_FILE))
        return eos_id, list(dict.fromkeys([*stated, eos_id]))

    def _check_round_trip(self) -> None:
        """Raise UserError if the ids of a text do not give it back unchanged."""
        probes = [PROBE.lstrip()]
        # Of those that add a space, some add none in front of a space, yet decoding removes one.
        if not self.adds_space:
            probes.append(PROBE)
        for probe in probes:
            text = b"".join(self.bytes.get(i, b"") for i in self.encode_batch([probe])[0])
            if text.removeprefix(b" " if self.adds_space else b"") != probe.encode():
                raise UserError(f"{self.path} does not give text back unchanged: it lacks byte "
                                "fallback, or normalises, or is cut short, or has an added token "
                                "that takes spaces or ordinary characters out of a text")

    def _id(self, piece: str) -> int | None:
        i = self.processor.piece_to_id(piece)  # that of unk if there is no such piece
        return i if self.processor.id_to_piece(i) == piece else None

    def special_id(self, text: str) -> int | None:
        """Return the id of the special token with this spelling, which has no text of its own."""
        i = self._id(text)
        return None if i in self.bytes else i

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without bos or eos. UserError where it has no UTF-8 form."""
        require_utf8(text)
        return self.encode_batch([text])[0]

    def encode_prompt(self, text: str) -> list[int]:
        """Return the ids of a prompt: with the prefix, once; of "", the EOS that begins documents.

        Raises UserError where the text has no UTF-8 form.
        """
        if not text:
            return [self.eos_id, *self.prefix_ids]
        ids = self.encode(text)
        return ids if self.starts_with_prefix(ids) else self.prefix_ids + ids

    def starts_with_prefix(self, ids: list[int]) -> bool:
        """Return whether a text spelt the prefix itself: "<s>" can, in a tokenizer.json."""
        length = len(self.prefix_ids)
        return length > 0 and ids[:length] == self.prefix_ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Like `encode`, on all cores. Texts out of files hold no lone surrogate."""
        if self.adds_space:  # imported: as in its reference, the mark in a text is a space
            return self.processor.encode(texts)
        # Encode what stands between two marks, and the marks as their bytes.
        parts: list[str] = []
        for text in texts:
            parts += text.split(SPACE)
        rows = iter(self.processor.encode(parts))
        batch = []
        for text in texts:
            ids = next(rows)
            for _ in range(text.count(SPACE)):
                ids += self._mark_ids
                ids += next(rows)
            batch.append(ids)
        return batch

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`, without the space that encoding put in front.

        Control ids have no text; bytes that are not UTF-8 become U+FFFD.
        """
        text = b"".join(map(self.piece, ids)).decode(errors="replace")
        return text.removeprefix(" ") if self.adds_space else text

    def piece(self, i: int) -> bytes:
        """Return the text of one id. Imported models may have more ids than their tokenizer."""
        return self.bytes.get(i, b"")


class JsonTokenizer(Tokenizer):
    """A tokenizer.json, read through `tokenizers`; the tokenizer_config.json beside it says which
    token ends a text.

    Text that spells a special token becomes that token, as it does in transformers; and if a text
    begins with a space, some files add none, though decoding takes one away.
    """

    def __init__(self, path: Path) -> None:
        require_modules("tokenizers")  # only imported models need it
        import tokenizers

        content = path.read_bytes()
        described = json.loads(content)
        self.path = path
        self.settings = read_optional(path.with_name(SETTINGS_FILE))
        self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = bool(self.settings.get("split_special_tokens"))
        stated = self.settings.get("added_tokens_decoder") or {}
        # transformers takes the flags of an added token, such as lstrip, from the settings.
        self._tokenizer.add_tokens([tokenizers.AddedToken(**token) for i, token in stated.items()
                                    if self._id(token["content"]) == int(i)])
        normalizer = described.get("normalizer") or {}
        replaced = [step["pattern"] for step in normalizer.get("normalizers", [normalizer])
                    if step.get("type") == "Replace" and step["pattern"] not in SPACES]
        splitter = described.get("pre_tokenizer") or {}
        replaced += [step for step in splitter.get("pretokenizers", [splitter])
                     if step.get("behavior") == "Removed"]
        dropout = described["model"].get("dropout")
        if replaced or dropout:
            raise UserError(f"{path} does not give text back unchanged, or gives other ids each "
                            f"time: it replaces {replaced}, and its dropout is {dropout}")
        self.bos_id = self._special_id("bos_token")
        self.pad_id = self._special_id("pad_token")
        ids = sorted(set(self._tokenizer.get_vocab(with_added_tokens=True).values()))
        self.vocab_size = ids[-1] + 1
        decoder = described.get("decoder") or {}
        steps = decoder.get("decoders", [decoder])
        self._check_steps(steps)
        self.adds_space = ONE_SPACE in steps
        self.bytes = self._read_texts(ids, steps)
        self._check_texts()
        self.prefix_ids = self._read_prefix()
        self._check_added_tokens()
        self.eos_id, self.eos_ids = self._find_ends(self._special_id("eos_token"))
        self._check_round_trip()

    def _check_steps(self, steps: list[dict[str, Any]]) -> None:
        """Raise UserError for a decoder in which the text of an id depends on the ids around it."""
        types = "".join(f"{step.get('type')} " for step in steps)
        strips = [step for step in steps if step.get("type") == "Strip"]
        patterns = [step["pattern"] for step in steps if step.get("type") == "Replace"]
        strings = all("String" in pattern for pattern in patterns)
        if not re.fullmatch(TEXT_BY_ID, types) or strips not in ([], [ONE_SPACE]) or not strings:
            raise UserError(f"{self.path} has the decoder {steps}, with which no text can be "
                            "printed token by token: use a file that has ByteLevel there, or "
                            "Replace of a string, ByteFallback, Fuse and Strip of one space")

    def _read_texts(self, ids: list[int], steps: list[dict[str, Any]]) -> dict[int, bytes]:
        """Return the text of all ids but those of special tokens, as these decoder steps make it.

        For an added token, the decoder reads its content after the normalizer, which may have put
        a mark for a space in front.
        """
        added = self._tokenizer.get_added_tokens_decoder()
        texts = {}
        for i in ids:
            piece = self._tokenizer.id_to_token(i)
            is_special = i in added and added[i].special
            if piece is not None and not is_special:
                texts[i] = decode_piece(piece, steps)
        return texts

    def _check_texts(self) -> None:
        """Raise UserError unless `tokenizers` decodes the same text, of all ids in a row.

        Ids that are a part of a character are left out: they have a text only together.
        """
        ids = [i for i, text in self.bytes.items() if text.decode(errors="ignore").encode() == text]
        if self._tokenizer.decode(ids) == self.decode(ids):
            return
        other = [i for i in ids if self._tokenizer.decode([i]) != self.decode([i])]
        names = [self._tokenizer.id_to_token(i) for i in other[:3]]
        raise UserError(f"{self.path} has tokens whose text is another one in `tokenizers` than "
                        f"here ({names}): give them another content there")

    def _id(self, piece: str) -> int | None:
        return self._tokenizer.token_to_id(piece)

    def _read_prefix(self) -> list[int]:
        """Return the ids that transformers 4 puts in front of a text.

        The classes of Llama, of which one is the default, follow add_bos_token if it is there.
        Others follow the file, as all classes do in transformers 5.
        """
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a").ids
        front = whole[: len(whole) - len(plain)]
        if front + plain != whole:
            raise UserError(f"{self.path} puts tokens behind every text, so none can be continued")
        for i in front:
            if self._tokenizer.id_to_token(i) is None:
                raise UserError(f"{self.path} puts the id {i} in front of every text, and has no "
                                "such token: correct its post_processor")
        adds_bos = self.settings.get("add_bos_token")
        reads_it = "Llama" in (self.settings.get("tokenizer_class") or "LlamaTokenizer")
        if not reads_it or adds_bos is None or adds_bos == bool(front):
            return front
        return [self.bos_id] if adds_bos and self.bos_id is not None else []

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Like `encode`, on all cores."""
        rows = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [row.ids for row in rows]


def require_utf8(text: str) -> None:
    """Raise UserError for a text that has no UTF-8 form."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"the text has no UTF-8 form: {error}") from error


def none_if_negative(i: int) -> int | None:
    """Return the id of a special token, for which sentencepiece has -1 if there is none."""
    return None if i < 0 else i


def token_text(stated: Any) -> str | None:
    """Return the text of a token in the settings, which is there alone or with its flags."""
    return stated.get("content") if isinstance(stated, dict) else stated


def stated_eos_ids(file: Path) -> list[int]:
    """Return the `eos_token_id` of a generation_config.json or config.json: no id, one, several."""
    stated = read_optional(file).get("eos_token_id")
    if stated is None:
        return []
    ids = stated if isinstance(stated, list) else [stated]
    if not all(type(i) is int for i in ids):
        raise UserError(f"{file}: eos_token_id is {stated!r}, neither an id nor a list of ids")
    return ids


def decode_piece(piece: str, steps: list[dict[str, Any]]) -> bytes:
    """Return the text of a piece by the steps of the decoder of a tokenizer.json."""
    for step in steps:
        if step["type"] == "ByteLevel":
            return level_bytes(piece)
        if step["type"] == "Replace":
            piece = piece.replace(step["pattern"]["String"], step["content"])
        if step["type"] == "ByteFallback" and re.fullmatch("<0x[0-9A-Fa-f]{2}>", piece):
            return bytes([int(piece[3:5], 16)])
    return piece.encode()


def level_bytes(piece: str) -> bytes:
    """Return the text of a piece of byte-level BPE (GPT-2).

    A printable character stands for its own byte, the others from U+0100 on for the other bytes. A
    piece with any other character stands for itself: an added token may be one.
    """
    try:
        return bytes(LEVEL[character] for character in piece)
    except KeyError:
        return piece.encode()


PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = sorted({*range(256)} - {*PRINTABLE})
LEVEL = {chr(b): b for b in PRINTABLE} | {chr(256 + n): b for n, b in enumerate(OTHERS)}


def fallback_bytes(piece: str) -> bytes:
    """Return the text of a piece of sentencepiece: of one byte, or with a mark for spaces."""
    if re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return bytes([int(piece[1:-1], 16)])
    return piece.replace(SPACE, " ").encode()
