"""Encode large texts: look up the ids of words that were seen before.

BPE joins only characters that stand side by side in some piece. Between two characters that do so
in no piece, the ids on one side do not depend on the text on the other. A text is cut at all these
places into units, such as words and numbers. Few units are new in a large text: only these are
encoded, and the others are looked up.

The ids are those of `Tokenizer.encode_batch`, which is the plain form.
"""

from array import array
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np

from data.bpe import SPACE
from data.tokenizer import JsonTokenizer, Tokenizer

Ids = Sequence[int] | np.ndarray
Encode = Callable[[Sequence[str]], Sequence[Ids]]
"""From texts to the ids of each."""

LARGE = 1 << 22  # bytes of text from which the packages below are worth their import
MAX_UNITS = 1 << 19  # units that are remembered: some 100 MB
LONGEST_UNIT = 32  # bytes of a unit that is remembered; few longer ones come back

# A new unit takes longer than its text as a part of a long one. If this share of many units is new,
# such as of random words, the texts are encoded as they are.
MOST_NEW = 0.25
MANY = 10_000

ID = np.dtype("uint32")
TYPECODE = "I"  # the same for `array`, which is faster for a few ids
CHARACTERS = 0x110000

# Classes of characters. Others are components: characters that pieces connect with each other.
ALONE = 0  # beside no character in any piece
BLANK = 1  # the space
FIRST_COMPONENT = 2
LAST_CLASS = 255  # shared by all further components: texts are cut less often there


def choose_encoding(tokenizer: Tokenizer, n_bytes: int) -> Encode:
    """Return the fastest function whose results are those of `tokenizer.encode_batch`.

    n_bytes: how many bytes it will encode, in all
    """
    if n_bytes < LARGE or isinstance(tokenizer, JsonTokenizer):
        return tokenizer.encode_batch
    if not all(map(is_installed, ("google.protobuf", "pyarrow"))):
        return tokenizer.encode_batch
    classes = classify_characters(tokenizer.processor.serialized_model_proto())
    if classes is None:
        return tokenizer.encode_batch
    return UnitEncoder(tokenizer, classes).encode_batch


def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of its parent
        return False


def classify_characters(model: bytes) -> np.ndarray | None:
    """Return the class of each character, uint8 (CHARACTERS,); None if texts must not be cut.

    All characters of a piece are in one class, but for the spaces that it begins with.

    model: a sentencepiece file
    """
    pieces = read_pieces(model)
    if pieces is None:
        return None
    parents: dict[str, str] = {}
    for piece in pieces:
        word = piece.lstrip(SPACE)
        if SPACE in word:
            return None  # a piece with a space behind another character
        for character in word[1:]:
            connect(parents, word[0], character)
    classes = np.full(CHARACTERS, ALONE, dtype=np.uint8)
    classes[ord(" ")] = BLANK
    components: dict[str, int] = {}
    for character in parents:
        number = components.setdefault(find_root(parents, character), len(components))
        classes[ord(character)] = min(FIRST_COMPONENT + number, LAST_CLASS)
    return classes


def read_pieces(model: bytes) -> list[str] | None:
    """Return the pieces that a sentencepiece file makes by merging; None if it does more than that.

    It must be BPE, since Unigram adds up rounded scores over the whole text. It must not normalise,
    nor add or remove spaces, nor have symbols of its user, and must spell unknown characters in
    bytes: neighbouring unknown characters would otherwise become one id.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # pyrefly: ignore

    proto = ModelProto.FromString(model)
    trainer = proto.trainer_spec
    normalizer = proto.normalizer_spec
    piece_type = ModelProto.SentencePiece
    types = [piece.type for piece in proto.pieces]
    only_merges = (
        trainer.model_type == trainer.BPE
        and trainer.byte_fallback
        and not normalizer.precompiled_charsmap
        and not normalizer.add_dummy_prefix
        and not normalizer.remove_extra_whitespaces
        and normalizer.escape_whitespaces
        and piece_type.USER_DEFINED not in types
        and piece_type.UNUSED not in types
        and types.count(piece_type.BYTE) == 256
    )
    if not only_merges:
        return None
    return [piece.piece for piece in proto.pieces if piece.type == piece_type.NORMAL]


def find_root(parents: dict[str, str], character: str) -> str:
    """Return the character that stands for the component of this one."""
    while parents[character] != character:
        character = parents[character]
    return character


def connect(parents: dict[str, str], first: str, second: str) -> None:
    """Put two characters into one component."""
    parents.setdefault(first, first)
    parents.setdefault(second, second)
    parents[find_root(parents, second)] = find_root(parents, first)


class UnitEncoder:
    """Encodes texts with a dictionary of at most MAX_UNITS units, which is emptied when full."""

    def __init__(self, tokenizer: Tokenizer, classes: np.ndarray) -> None:
        self.tokenizer = tokenizer
        self.classes = classes
        self.known: dict[bytes, bytes] = {}  # from a unit in UTF-8 to its ids, as bytes of ID

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text, uint32 (N,), without bos or eos."""
        import pyarrow

        whole = "".join(texts)
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        cuts, offsets = self._cut(whole, ends)
        # Arrow's form of an array of bytes; None: no value is missing.
        buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(whole.encode())]
        units = pyarrow.Array.from_buffers(pyarrow.binary(), len(cuts) - 1, buffers)
        numbered = units.dictionary_encode()
        distinct = numbered.dictionary.to_numpy(zero_copy_only=False).tolist()
        known = list(map(self.known.get, distinct))
        n_new = known.count(None)
        if n_new > MANY and n_new > MOST_NEW * len(units):
            return [np.array(ids, dtype=ID) for ids in self.tokenizer.encode_batch(texts)]
        rows = self._complete(distinct, known)
        ids, id_ends = join_rows(rows, numbered.indices.to_numpy())
        # The number of units, and thus of ids, before the end of each text.
        places = id_ends[np.searchsorted(cuts, ends)]
        return np.split(ids, places)[:-1]

    def _cut(self, text: str, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of cuts, in characters and in bytes (int32): two of (units + 1,).

        They are where units begin, and the end of the text. `ends` are further places, in
        characters, where the text is cut in any case.
        """
        points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        classes = self.classes[points]
        before = classes[:-1]
        after = classes[1:]
        # Cut between classes, and beside characters that are ALONE. Never cut behind a space.
        can_cut = (before != after) | (before == ALONE)
        is_cut = np.ones(len(points) + 1, dtype=bool)
        is_cut[1:-1] = can_cut & (before != BLANK)
        is_cut[ends] = True
        cuts = np.flatnonzero(is_cut)
        if text.isascii():
            return cuts, cuts.astype(np.int32)
        widths = np.ones(len(points), dtype=np.int32)  # bytes of each character in UTF-8
        for first_wider in (0x80, 0x800, 0x10000):
            widths += points >= first_wider
        offsets = np.zeros(len(points) + 1, dtype=np.int32)
        np.cumsum(widths, out=offsets[1:])
        return cuts, offsets[cuts]

    def _complete(self, units: list[bytes], known: list[bytes | None]) -> list[bytes]:
        """Return the ids of different units, of which some are known, and remember the others."""
        missing = [unit for unit, row in zip(units, known, strict=True) if row is None]
        encoded = self.tokenizer.encode_batch([unit.decode() for unit in missing])
        new = [array(TYPECODE, ids).tobytes() for ids in encoded]
        self._remember(missing, new)
        rest = iter(new)
        return [next(rest) if row is None else row for row in known]

    def _remember(self, units: list[bytes], rows: list[bytes]) -> None:
        """Add units to the dictionary. Rare ones, which filled it, leave together with all others.
        """
        if len(self.known) >= MAX_UNITS:
            self.known.clear()
        for unit, row in zip(units, rows, strict=True):
            if len(self.known) >= MAX_UNITS:
                break
            if len(unit) <= LONGEST_UNIT:
                self.known[unit] = row


def join_rows(rows: list[bytes], indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of rows[i] for all i of `indices`, uint32 (N,), and where each of them begins,
    and the end, (len(indices) + 1,)."""
    values = np.frombuffer(b"".join(rows), dtype=ID)
    sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)) // ID.itemsize
    starts = np.cumsum(sizes) - sizes
    ends = np.zeros(len(indices) + 1, dtype=np.int64)
    np.cumsum(sizes[indices], out=ends[1:])
    shifts = starts[indices] - ends[:-1]
    places = np.repeat(shifts, sizes[indices])
    places += np.arange(len(places))
    return values[places], ends
