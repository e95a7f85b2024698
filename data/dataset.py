"""What a run is trained on: its configuration, and prepared token ids as rows of a batch."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from errors import UserError, check_ranges

SMALLEST_VOCABULARY = 260  # unk, bos, eos, the 256 bytes and the space
# A list that YAML takes for a text, as a * or a # in it has another meaning there: [*.md, a.txt]
LIST = re.compile(r"\[((?:[^][]|\[[^][]*\])*)\]")
ENTRY = re.compile(r"(?:[^][,]|\[[^][]*\])+")  # a comma in a glob's own brackets is no end


@dataclass
class DataConfig:
    """Which text, how it becomes tokens, and how many of them make a row."""

    source: Literal["stdlib", "files", "url", "hub"] = "stdlib"
    """Where text comes from. stdlib: this Python's own standard library, which needs no network."""
    files: list[str] | str | None = None
    """Paths and globs of .jsonl, .parquet or plain text. They replace whatever the source was."""
    url: str | None = None
    """Address of one such file, for source url. It is fetched once."""
    sha256: str | None = None
    """SHA-256 that the file of data.url must have, in hexadecimal digits; unset: any."""
    hub: str | None = None
    """Id of a data set on the Hugging Face Hub, for source hub."""
    hub_config: str | None = None
    """Configuration of the Hub data set, where it has several."""
    hub_split: str = "train"
    """Split of the Hub data set that is read; ours is made by val_fraction."""
    hub_revision: str | None = None
    """Branch, tag or commit of the Hub data set; a commit is the only one that cannot change."""
    column: str = "text"
    """Column of a .jsonl, .parquet or Hub row that holds the text. Each row is one document."""
    tokenizer: str | None = None
    """Folder whose tokenizer is used, such as an imported run. Unset: one is trained on the
    training split."""
    vocab_size: int = 4096
    """Pieces of the tokenizer; three control ids, the 256 bytes and the space are among them."""
    bpe_dropout: float = 0.0
    """Probability of leaving out a merge of the tokenizer's: training text is then encoded a dozen
    times, each time in other pieces, against overfitting where a small text is read over and over.
    Validation is without, so its loss can be below that of training."""
    seq_len: int = 256
    """Tokens of a training row."""
    val_fraction: float = 0.1
    """Share held out for validation: of the documents, or of the end of a single one."""
    prepared: str = "data/prepared"
    """Folder for what is prepared: tokenizer and token ids, one folder for each setting."""

    def __post_init__(self) -> None:
        """Let `files` replace any other source. Raises UserError for what cannot be."""
        if self.files is not None:
            # A local copy stands in for a download: --data.files needs no other change.
            if isinstance(self.files, str):
                listed = LIST.fullmatch(self.files)
                self.files = ENTRY.findall(listed[1]) if listed else [self.files]
                self.files = [name.strip().strip("'\"") for name in self.files]
            self.files = list(self.files)
            self.source = "files"
            for name in _SOURCES_OF.keys() - {"column"}:
                setattr(self, name, getattr(DataConfig, name))
        if self.source != "stdlib" and not getattr(self, self.source):
            raise UserError(f"data.source {self.source} needs --data.{self.source}")
        for name, sources in _SOURCES_OF.items():
            if getattr(self, name) != getattr(DataConfig, name) and self.source not in sources:
                raise UserError(f"data.{name} has no effect with data.source {self.source}")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise UserError(f"data.url {self.url} must start with http:// or https://")
        if self.sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise UserError(f"data.sha256 {self.sha256} must be 64 hexadecimal digits, in small "
                            "letters")
        check_ranges("data", self, vocab_size=f"[{SMALLEST_VOCABULARY}, {2**31})",
                     seq_len="[1, inf)", bpe_dropout="[0, 1)", val_fraction="(0, 1)")
        if self.bpe_dropout and self.tokenizer is not None:
            raise UserError("data.bpe_dropout is for a tokenizer that is trained on this text, and "
                            f"not for {self.tokenizer} (data.tokenizer, which --init-from sets): "
                            "leave it out or say --data.bpe_dropout 0")
        if not self.prepared:
            raise UserError("data.prepared is empty: name a folder")


# The options that are for some sources only, and for which.
_SOURCES_OF = {"url": ["url"], "sha256": ["url"], "hub": ["hub"], "hub_config": ["hub"],
               "hub_split": ["hub"], "hub_revision": ["hub"], "column": ["files", "url", "hub"]}


class TokenDataset:
    """A memory-mapped file of token ids, cut into windows of `seq_len` tokens.

    Training rows (`batch`) are addressed: row i of step s is the same whatever was asked for before
    and however many processes share the work. The stream of N ids is closed to a ring (its end is
    followed by its first EOS), and epoch e cuts it into N // seq_len windows that start at a phase
    in [0, seq_len) drawn for (seed, e), visited in an order drawn likewise. So every epoch has the
    same number of windows, each window comes once, and no cut stays forever between the same two
    tokens; the price is that up to seq_len - 1 tokens, others in each epoch, are left out. Of a
    stream that goes through its text several times (`passes`), epoch e takes the windows of pass
    e % passes; passes are taken for equally long.

    Evaluation rows (`windows`) cover the file once, in order, from its first token.
    """

    def __init__(
        self, path: Path, *, dtype: str, seq_len: int, batch_size: int = 1, seed: int = 0,
        rank: int = 0, size: int = 1, passes: int = 1,
    ):
        """`batch_size` counts the rows of all `size` processes, of which this one is `rank`.

        Raises UserError where no row fits.
        """
        self.seq_len, self.batch_size, self.passes = seq_len, batch_size, passes
        self.seed, self.rank, self.size, self.dtype = seed, rank, size, np.dtype(dtype)
        # Held open, so that a file replaced under the same name does not change a running training.
        self._file = open(path, "rb")  # noqa: SIM115
        self.n_tokens = os.fstat(self._file.fileno()).st_size // self.dtype.itemsize
        tokens = self.n_tokens // passes
        self.n_windows = tokens // seq_len
        if tokens < seq_len + 1:
            raise UserError(f"the {path.stem} split has {tokens} tokens, and one row needs "
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
        start = self.n_tokens * (epoch % self.passes) // self.passes
        return start + phase + int(order[index]) * self.seq_len

    def _ids(self) -> np.ndarray:
        """The file, mapped anew each time: a lasting map would grow by every page ever touched."""
        return np.memmap(self._file, dtype=self.dtype, mode="r")


@lru_cache(maxsize=2)  # a batch may straddle two epochs
def _epoch(seed: int, epoch: int, n_windows: int, seq_len: int) -> tuple[int, np.ndarray]:
    """Phase and order of the windows of one epoch."""
    generator = np.random.default_rng((seed, epoch))
    return int(generator.integers(seq_len)), generator.permutation(n_windows)
