"""Where text comes from: a registry of sources, and the configuration that chooses one.

Every text arrives byte for byte: no line end, form feed or final newline is touched. A text larger
than memory streams. Hugging Face `datasets` reads it; it takes a second to import, and so is
imported only where text is read.
"""

import glob
import hashlib
import json
import logging
import os
import platform
import re
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Annotated, Any
from urllib.parse import urlsplit

from data.bpe import SMALLEST_VOCABULARY
from errors import UserError, check_ranges
from files import atomic_path, first_line, sha256

AUTO = "auto"
Fitted = Annotated[int, AUTO]
"""A number of the configuration that may be `auto`: then it is chosen for the text."""

PIECE = 1 << 20  # characters of a text file that are read at a time
ROWS = 1000  # rows of a Parquet file in memory at a time
OFFLINE = "Offline, use a copy of it, with --data.files PATH, or --data.source stdlib"

# Files and folders that nobody reads as text: test suites, installed packages, a megabyte of
# generated code-page tables, and the settings with which this Python was compiled.
NOT_LIBRARY = re.compile("(test|tests|idle_test|site-packages|dist-packages|encodings)$"
                         "|_sysconfigdata|config-")


@dataclass
class DataConfig:
    """Which text, how it becomes tokens, and how many of them make a row."""

    source: str = "stdlib"
    """Where text comes from: stdlib, files, url or hub. stdlib is this Python's own standard
    library, which needs no network."""
    files: list[str] | None = None
    """Paths and globs of .jsonl, .parquet or plain text. They replace whatever the source was."""
    url: str | None = None
    """Address of a .jsonl, .parquet or text file, for source url. It is fetched once."""
    sha256: str | None = None
    """SHA-256 that the file of data.url must have, in lowercase hexadecimal digits; unset: any."""
    hub: str | None = None
    """Id of a data set on the Hugging Face Hub, for source hub."""
    hub_config: str | None = None
    """Configuration of the Hub data set, where it has several."""
    hub_split: str = "train"
    """Split of the Hub data set that is read; ours is made by val_fraction."""
    hub_revision: str | None = None
    """Branch, tag or commit of the Hub data set; a commit is the only one that cannot change."""
    column: str = "text"
    """Column of a .jsonl, .parquet or Hub row that holds the text. Each row is one document."""
    tokenizer: str | None = None
    """Folder whose tokenizer is used, such as an imported run. Unset: one is trained on the
    training split."""
    vocab_size: Fitted = 4096
    """Pieces of the tokenizer; three control ids, the 256 bytes and the space are among them. auto:
    as many as suit the size of the text, at most the number that the configuration has."""
    seq_len: Fitted = 256
    """Tokens of a training row. auto: fewer where the text is short, at most the number that the
    configuration has."""
    val_fraction: float = 0.1
    """Share held out for validation: of the documents, or of the end of a single one."""
    second_val: bool = False
    """Hold out a second part as large, to validate on it, and leave the first one out: settings
    can then be chosen without the text that is reported, as a study chooses its learning rates."""
    prepared: str = "data/prepared"
    """Folder for what is prepared: tokenizer and token ids, one folder for each setting."""

    def check(self) -> None:
        """Let `files` replace any other source. Raises UserError for settings that contradict."""
        if self.source not in SOURCES:
            raise UserError(f"data.source must be one of {', '.join(SOURCES)}, not {self.source}")
        if self.files is not None:
            # A local copy stands in for a download: --data.files needs no other change.
            for option in {*SOURCES[self.source].options} - {*Files.options}:
                setattr(self, option, getattr(DataConfig, option))
            self.source = "files"
        read = SOURCES[self.source].options
        if self.source in read and not getattr(self, self.source):
            raise UserError(f"data.source {self.source} needs --data.{self.source}")
        for option in {option for source in SOURCES.values() for option in source.options}:
            if option not in read and getattr(self, option) != getattr(DataConfig, option):
                raise UserError(f"data.{option} has no effect with data.source {self.source}")
        check_ranges("data", self, vocab_size=f"[{SMALLEST_VOCABULARY}, {2**31})",
                     seq_len="[1, inf)", val_fraction="(0, 1)")


@dataclass
class Source:
    """A source of text. A subclass names the fields of DataConfig that it reads, its `options`."""

    options = ()
    config: DataConfig

    def documents(self) -> Iterator[Iterable[str]]:
        """Yield the documents in a fixed order, each as pieces of bounded size.

        Raises UserError if the source is missing, empty, not UTF-8, or does not answer.
        """
        raise NotImplementedError

    def fingerprint(self) -> Any:
        """Return a value that changes when the text does, without reading the text.

        None is for text that has to be fetched, which is done once.
        """
        return None


class StandardLibrary(Source):
    """The modules of this Python's standard library, then the topics of `help()`.

    The topics are the language reference as plain text.
    """

    def files(self) -> list[tuple[str, Path]]:
        """Return the name and path of each module, sorted by name."""
        root, files = sysconfig.get_paths()["stdlib"], []
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = [name for name in subfolders if not NOT_LIBRARY.match(name)]
            files += [Path(folder, name) for name in names
                      if name.endswith(".py") and not NOT_LIBRARY.match(name)]
        if not files:
            raise UserError(f"this Python keeps no sources of its standard library in {root}: give "
                            "text of your own with --data.files PATH")
        return sorted((path.relative_to(root).as_posix(), path) for path in files)

    def fingerprint(self) -> Any:
        files = [(name, path.stat().st_size) for name, path in self.files()]
        return [platform.python_version(), files]

    def texts(self) -> Iterator[dict[str, str]]:
        """Yield each document as a row."""
        for name, path in self.files():
            # pydoc_data/topics.py has the topics as one escaped literal.
            with suppress(UnicodeDecodeError):
                if name != "pydoc_data/topics.py":
                    yield {"text": path.read_bytes().decode()}
        with suppress(ImportError):  # some distributions leave them out
            from pydoc_data.topics import topics

            yield from ({"text": text} for _, text in sorted(topics.items()))

    def documents(self) -> Iterator[Iterable[str]]:
        return read_column(import_datasets().IterableDataset.from_generator(self.texts), "text")


class Files(Source):
    """Paths and globs of .jsonl, .parquet or plain text, in the order given."""

    options = ("files", "column")

    def paths(self) -> list[str]:
        """Return the files of the paths and globs, globs sorted. A file is returned once, however
        many links lead to it."""
        paths: dict[str, str] = {}
        for pattern in map(os.path.expanduser, self.config.files or ()):
            exact = os.path.exists(pattern)
            matches = [pattern] if exact else sorted(glob.glob(pattern, recursive=True))
            files = [path for path in matches if not os.path.isdir(path)]
            if not files:
                raise UserError(f"--data.files {pattern} matches no file. Name the files of a "
                                "folder as in 'FOLDER/*'")
            for path in files:
                paths.setdefault(os.path.realpath(path), path)
        return list(paths.values())

    def fingerprint(self) -> Any:
        stats = [(str(Path(path).resolve()), os.stat(path)) for path in self.paths()]
        return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]

    def documents(self) -> Iterator[Iterable[str]]:
        return read_files(self.paths(), self.config.column)


class Url(Source):
    """The address of a file. It is fetched once, into the cache of `datasets`."""

    options = ("url", "sha256", "column")

    def documents(self) -> Iterator[Iterable[str]]:
        # The Hub's client resumes a download, and knows proxies and HF_HUB_OFFLINE.
        from huggingface_hub.file_download import http_get

        url, digest = str(self.config.url), self.config.sha256
        name = hashlib.sha256(url.encode()).hexdigest() + PurePosixPath(urlsplit(url).path).suffix
        path = Path(import_datasets().config.DOWNLOADED_DATASETS_PATH, name)
        if not path.exists() or digest not in (None, sha256(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            with reading(url, OFFLINE), atomic_path(path) as staging:
                with staging.open("wb") as file:
                    http_get(url, file)
                fetched = sha256(staging)
                if digest not in (None, fetched):
                    raise ValueError(f"its SHA-256 is {fetched}, and data.sha256 is {digest}")
        return read_files([str(path)], self.config.column)


class Hub(Source):
    """A data set of the Hugging Face Hub, or a copy in the cache if the Hub does not answer."""

    options = ("hub", "hub_config", "hub_split", "hub_revision", "column")

    def documents(self) -> Iterator[Iterable[str]]:
        config, datasets = self.config, import_datasets()
        name, commit = str(config.hub), config.hub_revision
        with reading(name, OFFLINE):
            rows = datasets.load_dataset(name, config.hub_config, split=config.hub_split,
                                         revision=commit).select_columns(config.column)
            # Offline, `datasets` takes the newest copy in its cache, of any commit.
            copies = [Path(file["filename"]).parts for file in rows.cache_files]
            if re.fullmatch("[0-9a-f]{40}", commit or "") and any(commit not in p for p in copies):
                raise ValueError(f"there is no copy of commit {commit}")
            yield from read_column(rows, config.column)


# A new source: a class above, and a line here.
SOURCES: dict[str, type[Source]] = {
    "stdlib": StandardLibrary, "files": Files, "url": Url, "hub": Hub,
}


def read_files(paths: list[str], column: str) -> Iterator[Iterable[str]]:
    """Yield the documents of files: a text file, or each row of a table."""
    for path in paths:
        suffix = Path(path).suffix.lower()
        if suffix not in (".jsonl", ".parquet"):
            yield read_text(path)
            continue
        with reading(path):
            rows = read_json(path) if suffix == ".jsonl" else read_parquet(path, column)
            yield from read_column(rows, column)


@contextmanager
def reading(name: str, advice: str = "") -> Iterator[None]:
    """Turn any error of reading a text into a UserError, which ends with `advice`."""
    try:
        yield
    except Exception as error:
        raise UserError(f"{name} cannot be read: {type(error).__name__}: {first_line(error)}. "
                        f"{advice}".rstrip()) from error


def read_text(path: str) -> Iterator[str]:
    """Yield a text file in pieces.

    The builder "text" of `datasets` would translate line ends, and hold a whole file in memory.
    """
    with reading(path), open(path, encoding="utf-8", newline="") as file:
        while text := file.read(PIECE):
            yield text


def read_json(path: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in the lines of a file.

    The builder "json" of `datasets` would turn texts that look like dates into dates, and infer the
    columns of the whole file from its first 10 MB.
    """
    lines = import_datasets().load_dataset(
        "text", data_files=glob.escape(os.path.abspath(path)), split="train", streaming=True,
        encoding="utf-8-sig",
    )
    for number, line in enumerate(lines, 1):
        try:
            if line["text"].strip():
                yield {**json.loads(line["text"])}  # TypeError if it is no object
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {number}: {error}") from error


def read_parquet(path: str, column: str) -> Iterable[dict[str, Any]]:
    """Return the rows of a Parquet file, with one column.

    Raises ValueError for a column that is not there or holds no text, before a row is read: if
    reading ends early, Arrow may crash (apache/arrow issue 45214).
    """
    from pyarrow import parquet

    types = {field.name: str(field.type) for field in parquet.read_schema(path)}
    if not re.match("(dictionary<values=)?(large_)?string", types.get(column, "")):
        raise no_text(column, types)
    return import_datasets().load_dataset(
        "parquet", data_files=glob.escape(os.path.abspath(path)), split="train", streaming=True,
        columns=[column], batch_size=ROWS,
    )


def read_column(rows: Iterable[dict[str, Any]], column: str) -> Iterator[Iterable[str]]:
    """Yield each text of one column as a document. At least one row must have the column; a row
    without text (null, "" or no such column) is no document."""
    columns: set[str] = set()
    for row in rows:
        columns |= row.keys()
        text = row.get(column)
        if not isinstance(text, str | None):
            raise no_text(column, {column: type(text).__name__})
        if text:
            text.encode()  # raises an error for a lone surrogate, which JSON can hold
            yield [text]
    if columns and column not in columns:
        raise no_text(column, sorted(columns))


def no_text(column: str, columns: Any) -> ValueError:
    """Return the error for a table with these columns, of which `column` is no text."""
    return ValueError(f"it has no text in a column {column!r}, only {columns}: choose a column of "
                      "text with --data.column")


def import_datasets() -> ModuleType:
    """Return Hugging Face `datasets`, silent: errors reach the user once, as a UserError."""
    import datasets

    datasets.logging.set_verbosity(logging.CRITICAL)
    return datasets
