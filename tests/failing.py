"""A filesystem on which a chosen operation fails, and a disk that takes files up to a size."""

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


class Failing:
    """A context in which the k-th operation on the filesystem fails (none for -1).

    `calls` are the names of all operations, `error` is what came of the failure: an OSError, or the
    UserError that it was turned into. Both end with the context. Functions that write a file
    (`writers`: pairs of owner and name) fail when it is half written.
    """

    def __init__(self, k: int, writers: Sequence[tuple[Any, str]] = ()):
        self.k, self.writers = k, writers
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


def failures(writers: Sequence[tuple[Any, str]] = (), at_least: int = 3) -> Iterator[Failing]:
    """For each operation one `Failing` in which it fails; in the last one nothing is left to."""
    for k in itertools.count():
        yield (failing := Failing(k, writers))
        if len(failing.calls) <= k:
            break
    assert failing.error is None and k >= at_least


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
    """Off its last two bytes."""
    os.truncate(file, file.stat().st_size - 2)


def flip_a_bit(file: Path) -> None:
    """In its last byte, which leaves its size as it was."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


class Touch:
    """An object whose pickle makes this file when it is read."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)
