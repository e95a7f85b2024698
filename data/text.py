"""A text to measure models on: read once, and encoded by the tokenizer of each model.

Its documents become one stream of ids, as in training: EOS, the tokenizer's prefix, and the text of
a document, then the next document. Only the start differs where a tokenizer has a prefix, such as
Llama's BOS: the stream begins with that, without an EOS in front, as a text does elsewhere.
"""

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from data.prepare import copy_parts, encode_blocks, read_blocks
from data.sources import SOURCES, DataConfig, name_text
from data.tokenizer import Tokenizer

# Bytes that are encoded as one string. A cut can change the ids beside it, so blocks are longer
# than in data/prepare.py: most documents are encoded whole, as other programs encode them.
BLOCK = 1 << 20
BATCH = 1 << 23  # characters of the blocks that are encoded at a time, on all cores


@dataclass(frozen=True)
class Encoded:
    """A stream of ids, and what they stand for."""

    ids: Tensor
    """int64 (N,), on the CPU."""
    is_text: Tensor
    """bool (N,): False for what stands between documents, which is EOS and a prefix."""
    n_bytes: int
    """Bytes of the text in UTF-8."""


@dataclass(frozen=True)
class Text:
    """A copy of the documents of a source. See `open_text`."""

    file: BinaryIO
    spans: np.ndarray
    """Where each document starts and ends in the file, in bytes: (documents, 2)."""
    counts: dict[str, Any]
    """sha256 of the whole text, and its numbers of documents, bytes and characters."""

    def encode(self, tokenizer: Tokenizer) -> Encoded:
        """Return the ids that a tokenizer gives the text."""
        ids = array("q")
        separators = array("q")
        blocks = read_blocks(self.file, self.spans, "encoding", BLOCK)
        for first, _, row in encode_blocks(blocks, tokenizer.encode_batch, BATCH):
            if first:
                starts_stream = not ids and bool(tokenizer.prefix_ids)
                front = [] if starts_stream else [tokenizer.eos_id]
                front += tokenizer.prefix_ids
                separators.extend(range(len(ids), len(ids) + len(front)))
                ids.extend(front)
            ids.extend(row)
        is_text = torch.ones(len(ids), dtype=torch.bool)
        is_text[torch.tensor(separators)] = False
        return Encoded(torch.from_numpy(np.array(ids)), is_text, self.counts["bytes"])


@contextmanager
def open_text(config: DataConfig) -> Iterator[Text]:
    """Read the text of a source, and yield it. UserError if it is missing, empty or not UTF-8."""
    with TemporaryFile() as file:
        counts, spans, *_ = copy_parts(SOURCES[config.source](config).parts(), file,
                                      name=name_text(config))
        yield Text(file, spans, counts)
