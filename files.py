"""Files that are whole or not there: atomic writing, hashes, room on the disk, JSON."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from errors import UserError


def write_file(file: Path, data: bytes) -> None:
    """There completely or not at all."""
    with writing(file), atomic_path(file) as staging:
        staging.write_bytes(data)


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Where to write a file or folder that then becomes `target`, completely or not at all.

    It stands beside `target`, is on the disk before it is renamed, and is gone after any error.
    """
    staging = target.with_name(f".{target.name}.tmp")
    remove(staging)
    try:
        yield staging
        fsync(staging, *staging.rglob("*"))
        os.replace(staging, target)
        fsync(target.parent)
    finally:
        remove(staging)


@contextmanager
def writing(target: Path, advice: str = "make room or check the permissions") -> Iterator[None]:
    """Turn what the disk refuses into words. `torch.save` hides it behind a RuntimeError."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if not isinstance(cause, OSError | SafetensorError):
            raise
        raise UserError(f"cannot write {target}: {first_line(cause)}; {advice}") from error


def write_json(path: Path, value: Any) -> None:
    """There completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Raises UserError where the file is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: remove it, and its part is made again") from error


def require_space(target: Path, size: int) -> None:
    """UserError, before anything is written, where the disk has no room for `size` bytes."""
    folder = next(folder for folder in target.absolute().parents if folder.exists())
    free = shutil.disk_usage(folder).free
    if free < size:
        raise UserError(
            f"{size / 1e6:,.1f} MB are needed and the disk of {folder} has "
            f"{free / 1e6:,.1f} MB free: make room, or choose another place"
        )


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fsync(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
