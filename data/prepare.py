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
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
from tqdm import tqdm

from data.dataset import Prepared, locate, open_prepared
from data.sources import SOURCES, DataConfig
from data.tokenizer import Tokenizer, open_tokenizer, tokenizer_files
from errors import UserError, say
from files import atomic_path, json_sha256, locked, remove, sha256, stage_json, writing

BLOCK = 1 << 16  # bytes of text that are encoded as one string
BATCH = 64  # blocks that are encoded at a time, on all cores


def prepare(config: DataConfig) -> Prepared:
    """Make the prepared data of `config`, and put it into its folder by one rename.

    A folder that does not match its manifest is made again, with a message. If another process
    prepares the same folder, wait for it. Raises UserError if the text cannot be prepared.
    """
    folder, settings = locate(config)
    with (writing(folder, "make room or choose another folder with --data.prepared"),
          locked(folder, f"waiting for another process: {folder}")):
        try:
            return open_prepared(folder, settings)  # another process has made it
        except (OSError, UserError) as reason:
            again = f"again, because it is damaged: {reason}" if folder.exists() else "once"
            say(f"preparing {folder} {again}")
        with atomic_path(folder) as staging:
            staging.mkdir()
            write_files(config, settings, staging)
            remove(folder)
        return open_prepared(folder, settings)


def write_files(config: DataConfig, settings: dict[str, Any], folder: Path) -> None:
    """Fill an empty folder. The manifest comes last."""
    with TemporaryFile(dir=folder) as file:
        text, spans, hashes = copy_text(SOURCES[config.source](config).documents(), file)
        train, val, hashes = split_text(file, spans, hashes, config.val_fraction)
        if config.second_val:
            # From the other end of the hashes; the first validation split is in neither.
            train, val, _ = split_text(file, train, ~hashes, config.val_fraction)
        if config.tokenizer is None:
            texts = (block for _, block in read_blocks(file, train, "sampling text"))
            tokenizer = Tokenizer.train(texts, config.vocab_size, folder / "tokenizer.model")
        else:
            for given in tokenizer_files(Path(config.tokenizer)):
                shutil.copyfile(given, folder / given.name)
            tokenizer = open_tokenizer(folder)
            if tokenizer.vocab_size != config.vocab_size:
                raise UserError(f"data.vocab_size {config.vocab_size} is not that of the tokenizer "
                                f"in data.tokenizer {config.tokenizer}, {tokenizer.vocab_size}")
        dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
        splits = {split: write_ids(read_blocks(file, spans, f"encoding {split}"),
                                   folder / f"{split}.bin", tokenizer, dtype)
                  for split, spans in {"train": train, "val": val}.items()}
    manifest = {
        "settings": settings,
        "text": text,
        "vocab_size": tokenizer.vocab_size,
        "dtype": dtype,
        **splits,
        "files": {path.name: {"size": path.stat().st_size, "sha256": sha256(path)}
                  for path in sorted(folder.iterdir())},
    }
    stage_json(folder / "manifest.json", manifest | {"key": json_sha256(manifest)[:12]})


def copy_text(
    documents: Iterable[Iterable[str]], file: BinaryIO
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Write all documents to `file`, one after another; empty ones are skipped.

    Returns counts, the span of each document (where it starts and ends, in bytes), and the first 64
    bits of its SHA-256.
    """
    spans, hashes, characters, whole = array("q"), array("Q"), 0, hashlib.sha256()
    with tqdm(desc="reading text", unit="B", unit_scale=True, delay=2) as bar:
        for document in documents:
            digest, start = hashlib.sha256(), file.tell()
            for piece in document:
                data = piece.encode()
                digest.update(data)
                whole.update(data)
                characters += len(piece)
                file.write(data)
                bar.update(len(data))
            if file.tell() > start:
                spans.extend((start, file.tell()))
                hashes.append(int.from_bytes(digest.digest()[:8]))
    if not spans:
        raise UserError("there is no text to prepare: every document is empty")
    counts = {"sha256": whole.hexdigest(), "documents": len(hashes), "bytes": spans[-1],
              "characters": characters}
    return counts, np.array(spans).reshape(-1, 2), np.array(hashes)


def split_text(
    file: BinaryIO, spans: np.ndarray, hashes: np.ndarray, val_fraction: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the spans of the text for training, those for validation, and the hashes of the
    documents for training.

    A single document gives its end to validation, the convention for tiny Shakespeare. Of several,
    the hash of each decides: it stays in its split whatever is added, and equal documents are in
    the same split. If that would leave a split empty, it gets the document with the nearest hash.
    """
    if len(spans) == 1:
        characters = sum(len(block) for _, block in read_blocks(file, spans, "counting text"))
        (cut, end), left = spans[0], int(characters * (1 - val_fraction))
        for _, block in read_blocks(file, spans, "splitting text"):
            cut += len(block[:left].encode())
            left -= len(block[:left])
        return np.array([[spans[0, 0], cut]]), np.array([[cut, end]]), hashes
    held_out = hashes <= np.clip(np.uint64(val_fraction * 2**64), hashes.min(), hashes.max() - 1)
    return spans[~held_out], spans[held_out], hashes[~held_out]


def read_blocks(
    file: BinaryIO, spans: np.ndarray, title: str, size: int | None = None
) -> Iterator[tuple[bool, str]]:
    """Yield the text of spans in order: (whether a span begins here, at most `size` bytes of text).

    `size` is BLOCK unless it is given. Blocks end after a line if they can, because a cut in the
    middle of a word costs a token.
    """
    size = BLOCK if size is None else size
    total = int(np.diff(spans).sum())
    with tqdm(desc=title, total=total, unit="B", unit_scale=True, delay=2) as bar:
        for begin, end in spans:
            start = int(begin)
            while start < end:
                file.seek(start)
                data = file.read(min(size, end - start))
                if start + len(data) < end:
                    data = data[: data.rfind(b"\n") + 1] or data
                block = data.decode(errors="ignore")  # half a character is for the next block
                yield start == begin, block
                start += len(block.encode()) or len(data)  # a damaged span ends too
                bar.update(len(block.encode()))


def encode_blocks(
    blocks: Iterator[tuple[bool, str]], tokenizer: Tokenizer, at_once: int = BATCH
) -> Iterator[tuple[bool, str, list[int]]]:
    """Yield each block with its ids: (whether a document begins here, its text, its ids).

    So many blocks are encoded `at_once`, on all cores.
    """
    batch = list(islice(blocks, at_once))
    while batch:
        rows = tokenizer.encode_batch([text for _, text in batch])
        for (first, text), ids in zip(batch, rows, strict=True):
            yield first, text, ids
        batch = list(islice(blocks, at_once))


def write_ids(
    blocks: Iterator[tuple[bool, str]], path: Path, tokenizer: Tokenizer, dtype: str
) -> dict[str, int]:
    """Write the ids of a split to a file, and return counts of what is in them."""
    counts = {"documents": 0, "bytes": 0, "tokens": 0}
    with path.open("wb") as file:
        for first, text, ids in encode_blocks(blocks, tokenizer):
            if first:
                ids = [tokenizer.eos_id, *tokenizer.prefix_ids, *ids]
                counts["documents"] += 1
            counts["bytes"] += len(text.encode())
            counts["tokens"] += len(ids)
            file.write(np.array(ids, dtype=dtype).data)  # tofile() would not raise its last error
    return counts
