"""Exports and an import of a GGUF, killed or failing at a call that changes the disk."""

import errno
import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

# Slow to import, so once here instead of in each process.
import gguf  # noqa: F401
import huggingface_hub  # noqa: F401
import sentencepiece.sentencepiece_model_pb2  # noqa: F401
import tokenizers  # noqa: F401

import export
from formats import folders  # noqa: F401

KILLED = (0, False)
FAULTS = [KILLED, *itertools.product((errno.ENOSPC, errno.EIO, errno.EROFS), (True, False))]
TIMES = "run.json"  # says when a run was made, and has no weights


class Conversion(NamedTuple):
    """A command that makes `target` of `source`, how many calls of it change the disk, and what it
    makes: the content of every file."""

    to: str
    source: Path
    target: Path
    calls: int
    expected: dict[str, bytes]


def conversions(testbed: Any) -> Iterator[tuple[str, str | None]]:
    """Kills and errors in no order, again and again: a pair of what was done and what went wrong,
    if so."""
    with ExitStack() as stack:
        spare = testbed.folder / "unfinished"  # of processes that cannot tidy up any more
        spare.mkdir()
        stack.enter_context(mock.patch.object(tempfile, "tempdir", str(spare)))
        stack.enter_context(mock.patch.dict(os.environ, {"PATH": ""}))  # no npm, which downloads
        kinds = make_conversions(testbed)
        while True:
            conversion = random.choice(kinds)
            at = random.randrange(conversion.calls)
            error, once = random.choice(FAULTS)
            kind = errno.errorcode[error] if error else "killed"
            what = f"--to {conversion.to}: {kind} at call {at}"
            if error and not once:
                what += " and all after it"
            yield what, interrupted(testbed, conversion, at, error, once)
            shutil.rmtree(spare)
            spare.mkdir()


def make_conversions(testbed: Any) -> list[Conversion]:
    """Every conversion once without a fault, the last one of a GGUF."""
    place = testbed.folder / "converted"
    run = testbed.folder / "runs" / "straight"
    made = []
    for to, name in (("hf", "hf"), ("gguf", "a.gguf"), ("web", "web")):
        made.append(convert(testbed, to, run, place / to / name))
    file = testbed.folder / "straight.gguf"
    shutil.copy(place / "gguf" / "a.gguf", file)
    made.append(convert(testbed, "run", file, place / "run" / "imported"))
    return made


def convert(testbed: Any, to: str, source: Path, target: Path) -> Conversion:
    """One conversion without a fault."""
    target.parent.mkdir(parents=True)
    ended = testbed.call(export.main, source, target, "--to", to)
    assert ended.code == 0, ended.said
    return Conversion(to, source, target, ended.calls, content(target))


def content(target: Path) -> dict[str, bytes]:
    """The content of every file of a target that does not say when it was made."""
    if target.is_file():
        return {target.name: target.read_bytes()}
    files = [path for path in sorted(target.rglob("*")) if path.is_file() and path.name != TIMES]
    return {str(file.relative_to(target)): file.read_bytes() for file in files}


def interrupted(
    testbed: Any, conversion: Conversion, at: int, error: int, once: bool
) -> str | None:
    """A conversion with this fault, and again if it left nothing. Returns what went wrong."""
    target = conversion.target
    command = [conversion.source, target, "--to", conversion.to]
    shutil.rmtree(target.parent)
    target.parent.mkdir()
    ended = testbed.call(export.main, *command, at=at, error=error, once=once)
    if ended.code not in (0, 2, -9) or "Traceback" in ended.said:
        return f"exit {ended.code}: {ended.said[-2000:]}"
    if ended.code == 0 and not target.exists():
        return "exit 0, and nothing is there"
    left = [path.name for path in target.parent.iterdir() if path != target]
    if any(not name.startswith(f".{target.name}.") or not name.endswith(".tmp") for name in left):
        return f"left {left}"
    if not target.exists():
        ended = testbed.call(export.main, *command)
        if ended.code != 0:
            return f"not done again: {ended.said[-2000:]}"
    return None if content(target) == conversion.expected else "half of it, or something else"
