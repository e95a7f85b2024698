"""Prepared token ids: finding them, and cutting them into the rows of a batch."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from data.sources import SOURCES, DataConfig
from errors import UserError

if TYPE_CHECKING:
    from data.tokenizer import Tokenizer

FORMAT = 1  # raised when what is written changes, so that old folders are not taken for new ones
HASHED = 1 << 30  # bytes; a larger .bin is checked at start by its size alone


class Unusable(Exception):
    """Why a folder cannot be used: it is not there, or not what its manifest says."""


@dataclass
class Prepared:
    """A folder of prepared data that has been checked against its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """Opened when it is first needed."""
        from data.tokenizer import open_tokenizer

        return open_tokenizer(self.folder)

    @property
    def tokenizer_files(self) -> list[Path]:
        """The files that make up the tokenizer, for a run to copy."""
        return [self.folder / name for name in self.manifest["files"] if not name.endswith(".bin")]

    def dataset(self, split: str, **options: int) -> "TokenDataset":
        """Return the token ids of "train" or "val"; the options are those of TokenDataset."""
        return TokenDataset(self.folder / f"{split}.bin", dtype=self.manifest["dtype"], **options)


def find_prepared(config: DataConfig, known: dict[str, Any] | None = None) -> Prepared | None:
    """Return the prepared data of a configuration, or None where it has to be made.

    `known` are the settings in the manifest of a run: where what it was trained on is still there,
    that is taken, whatever has become of the text since.
    """
    if known is not None:
        for folder in Path(config.prepared).glob(f"*-{settings_key(known)}"):
            with suppress(Unusable):
                return open_prepared(folder, known)
    settings = prepared_settings(config)
    with suppress(Unusable):  # prepare says why
        return open_prepared(prepared_folder(config, settings), settings)
    return None


def prepared_settings(config: DataConfig) -> dict[str, Any]:
    """Return all that decides what the files hold. `seq_len` is not among it."""
    ignored = {"files", "seq_len", "prepared", "tokenizer"}
    fields = {name: value for name, value in asdict(config).items() if name not in ignored}
    text = SOURCES[config.source](config).fingerprint()
    settings = {"format": FORMAT, **fields, "text": text and settings_key(text)}
    if config.tokenizer is not None:
        from data.tokenizer import tokenizer_files

        files = tokenizer_files(Path(config.tokenizer))
        settings["tokenizer"] = {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files
        }
    return settings


def settings_key(settings: Any) -> str:
    """Return a short hash of what decides the content of a folder; the end of the folder's name."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def prepared_folder(config: DataConfig, settings: dict[str, Any]) -> Path:
    """Return where the data is, or will be. The name begins with a part for people."""
    label = SOURCES[config.source](config).label
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-.")[:40] or config.source
    return Path(config.prepared) / f"{readable}-{settings_key(settings)}"


def open_prepared(folder: Path, settings: dict[str, Any]) -> Prepared:
    """Return a folder, checked against its manifest. Raises Unusable, which says why."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest.pop("key") != settings_key(manifest):  # a wrong count would go unnoticed
            raise Unusable("manifest.json was changed")
        if manifest["settings"] != settings:
            raise Unusable("manifest.json is of other settings")
        width = np.dtype(manifest["dtype"]).itemsize
        for name, file in manifest["files"].items():
            path = folder / name
            if path.suffix == ".bin" and file["size"] != manifest[path.stem]["tokens"] * width:
                raise Unusable(f"{name} was cut short by a full disk when it was made")
            if not path.is_file() or path.stat().st_size != file["size"]:
                raise Unusable(f"{name} is missing or not {file['size']} bytes long")
            if file["size"] <= HASHED:
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                if digest != file["sha256"]:
                    raise Unusable(f"{name} was changed")
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise Unusable(f"manifest.json cannot be read: {error}") from None
    return Prepared(folder, manifest)


class TokenDataset:
    """A memory-mapped file of token ids, cut into windows of `seq_len` tokens.

    Training rows (`batch`) are addressed: row i of step s is the same whatever was asked for before
    and however many processes share the work. The stream of N ids is closed to a ring (its end is
    followed by its first EOS), and epoch e cuts it into N // seq_len windows that start at a phase
    in [0, seq_len) drawn for (seed, e), visited in an order drawn likewise. So every epoch has the
    same number of windows, each window comes once, and no cut stays forever between the same two
    tokens; the price is that up to seq_len - 1 tokens, others in each epoch, are left out.

    Evaluation rows (`windows`) cover the file once, in order, from its first token.
    """

    def __init__(
        self, path: Path, *, dtype: str, seq_len: int, batch_size: int = 1, seed: int = 0,
        rank: int = 0, size: int = 1,
    ):
        """`batch_size` counts the rows of all `size` processes, of which this one is `rank`.

        Raises UserError where no row fits.
        """
        self.seq_len, self.batch_size = seq_len, batch_size
        self.seed, self.rank, self.size, self.dtype = seed, rank, size, np.dtype(dtype)
        # Held open, so that a file replaced under the same name does not change a running training.
        self._file = open(path, "rb")  # noqa: SIM115
        self.n_tokens = os.fstat(self._file.fileno()).st_size // self.dtype.itemsize
        self.n_windows = self.n_tokens // seq_len
        if self.n_tokens < seq_len + 1:
            raise UserError(f"the {path.stem} split has {self.n_tokens} tokens, and one row needs "
                            f"{seq_len + 1}: lower --data.seq_len or give more text (for val, "
                            "raise --data.val_fraction)")

    def share(self, n: int) -> range:
        """This rank's part of n rows: contiguous, and as large as the others' but for one row."""
        return range(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """This rank's rows of a global batch: x and y, int64 of (rows, seq_len), y one token on."""
        first = step * self.batch_size
        starts = [self._start(first + row) for row in self.share(self.batch_size)]
        index = np.array(starts, dtype=np.int64)[:, None] + np.arange(self.seq_len + 1)
        rows = torch.from_numpy(self._ids()[index % self.n_tokens].astype(np.int64))
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def windows(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's share of all windows in order, at most `batch_size` rows at a time: x and y.

        Over all ranks every token but the very first is a target exactly once. The short last
        window is filled up with 0 in x and -100 (`ignore_index` of cross entropy) in y; so is a
        whole row, for a rank that would have one batch less than others.
        """
        count = -(-(self.n_tokens - 1) // self.seq_len)
        share = self.share(count)
        for i in range(-(-count // self.size // batch_size)):
            start = share.start + i * batch_size
            rows = min(batch_size, share.stop - start)
            at = start * self.seq_len
            ids = self._ids()[at : at + rows * self.seq_len + 1].astype(np.int64)
            shape = (max(rows, 1), self.seq_len)
            x, y = np.zeros(shape, dtype=np.int64), np.full(shape, -100)
            if rows:
                x.ravel()[: len(ids) - 1] = ids[:-1]
                y.ravel()[: len(ids) - 1] = ids[1:]
            yield torch.from_numpy(x), torch.from_numpy(y)

    def _start(self, row: int) -> int:
        """The index in the stream of ids at which a row of the whole training begins."""
        epoch, index = divmod(row, self.n_windows)
        phase, order = _epoch(self.seed, epoch, self.n_windows, self.seq_len)
        return phase + int(order[index]) * self.seq_len

    def _ids(self) -> np.ndarray:
        """The file, mapped anew each time: a lasting map would grow by every page ever touched."""
        return np.memmap(self._file, dtype=self.dtype, mode="r")


@lru_cache(maxsize=2)  # a batch may straddle two epochs
def _epoch(seed: int, epoch: int, n_windows: int, seq_len: int) -> tuple[int, np.ndarray]:
    """Phase and order of the windows of one epoch."""
    generator = np.random.default_rng((seed, epoch))
    return int(generator.integers(seq_len)), generator.permutation(n_windows)
