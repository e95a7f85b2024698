"""A Python that has only some of the packages that are installed here."""

import csv
import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

# What training on a text file and generating from the run need. They bring what they require.
NEEDED = ("docstring-parser", "msgspec", "numpy", "pyyaml", "safetensors", "sentencepiece", "torch",
          "tqdm")


@cache
def with_requirements(packages: tuple[str, ...]) -> set[str]:
    """The names of these packages, and of all that they require."""
    names: set[str] = set()
    rest = [*packages]
    while rest:
        name = re.sub("[-_.]+", "-", rest.pop()).lower()
        if name in names:
            continue
        names.add(name)
        for line in distribution(name).requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                rest.append(requirement.name)
    return names


@cache
def top_level_paths(package: str) -> list[Path] | None:
    """The folders and files of a package in site-packages; None without a list of its files."""
    installed = distribution(package)
    record = installed.read_text("RECORD")  # `files` looks for each of torch's 10,000: 0.3 s
    if record is None:
        return None
    files = [row[0] for row in csv.reader(record.splitlines())]
    names = {file.split("/")[0] for file in files} - {"..", "__pycache__"}
    return [Path(str(installed.locate_file(name))) for name in names]


def link_packages(folder: Path, packages: Iterable[str]) -> None:
    """Make a folder that has these packages and no others, for PYTHONPATH and `python -S`."""
    folder.mkdir()
    for name in packages:
        paths = top_level_paths(name)
        if paths is None:
            pytest.skip(f"the package {name} was installed without a list of its files")
        for path in paths:
            link = folder / path.name
            if not link.exists():  # several packages may share a namespace, such as nvidia
                link.symlink_to(path, path.is_dir())
