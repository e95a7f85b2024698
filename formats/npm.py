"""Packages of npm, each pinned to one version: fetched, compared with its hash, and unpacked."""

import base64
import hashlib
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from errors import UserError


class Unavailable(Exception):
    """npm cannot bring a package. The message says why."""


@dataclass(frozen=True)
class Package:
    """One version of a package of npm, and the SHA-512 of its tarball."""

    name: str
    version: str
    sha512: str
    """In base64, as npm prints it."""

    @property
    def pinned(self) -> str:
        """What npm calls this version."""
        return f"{self.name}@{self.version}"


def fetch(package: Package, folder: Path) -> Path:
    """Return the tarball of a package, which npm brings into `folder`.

    npm uses the registry that it is configured for, and its own cache. Nothing in the package is
    executed. Raises Unavailable, or UserError if npm brings another tarball than the pinned one.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed")
    command = [npm, "pack", package.pinned, "--prefer-offline", "--ignore-scripts",
               "--fetch-retries=1", "--loglevel=error"]
    stem = package.name.removeprefix("@").replace("/", "-")
    tarball = folder / f"{stem}-{package.version}.tgz"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8",
                          errors="replace", check=False)
    if done.returncode != 0 or not tarball.is_file():
        raise Unavailable(f"npm could not fetch {package.pinned}")
    check_tarball(package, tarball)
    return tarball


def check_tarball(package: Package, tarball: Path) -> None:
    """Raise UserError for a tarball that is not the pinned one."""
    with tarball.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha512").digest()
    if base64.b64encode(digest).decode() != package.sha512:
        raise UserError(f"npm brought another {package.pinned} than the published one, whose "
                        "SHA-512 gyre knows: check npm's registry (npm config get registry)")


def unpack(tarball: Path, names: Iterable[str], folder: Path) -> None:
    """Write the files of these names in a tarball into `folder`, in the same subfolders."""
    with tarfile.open(tarball) as archive:
        for name in names:
            content = archive.extractfile(f"package/{name}")
            assert content is not None
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as stream:
                shutil.copyfileobj(content, stream)
