"""Write a prepared text with its lines in another order, to see what repetition is worth.

    python -m tools.shuffle_lines all PREPARED OUT.txt
    python -m tools.shuffle_lines 8 PREPARED OUT.txt

`all` mixes the lines of all documents, so that a window has lines of many of them: each line is
what it was, and what the lines around it would have repeated is gone. A number mixes so many
neighbouring lines of a document at a time: their order is gone, and what they repeat stays. The
lines for training and those for validation are mixed apart from one another. Those for validation
are the end of the text, and the printed --data.val_fraction holds out just them.
"""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from data.tokenizer import open_tokenizer
from errors import UserError, report_errors
from files import refuse_folder, refuse_other_file, refuse_unwritable, write_file
from gyre.parser import Parser

SEED = 1
ALL = "all"


def main(block: str, prepared: Path, out: Path) -> None:
    """Write the lines of a prepared text in another order, and print what to hold out."""
    size = read_size(block)
    refuse_folder("OUT", str(out))
    refuse_unwritable("OUT", str(out))
    refuse_other_file("OUT", str(out), b"")  # a device or a pipe
    generator = np.random.default_rng(SEED)
    texts = []
    for split in ("train", "val"):
        documents = [split_lines(text) for text in read_documents(prepared, split)]
        texts.append("".join(shuffle(documents, size, generator)))
    text = "".join(texts)
    write_file(out, text.encode())
    print(f"--data.files {out} --data.val_fraction {len(texts[1]) / len(text)}")


def read_size(block: str) -> int | None:
    """Return how many neighbouring lines to mix, None for all. UserError for other words."""
    if block == ALL:
        return None
    if not block.isdecimal() or int(block) == 0:
        raise UserError(f"the number of lines to mix must be a number or {ALL}, not {block}")
    return int(block)


def read_documents(prepared: Path, split: str) -> Iterator[str]:
    """Yield the documents of a split of prepared data. Each begins by EOS there."""
    manifest = json.loads((prepared / "manifest.json").read_text(encoding="utf-8"))
    tokenizer = open_tokenizer(prepared / "tokenizer.model")
    ids = np.fromfile(prepared / f"{split}.bin", dtype=manifest["dtype"])
    starts = np.flatnonzero(ids == tokenizer.eos_id)
    for document in np.split(ids, starts[1:]):
        yield tokenizer.decode(document[1 + len(tokenizer.prefix_ids) :].tolist())


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, each with its line end."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [f"{line}\n" for line in lines]


def shuffle(
    documents: list[list[str]], size: int | None, generator: np.random.Generator
) -> Iterator[str]:
    """Yield the lines of documents, mixed in blocks of so many, or all of them."""
    for lines in cut_blocks(documents, size):
        for i in generator.permutation(len(lines)):
            yield lines[i]


def cut_blocks(documents: list[list[str]], size: int | None) -> Iterator[list[str]]:
    """Yield the lines to mix with one another: so many neighbours of a document, or all lines."""
    if size is None:
        yield list(chain.from_iterable(documents))
        return
    for lines in documents:
        for start in range(0, len(lines), size):
            yield lines[start : start + size]


if __name__ == "__main__":
    with report_errors():
        parser = Parser(__doc__)
        parser.add_argument("block", metavar="N", help="all, or a number of lines")
        parser.add_argument("prepared", metavar="PREPARED", type=Path)
        parser.add_argument("out", metavar="OUT", type=Path)
        options = parser.parse_args()
        main(options.block, options.prepared, options.out)
