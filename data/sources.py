"""Where text comes from: the standard library, files, a URL, a data set on the Hub.

Every source is read through Hugging Face `datasets` and arrives byte for byte: no line end, form
feed or final newline is touched. A text larger than memory streams. `datasets` takes a second to
import and is needed only to prepare data, so it is imported where it is used.
"""

import glob
import hashlib
import importlib
import itertools
import json
import logging
import os
import platform
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from tqdm import tqdm

from data.dataset import DataConfig
from errors import UserError

PIECE = 1 << 20  # characters of a text file that are read at a time
PATIENCE = 15  # seconds without a byte from a server before we say so
TABLES = {".jsonl": "json", ".parquet": "parquet"}  # suffix -> loader; other files are plain text
SMALLEST_LIBRARY = 1_000_000  # bytes; a standard library smaller than this was moved or stripped

# Not text that anybody would read: test suites, what others installed, a megabyte of generated
# code-page tables, and the settings with which this Python was compiled.
NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings"}
NOT_LIBRARY_PREFIX = ("_sysconfigdata", "config-")


def documents(config: DataConfig) -> Iterator[Iterable[str]]:
    """The documents of a source in a fixed order, each an iterable of pieces of bounded size.

    Finish one document before asking for the next: they share one stream. Raises UserError where
    the source is missing, empty, not UTF-8, or does not answer.
    """
    if config.source == "stdlib":
        return _stdlib_documents()
    if config.source == "files":
        return _file_documents(_matches(config.files), config.column)
    if config.source == "url":
        return _file_documents([_download(config.url)], config.column, config.url)
    return _hub_documents(config)


def fingerprint(config: DataConfig) -> str | None:
    """A hash that changes when the text does, without reading the text.

    From names, sizes and times. None for what has to be fetched: it may change at any moment, and
    is fetched once (`hub_revision` can pin it).
    """
    if config.source == "stdlib":
        files = [(name, path.stat().st_size) for name, path in _stdlib_files()]
        identity: list[Any] = [platform.python_version(), files]
    elif config.source == "files":
        stats = [(Path(name).resolve(), os.stat(name)) for name in _matches(config.files)]
        identity = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    else:
        return None
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


# The standard library


def _stdlib_files() -> list[tuple[str, Path]]:
    root = sysconfig.get_paths()["stdlib"]
    files = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if not _is_foreign(name)]
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".py" and not _is_foreign(name) and path.is_file():
                files.append((path.relative_to(root).as_posix(), path))
    if sum(path.stat().st_size for _, path in files) < SMALLEST_LIBRARY:
        raise UserError(
            f"this Python keeps no sources of its standard library in {root}: give text of your "
            "own with --data.files PATH"
        )
    return sorted(files)


def _is_foreign(name: str) -> bool:
    return name in NOT_LIBRARY or name.startswith(NOT_LIBRARY_PREFIX)


def _stdlib_documents() -> Iterator[Iterable[str]]:
    for row in _datasets().IterableDataset.from_generator(_stdlib_rows):
        yield [row["text"]]


def _stdlib_rows() -> Iterator[dict[str, str]]:
    """One row per module, then one per topic of `help()`: the language reference as plain text."""
    for name, path in _stdlib_files():
        if name == "pydoc_data/topics.py":  # the same topics as one escaped literal
            continue
        try:
            yield {"text": path.read_bytes().decode()}
        except UnicodeDecodeError:
            continue
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:  # some distributions leave them out
        return
    for _, text in sorted(topics.items()):
        yield {"text": text}


# Files


def _matches(patterns: list[str]) -> list[str]:
    """The files that paths and globs stand for, once each, in the order given; globs sorted."""
    paths: dict[str, None] = {}
    for pattern in patterns:
        pattern = os.path.expanduser(pattern)
        found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
        files = [path for path in found if not os.path.isdir(path)]
        if not files and found:
            raise UserError(
                f"--data.files {pattern} is a folder: name its files, as in '{pattern}/*'"
            )
        if not files and glob.has_magic(pattern):
            raise UserError(f"--data.files {pattern} matches no file")
        if not files:
            raise UserError(f"--data.files {pattern} does not exist")
        paths.update(dict.fromkeys(files))
    return list(paths)


def _loader(name: str) -> str:
    return TABLES.get(PurePosixPath(name).suffix.lower(), "text")


def _file_documents(
    paths: list[str], column: str, url: str | None = None
) -> Iterator[Iterable[str]]:
    """`url` is where a single file came from: its path in a cache says nothing."""
    name = urlsplit(url).path if url else None
    for path in paths:
        if os.path.getsize(path) == 0:
            raise UserError(f"{url or path} is empty")
    for loader, group in itertools.groupby(paths, key=lambda path: _loader(name or path)):
        if loader == "text":
            # Not load_dataset("text"): it opens files in text mode, which turns "\r\n" into "\n".
            arguments = {"paths": tuple(group), "url": url}
            rows = _datasets().IterableDataset.from_generator(_text_rows, gen_kwargs=arguments)
            for _, pieces in itertools.groupby(rows, key=itemgetter("document")):
                yield (row["text"] for row in pieces)
        else:
            for path in group:
                yield from _table_documents(loader, path, column, url or path)


def _text_rows(paths: tuple[str, ...], url: str | None) -> Iterator[dict[str, Any]]:
    for document, path in enumerate(paths):
        try:
            with open(path, encoding="utf-8", newline="") as file:
                while text := file.read(PIECE):
                    yield {"document": document, "text": text}
        except UnicodeDecodeError as error:
            raise UserError(
                f"{url or path} is not UTF-8 text (byte 0x{error.object[error.start]:02x}): "
                "convert it, or leave it out of --data.files"
            ) from error


def _table_documents(loader: str, path: str, column: str, name: str) -> Iterator[list[str]]:
    empty = True
    try:
        rows = _datasets().load_dataset(
            loader, data_files=glob.escape(path), split="train", streaming=True
        )
        for text in _column(rows, column, name):
            empty = False
            yield [text]
    except UserError:
        raise
    except Exception as error:  # whatever Arrow makes of a damaged file
        raise UserError(f"{name} cannot be read as {loader}: {_cause(error)}") from error
    if empty:
        raise UserError(f"{name} holds no text in column {column!r}")


def _column(rows: Iterable[dict[str, Any]], column: str, name: str) -> Iterator[str]:
    """The texts of one column. A row without text (null or "") is no document."""
    for row in rows:
        if column not in row:
            raise UserError(
                f"{name} has no column {column!r}, only {', '.join(row)}: choose with --data.column"
            )
        text = row[column]
        if text is not None and not isinstance(text, str):
            raise UserError(
                f"column {column!r} of {name} holds {type(text).__name__}, not text: choose "
                "another with --data.column"
            )
        if text:
            yield text


# What has to be fetched


def _download(url: str) -> str:
    """Fetch a file once, into the cache of `datasets`; the copy serves ever after, also offline.

    Over the Hub's connection (proxies, certificates, HF_HUB_OFFLINE): `datasets` leaves other
    addresses to fsspec, which cannot do http as it is installed.
    """
    from huggingface_hub import get_session

    folder = Path(_datasets().config.DOWNLOADED_DATASETS_PATH)
    path = folder / hashlib.sha256(url.encode()).hexdigest()
    if path.exists():
        return str(path)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with (
            get_session().stream("GET", url, timeout=PATIENCE) as answer,
            open(temporary, "wb") as file,
            tqdm(desc=url, unit="B", unit_scale=True, delay=2) as bar,
        ):
            answer.raise_for_status()
            for block in answer.iter_bytes():
                file.write(block)
                bar.update(len(block))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except Exception as error:
        raise UserError(f"{url} cannot be fetched ({_cause(error)}). {_OFFLINE}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return str(path)


def _hub_documents(config: DataConfig) -> Iterator[list[str]]:
    """A data set of the Hub, from the cache of `datasets` where the Hub does not answer.

    Asked first and briefly, because `datasets` itself tries for minutes.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    datasets = _datasets()
    silence = None
    try:
        HfApi(endpoint=datasets.config.HF_ENDPOINT).dataset_info(
            config.hub, revision=config.hub_revision, timeout=PATIENCE
        )
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UserError(f"the Hub has no data set {config.hub}: {_cause(error)}") from error
    except Exception as error:  # no network, no answer, a server in trouble, HF_HUB_OFFLINE
        silence = error
    datasets.config.HF_HUB_OFFLINE = silence is not None
    try:
        rows = datasets.load_dataset(
            config.hub, config.hub_config, split=config.hub_split, revision=config.hub_revision
        )
    except Exception as error:
        cause = _cause(silence or error)
        raise UserError(f"the Hub gives no {config.hub} ({cause}). {_OFFLINE}") from error
    # Offline, `datasets` takes the newest copy in its cache, of whatever revision.
    copies = [file["filename"] for file in rows.cache_files]
    if silence and config.hub_revision and not all(config.hub_revision in name for name in copies):
        raise UserError(
            f"the Hub does not answer ({_cause(silence)}), and the cache holds another revision of "
            f"{config.hub} than {config.hub_revision}. {_OFFLINE}"
        )
    if config.column in rows.column_names:
        rows = rows.select_columns(config.column)
    for text in _column(rows, config.column, config.hub):
        yield [text]


_OFFLINE = "Offline there are --data.files PATH, with a copy of it, and --data.source stdlib"


def _datasets() -> ModuleType:
    """Hugging Face `datasets`, silent: what goes wrong reaches the user once, as a UserError."""
    import datasets

    datasets.logging.set_verbosity(logging.CRITICAL)
    return datasets


def _cause(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return textwrap.shorten(
        f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__, 200
    )
