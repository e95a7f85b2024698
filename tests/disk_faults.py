"""Disks on which an operation fails or that are full, and ways to damage a file."""

import errno
import itertools
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from errors import UserError

OPERATIONS = [(os, name) for name in ("replace", "rename", "fsync", "mkdir", "unlink", "rmdir")]


class FailingDisk:
    """A context in which the k-th operation on the filesystem fails (none for -1).

    `calls` are the names of all operations, `error` is what came of the failure: an OSError, or the
    UserError that it was turned into. Both end with the context. Functions that write a file
    (`writers`: pairs of owner and name) fail when it is half written.
    """

    def __init__(self, k: int, writers: Sequence[tuple[Any, str]] = ()):
        self.k = k
        self.writers = writers
        self.calls: list[str] = []
        self.error: BaseException | None = None

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        for owner, name in (*OPERATIONS, *self.writers):
            self.patch.setattr(owner, name, partial(self.call, owner, name, getattr(owner, name)))
        return self

    def call(self, owner, name, original, *args, **kwargs):
        self.calls.append(name)
        if len(self.calls) != self.k + 1:
            return original(*args, **kwargs)
        if owner is not os:
            original(*args, **kwargs)
            path = args[1]
            if not isinstance(path, Path):
                path.flush()
                path = path.name
            os.truncate(path, os.path.getsize(path) // 2)
        raise OSError(errno.ENOSPC, f"No space left on device, said {name}")

    def __exit__(self, kind, error, trace):
        self.patch.undo()
        self.error = error
        return isinstance(error, OSError | UserError)


def failing_disks(
    writers: Sequence[tuple[Any, str]] = (), at_least: int = 3
) -> Iterator[FailingDisk]:
    """For each operation one disk on which it fails, and a last one on which nothing does."""
    for k in itertools.count():
        disk = FailingDisk(k, writers)
        yield disk
        if len(disk.calls) <= k:
            break
    assert disk.error is None and k >= at_least


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Refuses to write files beyond `size` bytes, as a full disk would, from inside the writers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def cut(file: Path) -> None:
    """Cut off the last two bytes of a file."""
    os.truncate(file, file.stat().st_size - 2)


def flip_a_bit(file: Path) -> None:
    """Flip a bit in the last byte of a file, which leaves its size as it was."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


class TouchWhenRead:
    """An object whose pickle makes this file when it is read."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)
