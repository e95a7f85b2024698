"""Where text comes from: the standard library, files, a URL, a data set on the Hub.

Every text arrives byte for byte: no line end, form feed or final newline is touched. A text larger
than memory streams. Parquet and the Hub are read by Hugging Face `datasets`, which takes a second
to import, and so is imported where it is used.
"""

import atexit
import codecs
import glob
import hashlib
import json
import logging
import os
import platform
import re
import shutil
import sys
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile, mkdtemp
from types import ModuleType
from typing import Any, Literal
from urllib.parse import urlsplit

from tqdm import tqdm

from errors import UserError, check_ranges, say
from files import atomic_path, first_line, json_sha256, locked, sha256

PIECE = 1 << 20  # characters of a text file that are read at a time
PATIENCE = 15  # seconds without a byte from a server before we say so
TABLES = {".jsonl": "json", ".parquet": "parquet"}  # other files are plain text
ROWS = 1000  # of a Parquet file in memory at a time; and of any table, by which it has a column
OFFLINE = "Offline there are --data.files PATH, with a copy of it, and --data.source stdlib"
SMALLEST_LIBRARY = 1_000_000  # bytes; a standard library smaller than this was moved or stripped

SMALLEST_VOCABULARY = 260  # unk, bos, eos, the 256 bytes and the space

# Not text that anybody would read: test suites, what others installed, a megabyte of generated
# code-page tables, and the settings with which this Python was compiled.
NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings"}
NOT_LIBRARY_PREFIX = ("_sysconfigdata", "config-")


@dataclass
class DataConfig:
    """Which text, how it becomes tokens, and how many of them make a row."""

    source: Literal["stdlib", "files", "url", "hub"] = "stdlib"
    """Where text comes from. stdlib: this Python's own standard library, which needs no network."""
    files: list[str] | None = None
    """Paths and globs of .jsonl, .parquet or plain text. They replace whatever the source was."""
    url: str | None = None
    """Address of one such file, for source url. It is fetched once."""
    sha256: str | None = None
    """SHA-256 that the file of data.url must have, in hexadecimal digits; unset: any."""
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
    vocab_size: int = 4096
    """Pieces of the tokenizer; three control ids, the 256 bytes and the space are among them."""
    seq_len: int = 256
    """Tokens of a training row."""
    val_fraction: float = 0.1
    """Share held out for validation: of the documents, or of the end of a single one."""
    prepared: str = "data/prepared"
    """Folder for what is prepared: tokenizer and token ids, one folder for each setting."""

    def check(self) -> None:
        """Let `files` replace any other source. Raises UserError for what cannot be."""
        if self.files is not None:
            # A local copy stands in for a download: --data.files needs no other change.
            self.source = "files"
            for name in _SOURCES_OF.keys() - {"column"}:
                setattr(self, name, getattr(DataConfig, name))
        if self.source != "stdlib" and not getattr(self, self.source):
            raise UserError(f"data.source {self.source} needs --data.{self.source}")
        for name, sources in _SOURCES_OF.items():
            if getattr(self, name) != getattr(DataConfig, name) and self.source not in sources:
                raise UserError(f"data.{name} has no effect with data.source {self.source}")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise UserError(f"data.url {self.url} must start with http:// or https://")
        if self.sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise UserError(f"data.sha256 {self.sha256} must be 64 hexadecimal digits, in small "
                            "letters")
        check_ranges("data", self, vocab_size=f"[{SMALLEST_VOCABULARY}, {2**31})",
                     seq_len="[1, inf)", val_fraction="(0, 1)")
        if not self.prepared:
            raise UserError("data.prepared is empty: name a folder")


# The options that are for some sources only, and for which.
_SOURCES_OF = {"url": ["url"], "sha256": ["url"], "hub": ["hub"], "hub_config": ["hub"],
               "hub_split": ["hub"], "hub_revision": ["hub"], "column": ["files", "url", "hub"]}


def documents(config: DataConfig) -> Iterator[Iterable[str]]:
    """The documents of a source in a fixed order, each an iterable of pieces of bounded size.

    Raises UserError where the source is missing, empty, not UTF-8, or does not answer.
    """
    # Of the three, the configuration has the one that its source needs.
    if config.files:
        return _file_documents(_matches(config.files), config.column)
    if config.url:
        file = _download(config.url, config.sha256)
        return _file_documents([file], config.column, config.url)
    if config.hub:
        return _hub_documents(config.hub, config)
    return _stdlib_documents()


def fingerprint(config: DataConfig) -> str | None:
    """A hash that changes when the text does, without reading the text.

    From names, sizes and, but for the standard library, times. None for what has to be fetched: it
    may change at any moment, and is fetched once (`hub_revision` can pin it).
    """
    if config.source == "stdlib":
        files = [(name, path.stat().st_size) for name, path in _stdlib_files()]
        return json_sha256([platform.python_version(), files])
    if config.files:
        stats = [(str(Path(name).resolve()), os.stat(name)) for name in _matches(config.files)]
        return json_sha256([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
    return None


# The standard library


def _stdlib_files() -> list[tuple[str, Path]]:
    """(name, path) of each module, by name."""
    root = sysconfig.get_paths()["stdlib"]
    files = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if not _is_foreign(name)]
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".py" and not _is_foreign(name) and path.is_file():
                files.append((path.relative_to(root).as_posix(), path))
    if sum(path.stat().st_size for _, path in files) < SMALLEST_LIBRARY:
        raise UserError(f"this Python keeps no sources of its standard library in {root}: give "
                        "text of your own with --data.files PATH")
    return sorted(files)


def _is_foreign(name: str) -> bool:
    return name in NOT_LIBRARY or name.startswith(NOT_LIBRARY_PREFIX)


def _stdlib_documents() -> Iterator[list[str]]:
    """One per module, then one per topic of `help()`: the language reference as plain text."""
    for name, path in _stdlib_files():
        if name == "pydoc_data/topics.py":  # the same topics as one escaped literal
            continue
        with suppress(UnicodeDecodeError):
            yield [path.read_bytes().decode()]
    with suppress(ImportError):  # some distributions leave them out
        from pydoc_data.topics import topics

        for _, text in sorted(topics.items()):
            yield [text]


# Files


def _matches(patterns: Iterable[str]) -> list[str]:
    """The files that paths and globs stand for, once each, whatever links lead to them, in the
    order given; globs sorted."""
    paths: dict[str, str] = {}
    for pattern in patterns:
        pattern = os.path.expanduser(pattern)
        _refuse_loops(pattern)
        found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
        files = [path for path in found if not os.path.isdir(path)]
        for path in files:
            if not os.path.isfile(path):
                raise UserError(f"--data.files {path} is neither a file nor a folder, or a link to "
                                "nothing: leave it out")
        if not files:
            wrong = "does not exist"
            if found:
                wrong = f"is a folder: name its files, as in '{pattern}/*'"
            elif glob.has_magic(pattern):
                wrong = "matches no file"
            raise UserError(f"--data.files {pattern} {wrong}")
        for path in files:
            paths.setdefault(os.path.realpath(path), path)
    return list(paths.values())


def _refuse_loops(pattern: str) -> None:
    """UserError for a link to a folder above it where ** would follow it, again and again."""
    above, stars, _ = pattern.partition("**")
    for root in glob.glob(above or "./") if stars else ():
        for link in filter(Path.is_symlink, Path(root).rglob("*")):  # which follows none
            if Path(os.path.realpath(link.parent)).is_relative_to(os.path.realpath(link)):
                raise UserError(f"--data.files {pattern} meets {link}, a link to a folder that it "
                                "is in: remove it, or name the folders beside it")


def _file_documents(
    paths: list[str], column: str, url: str | None = None
) -> Iterator[Iterable[str]]:
    """Files that are empty are no documents. `url` is where a single file came from: its path in a
    cache says nothing."""
    full = [path for path in paths if os.path.getsize(path)]
    if not full:
        raise UserError(f"{url or paths[0]} is empty")
    for path in full:
        suffix = PurePosixPath(urlsplit(url).path if url else path).suffix.lower()
        if suffix in TABLES:
            yield from _table_documents(TABLES[suffix], path, column, url or path)
        else:
            yield _pieces(path, url or path)


def _pieces(path: str, name: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            while text := file.read(PIECE):
                yield text
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8 text (byte 0x{error.object[error.start]:02x}): "
                        "convert it, or leave it out") from error


def _table_documents(kind: str, path: str, column: str, name: str) -> Iterator[list[str]]:
    try:
        rows = _json_rows(path) if kind == "json" else _parquet_rows(path, column, name)
        for text in _column(rows, column, name):
            yield [text]
    except UserError:
        raise
    except Exception as error:  # whatever Arrow makes of a damaged file
        raise UserError(f"{name} cannot be read as {kind}: {_cause(error)}") from error


def _json_rows(path: str) -> Iterator[dict[str, Any]]:
    """Not by `datasets`, which takes what looks like a date for one, and a file's first 10 MB for
    what all of it is like."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode())
                if not isinstance(row, dict):
                    raise ValueError("one JSON object in each line is needed")
                for value in row.values():
                    if isinstance(value, str):
                        value.encode()  # JSON can spell half a character
            except ValueError as error:
                raise ValueError(f"line {number}: {getattr(error, 'msg', error)}") from error
            yield row


def _parquet_rows(path: str, column: str, name: str) -> Iterable[dict[str, Any]]:
    _check_schema(path, column, name)
    return _datasets().load_dataset(
        "parquet", data_files=glob.escape(path), split="train", streaming=True, columns=[column],
        batch_size=ROWS,
    )


def _column(rows: Iterable[dict[str, Any]], column: str, name: str) -> Iterator[str]:
    """The texts of one column, which one of the first rows must have. A row without text (null, ""
    or no such column) is no document."""
    types: dict[str, str] = {}
    for i, row in enumerate(rows):
        text = row.get(column)
        if column not in types or not isinstance(text, str | None):
            types |= {key: type(value).__name__ for key, value in row.items()}
        if not isinstance(text, str | None) or (i == ROWS and column not in types):
            raise _no_text(column, types, name)
        if text:
            yield text
    if types and column not in types:
        raise _no_text(column, types, name)


def _check_schema(path: str, column: str, name: str) -> None:
    """UserError for a column that is not there or holds no text, before a row is read: where
    reading ends early, Arrow may crash (apache/arrow issue 45214)."""
    from pyarrow import parquet

    types = {field.name: str(field.type) for field in parquet.read_schema(path)}
    if not re.match("(dictionary<values=)?(large_)?string", types.get(column, "")):
        raise _no_text(column, types, name)


def _no_text(column: str, types: dict[str, str], name: str) -> UserError:
    """What is said of a table with columns of these types, of which `column` is no text."""
    if column not in types:
        return UserError(f"{name} has no column {column!r}, only {', '.join(types)}: choose with "
                         "--data.column")
    return UserError(f"column {column!r} of {name} holds {types[column]}, not text: choose another "
                     "with --data.column")


# What has to be fetched


def _download(url: str, digest: str | None) -> str:
    """Fetch a file once, into the cache of `datasets`; the copy serves ever after, also offline.

    One that has not this SHA-256 is fetched again. UserError where what comes has not, either.
    """
    folder = Path(_datasets().config.DOWNLOADED_DATASETS_PATH)
    path = folder / hashlib.sha256(url.encode()).hexdigest()
    with locked(path, f"waiting for another process: {url}"):
        if not path.exists() or digest not in (None, sha256(path)):
            _fetch(url, path, digest)
    return str(path)


def _fetch(url: str, path: Path, digest: str | None) -> None:
    """Over the Hub's connection (proxies, certificates, HF_HUB_OFFLINE): `datasets` leaves other
    addresses to fsspec, which cannot do http as it is installed."""
    from huggingface_hub import get_session

    try:
        with atomic_path(path) as staging:
            with (
                staging.open("wb") as file,
                get_session().stream("GET", url, timeout=PATIENCE) as answer,
                tqdm(desc=url, unit="B", unit_scale=True, delay=2) as bar,
            ):
                answer.raise_for_status()
                for block in answer.iter_bytes():
                    file.write(block)
                    bar.update(len(block))
            if digest not in (None, found := sha256(staging)):
                raise UserError(f"{url} has the SHA-256 {found}, and data.sha256 is {digest}: it "
                                "is another file, or a changed one")
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):  # of the disk
            raise UserError(f"cannot write {path}: {first_line(error)}; make room, or name another "
                            "folder with HF_HOME") from error
        raise UserError(f"{url} cannot be fetched ({_cause(error)}). {OFFLINE}") from error


def _hub_documents(name: str, config: DataConfig) -> Iterator[list[str]]:
    """A data set of the Hub, from the cache of `datasets` where the Hub does not answer.

    Asked first and briefly, because `datasets` itself tries for minutes.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    datasets, revision = _datasets(), config.hub_revision
    silence: Exception | None = None
    try:
        hub = HfApi(endpoint=datasets.config.HF_ENDPOINT)
        hub.dataset_info(name, revision=revision, timeout=PATIENCE)
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UserError(f"the Hub has no data set {name}: {_cause(error)}") from error
    except Exception as error:  # no network, no answer, a server in trouble, HF_HUB_OFFLINE
        silence = error
    datasets.config.HF_HUB_OFFLINE = silence is not None
    try:
        rows = datasets.load_dataset(name, config.hub_config, split=config.hub_split,
                                     revision=revision)
    except Exception as error:
        cause = _cause(silence or error)
        raise UserError(f"the Hub gives no {name} ({cause}). {OFFLINE}") from error
    # Offline, `datasets` takes the newest copy in its cache, of whatever revision.
    copies = [file["filename"] for file in rows.cache_files]
    if silence and revision and not all(revision in Path(copy).parts for copy in copies):
        raise UserError(f"the Hub does not answer ({_cause(silence)}), and the cache, which knows "
                        f"commits by their hashes only, has no {revision} of {name}. {OFFLINE}")
    if config.column in rows.column_names:
        rows = rows.select_columns(config.column)
    for text in _column(rows, config.column, name):
        yield [text]


def _datasets() -> ModuleType:
    """Hugging Face `datasets`, silent: what goes wrong reaches the user once, as a UserError.

    Where its cache cannot be written it has another one; which, it asks when it is imported.
    """
    if "datasets" not in sys.modules:
        cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
        home = Path(os.environ.get("HF_HOME", f"{cache}/huggingface")).expanduser()
        try:
            home.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=home).close()
        except OSError as error:
            os.environ["HF_HOME"] = mkdtemp(prefix="huggingface-")
            atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
            say(f"warning: {home} cannot be written ({error.strerror}), so what is fetched is kept "
                "no longer than this command runs; HF_HOME can name another folder")
    import datasets

    datasets.logging.set_verbosity(logging.CRITICAL)
    return datasets


def _cause(error: BaseException) -> str:
    kind, text = type(error).__name__, str(error).strip()
    return textwrap.shorten(f"{kind}: {text.splitlines()[0]}" if text else kind, 200)
