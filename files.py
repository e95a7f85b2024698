"""Files that are whole or not there: atomic writing, locks, JSON, hashes, room on the disk."""

import errno
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from errors import UserError, say


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a path; the file or folder written there becomes `target`, whole or not at all.

    The path is .NAME.HOST-PROCESS.tmp beside `target`. It is flushed to the disk before it is
    renamed, and removed after any error; what a killed process left is removed a day later. An
    existing file is replaced; an existing folder has to be removed first.
    """
    staging = target.with_name(f".{target.name}.{platform.node()}-{os.getpid()}.tmp")
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with suppress(FileNotFoundError):  # another process has just renamed its own
            if left == staging or time.time() - left.stat().st_mtime > 86_400:
                remove(left)
    try:
        yield staging
        fsync(staging, *staging.rglob("*"))
        os.replace(staging, target)
        fsync(target.parent)
    finally:
        remove(staging)


@contextmanager
def writing(target: Path, advice: str = "make room or check the permissions") -> Iterator[None]:
    """Turn an error of writing `target` into a UserError that says what to do (`advice`)."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        # torch.save raises a RuntimeError of its own on top of the OSError.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if not isinstance(cause, OSError | SafetensorError):
            raise
        if isinstance(cause, FileNotFoundError):
            advice = "the folder was removed or renamed"
        raise UserError(f"cannot write {target}: {first_line(cause)}; {advice}") from error


class Busy(UserError):
    """Another process works on what was to be locked."""


@contextmanager
def locked(
    path: Path, busy: str, *, wait: bool = True, gives_up: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Let one process at a time work on `path`, by a lock on the file .NAME.lock beside it.

    If another process has the lock, say `busy` and wait; without `wait`, or when `gives_up` returns
    True while it waits, raise Busy with it. Raises another UserError where the lock cannot be
    written. The system releases the lock of a process that dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_name(f".{path.name}.lock")
    lock = FileLock(file)
    try:
        acquire(lock, busy, wait, gives_up)
    except OSError as error:
        raise UserError(f"cannot write {file}: {first_line(error)}; make room or check the "
                        "permissions") from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows keeps a file that is open
            file.unlink()  # processes that wait for it notice, and open another one
        lock.release()


def acquire(
    lock: FileLock, busy: str, wait: bool, gives_up: Callable[[], bool] | None
) -> None:
    """Take a lock, for `locked`. Raises Busy as that does, and OSError where its file cannot be
    written, or the folder of the file was removed while it waited."""
    try:
        lock.acquire(blocking=False)
        return
    except Timeout:
        if not wait:
            raise Busy(busy) from None
    say(busy)
    try:
        lock.acquire(cancel_check=gives_up)
    except Timeout:
        raise Busy(f"{busy}, until it was stopped") from None


def refuse_stdout(option: str, path: str | Path | None) -> None:
    """Raise UserError for `-`, which elsewhere means stdout: a file would get this name."""
    if str(path) == "-":
        raise UserError(f"{option} - is not stdout, where nothing of this is written: give the "
                        "name of a file")


def refuse_folder(option: str, path: str | None) -> None:
    """Raise UserError for a folder in place of a file that is to be written, before any work."""
    if path is not None and Path(path).is_dir():
        raise UserError(f"{option} {path} is a folder: give the name of a file")


def may_be_in_name(character: str) -> bool:
    """Return whether a character may be in a name that we give a run or a folder.

    Letters, digits, and the marks that belong to letters, such as the vowels of Hindi; _ . = + -
    No marks of emoji, which choose how a character looks.
    """
    if "\ufe00" <= character <= "\ufe0f":
        return False
    is_mark = unicodedata.category(character) in ("Mc", "Mn")
    return character.isalnum() or is_mark or character in "_.=+-"


def why_not_writable(path: Path) -> str | None:
    """Return why no file or folder can be made at a path below its first folder that is there.

    None if it can be made.
    """
    path = path.absolute()
    present = next(folder for folder in (path, *path.parents) if folder.exists())
    if not present.is_dir():
        return f"{present} is no folder"
    return None if os.access(present, os.W_OK) else f"{present} cannot be written"


def refuse_unwritable(option: str, path: str | None) -> None:
    """Raise UserError for a file in a folder that cannot be made or written, before any work."""
    reason = None if path is None else why_not_writable(Path(path).resolve().parent)
    if reason is not None:
        raise UserError(f"{option} {path} cannot be written, because {reason}: choose another "
                        "place")


def refuse_other_file(option: str, path: str | None, beginning: bytes) -> None:
    """Raise UserError for what would be lost: a device, a pipe, or a file that an option would
    replace and that does not begin as what it writes.

    beginning: a regular expression. An empty file may always be replaced.
    """
    if path is None or not Path(path).exists():
        return
    if not Path(path).is_file():
        raise UserError(f"{option} {path} is a device or a pipe, which it cannot write to: choose "
                        "a file")
    with Path(path).open("rb") as file:
        content = file.read(64)
    if content and not re.match(beginning, content):
        raise UserError(f"{option} {path} would replace a file that {option} has not written: "
                        "choose another name, or remove it")


def write_file(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, and make its folder. Raises UserError as `writing`.

    A symbolic link stays one, and the file that it leads to is written.
    """
    path = path.resolve()
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as staging:
            staging.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, whole or not at all. Raises ValueError for NaN."""
    write_file(path, f"{json.dumps(value, indent=1, allow_nan=False)}\n".encode())


def stage_json(path: Path, value: Any) -> None:
    """Write `value` as JSON into a folder that others do not see yet (see `atomic_path`)."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    # A path that is not UTF-8 is a str with surrogates, which become \udcXX as in JSON.
    path.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")


def json_sha256(value: Any) -> str:
    """Return the SHA-256 of a value as JSON with its keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_json(path: Path, advice: str = "restore it") -> dict[str, Any]:
    """Return the object in a file of JSON.

    Raises UserError, which says what to do (`advice`), for a file without one.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it holds no object")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({first_line(error)}): {advice}") from error
    return value


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object, with the hash of all other fields as one more, "sha256"."""
    write_json(path, value | {"sha256": json_sha256(value)})


def read_sealed(path: Path, advice: str) -> dict[str, Any]:
    """Return what `write_sealed` has written. UserError where the file is damaged or changed."""
    value = read_json(path, advice)
    if value.pop("sha256", None) != json_sha256(value):
        raise UserError(f"{path} is not what was written (its hash differs): {advice}")
    return value


def require_space(target: Path, size: int) -> None:
    """Raise UserError, before anything is written, if the disk has no room for `size` bytes."""
    folder = next(folder for folder in target.absolute().parents if folder.exists())
    free = shutil.disk_usage(folder).free
    if free < size:
        raise UserError(f"{size / 1e6:,.1f} MB are needed and the disk of {folder} has "
                        f"{free / 1e6:,.1f} MB free: make room, or choose another place")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fsync(*paths: Path) -> None:
    """Wait until files, and the names in folders, are on the disk."""
    posix = hasattr(os, "O_DIRECTORY")  # Windows flushes no folders, and no file that is read-only
    for path in paths:
        if path.is_dir() and not posix:
            continue
        descriptor = os.open(path, os.O_RDONLY if posix else os.O_RDWR)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network filesystems, such as CIFS, cannot flush a folder, and say EINVAL.
            if error.errno != errno.EINVAL or not path.is_dir():
                raise
        finally:
            os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, or a folder and all that is in it, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if it has none."""
    line = str(error).partition("\n")[0]
    if line in ("", "None"):
        return type(error).__name__
    return line
