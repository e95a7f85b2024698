"""Text -> tokenizer, train.bin, val.bin, manifest.json: once for each setting.

One pass copies the text into a temporary file, hashing each document; the copy is then sampled for
the tokenizer, encoded, and deleted. So a source is read once, whatever its kind, and the text is
never in memory as a whole.

The ids of a split are one flat stream with EOS *before* every document, the first included: each
document's first token then has a predecessor, and a pass over the validation split scores every
byte of its text. What an imported tokenizer begins texts with (Llama's BOS) comes after the EOS.
"""

import hashlib
import platform
import shutil
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain, compress, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
from tqdm import tqdm

from data.dataset import (
    Prepared,
    Unusable,
    open_prepared,
    prepared_folder,
    prepared_settings,
    settings_key,
)
from data.sources import SOURCES, DataConfig
from data.tokenizer import Tokenizer, open_tokenizer, tokenizer_files
from errors import UserError, say
from files import atomic_path, locked, remove, require_size, sha256, stage_json

BLOCK = 1 << 16  # bytes of text that are encoded as one string
BATCH = 1 << 21  # characters of text that are encoded at a time, on all cores
UNEVEN = 4  # times more or less text held out than asked for is said


def prepare(config: DataConfig) -> Prepared:
    """Make the prepared data of `config`, and put it into its folder by one rename.

    A folder that does not match its manifest is made again, and says so. Of two processes that want
    the same one, the second waits. Raises UserError where the text or the settings do not do.
    """
    settings = prepared_settings(config)
    folder = prepared_folder(config, settings)
    try:
        with locked(folder, f"waiting for another process: {folder}"):
            try:
                return open_prepared(folder, settings)  # the other process has made it
            except Unusable as reason:
                damaged = f"{folder} is damaged ({reason}): preparing it again"
                first = f"preparing {folder}: once for this text and these settings"
                say(damaged if folder.exists() else first)
            with atomic_path(folder) as staging:
                staging.mkdir()
                _build(config, settings, staging)
                remove(folder)
            return open_prepared(folder, settings)
    except OSError as error:
        raise UserError(f"cannot prepare {folder}: {error}; make room or choose another folder "
                        "with --data.prepared") from error


# Making


@dataclass
class _Text:
    """The documents, one after another in a file."""

    file: BinaryIO
    ends: array  # where each document ends, in bytes
    hashes: array  # 64 bits of each document's sha256
    characters: int = 0
    sha256: str = ""  # of the whole file

    @property
    def bytes(self) -> int:
        return self.ends[-1]


def _build(config: DataConfig, settings: dict[str, Any], folder: Path) -> None:
    """Fill an empty folder; the manifest comes last."""
    with TemporaryFile(dir=folder) as file:
        text = _copy(SOURCES[config.source](config).documents(), file)
        train, val = _split(text, config.val_fraction)
        held_out, asked = val.bytes / text.bytes, config.val_fraction
        shares = held_out / asked, (1 - held_out) / (1 - asked)
        if min(shares) * UNEVEN < 1 or max(shares) > UNEVEN:
            say(f"warning: {held_out:.1%} of the text is held out, and not "
                f"{asked:.1%} (data.val_fraction): {len(text.hashes)} documents are "
                "too few, or too unequal, to be dealt out by their hashes")
        if config.tokenizer is None:
            with tqdm(desc="sampling text", total=train.bytes, unit="B", unit_scale=True,
                      delay=2) as bar:
                tokenizer = Tokenizer.train(
                    _counted(train.blocks(), bar), config.vocab_size, folder / "tokenizer.model"
                )
        else:
            for given in tokenizer_files(Path(config.tokenizer)):
                shutil.copyfile(given, folder / given.name)
            tokenizer = open_tokenizer(folder)
            if tokenizer.vocab_size != config.vocab_size:
                raise UserError(f"data.vocab_size {config.vocab_size} is not the "
                                f"{tokenizer.vocab_size} of the tokenizer in {config.tokenizer} "
                                "(data.tokenizer)")
        dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
        total = train.bytes + val.bytes
        with tqdm(desc="encoding", total=total, unit="B", unit_scale=True, delay=2) as bar:
            write = partial(_write, tokenizer=tokenizer, dtype=dtype, bar=bar)
            splits = {
                "train": write(train.blocks(), folder / "train.bin"),
                "val": write(val.blocks(), folder / "val.bin"),
            }
    versions = {name: version(name) for name in ("sentencepiece", "datasets")}
    manifest = {
        "settings": settings,
        "versions": {"python": platform.python_version(), **versions},
        "text": {"sha256": text.sha256, "documents": len(text.hashes), "bytes": text.bytes,
                 "characters": text.characters},
        "vocab_size": tokenizer.vocab_size,
        "dtype": dtype,
        **splits,
        "files": {
            path.name: {"size": path.stat().st_size, "sha256": sha256(path)}
            for path in sorted(folder.iterdir())
        },
    }
    stage_json(folder / "manifest.json", manifest | {"key": settings_key(manifest)})


def _copy(source: Iterable[Iterable[str]], file: BinaryIO) -> _Text:
    """Write all documents to `file`; empty ones are none."""
    text = _Text(file, array("Q"), array("Q"))
    whole = hashlib.sha256()
    with tqdm(desc="reading text", unit="B", unit_scale=True, delay=2) as bar:
        for document in source:
            digest, start = hashlib.sha256(), file.tell()
            for piece in document:
                data = piece.encode()
                digest.update(data)
                whole.update(data)
                text.characters += len(piece)
                file.write(data)
                bar.update(len(data))
            if file.tell() > start:
                text.ends.append(file.tell())
                text.hashes.append(int.from_bytes(digest.digest()[:8]))
    if not text.ends:
        raise UserError("there is no text to prepare: every document is empty")
    text.sha256 = whole.hexdigest()
    return text


@dataclass
class _Side:
    """The part of the text that one split has: the stretches whose entry in `mine` is true."""

    file: BinaryIO
    ends: array  # where each stretch of the text ends, in bytes
    mine: bytes

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Where each stretch of this side starts and ends, in order."""
        return compress(pairwise(chain([0], self.ends)), self.mine)

    @property
    def bytes(self) -> int:
        return sum(end - start for start, end in self._stretches())

    def blocks(self) -> Iterator[tuple[bool, str]]:
        """The text in order: (whether a stretch begins here, at most BLOCK bytes).

        Blocks end after a line where they can: a cut in the middle of a word costs a token.
        """
        for begin, end in self._stretches():
            start = begin
            while start < end:
                self.file.seek(start)
                data = self.file.read(min(BLOCK, end - start))
                if start + len(data) < end:
                    data = data[: data.rfind(b"\n") + 1] or data
                block = data.decode(errors="ignore")  # half a character: for the next block
                yield start == begin, block
                start += len(block.encode())


def _split(text: _Text, val_fraction: float) -> tuple[_Side, _Side]:
    """The sides for training and validation.

    A single document gives its end to validation, the convention for tiny Shakespeare. Of several,
    the hash of each decides: it stays on its side whatever is added, and equal documents are on the
    same side. Where that leaves a side empty, the document nearest to it goes there.
    """
    if len(text.hashes) == 1:
        cut = _byte_offset(text, int(text.characters * (1 - val_fraction)))
        if not 0 < cut < text.bytes:
            raise UserError(f"a text of {text.characters} characters cannot be split with "
                            f"--data.val_fraction {val_fraction}")
        ends, val = array("Q", [cut, text.bytes]), bytes([0, 1])
    else:
        lowest, highest = min(text.hashes), max(text.hashes)
        if lowest == highest:
            raise UserError(f"all {len(text.hashes)} documents are equal: none can be held out for "
                            "validation")
        threshold = min(max(int(val_fraction * 2**64), lowest), highest - 1)
        ends, val = text.ends, bytes(value <= threshold for value in text.hashes)
    train = bytes(not held_out for held_out in val)
    return _Side(text.file, ends, train), _Side(text.file, ends, val)


def _counted(blocks: Iterable[tuple[bool, str]], bar: tqdm) -> Iterator[str]:
    for _, block in blocks:
        yield block
        bar.update(len(block.encode()))


def _byte_offset(text: _Text, characters: int) -> int:
    """How many bytes the first `characters` characters have."""
    offset = 0
    for _, block in _Side(text.file, text.ends, bytes([1])).blocks():
        if not characters:
            break
        taken = block[:characters]
        offset += len(taken.encode())
        characters -= len(taken)
    return offset


def _write(
    blocks: Iterable[tuple[bool, str]], path: Path, *, tokenizer: Tokenizer, dtype: str, bar: tqdm
) -> dict[str, int]:
    """Write the ids of a split; returns what is in them."""
    found = dict.fromkeys(("documents", "bytes", "characters", "tokens", "eos"), 0)
    with path.open("wb") as file:
        for batch in _batches(blocks):
            ids: list[int] = []
            for (first, text), row in zip(
                batch, tokenizer.encode_batch([text for _, text in batch]), strict=True
            ):
                if first:
                    ids += [tokenizer.eos_id, *tokenizer.prefix_ids]
                    found["documents"] += 1
                    found["eos"] += 1
                ids += row
                size = len(text.encode())
                found["bytes"] += size
                found["characters"] += len(text)
                bar.update(size)
            found["tokens"] += len(ids)
            file.write(np.array(ids, dtype=dtype).data)  # not tofile, which loses its last error
    require_size(path, found["tokens"] * np.dtype(dtype).itemsize)
    return found


def _batches(blocks: Iterable[tuple[bool, str]]) -> Iterator[list[tuple[bool, str]]]:
    batch, size = [], 0
    for block in blocks:
        batch.append(block)
        size += len(block[1])
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
