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
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from tqdm import tqdm

from errors import UserError, check_ranges
from files import atomic_path, first_line, locked, sha256

PIECE = 1 << 20  # characters of a text file that are read at a time
PATIENCE = 15  # seconds without a byte from a server before we say so
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

    source: str = "stdlib"
    """Where text comes from: stdlib, files, url or hub. stdlib is this Python's own standard
    library, which needs no network."""
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
        readers: dict[str, list[str]] = {}
        for name, source in SOURCES.items():
            for option in source.options:
                readers.setdefault(option, []).append(name)
        if self.files is not None:
            # A local copy stands in for a download: --data.files needs no other change.
            self.source = "files"
            for option in readers.keys() - set(Files.options):
                setattr(self, option, getattr(DataConfig, option))
        if self.source not in SOURCES:
            raise UserError(f"data.source must be one of {', '.join(SOURCES)}, not {self.source}")
        if self.source in readers and not getattr(self, self.source):
            raise UserError(f"data.source {self.source} needs --data.{self.source}")
        for option, names in readers.items():
            if getattr(self, option) != getattr(DataConfig, option) and self.source not in names:
                raise UserError(f"data.{option} has no effect with data.source {self.source}: it "
                                f"belongs to {', '.join(names)}")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise UserError(f"data.url {self.url} must start with http:// or https://")
        if self.sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise UserError(f"data.sha256 {self.sha256} must be 64 hexadecimal digits, in small "
                            "letters")
        check_ranges("data", self, vocab_size=f"[{SMALLEST_VOCABULARY}, {2**31})",
                     seq_len="[1, inf)", val_fraction="(0, 1)")
        if not self.prepared:
            raise UserError("data.prepared is empty: name a folder")


class Source:
    """A source of text. A subclass reads some fields of DataConfig, its `options`."""

    options: tuple[str, ...] = ()

    def __init__(self, config: DataConfig):
        self.config = config
        self.label = config.source
        """For people: the beginning of the name of the folder of what is prepared."""

    def documents(self) -> Iterator[Iterable[str]]:
        """Yield the documents in a fixed order, each as pieces of bounded size.

        Raises UserError where the source is missing, empty, not UTF-8, or does not answer.
        """
        raise NotImplementedError

    def fingerprint(self) -> Any:
        """Return something that changes when the text does, without reading the text. None for what
        has to be fetched: it may change at any moment, and is fetched once."""
        return None


class StandardLibrary(Source):
    """The modules of this Python's standard library, then the topics of `help()`: the language
    reference as plain text."""

    def __init__(self, config: DataConfig):
        super().__init__(config)
        self.label = f"stdlib-{platform.python_version()}"

    def files(self) -> list[tuple[str, Path]]:
        """Return the name and path of each module, by name."""
        root, files = sysconfig.get_paths()["stdlib"], []
        foreign = re.compile(f"({'|'.join(map(re.escape, NOT_LIBRARY))})$|"
                             f"({'|'.join(map(re.escape, NOT_LIBRARY_PREFIX))})")
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = [name for name in subfolders if not foreign.match(name)]
            for name in names:
                path = Path(folder, name)
                if path.suffix == ".py" and not foreign.match(name) and path.is_file():
                    files.append((path.relative_to(root).as_posix(), path))
        if sum(path.stat().st_size for _, path in files) < SMALLEST_LIBRARY:
            raise UserError(f"this Python keeps no sources of its standard library in {root}: give "
                            "text of your own with --data.files PATH")
        return sorted(files)

    def fingerprint(self) -> Any:
        files = [(name, path.stat().st_size) for name, path in self.files()]
        return [platform.python_version(), files]

    def texts(self) -> Iterator[dict[str, str]]:
        """Yield each document as a row."""
        for name, path in self.files():
            if name == "pydoc_data/topics.py":  # the same topics as one escaped literal
                continue
            with suppress(UnicodeDecodeError):
                yield {"text": path.read_bytes().decode()}
        with suppress(ImportError):  # some distributions leave them out
            from pydoc_data.topics import topics

            for _, text in sorted(topics.items()):
                yield {"text": text}

    def documents(self) -> Iterator[Iterable[str]]:
        for row in import_datasets().IterableDataset.from_generator(self.texts):
            yield [row["text"]]


class Files(Source):
    """Paths and globs of .jsonl, .parquet or plain text, in the order given."""

    options = ("files", "column")

    def __init__(self, config: DataConfig):
        super().__init__(config)
        self.label = Path((config.files or [""])[0]).stem

    def paths(self) -> list[str]:
        """Return the files that the paths and globs stand for, once each, whatever links lead to
        them; globs sorted."""
        paths: dict[str, str] = {}
        for pattern in map(os.path.expanduser, self.config.files or ()):
            matches = [pattern]
            if not os.path.exists(pattern):
                matches = sorted(glob.glob(pattern, recursive=True))
            files = [path for path in matches if not os.path.isdir(path)]
            if not files:
                wrong = "does not exist"
                if matches:
                    wrong = f"is a folder: name its files, as in '{pattern}/*'"
                elif glob.has_magic(pattern):
                    wrong = "matches no file"
                raise UserError(f"--data.files {pattern} {wrong}")
            for path in files:
                if not os.path.isfile(path):  # a pipe, which nobody may ever write to
                    raise UserError(f"--data.files {path} is neither a file nor a folder, or a "
                                    "link to nothing: leave it out")
                paths.setdefault(os.path.realpath(path), path)
        return list(paths.values())

    def fingerprint(self) -> Any:
        stats = [(str(Path(path).resolve()), os.stat(path)) for path in self.paths()]
        return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]

    def documents(self) -> Iterator[Iterable[str]]:
        return read_files(self.paths(), self.config.column)


class Url(Source):
    """The address of one such file. It is fetched once."""

    options = ("url", "sha256", "column")

    def __init__(self, config: DataConfig):
        super().__init__(config)
        self.label = Path(urlsplit(config.url or "").path).stem or "url"

    def documents(self) -> Iterator[Iterable[str]]:
        assert self.config.url is not None
        file = download(self.config.url, self.config.sha256)
        return read_files([file], self.config.column, self.config.url)


class Hub(Source):
    """A data set of the Hugging Face Hub, or of the cache of `datasets` if the Hub is silent."""

    options = ("hub", "hub_config", "hub_split", "hub_revision", "column")

    def __init__(self, config: DataConfig):
        super().__init__(config)
        self.label = config.hub or "hub"

    def documents(self) -> Iterator[Iterable[str]]:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

        config, datasets = self.config, import_datasets()
        name, revision = str(config.hub), config.hub_revision
        silence: Exception | None = None
        try:  # asked first and briefly, because `datasets` itself tries for minutes
            hub = HfApi(endpoint=datasets.config.HF_ENDPOINT)
            hub.dataset_info(name, revision=revision, timeout=PATIENCE)
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            raise UserError(f"the Hub has no data set {name}: {cause(error)}") from error
        except Exception as error:  # no network, no answer, a server in trouble, HF_HUB_OFFLINE
            silence = error
        datasets.config.HF_HUB_OFFLINE = silence is not None
        try:
            rows = datasets.load_dataset(name, config.hub_config, split=config.hub_split,
                                         revision=revision)
        except Exception as error:
            raise UserError(f"the Hub gives no {name} ({cause(silence or error)}). {OFFLINE}"
                            ) from error
        # Offline, `datasets` takes the newest copy in its cache, of whatever revision.
        copies = [file["filename"] for file in rows.cache_files]
        if silence and revision and not all(revision in Path(copy).parts for copy in copies):
            raise UserError(f"the Hub does not answer ({cause(silence)}), and the cache, which "
                            f"knows commits by their hashes only, has no {revision} of {name}. "
                            f"{OFFLINE}")
        if config.column in rows.column_names:
            rows = rows.select_columns(config.column)
        for text in column_of(rows, config.column, name):
            yield [text]


# A new source: a class above, and a line here.
SOURCES: dict[str, type[Source]] = {
    "stdlib": StandardLibrary, "files": Files, "url": Url, "hub": Hub,
}


def read_files(
    paths: list[str], column: str, url: str | None = None
) -> Iterator[Iterable[str]]:
    """Yield the documents of files: a text file is one, a row of a table is one, an empty file is
    none. `url` is where a single file came from: its path in a cache says nothing."""
    full = [path for path in paths if os.path.getsize(path)]
    if not full:
        raise UserError(f"{url or paths[0]} is empty")
    for path in full:
        name = url or path
        suffix = PurePosixPath(urlsplit(url).path if url else path).suffix.lower()
        if suffix not in (".jsonl", ".parquet"):
            rows = import_datasets().IterableDataset.from_generator(
                read_text, gen_kwargs={"path": path, "name": name}
            )
            yield (row["text"] for row in rows)
            continue
        read_table = read_json if suffix == ".jsonl" else read_parquet
        try:
            for text in column_of(read_table(path, column, name), column, name):
                yield [text]
        except UserError:
            raise
        except Exception as error:  # whatever Arrow makes of a damaged file
            kind = suffix.removeprefix(".").removesuffix("l")
            raise UserError(f"{name} cannot be read as {kind}: {cause(error)}") from error


def read_text(path: str, name: str) -> Iterator[dict[str, str]]:
    """Yield a text file in pieces.

    The builder "text" of `datasets` would translate line ends, and hold a whole file in memory.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            while text := file.read(PIECE):
                yield {"text": text}
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8 text (byte 0x{error.object[error.start]:02x}): "
                        "convert it, or leave it out") from error


def read_json(path: str, column: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in the lines of a file.

    The builder "json" of `datasets` would turn texts that look like dates into dates, and infer the
    columns of the whole file from its first 10 MB.
    """
    lines = import_datasets().load_dataset(
        "text", data_files=glob.escape(path), split="train", streaming=True, encoding="utf-8-sig"
    )
    for number, line in enumerate(lines, 1):
        if not line["text"].strip():
            continue
        try:
            row = json.loads(line["text"])
            if not isinstance(row, dict):
                raise ValueError("one JSON object in each line is needed")
            for value in row.values():
                if isinstance(value, str):
                    value.encode()  # JSON can spell half a character
        except ValueError as error:
            raise ValueError(f"line {number}: {getattr(error, 'msg', error)}") from error
        yield row


def read_parquet(path: str, column: str, name: str) -> Iterable[dict[str, Any]]:
    """Return the rows of a Parquet file, with one column.

    Raises UserError for a column that is not there or holds no text, before a row is read: where
    reading ends early, Arrow may crash (apache/arrow issue 45214).
    """
    from pyarrow import parquet

    types = {field.name: str(field.type) for field in parquet.read_schema(path)}
    if not re.match("(dictionary<values=)?(large_)?string", types.get(column, "")):
        raise no_text(column, types, name)
    return import_datasets().load_dataset(
        "parquet", data_files=glob.escape(path), split="train", streaming=True, columns=[column],
        batch_size=ROWS,
    )


def column_of(rows: Iterable[dict[str, Any]], column: str, name: str) -> Iterator[str]:
    """Yield the texts of one column, which one of the first rows must have. A row without text
    (null, "" or no such column) is no document."""
    types: dict[str, str] = {}
    for i, row in enumerate(rows):
        text = row.get(column)
        if column not in types or not isinstance(text, str | None):
            types |= {key: type(value).__name__ for key, value in row.items()}
        if not isinstance(text, str | None) or (i == ROWS and column not in types):
            raise no_text(column, types, name)
        if text:
            yield text
    if types and column not in types:
        raise no_text(column, types, name)


def no_text(column: str, types: dict[str, str], name: str) -> UserError:
    """Return the error for a table with columns of these types, of which `column` is no text."""
    if column not in types:
        return UserError(f"{name} has no column {column!r}, only {', '.join(types)}: choose with "
                         "--data.column")
    return UserError(f"column {column!r} of {name} holds {types[column]}, not text: choose another "
                     "with --data.column")


def download(url: str, digest: str | None) -> str:
    """Fetch a file once, into the cache of `datasets`; the copy serves ever after, also offline.

    A copy that does not have this SHA-256 is fetched again. UserError where the answer does not
    have it, either.
    """
    # The Hub's connection knows proxies, certificates and HF_HUB_OFFLINE; `datasets` leaves other
    # addresses to fsspec, which cannot do http as it is installed.
    from huggingface_hub import get_session

    folder = Path(import_datasets().config.DOWNLOADED_DATASETS_PATH)
    path = folder / hashlib.sha256(url.encode()).hexdigest()
    with locked(path, f"waiting for another process: {url}"):
        if path.exists() and digest in (None, sha256(path)):
            return str(path)
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
                if digest not in (None, fetched := sha256(staging)):
                    raise UserError(f"{url} has the SHA-256 {fetched}, and data.sha256 is "
                                    f"{digest}: it is another file, or a changed one")
        except UserError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and not isinstance(error, ConnectionError):  # of the disk
                raise UserError(f"cannot write {path}: {first_line(error)}; make room, or name "
                                "another folder with HF_HOME") from error
            raise UserError(f"{url} cannot be fetched ({cause(error)}). {OFFLINE}") from error
    return str(path)


def import_datasets() -> ModuleType:
    """Return Hugging Face `datasets`, silent: errors reach the user once, as a UserError."""
    import datasets

    datasets.logging.set_verbosity(logging.CRITICAL)
    return datasets


def cause(error: BaseException) -> str:
    """Return the type of an error and the first line of its message, cut at 200 characters."""
    kind, text = type(error).__name__, str(error).strip()
    return textwrap.shorten(f"{kind}: {text.splitlines()[0]}" if text else kind, 200)
