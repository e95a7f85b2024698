"""A Python that has only some of the packages that are installed here."""

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


def link_packages(folder: Path, packages: Iterable[str]) -> None:
    """Make a folder that has these packages and no others, for PYTHONPATH and `python -S`."""
    folder.mkdir()
    for name in packages:
        package = distribution(name)
        if package.files is None:
            pytest.skip(f"the package {name} was installed without a list of its files")
        for top in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            link = folder / top
            if not link.exists():  # several packages may share a namespace, such as nvidia
                target = Path(str(package.locate_file(top)))
                link.symlink_to(target, target.is_dir())
