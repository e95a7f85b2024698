"""Prepared token ids: find them or make them, and cut them into the rows of a batch."""

import glob
import math
import os
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from data.kinds import COMPRESSED
from data.prepare import prepare_text, suitable_val_fraction
from data.search import list_names
from data.sources import AUTO, SOURCES, DataConfig, Files
from data.tokenizer import Tokenizer, open_tokenizer, tokenizer_files
from errors import UserError
from files import (
    atomic_path,
    json_sha256,
    locked,
    may_be_in_name,
    read_json,
    remove,
    sha256,
    writing,
)

FORMAT = 1  # raise it when the files change, so that old folders are not taken for new ones
MAX_HASHED_BYTES = 1 << 30  # a larger .bin is checked at start by its size alone


@dataclass
class Prepared:
    """A folder of prepared data that has been checked against its manifest."""

    folder: Path
    manifest: dict[str, Any]
    is_new: bool = field(default=False, compare=False)
    """Whether it was prepared just now, with its notes printed."""
    listing: list[str] = field(default_factory=list, compare=False)
    """Notes on which files are read, unless it is new, or was found for a run."""

    @property
    def notes(self) -> list[str]:
        """Notes on which files are read, and what was printed about their text when it was
        prepared."""
        # Earlier versions wrote none, or others, as "notes", of which some are no longer true.
        return self.listing + self.manifest.get("text_notes", [])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, opened when it is first needed."""
        return open_tokenizer(self.folder)

    @property
    def separators(self) -> list[int]:
        """The ids between documents, which stand for no text: EOS, and the tokenizer's prefix."""
        return [self.tokenizer.eos_id, *self.tokenizer.prefix_ids]

    @property
    def tokenizer_files(self) -> list[Path]:
        """The files that make up the tokenizer, for a run to copy."""
        return [self.folder / name for name in self.manifest["files"] if not name.endswith(".bin")]

    def dataset(self, split: str, **options: int) -> "TokenDataset":
        """Return the token ids of "train" or "val"; the options are those of TokenDataset."""
        return TokenDataset(self.folder / f"{split}.bin", dtype=self.manifest["dtype"],
                            vocab_size=self.manifest["vocab_size"], **options)


def find_or_prepare(
    config: DataConfig, known: dict[str, Any] | None = None, fit_vocabulary: bool = False,
    fit_val_fraction: bool = False, gives_up: Callable[[], bool] | None = None,
) -> Prepared:
    """Return the prepared data of a configuration. If it is not there, prepare it.

    `known` are the settings in the manifest of a run. The data of that run is used while it is
    there, even if the text has changed since. See `prepare` for what is fitted and raised, and for
    `gives_up`.
    """
    if known is not None:
        for folder in Path(config.prepared).glob(f"*-{json_sha256(known)[:12]}"):
            with suppress(OSError, UserError):
                return open_prepared(folder, known)
    data = find_prepared(config, fit_vocabulary, fit_val_fraction)
    if data is None:
        data = prepare(config, fit_vocabulary, fit_val_fraction, gives_up)
    if data.is_new:
        return data
    source = SOURCES[config.source](config)
    left_out = data.manifest.get("left_out", [])
    source.check_left_out(left_out)
    return replace(data, listing=source.notes_on_files(left_out))


def find_prepared(
    config: DataConfig, fit_vocabulary: bool, fit_val_fraction: bool
) -> Prepared | None:
    """Return the prepared data of a configuration, or None if it is not there or damaged."""
    with suppress(OSError, UserError):  # `prepare` says why
        data = open_prepared(*locate(config, fit_vocabulary))
        if not fit_val_fraction:
            return data
        # Data prepared with the configured share serves too, if fitting would choose that share.
        share = config.val_fraction
        if suitable_val_fraction(share, data.manifest["text"]["bytes"]) == share:
            return data
    if fit_val_fraction:
        with suppress(OSError, UserError):
            return open_prepared(*locate(config, fit_vocabulary, fit_val_fraction))
    return None


def find_data_of(run: Path, config: DataConfig, known: dict[str, Any] | None) -> Prepared:
    """Return the prepared data of a run with these settings, or prepare its text again.

    Raises UserError, which names the run, if neither is there.
    """
    try:
        return find_or_prepare(config, known)
    except UserError as error:
        raise UserError(f"{run} needs its text, because {config.prepared} has nothing of it: "
                        f"{error}") from error


def prepare(
    config: DataConfig, fit_vocabulary: bool = False, fit_val_fraction: bool = False,
    gives_up: Callable[[], bool] | None = None,
) -> Prepared:
    """Make the prepared data of `config`, and put it into its folder by one rename.

    With `fit_vocabulary` the tokenizer has as many pieces as suit the size of the text, at most
    data.vocab_size. With `fit_val_fraction` the share that is held out suits it too. A folder that
    does not match its manifest is made again, with a message. If another process prepares the same
    folder, wait for it, until `gives_up` returns True. Raises UserError if the text cannot be
    prepared, or was given up.
    """
    folder, settings = locate(config, fit_vocabulary, fit_val_fraction)
    with (writing(folder, "make room or choose another folder with --data.prepared"),
          locked(folder, f"waiting for another process: {folder}", gives_up=gives_up)):
        try:
            return open_prepared(folder, settings)  # another process has made it
        except (OSError, UserError) as reason:
            again = f"again, because it is damaged: {reason}" if folder.exists() else "once"
            message = f"preparing {folder} {again}"
        with atomic_path(folder) as staging:
            staging.mkdir()
            prepare_text(config, settings, staging, fit_vocabulary, fit_val_fraction, message)
            remove(folder)
        return replace(open_prepared(folder, settings), is_new=True)


def locate(
    config: DataConfig, fit_vocabulary: bool = False, fit_val_fraction: bool = False
) -> tuple[Path, dict[str, Any]]:
    """Return the folder of the prepared data, and the settings that decide what is in it."""
    settings: dict[str, Any] = {"format": FORMAT, **asdict(config), "text": None}
    for name in ("seq_len", "prepared", "tokenizer"):
        del settings[name]
    # While unset, later options are left out, so that folders from before them are still found.
    for name in ("second_val", "separator"):
        if settings[name] == getattr(DataConfig, name):
            del settings[name]
    text = SOURCES[config.source](config).fingerprint()
    if text is not None:  # else it is fetched once
        settings["text"] = json_sha256(text)[:12]
    # The fingerprint covers the files. Their names stay only where a source of a user's own reads
    # files and has no fingerprint.
    if text is not None or config.files is None:
        del settings["files"]
    if fit_vocabulary:
        settings["vocab_size"] = f"{AUTO}, at most {config.vocab_size}"
    if fit_val_fraction:
        settings["val_fraction"] = f"{AUTO}, usually {config.val_fraction}"
    if config.tokenizer is not None:
        settings["tokenizer"] = hash_tokenizer(Path(config.tokenizer))
    key = json_sha256(settings)[:12]
    prepared = Path(config.prepared)
    folder = prepared / f"{label_text(config)}-{key}"
    # The same files can be named in several ways, and earlier versions made other labels of them.
    present = sorted(prepared.glob(f"[!.]*-{key}"))
    if present and folder not in present:
        folder = present[0]
    return folder, settings


def hash_tokenizer(folder: Path) -> dict[str, str]:
    """Return the hash of each file of a tokenizer. UserError if the folder has none."""
    files = tokenizer_files(folder)
    if not files:
        raise UserError(f"data.tokenizer {folder} is no folder with a tokenizer: name a run, or "
                        "train one with --data.tokenizer null")
    return {file.name: sha256(file) for file in files}


def label_text(config: DataConfig) -> str:
    """Return a readable label of a text: of the first file, the URL, the data set, or "stdlib".

    It has letters and digits of all scripts, dots, and dashes in place of everything else. A glob
    such as book/*.txt has the label of its folder.
    """
    name = getattr(config, config.source, config.source)
    if config.source == "files":
        name = os.path.abspath(os.path.expanduser(name[0]))  # "." has a name, too
    path = Path(name)
    while glob.has_magic(path.name) and not path.exists():
        path = path.parent
    if path.suffix.lower() in COMPRESSED:  # rows.jsonl.gz has the label of rows.jsonl
        path = path.with_suffix("")
    # macOS may return a letter and its accent as two characters.
    stem = unicodedata.normalize("NFC", path.stem)
    characters = [each if may_be_in_name(each) and each not in "_=+-" else " " for each in stem]
    label = "-".join("".join(characters).split())
    return label.strip("-.")[:40] or config.source


def has_changed(config: DataConfig, known: dict[str, Any]) -> bool:
    """Return whether the text is gone, or another one than `known`, the settings in a manifest."""
    try:
        _, settings = locate(config)
    except (OSError, UserError):
        return True
    return settings["text"] != known["text"]


def explain_change(config: DataConfig, since: float) -> str:
    """Return what has happened to the files, in brackets to end a sentence with, or "".

    It names what is gone, or what has changed later than `since`, in seconds since 1970. If neither
    is found, the files of a folder may be others.
    """
    if config.source != "files":
        return ""
    try:
        files, _ = Files(config).find()
        newer = [file.name for file in files if os.stat(file.path).st_mtime > since]
    except (OSError, UserError) as error:
        return f" ({error})"
    if newer:
        return f" (changed after the run was started: {list_names(newer)})"
    if any(file.in_folder for file in files):
        return " (other files of a folder, perhaps because this version of gyre reads others)"
    return ""


def open_prepared(folder: Path, settings: dict[str, Any]) -> Prepared:
    """Return a folder, checked against its manifest.

    Raises OSError or UserError if the folder is not there, or not what its manifest says.
    """
    manifest = read_json(folder / "manifest.json", "prepare it again")
    # A hash of all other fields. It guards the counts, which no other hash covers.
    key = manifest.pop("key", None)
    if key != json_sha256(manifest)[:12] or manifest["settings"] != settings:
        raise UserError("manifest.json was changed")
    for name, file in manifest["files"].items():
        size = (folder / name).stat().st_size
        is_changed = size != file["size"]
        if not is_changed and size <= MAX_HASHED_BYTES:
            is_changed = sha256(folder / name) != file["sha256"]
        if is_changed:
            raise UserError(f"{name} was changed")
    return Prepared(folder, manifest)


class TokenDataset:
    """A memory-mapped file of token ids, cut into windows of `seq_len` tokens.

    Training rows (`batch`) are addressed: row i of step s is the same whatever was asked for before
    and however many processes share the work. The stream of N ids is a ring, whose last id is
    followed by the first, an EOS. Epoch e cuts it into N // seq_len windows. The first one begins
    at a phase in [0, seq_len). The phase and the order of the windows are drawn for (seed, e). So
    each window comes once in an epoch, and borders move from epoch to epoch. Up to seq_len - 1
    tokens are left out of an epoch, other ones in each.

    Evaluation rows (`windows`) cover the file once, in order, from its first token.
    """

    def __init__(
        self, path: Path, *, dtype: str, vocab_size: int, seq_len: int, batch_size: int = 1,
        seed: int = 0, rank: int = 0, world_size: int = 1,
    ):
        """`batch_size` counts the rows of all `world_size` processes, of which this one is `rank`.

        Raises UserError if a training file is shorter than seq_len + 1 tokens, or a validation file
        than 2.
        """
        self.vocab_size = vocab_size
        self.seq_len = seq_len
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.dtype = np.dtype(dtype)
        # Held open, so that a file replaced under the same name does not change a running training.
        self._file = open(path, "rb")  # noqa: SIM115
        self.n_tokens = os.fstat(self._file.fileno()).st_size // self.dtype.itemsize
        self.n_windows = self.n_tokens // seq_len
        is_val = path.stem == "val"
        if is_val:
            least = 2  # `windows` fills a short row up
            # One document with many copies may leave nothing for validation.
            advice = ", or a larger --data.val_fraction (equal documents are in the same split)"
        else:
            least = seq_len + 1
            can_be_smaller = self.n_tokens >= 2  # the shortest row needs as many
            advice = ", or a smaller --data.seq_len" if can_be_smaller else ""
        if self.n_tokens < least:
            raise UserError(f"the {path.stem} split has {self.n_tokens} tokens, and needs {least} "
                            f"or more: give more text{advice}")

    def share(self, n: int) -> range:
        """This rank's part of n rows: contiguous. The parts of ranks differ by at most one row."""
        return range(n * self.rank // self.world_size, n * (self.rank + 1) // self.world_size)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return this rank's rows of a global batch: x and y, int64 of (rows, seq_len).

        y is x shifted by one token.
        """
        starts = []
        for row in self.share(self.batch_size):
            epoch, index = divmod(step * self.batch_size + row, self.n_windows)
            phase, order = _epoch(self.seed, epoch, self.n_windows, self.seq_len)
            starts.append(phase + int(order[index]) * self.seq_len)
        index = np.array(starts, dtype=np.int64)[:, None] + np.arange(self.seq_len + 1)
        rows = torch.from_numpy(self.read(index % self.n_tokens))
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def count_windows(self) -> int:
        """Return the number of windows that hold every target once. The last may be short."""
        return math.ceil((self.n_tokens - 1) / self.seq_len)

    def count_batches(self, batch_size: int) -> int:
        """Return how many batches `windows` yields on every rank."""
        largest_share = math.ceil(self.count_windows() / self.world_size)
        return math.ceil(largest_share / batch_size)

    def windows(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this rank's share of all windows in order, at most `batch_size` at a time: x and y.

        Over all ranks every token but the very first is a target exactly once. The short last
        window is filled up with 0 in x and -100 (`ignore_index` of cross entropy) in y. A rank with
        one batch less than others yields one row of filling instead.
        """
        share = self.share(self.count_windows())
        for i in range(self.count_batches(batch_size)):
            start = share.start + i * batch_size
            rows = min(batch_size, share.stop - start)
            shape = (max(rows, 1), self.seq_len)  # at least a row of filling
            x = np.zeros(shape, dtype=np.int64)
            y = np.full(shape, -100)
            if rows:
                first_token = start * self.seq_len
                ids = self.read(slice(first_token, first_token + rows * self.seq_len + 1))
                x.ravel()[: len(ids) - 1] = ids[:-1]
                y.ravel()[: len(ids) - 1] = ids[1:]
            yield torch.from_numpy(x), torch.from_numpy(y)

    def read(self, index: np.ndarray | slice) -> np.ndarray:
        """Return ids of the file as int64. Raises UserError for an id outside the vocabulary."""
        # Map the file anew each time: a map that stays would grow by every page ever touched.
        ids = np.memmap(self._file, dtype=self.dtype, mode="r")[index].astype(np.int64)
        if ids.size and ids.max() >= self.vocab_size:  # a large file has not been hashed
            raise UserError(f"{self._file.name} is damaged: it has the id {ids.max()}, and the "
                            f"vocabulary {self.vocab_size}. Remove the folder to prepare it again")
        return ids


@lru_cache(maxsize=2)  # a batch may straddle two epochs
def _epoch(seed: int, epoch: int, n_windows: int, seq_len: int) -> tuple[int, np.ndarray]:
    """Return the phase and the order of the windows of one epoch."""
    generator = np.random.default_rng((seed, epoch))
    return int(generator.integers(seq_len)), generator.permutation(n_windows)
