"""Text -> tokenizer, train.bin, val.bin, manifest.json: once for each setting.

One pass copies the text into a temporary file and hashes each document. The tokenizer is trained on
the copy, the copy is encoded, and then deleted. So every source is read once, and the text is never
in memory as a whole.

The ids of a split are one flat stream with EOS *before* every document, the first included: each
document's first token then has a predecessor, and a pass over the validation split scores every
byte of its text. The prefix of an imported tokenizer (Llama's BOS) comes after the EOS.
"""

import hashlib
import shutil
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from tempfile import TemporaryFile
from typing import Any, BinaryIO, TypeVar

import numpy as np
from tqdm import tqdm

from data.bpe import SMALLEST_VOCABULARY, VocabularyTooLargeError, learn_pieces
from data.kinds import COMPRESSED, JSON_LINES, file_kind
from data.search import LeftOut, list_names
from data.sources import SOURCES, DataConfig, Source, StandardLibrary, name_text
from data.tokenizer import MODEL_FILE, Tokenizer, open_tokenizer, tokenizer_files
from data.units import Encode, Ids, choose_encoding
from errors import UserError, say
from files import json_sha256, sha256, stage_json

BLOCK = 1 << 16  # bytes of text that are encoded as one string
BATCH = 1 << 20  # characters of the blocks that are encoded at a time
# Limits of what is held out if data.val_fraction is fitted:
LEAST_HELD_OUT = 4000  # bytes; the loss of fewer would choose the best weights by chance
LARGEST_SHARE = 0.1  # of a short text, because training needs the rest
MOST_HELD_OUT = 500_000  # bytes, because every validation reads all of them
LEAST_COPIED = 0.01  # of the text; a note on less would name every copy of a licence

T = TypeVar("T")
U = TypeVar("U")


class TextTooSmallError(UserError):
    """A text has too few different pieces for data.vocab_size."""


@dataclass(frozen=True)
class Split:
    """Which spans of a text are for training, and which for validation.

    A span is where a document, or a part of one, starts and ends, in bytes: (N, 2).
    """

    train: np.ndarray
    val: np.ndarray
    train_hashes: np.ndarray
    """Those of the documents in `train`."""


def prepare_text(
    config: DataConfig, settings: dict[str, Any], folder: Path, fit_vocabulary: bool,
    fit_val_fraction: bool, message: str,
) -> None:
    """Prepare the text of `config` into an empty folder. The manifest comes last.

    `message` is printed once some text was read: a text that is refused has an error only.

    With `fit_vocabulary` the tokenizer has as many pieces as suit the size of the text, at most
    data.vocab_size. With `fit_val_fraction` the share that is held out suits it too. Raises
    UserError if the text cannot be prepared.
    """
    if config.second_val and config.val_fraction >= 0.5:
        raise UserError(f"data.second_val holds out data.val_fraction {config.val_fraction} twice: "
                        "choose one below 0.5")
    with TemporaryFile(dir=folder) as file:
        source = SOURCES[config.source](config)
        text, spans, hashes, parts = copy_parts(source.parts(), file, message, name_text(config))
        note_windows_lines(file, source)
        note_copies(spans, hashes, parts, source)
        if fit_val_fraction:
            share = suitable_val_fraction(config.val_fraction, text["bytes"])
            config = replace(config, val_fraction=share)
        split = hold_out(config, file, spans, hashes, source)
        if config.tokenizer is None:
            tokenizer = train_tokenizer(config, file, split.train, folder, fit_vocabulary)
        else:
            tokenizer = copy_tokenizer(config, folder, fit_vocabulary)
        dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
        encode = choose_encoding(tokenizer, count_bytes(split.train) + count_bytes(split.val))
        counts = {}
        for name, spans_of_split in {"train": split.train, "val": split.val}.items():
            blocks = read_blocks(file, spans_of_split, f"encoding {name}", BLOCK)
            path = folder / f"{name}.bin"
            counts[name] = write_ids(blocks, path, tokenizer, encode, dtype)
    optional_entries: dict[str, Any] = {}
    if source.left_out:
        optional_entries["left_out"] = source.left_out
    if fit_val_fraction:
        optional_entries["val_fraction"] = config.val_fraction
    manifest = {
        "settings": settings,
        "text": text,
        "text_notes": source.notes,
        **optional_entries,
        "vocab_size": tokenizer.vocab_size,
        "dtype": dtype,
        **counts,
        "files": {path.name: {"size": path.stat().st_size, "sha256": sha256(path)}
                  for path in sorted(folder.iterdir())},
    }
    stage_json(folder / "manifest.json", manifest | {"key": json_sha256(manifest)[:12]})


def hold_out(
    config: DataConfig, file: BinaryIO, spans: np.ndarray, hashes: np.ndarray, source: Source
) -> Split:
    """Return the split of a text into training and the validation split that is used.

    With data.second_val that is the second one, and the first one is in neither.
    """
    if not config.second_val:
        return split_text(file, spans, hashes, source, config.val_fraction)
    split = split_text(file, spans, hashes, source, config.val_fraction,
                       held_out="the first validation split, which is left out,")
    # `split_text` takes the documents with the smallest hashes, up to a limit, and those below it
    # are gone. All bits of the hashes are inverted, which reverses their order, so that it now
    # takes those that were largest.
    return split_text(file, split.train, ~split.train_hashes, source, config.val_fraction,
                      is_second=True)


def train_tokenizer(
    config: DataConfig, file: BinaryIO, train: np.ndarray, folder: Path, fit_vocabulary: bool
) -> Tokenizer:
    """Train the tokenizer on the text in the spans `train` of `file`, and write it into `folder`.

    Raises TextTooSmallError if the text is too small for data.vocab_size, unless the vocabulary is
    fitted.
    """
    def learn(vocab_size: int) -> Tokenizer:
        texts = (block for _, block in read_blocks(file, train, "sampling text", BLOCK))
        path = folder / MODEL_FILE
        path.write_bytes(learn_pieces(texts, vocab_size))
        return Tokenizer(path)

    vocab_size = config.vocab_size
    if fit_vocabulary:
        vocab_size = min(vocab_size, suitable_vocabulary(count_bytes(train)))
    try:
        return learn(vocab_size)
    except VocabularyTooLargeError as error:
        tokenizer = learn(error.most)
        if fit_vocabulary:
            return tokenizer
        problems = [f"no tokenizer of {vocab_size} pieces: this text allows at most {error.most}"]
        n_tokens = 0
        for _, text in read_blocks(file, train, "counting tokens", BLOCK):
            n_tokens += len(tokenizer.encode(text))
            if n_tokens >= config.seq_len:
                break
        if n_tokens < config.seq_len:
            problems.append(f"no row of data.seq_len {config.seq_len} tokens, because with "
                            f"{error.most} pieces the training split has {n_tokens}")
        raise TextTooSmallError(f"{'; '.join(problems)}. Choose smaller numbers, such as "
                                f"--data.vocab_size {error.most}") from None


def suitable_vocabulary(n_bytes: int) -> int:
    """Return how many pieces suit a training text of so many bytes.

    Fitted by hand to the bits per byte of small.yaml's model on 3 kB to 10 MB of English and Python
    (docs/speed.md): some 300 pieces for 3 kB, 700 for 30 kB, 1500 for 400 kB, 4100 for 10 MB.
    """
    suitable = int(33 * n_bytes**0.3)
    return max(SMALLEST_VOCABULARY, suitable // 64 * 64)


def suitable_val_fraction(usual: float, n_bytes: int) -> float:
    """Return which share to hold out of so many bytes: `usual`, more of a short text, or less of a
    long one."""
    # Two digits, because the user is told this number.
    least = min(float(f"{LEAST_HELD_OUT / n_bytes:.2g}"), LARGEST_SHARE)
    most = float(f"{MOST_HELD_OUT / n_bytes:.2g}")
    return min(max(usual, least), most)


def count_bytes(spans: np.ndarray) -> int:
    """Return the bytes in spans (N, 2)."""
    return int((spans[:, 1] - spans[:, 0]).sum())


def copy_tokenizer(config: DataConfig, folder: Path, fit_vocabulary: bool) -> Tokenizer:
    """Copy the files of data.tokenizer into `folder`. Its vocabulary has to be data.vocab_size,
    unless that is fitted."""
    for given in tokenizer_files(Path(str(config.tokenizer))):
        shutil.copyfile(given, folder / given.name)
    tokenizer = open_tokenizer(folder)
    if tokenizer.vocab_size != config.vocab_size and not fit_vocabulary:
        raise UserError(f"data.vocab_size {config.vocab_size} is not that of the tokenizer in "
                        f"data.tokenizer {config.tokenizer}, {tokenizer.vocab_size}")
    return tokenizer


def copy_parts(
    parts: Iterable[Iterable[Iterable[str]]], file: BinaryIO, message: str | None = None,
    name: str = "this text",
) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
    """Write the documents of all parts to `file`, one after another.

    Empty documents and the parts that raise LeftOut are skipped. `message` is printed when the
    first text was read. `name` is that of the text in the UserError for one without documents.

    Returns counts, the span of each document (where it starts and ends, in bytes), the first 64
    bits of its SHA-256, and the number of its part.
    """
    copied = CopiedText(file)
    ends: list[int] = []  # documents up to the end of each part
    with DelayedBar(desc="reading text", unit="B", unit_scale=True, delay=2) as bar:
        for part in parts:
            before = copied.mark()
            try:
                for document in part:
                    for piece in document:
                        n_bytes = copied.add(piece)
                        if message is not None and copied.counts.has_text:
                            say(message)
                            message = None
                        bar.update(n_bytes)
                    copied.end_document()
            except LeftOut:
                copied.go_back(before)
            ends.append(copied.counts.documents)
    counts = copied.counts
    if not counts.has_text:
        raise UserError(f"there is no text in {name}: every document is empty")
    file.truncate(counts.bytes)  # without what a part has written before it was left out
    described = {"sha256": counts.sha256.hexdigest(), "documents": counts.documents,
                 "bytes": counts.bytes, "characters": counts.characters}
    spans = np.array(copied.spans).reshape(-1, 2)
    part_numbers = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    return described, spans, np.array(copied.hashes), part_numbers


def note_windows_lines(file: BinaryIO, source: Source) -> None:
    """Note that most lines of a text end as on Windows or an old Mac, by its first bytes."""
    file.seek(0)
    beginning = file.read(1 << 20)
    if 2 * beginning.count(b"\r\n") > beginning.count(b"\n"):
        end = r"\r\n"
        place = "on Windows"
        command = r"tr -d '\r' < FILE > NEW"
    elif beginning.count(b"\r") > beginning.count(b"\n"):
        end = r"\r"
        place = "on old Macs"
        command = r"tr '\r' '\n' < FILE > NEW"
    else:
        return
    # In a line of JSON, such an end is written as a backslash and a letter.
    in_json = f"""jq -c 'walk(if type == "string" then gsub("{end}"; "\\n") else . end)'"""
    source.say(f"note: lines of this text end in {end}, as {place}, and so will those that the "
               f"model writes{advise_rewriting(source.names(), command, in_json)}")


def advise_rewriting(names: Sequence[str], command: str, in_json: str) -> str:
    """Return how to have the lines of these files end in \\n, for the end of a sentence.

    command: that for plain text
    in_json: that for .jsonl, without the names of the files

    "" where no command does it for all, as for Parquet files.
    """
    kinds = {*map(file_kind, names)}
    if not kinds or ".parquet" in kinds:
        return ""
    if kinds <= JSON_LINES:
        command = f"{in_json} FILE > NEW"
    elif kinds & JSON_LINES:
        return ""
    is_packed = any(PurePath(name.lower()).suffix in COMPRESSED for name in names)
    unpacked = "in the unpacked file, " if is_packed else ""
    return f": {unpacked}{command} makes \\n of it"


def note_copies(
    spans: np.ndarray, hashes: np.ndarray, parts: np.ndarray, source: Source
) -> None:
    """Note which files have no text of their own, as a backup or a second export.

    Not if they are less than LEAST_COPIED of the text.

    spans, hashes, parts: of each document, as `copy_parts` returns them
    """
    copies = find_copies(hashes, parts)
    if not copies:
        return
    sizes = np.diff(spans)[:, 0]
    copied = sizes[np.isin(parts, copies)].sum()
    if copied < LEAST_COPIED * sizes.sum():
        return
    names = []
    for part in copies:
        name = source.part_names[part]
        if len(names) < 3:  # the others are not named
            document = hashes[parts == part][0]
            others = parts[(hashes == document) & ~np.isin(parts, copies)]
            name += f" (see {source.part_names[others[0]]})"
        names.append(name)
    have = "1 file has" if len(copies) == 1 else f"{len(copies):,} files have"
    source.say(f"note: {have} only text that others have too, which is trained more than once: "
               f"{list_names(names)}; to train it once, move such files elsewhere")


def find_copies(hashes: np.ndarray, parts: np.ndarray) -> list[int]:
    """Return the numbers of the parts all of whose documents are in other parts, too.

    The smallest part is looked at first, and of equal ones the last. A part counts as a copy if
    each of its documents is also in a part that does not count as one. So no document would be lost
    with the copies.

    hashes, parts: of each document
    """
    if parts[0] == parts[-1]:  # there is one part, perhaps of millions of rows
        return []
    unique, documents = np.unique(hashes, return_inverse=True)
    if len(unique) == len(hashes):
        return []
    pairs = np.unique(parts * len(unique) + documents)  # of each part, each document once
    part_of, document_of = np.divmod(pairs, len(unique))
    n_parts_with = np.bincount(document_of)  # how many parts have each document
    if n_parts_with.max() == 1:
        return []
    numbers, starts = np.unique(part_of, return_index=True)
    documents_of = dict(zip(numbers.tolist(), np.split(document_of, starts[1:]), strict=True))
    copies = []
    for part in sorted(documents_of, key=lambda part: (len(documents_of[part]), -part)):
        documents = documents_of[part]
        if (n_parts_with[documents] > 1).all():
            copies.append(part)
            n_parts_with[documents] -= 1
    return sorted(copies)


@dataclass
class Counts:
    """What a copied text has so far."""

    documents: int = 0
    bytes: int = 0
    characters: int = 0
    has_text: bool = False
    """Whether there is anything but white space."""
    sha256: Any = field(default_factory=hashlib.sha256)


class CopiedText:
    """A text that is written to a file, document by document."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.spans = array("q")
        self.hashes = array("Q")
        self.counts = Counts()
        self.digest = hashlib.sha256()  # of the document that is being written
        self.start = 0  # of this document

    def add(self, piece: str) -> int:
        """Write a piece of a document, and return its bytes."""
        data = piece.encode()
        self.digest.update(data)
        self.file.write(data)
        counts = self.counts
        counts.sha256.update(data)
        counts.characters += len(piece)
        counts.bytes += len(data)
        if not counts.has_text:
            counts.has_text = bool(piece.strip())
        return len(data)

    def end_document(self) -> None:
        """Note where a document has ended, unless it is empty."""
        end = self.counts.bytes
        if end > self.start:
            self.spans.extend((self.start, end))
            self.hashes.append(int.from_bytes(self.digest.digest()[:8]))
            self.counts.documents += 1
        self.digest = hashlib.sha256()
        self.start = end

    def mark(self) -> Counts:
        """Return a copy of the counts, to which `go_back` can return."""
        return replace(self.counts, sha256=self.counts.sha256.copy())

    def go_back(self, before: Counts) -> None:
        """Forget what was written after `before`."""
        self.counts = before
        self.digest = hashlib.sha256()
        self.start = before.bytes
        self.file.seek(before.bytes)
        del self.spans[2 * before.documents :]
        del self.hashes[before.documents :]


class DelayedBar(tqdm):
    """A progress bar that stays hidden until its delay is over.

    tqdm's own bar appears earlier if something else is printed.
    """

    @property
    def is_shown(self) -> bool:
        """Whether the delay is over."""
        return time.time() >= self.start_t + self.delay

    def clear(self, *args: Any, **options: Any) -> None:
        if self.is_shown:
            super().clear(*args, **options)

    def refresh(self, *args: Any, **options: Any) -> None:
        if self.is_shown:
            super().refresh(*args, **options)


def split_text(
    file: BinaryIO, spans: np.ndarray, hashes: np.ndarray, source: Source, val_fraction: float,
    held_out: str = "validation", is_second: bool = False,
) -> Split:
    """Divide the documents of a text between training and validation.

    1. The hash of a document decides. So it stays in its split whatever is added, and copies of it
       are in the same split.
    2. With few documents, this may hold out most of the text, or next to nothing. If a split would
       be less than half or more than twice as long as asked for, the end of the text is held out
       instead, with a note, as it is of tiny Shakespeare by convention. It is also held out if
       there is only one document.
    3. The standard library is always divided by hashes: it has many documents, and those at its
       end are of another kind.

    held_out: what a note calls the validation split
    is_second: the spans are what a first validation split has left, and their hashes are inverted
    """
    if not len(spans):
        raise UserError("no text is left for a second validation split: give more text, or leave "
                        "out --data.second_val")
    if len(spans) > 1:
        drawn = draw_documents(hashes, val_fraction)
        sizes = np.diff(spans)[:, 0]
        share = sizes[drawn].sum() / sizes.sum()
        wanted = val_fraction
        whole = "the text"
        if is_second:
            wanted = val_fraction / (1 - val_fraction)  # as much as the first split, of less text
            whole = "what the first validation split leaves"
        if is_near(share, wanted) or isinstance(source, StandardLibrary):
            return Split(spans[~drawn], spans[drawn], hashes[~drawn])
        source.say(f"note: {held_out} gets the end of {whole}, {val_fraction:.1%} of it: whole "
                   f"documents drawn at random would be {share:.1%}{source.advise_split()}")
    return hold_out_end(file, spans, hashes, val_fraction)


def is_near(share: float, wanted: float) -> bool:
    """Return whether neither split is less than half or more than twice as long as wanted.

    share, wanted: those of the validation split
    """
    val_ratio = share / wanted
    train_ratio = (1 - share) / (1 - wanted)
    return 0.5 <= val_ratio <= 2 and 0.5 <= train_ratio <= 2


def draw_documents(hashes: np.ndarray, val_fraction: float) -> np.ndarray:
    """Return for each document, by its hash (uint64), whether it is for validation: small ones are.

    If there are two hashes or more, each split gets a document. If all are equal, training gets
    all documents.
    """
    limit = np.uint64(val_fraction * 2**64)
    limit = max(limit, hashes.min())  # validation gets the smallest hash
    limit = min(limit, hashes.max() - 1)  # training gets the largest one, and all that equal it
    return hashes <= limit


def hold_out_end(
    file: BinaryIO, spans: np.ndarray, hashes: np.ndarray, val_fraction: float
) -> Split:
    """Return the split of a text whose end is held out.

    One document is cut in two, where this share of its characters begins. Copies of a document
    count as if they stood beside its first one, so all fall on one side, or are cut alike: no text
    is in both splits.
    """
    numbers = number_documents(hashes)
    sizes = np.bincount(numbers, weights=np.diff(spans)[:, 0])  # of each document with its copies
    cut, share = find_cut(sizes, 1 - val_fraction)
    first_copy = spans[numbers == cut][:1]
    n_kept = measure_start(file, first_copy, share)
    starts, ends = spans.T
    # Training has what is before the middle of each span, and validation the rest.
    middles = np.where(numbers < cut, ends, starts)
    middles[numbers == cut] += n_kept
    has_start = middles > starts
    has_end = middles < ends
    train = np.stack([starts, middles], axis=1)[has_start]
    val = np.stack([middles, ends], axis=1)[has_end]
    return Split(train, val, hashes[has_start])


def number_documents(hashes: np.ndarray) -> np.ndarray:
    """Return a number for each hash, from 0 on in the order of the text. Equal hashes have one."""
    numbers: dict[int, int] = {}
    for document_hash in hashes.tolist():
        numbers.setdefault(document_hash, len(numbers))
    return np.array([numbers[document_hash] for document_hash in hashes.tolist()])


def find_cut(sizes: np.ndarray, share: float) -> tuple[int, float]:
    """Return where this share of a text ends: in which document, and after which share of it.

    sizes: of each document, in the order of the text
    """
    ends = np.cumsum(sizes) / sizes.sum()  # as shares of the text
    cut = int(np.searchsorted(ends, share))
    begin = ends[cut - 1] if cut > 0 else 0.0
    return cut, (share - begin) / (ends[cut] - begin)


def measure_start(file: BinaryIO, document: np.ndarray, share: float) -> int:
    """Return the bytes of this share of a document's characters, from its start.

    document: its span, (1, 2)
    """
    blocks = read_blocks(file, document, "counting text", BLOCK)
    n_characters = sum(len(block) for _, block in blocks)
    n_left = int(n_characters * share)
    n_bytes = 0
    for _, block in read_blocks(file, document, "splitting text", BLOCK):
        start = block[:n_left]
        n_bytes += len(start.encode())
        n_left -= len(start)
        if n_left == 0:  # the rest may be long
            break
    return n_bytes


def read_blocks(
    file: BinaryIO, spans: np.ndarray, title: str, size: int
) -> Iterator[tuple[bool, str]]:
    """Yield the text of spans in order: (whether a span begins here, at most `size` bytes of text).

    Blocks end after a line if they can, because a cut in the middle of a word costs a token.
    """
    total = int(np.diff(spans).sum())
    with tqdm(desc=title, total=total, unit="B", unit_scale=True, delay=2) as bar:
        for begin, end in spans:
            start = int(begin)
            while start < end:
                file.seek(start)
                data = file.read(min(size, end - start))
                line_end = data.rfind(b"\n") + 1
                if start + len(data) < end and line_end > 0:
                    data = data[:line_end]
                block = data.decode(errors="ignore")  # half a character is for the next block
                yield start == begin, block
                decoded = len(block.encode())
                start += decoded if decoded > 0 else len(data)  # a damaged span ends too
                bar.update(decoded)


def encode_blocks(
    blocks: Iterable[tuple[bool, str]], encode: Encode, size: int
) -> Iterator[tuple[bool, str, Ids]]:
    """Yield each block with its ids: (whether a document begins here, its text, its ids).

    Blocks are encoded in groups of `size` characters or a little more, two groups at a time.
    """
    def encode_group(group: list[tuple[bool, str]]) -> tuple[list[tuple[bool, str]], Sequence[Ids]]:
        return group, encode([text for _, text in group])

    for group, rows in map_ahead(encode_group, group_blocks(blocks, size)):
        for (first, text), ids in zip(group, rows, strict=True):
            yield first, text, ids


def group_blocks(
    blocks: Iterable[tuple[bool, str]], size: int
) -> Iterator[list[tuple[bool, str]]]:
    """Yield lists of blocks with at least `size` characters; the last one may have fewer."""
    group = []
    n_characters = 0
    for block in blocks:
        group.append(block)
        n_characters += len(block[1])
        if n_characters >= size:
            yield group
            group = []
            n_characters = 0
    if group:
        yield group


def map_ahead(function: Callable[[T], U], items: Iterable[T], ahead: int = 2) -> Iterator[U]:
    """Yield function(item) of each item in order.

    It runs in `ahead` threads. While a result is awaited, up to `ahead` later items are submitted.
    """
    with ThreadPoolExecutor(ahead) as pool:
        submitted: deque[Future[U]] = deque()
        for item in items:
            submitted.append(pool.submit(function, item))
            if len(submitted) > ahead:
                yield submitted.popleft().result()
        for future in submitted:
            yield future.result()


def write_ids(
    blocks: Iterable[tuple[bool, str]], path: Path, tokenizer: Tokenizer, encode: Encode, dtype: str
) -> dict[str, int]:
    """Write the ids of a split to a file, and return counts of what is in them."""
    counts = {"documents": 0, "bytes": 0, "tokens": 0}
    front = np.array([tokenizer.eos_id, *tokenizer.prefix_ids], dtype=dtype)
    with path.open("wb") as file:
        for first, text, ids in encode_blocks(blocks, encode, BATCH):
            if first:
                file.write(front.data)  # tofile() would not raise its last error
                counts["documents"] += 1
                counts["tokens"] += len(front)
            file.write(np.asarray(ids, dtype=dtype).data)
            counts["bytes"] += len(text.encode())
            counts["tokens"] += len(ids)
    return counts
