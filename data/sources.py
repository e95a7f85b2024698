"""Where text comes from: a registry of sources, and the configuration that chooses one.

Every text arrives byte for byte, and a text larger than memory streams (data/readers.py).
"""

import glob
import hashlib
import os
import platform
import re
import shlex
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

from data.bpe import SMALLEST_VOCABULARY
from data.readers import (
    CHAT,
    CHAT_BEGINNING,
    CODE,
    COMPRESSED,
    CONVERT,
    CONVERTIBLE,
    FORMATTED,
    HEAD,
    LONGER,
    MAIL,
    MAIL_BEGINNING,
    NEARBY,
    NO_PROSE,
    NOTHING,
    PLAIN,
    REFUSED,
    SOFTWARE,
    SUBTITLES,
    TABLES,
    TEXT_LIST,
    ColumnSizes,
    NoText,
    NotUTF8,
    OtherFormat,
    begins_as_rows,
    begins_as_text,
    check_kind,
    file_kind,
    import_datasets,
    is_damaged,
    list_folder,
    name_type,
    no_text,
    read_rows,
    read_text,
    reading,
    row_text,
    split_column,
    split_documents,
    value_text,
)
from errors import (
    Range,
    UserError,
    check_ranges,
    closest,
    place_scripts,
    require_modules,
    say,
)
from files import atomic_path, sha256

AUTO = "auto"
Fitted = Annotated[int, AUTO]
"""A number of the configuration that may be `auto`: then it is chosen for the text."""

# What other people put between documents. In source code they are program text and divide nothing
# (`divides`).
MARKERS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<s>")
# These also strike text through, in Markdown and other markup. They have to begin or end a line in
# files without markup, and to be alone on it in others.
TAGS = ("</s>", "<s>")
WITHOUT_MARKUP = (".txt", ".text", ".utf8", ".utf-8")
# Earlier versions read these as plain text. Their fingerprint is another one now, so that what was
# prepared of them then is not taken for their rows.
ONCE_PLAIN = {".ndjson", ".csv", ".tsv"}
# What stands above the text of a book of Project Gutenberg, and how to have that text alone.
LICENCE_BEGINS = r"^\*\*\* ?START OF TH(E|IS) PROJECT GUTENBERG"
WITHOUT_LICENCE = r"sed '1,/^\*\*\* *START OF/d; /^\*\*\* *END OF/,$d' FILE > NEW.txt"
# Tags of web pages in the rows of a table, and how to have it without. They have no line breaks.
HTML_TAG = re.compile(r"</?(p|br|div|span|a|b|i|em|strong|ul|ol|li|h[1-6])\b[^<>]*>", re.IGNORECASE)
TAGGED_SHARE = 0.1  # of the rows; a note on less would name a few addresses in angle brackets
WITHOUT_TAGS = "sed -E 's:</?[A-Za-z][A-Za-z0-9]*([ /][^<>]*)?>: :g' FILE > NEW"
# How to have a text without its images in base64, as Markdown of Google Docs has them.
WITHOUT_IMAGES = r"sed -E 's/;base64,[A-Za-z0-9+/=]+//g' FILE > NEW"
# Parts of words in UTF-8 that was read as Latin-1 or cp1252: letters with accents, and a quotation
# mark, a dash or dots. Languages have the first character before a quotation mark or an ordinal.
MISREAD = re.compile(
    "\u00c3[\x80-\x9f\xa1-\xa9\xac-\xb9\xbc-\xbf]|\u00e2(\x80|\u20ac)[^\\w\\s]")
ROWS_OF_TABLE = 10  # lines with equally many tabs that make a table
ROWS_TRIED = 10_000  # rows that are read before a column without any text is refused
LOCAL = "name a file of text on this machine with --data.files"
ELSEWHERE = "Check its name and the network, or use a copy of it, with --data.files PATH"

# Files and folders that nobody reads as text: test suites, installed packages, a megabyte of
# generated code-page tables, and the settings with which this Python was compiled.
NOT_LIBRARY = re.compile("(test|tests|idle_test|site-packages|dist-packages|encodings)$"
                         "|_sysconfigdata|config-")


@dataclass(frozen=True)
class DataConfig:
    """Which text, how it becomes tokens, and how many of them make a row."""

    source: str = "stdlib"
    """Where text comes from: stdlib, files, url or hub. stdlib is this Python's own standard
    library, which needs no network."""
    files: list[str] | None = None
    """Files, folders and globs: plain text, and tables (.jsonl, .ndjson, .csv, .tsv, .parquet); all
    but .parquet may be packed (.gz, .zst). A folder means its text files. Can be given several
    times. They replace the text of a configuration file, whatever its source is."""
    url: str | None = None
    """Address of such a file, which is fetched once. It makes url the default of data.source."""
    sha256: str | None = None
    """SHA-256 that the file of data.url must have, in hexadecimal digits; unset: any."""
    hub: str | None = None
    """Id of a data set on the Hugging Face Hub. It makes hub the default of data.source."""
    hub_config: str | None = None
    """Configuration of the Hub data set, where it has several."""
    hub_split: str = "train"
    """Split of the Hub data set that is read; ours is made by val_fraction."""
    hub_revision: str | None = None
    """Branch, tag or commit of the Hub data set; a commit is the only one that cannot change."""
    column: str = "text"
    """Column of a table or Hub data set that holds the text, or several, such as title,body, whose
    texts are joined by line breaks. Lists of strings are joined too, and the turns of a chat, as
    lines such as "user: Hello". Each row is one document."""
    separator: str | None = None
    """Text between the documents of a plain text file, such as <|endoftext|>. The line break before
    it and the one after it belong to it. Unset: each file is one document."""
    tokenizer: str | None = None
    """Folder whose tokenizer is used, such as an imported run, or the name of a run. Unset: one is
    trained on the training split."""
    vocab_size: Annotated[Fitted, Range(ge=SMALLEST_VOCABULARY, lt=2**31)] = 4096
    """Pieces of the tokenizer; three control ids, the 256 bytes and the space are among them. auto:
    as many as suit the size of the text, at most the number that the configuration has."""
    seq_len: Annotated[Fitted, Range(ge=1)] = 256
    """Tokens of a training row. auto: fewer where the text is short, at most the number that the
    configuration has."""
    val_fraction: Annotated[float, Range(gt=0, lt=1)] = 0.1
    """Share held out for validation: whole documents, or the end of the text where these would be
    less than half or more than twice that share. If another text replaces that of the
    configuration and this option is not given with it, the share is fitted: raised to 4 kB, but not
    past a tenth, and lowered to 500 kB."""
    second_val: bool = False
    """Validate on a second held-out part, and leave the first one out. The second part is as large
    as the first if whole documents are held out. Otherwise it is data.val_fraction of what the
    first one leaves. So settings can be chosen without the text that is reported, as a study
    chooses its learning rates."""
    prepared: str = "data/prepared"
    """Folder for what is prepared: tokenizer and token ids, one folder for each setting."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prepared", os.path.expanduser(self.prepared))  # it is frozen
        if self.tokenizer is not None:
            object.__setattr__(self, "tokenizer", os.path.expanduser(self.tokenizer))
        named = [source for source in ("url", "hub") if getattr(self, source)]
        if self.source == DataConfig.source and len(named) == 1:
            object.__setattr__(self, "source", named[0])
        if self.files is None or self.source not in SOURCES:
            return
        options = SOURCES[self.source].options
        if "files" not in options:
            # A local copy stands in for a download. What only the other source reads goes back to
            # its default, or check() would refuse it.
            for option in {*options} - {*Files.options}:
                object.__setattr__(self, option, getattr(DataConfig, option))
            object.__setattr__(self, "source", "files")

    def check(self) -> None:
        """Raise UserError for settings that contradict."""
        if self.source not in SOURCES:
            raise UserError(f"data.source must be one of {', '.join(SOURCES)}, not {self.source}")
        if self.separator == "":
            raise UserError("data.separator '' is in every text: leave it out")
        # A letter or a digit is part of words, and so is nn, which a shell makes of \n\n without
        # quotes.
        if self.separator is not None and re.fullmatch("[A-Za-z0-9]|[nrt]{2,4}", self.separator):
            raise UserError(f"data.separator {self.separator!r} would be cut out of the words that "
                            "have it: choose another (in bash, a line break is $'\\n')")
        options = SOURCES[self.source].options
        if self.source in options and not getattr(self, self.source):
            raise UserError(f"data.source {self.source} needs --data.{self.source}")
        known = set().union(*(source.options for source in SOURCES.values()))
        for option in known:
            if option not in options and getattr(self, option) != getattr(DataConfig, option):
                raise UserError(f"data.{option} has no effect with data.source {self.source}")
        check_ranges(self, "data.")


@dataclass
class Source:
    """A source of text. A subclass names the fields of DataConfig that it reads, its `options`."""

    options = ()
    config: DataConfig
    notes: list[str] = field(default_factory=list)
    """What was printed about what is in the text."""
    left_out: list[int] = field(default_factory=list)
    """Numbers of the files that `parts` has left out, in the order of all files."""
    part_names: list[str] = field(default_factory=list)
    """What notes call each part, if there are several."""

    def say(self, note: str) -> None:
        """Print a note, and keep it for later trainings on the prepared text."""
        self.notes.append(note)
        say(place_scripts(note))

    def documents(self) -> Iterator[Iterable[str]]:
        """Yield the documents in a fixed order, each as pieces of bounded size.

        Raises UserError if the source is missing, empty, not UTF-8, or does not answer.
        """
        raise NotImplementedError

    def parts(self) -> Iterator[Iterable[Iterable[str]]]:
        """Yield the documents in parts, which are read one after the other.

        A part that raises LeftOut is no part of the text: forget what it has given.
        """
        yield self.documents()

    def advise_split(self) -> str:
        """Return what to do where the end of the text that was read is held out; "" for nothing."""
        return ""

    def fingerprint(self) -> Any:
        """Return a value that changes when the text does, without reading the text.

        None is for text that has to be fetched, which is done once.
        """
        return None

    def check_left_out(self, numbers: Iterable[int]) -> None:
        """Raise UserError if a file was left out of a folder or glob when this text was prepared,
        and is now named itself: then its error counts.

        `numbers` are those of the files that were left out, in the order of all files.
        """

    def list_files(self, left_out: Iterable[int]) -> list[str]:
        """Return notes on which files of folders and globs are read, by the names there now.

        `left_out` are the numbers of files that were left out when they were read, as in
        `check_left_out`.
        """
        return []


class StandardLibrary(Source):
    """The modules of this Python's standard library, then the topics of `help()`.

    The topics are the language reference as plain text.
    """

    def files(self) -> list[tuple[str, Path]]:
        """Return the name and path of each module, sorted by name."""
        root = sysconfig.get_paths()["stdlib"]
        files: list[Path] = []
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = [name for name in subfolders if not NOT_LIBRARY.match(name)]
            modules = [Path(folder, name) for name in names
                       if name.endswith(".py") and not NOT_LIBRARY.match(name)]
            # Debian's sitecustomize.py is a link into /etc, and small images lack its target.
            files += [path for path in modules if path.is_file()]
        if not files:
            raise UserError(f"this Python keeps no sources of its standard library in {root}: give "
                            "text of your own with --data.files PATH")
        return sorted((path.relative_to(root).as_posix(), path) for path in files)

    def fingerprint(self) -> Any:
        files = [(name, path.stat().st_size) for name, path in self.files()]
        return [platform.python_version(), files]

    def documents(self) -> Iterator[Iterable[str]]:
        for name, path in self.files():
            # pydoc_data/topics.py has the topics as one escaped literal.
            with suppress(UnicodeDecodeError):
                if name != "pydoc_data/topics.py":
                    yield [path.read_bytes().decode()]
        with suppress(ImportError):  # some distributions leave them out
            from pydoc_data.topics import topics

            for _, text in sorted(topics.items()):
                yield [text]


class Files(Source):
    """Files, folders and globs, in the order given."""

    options = ("files", "column", "separator")
    n_files = 0
    """How many files `parts` has read, without those that are left out."""
    has_blank_lines = False
    """Whether a file of plain text among them has blank lines."""

    def find(self) -> tuple[list["TextFile"], list["Search"]]:
        """Return the files, those of a glob or folder sorted, and what was found in each of these.

        A file is returned once, however many links lead to it. Raises UserError for a name that
        leads to no file, and for files that are no text by their name.
        """
        files: dict[str, TextFile] = {}
        searches: list[Search] = []
        for pattern in map(os.path.expanduser, self.config.files or ()):
            search = search_files(pattern)
            if not search.is_named:
                searches.append(search)
            for path in search.paths:
                new = TextFile(path, path, search.is_folder, search)
                file = files.setdefault(os.path.realpath(path), new)
                # A name outweighs a glob, and a glob a folder, wherever the file was found first.
                if not search.is_folder:
                    file.in_folder = False
                if search.is_named:
                    file.search = None
        return list(files.values()), searches

    def fingerprint(self) -> Any:
        entries = []
        for file in self.find()[0]:
            stat = os.stat(file.path)
            # Those that turn out not to be UTF-8 are among them: once mended, they are read.
            entry = [str(Path(file.path).resolve()), stat.st_size, stat.st_mtime_ns]
            if file_kind(file.path) in ONCE_PLAIN:
                entry.append("rows")
            entries.append(entry)
        return entries

    def documents(self) -> Iterator[Iterable[str]]:
        yield from chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Iterable[Iterable[str]]]:
        files, searches = self.find()
        self.part_names = [file.name for file in files]
        notes = Notes(self.config)
        for file in files:
            yield read_file(file, notes)
        unreadable = (search.not_utf8 + search.damaged for search in searches)
        left_out = {*notes.skipped_tables}.union(*unreadable)
        self.left_out = [number for number, file in enumerate(files) if file.name in left_out]
        self.n_files = len(files) - len(self.left_out)
        self.has_blank_lines = notes.has_blank_lines
        for error in (notes.no_text, *(search.damage for search in searches)):
            if self.n_files == 0 and error is not None:
                raise error
        for search in searches:  # made anew at every start: files may come that are not read
            for line in search.list_files(left_out):
                say(place_scripts(line))
        for line in [*chain.from_iterable(search.lines() for search in searches), *notes.lines()]:
            self.say(line)

    def list_files(self, left_out: Iterable[int]) -> list[str]:
        files, searches = self.find()
        unread = {files[number].name for number in left_out}
        return list(chain.from_iterable(search.list_files(unread) for search in searches))

    def check_left_out(self, numbers: Iterable[int]) -> None:
        # The fingerprint has the files, and not by which names they were found.
        files, _ = self.find()
        for number in numbers:
            file = files[number]
            if file.in_folder and file_kind(file.path) in TABLES:
                continue  # it is left out again, and may be long
            with suppress(LeftOut):  # reading it again raises its error
                for document in read_file(file, Notes(self.config)):
                    for _ in document:
                        pass

    def advise_split(self) -> str:
        if self.n_files <= 1:
            return ""
        advice = f". So it is from the last of {self.n_files} files only"
        if self.config.separator is None and self.has_blank_lines:
            advice += (". To validate on parts of all, divide plain text into documents: "
                       "--data.separator $'\\n\\n' does so at blank lines")
        return advice


class Url(Source):
    """The address of a file. It is fetched once, into the cache of `datasets`."""

    options = ("url", "sha256", "column", "separator")

    def fingerprint(self) -> Any:
        kind = file_kind(urlsplit(str(self.config.url)).path)
        return "rows" if kind in ONCE_PLAIN else None

    def documents(self) -> Iterator[Iterable[str]]:
        require_modules("datasets", "huggingface_hub", advice=LOCAL)
        # The Hub's client resumes a download, and knows proxies and HF_HUB_OFFLINE.
        from huggingface_hub.file_download import http_get

        url = str(self.config.url)
        refuse_local("data.url", url)
        if not re.match("https?://", url):
            raise UserError(f"data.url {url} must begin with http:// or https://")
        check_kind(re.split("[?#]", url)[0])
        name = PurePosixPath(urlsplit(url).path)
        suffixes = name.suffixes[-2:] if name.suffix.lower() in COMPRESSED else [name.suffix]
        path = Path(import_datasets().config.DOWNLOADED_DATASETS_PATH,
                    hashlib.sha256(url.encode()).hexdigest() + "".join(suffixes))
        if not path.exists() or self.describe_difference(path) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            say(f"fetching {url}")
            with reading(url, ELSEWHERE), atomic_path(path) as staging:
                with staging.open("wb") as file:
                    http_get(url, file)
                difference = self.describe_difference(staging)
                if difference is not None:
                    raise UserError(f"{difference}: correct data.sha256, or find the file that has "
                                    "it")
        notes = Notes(self.config)
        yield from read_file(TextFile(str(path), url), notes)
        for line in notes.lines():
            self.say(line)

    def describe_difference(self, path: Path) -> str | None:
        """Return how a file's hash differs from data.sha256; None if it does not, or if that is
        unset."""
        if self.config.sha256 is None:
            return None
        wanted = self.config.sha256.lower()
        actual = sha256(path)
        return None if actual == wanted else f"its SHA-256 is {actual}, and data.sha256 is {wanted}"


class Hub(Source):
    """A data set of the Hugging Face Hub, or a copy in the cache if the Hub does not answer. Or a
    folder on this machine that `datasets` reads as one."""

    options = ("hub", "hub_config", "hub_split", "hub_revision", "column")

    def fingerprint(self) -> Any:
        folder = Path(str(self.config.hub))
        if not folder.is_dir():
            return None
        entries = []
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                stat = path.stat()
                entries.append([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
        return entries

    def documents(self) -> Iterator[Iterable[str]]:
        require_modules("datasets", advice=LOCAL)
        config = self.config
        name = str(config.hub)
        if not os.path.isdir(name):  # it may be a data set
            refuse_local("data.hub", name)
        elif was_saved_to_disk(Path(name)):
            raise UserError(f"data.hub {name} was written by save_to_disk: "
                            f"{CONVERT.replace('FILES', shlex.quote(name))} writes its rows for "
                            "--data.files")
        datasets = import_datasets()
        notes = Notes(config)
        with reading(name, ELSEWHERE):
            rows = datasets.load_dataset(name, config.hub_config, split=config.hub_split,
                                         revision=config.hub_revision)
            check_commit(config.hub_revision, rows)
            types = {name: str(feature) for name, feature in rows.features.items()}
            columns = split_column(config.column, types)
            for column in columns:
                if column not in types:
                    raise no_text(column, config.column, types)
            yield from read_column(rows.select_columns(columns), notes)
        for line in notes.lines():
            self.say(line)


def was_saved_to_disk(folder: Path) -> bool:
    """Return whether a data set below a folder was written by save_to_disk of `datasets`.

    Other folders with .arrow files can be loaded.
    """
    return any(path.with_name("state.json").exists() for path in folder.rglob("*.arrow"))


# A new source: a class above, and a line here.
SOURCES: dict[str, type[Source]] = {
    "stdlib": StandardLibrary, "files": Files, "url": Url, "hub": Hub,
}


def name_text(config: DataConfig) -> str:
    """Return how the user has named the text: its files, its address or its data set."""
    if config.source == "files":
        return list_names(config.files or [])
    return str(getattr(config, config.source, config.source))


def refuse_local(option: str, name: str) -> None:
    """Raise UserError if the value of an option that names a text elsewhere is a path here."""
    if os.path.exists(name):
        raise UserError(f"{option} {name} is a path on this machine: did you mean --data.files "
                        f"{shlex.quote(name)}?")


def check_commit(revision: str | None, rows: Any) -> None:
    """Raise ValueError if `revision` is a commit, and these rows of a data set are of another one.

    Offline, `datasets` takes the newest copy in its cache, of any commit.
    """
    if revision is None or not re.fullmatch("[0-9a-f]{40}", revision):
        return
    for file in rows.cache_files:
        if revision not in Path(file["filename"]).parts:
            raise ValueError(f"there is no copy of commit {revision}")


def check_sources(layer: Mapping[str, Any]) -> None:
    """Raise UserError if options that are given together, by dotted name, name two texts.

    In different layers, the later one replaces the earlier one.
    """
    named = [name for name in ("files", "url", "hub") if layer.get(f"data.{name}")]
    source = layer.get("data.source")
    if len(named) > 1:
        options = " and ".join(f"data.{name}" for name in named)
        raise UserError(f"{options} are different texts: leave one of them out")
    if named and source in SOURCES and named[0] not in SOURCES[source].options:
        raise UserError(f"data.source {source} and data.{named[0]} are different texts: leave one "
                        "of them out")


def check_column(config: DataConfig) -> None:
    """Raise UserError for a data.column where no file has columns.

    Not for files that are not there: whoever reads them says so.
    """
    paths: list[str] = []
    if config.source == "files":
        try:
            files, _ = Files(config).find()
        except UserError:
            return
        paths = [file.path for file in files]
    elif config.source == "url":
        paths = [urlsplit(str(config.url)).path]
    else:  # `DataConfig.check` refuses a column for a source that reads none
        return
    has_columns = any(file_kind(path) in TABLES for path in paths)
    if not has_columns and config.column != DataConfig.column:
        tables = ", ".join(sorted(TABLES))
        raise UserError(f"data.column {config.column} has no effect on plain text, only on tables "
                        f"({tables}): leave it out")


def match_files(pattern: str) -> list[str]:
    """Return the file of this name, or else those that the glob matches, sorted.

    Raises UserError if there is none, or if one is no text by its name.
    """
    matches = [pattern]
    if not os.path.exists(pattern):
        matches = sorted(glob.glob(pattern, recursive=True))
    paths = [path for path in matches if not os.path.isdir(path)]
    if not paths:
        raise UserError(f"--data.files {pattern} matches no file{suggest_source(pattern)}")
    for path in paths:
        if not os.path.exists(path):
            raise UserError(f"--data.files {pattern} names {path}, a link to a file that is not "
                            "there: remove it, or name the files without it")
        check_kind(path)
    return paths


def suggest_source(pattern: str) -> str:
    """Return what may be meant by a name of --data.files that leads to no file."""
    if pattern == "-":
        return ": did you mean --data.files /dev/stdin?"
    if re.match("https?://", pattern):
        return f": did you mean --data.url {shlex.quote(pattern)}?"
    parts = [part.strip() for part in pattern.split(",")]
    if len(parts) > 1 and all(map(os.path.exists, parts)):
        several = " ".join(f"--data.files {shlex.quote(part)}" for part in parts)
        return f": did you mean {several}?"
    hint = suggest_file(pattern)
    if re.fullmatch(r"[\w-]+/[\w-]+", pattern) and not os.path.exists(Path(pattern).parent):
        hint += f"; of a data set of the Hugging Face Hub, say --data.hub {pattern}"
    return hint


def suggest_file(pattern: str) -> str:
    """Return the working directory, for a relative path, and the nearest name beside a file that is
    not there."""
    place = "" if os.path.isabs(pattern) else f" in {os.getcwd()}"
    folder, name = os.path.split(pattern)
    names: list[str] = []
    with suppress(OSError):  # the folder may be missing too
        names = os.listdir(os.path.abspath(folder))
    nearest = closest(name, names)
    if nearest is None:  # without a suffix, or with another one
        stems = {Path(each).stem: each for each in sorted(names)}
        stem = closest(Path(name).stem, stems)
        nearest = stems.get(stem or "")
    if nearest is None:
        return place
    return f"{place} (did you mean {os.path.join(folder, nearest)}?)"


def search_files(pattern: str) -> "Search":
    """Return what a name leads to: a file, or the text files in a folder, or those of a glob.

    Raises UserError if there is none, or if a file is no text by its name.
    """
    if not os.path.isdir(pattern):
        paths = match_files(pattern)
        return Search(pattern, paths, is_named=os.path.exists(pattern))
    paths, others, skipped = list_folder(pattern)
    search = Search(pattern, paths, others, sorted(skipped), is_folder=True)
    if not paths:
        left_out = search.describe_others()
        content = f", and has {left_out}" if left_out else ""
        advice = search.advise_conversion()
        unknown = search.find_unknown()
        if unknown is not None:
            kind, glob_of_kind = unknown
            advice += f"; to read the {kind} files: --data.files {shlex.quote(glob_of_kind)}"
        if not advice:
            advice = search.advise_refused()
        raise UserError(f"--data.files {pattern} is a folder without text files{content}{advice}")
    return search


def resolve_files(names: Iterable[str]) -> set[str]:
    """Return the real paths of the files that these names lead to.

    A name that leads to no text stands for itself: its file may be gone.
    """
    paths: set[str] = set()
    for name in names:
        pattern = os.path.expanduser(name)
        matches = [pattern]
        with suppress(UserError):
            matches = search_files(pattern).paths
        paths.update(map(os.path.realpath, matches))
    return paths


class LeftOut(UserError):
    """A file in a folder or of a glob is not UTF-8, or one in a folder is damaged, or is a table
    without text."""


@dataclass
class Search:
    """The files that a name in data.files leads to."""

    pattern: str
    paths: list[str]
    others: dict[str, list[str]] = field(default_factory=dict)
    """Files in a folder that are no text by their names, by suffix."""
    skipped: list[str] = field(default_factory=list)
    """What else is in the folder and not read."""
    is_folder: bool = False
    is_named: bool = False
    """Whether the name is that of a file."""
    not_utf8: list[str] = field(default_factory=list)
    """Those of its files that turned out not to be UTF-8, without those that an earlier search has
    found."""
    other_formats: list[OtherFormat] = field(default_factory=list)
    """Errors that name a format: for those of `not_utf8` whose first bytes show one."""
    damaged: list[str] = field(default_factory=list)
    """Those of its files that turned out to be damaged, likewise."""
    damage: UserError | None = None
    """What is wrong with the first of these."""

    @cached_property
    def n_files(self) -> int:
        """How many files these are, each counted once however many links lead to it."""
        return len({*map(os.path.realpath, self.paths)})

    def leave_out(self, name: str, error: NotUTF8) -> NoReturn:
        """Count a file that is not UTF-8. Raises LeftOut, or UserError if all files are so."""
        self.not_utf8.append(name)
        if isinstance(error, OtherFormat):
            self.other_formats.append(error)
        if self.n_files == 1:
            raise error
        if len(self.not_utf8) == self.n_files:
            raise UserError(f"--data.files {self.pattern} has no file to read: "
                            f"{self.describe_not_utf8()}")
        raise LeftOut(str(error))

    def leave_out_damaged(self, name: str, error: UserError) -> NoReturn:
        """Count a file that is damaged. Raises LeftOut, or the error if not much else is there."""
        self.damaged.append(name)
        if self.damage is None:
            self.damage = error
        size = sum(map(os.path.getsize, self.paths))
        lost = sum(map(os.path.getsize, {*self.damaged, *self.not_utf8}))
        if self.n_files == 1 or 2 * lost >= size:
            raise error
        raise LeftOut(str(error))

    def describe_others(self) -> str:
        """Return what in a folder is left out by its name."""
        counts = {kind: len(paths) for kind, paths in self.others.items()}
        kinds = [describe_kinds(counts)] if counts else []
        return ", ".join(kinds + self.skipped)

    def describe_not_utf8(self) -> str:
        """Return which files are not UTF-8, and how to convert one."""
        files = "1 file is" if len(self.not_utf8) == 1 else f"{len(self.not_utf8):,} files are"
        found = f"{files} not UTF-8: {list_names(self.not_utf8)}"
        if self.other_formats:
            found += f"; {self.other_formats[0]}"
        if len(self.not_utf8) > len(self.other_formats):
            found += ("; iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW converts one of older Windows "
                      "programs")
        if len(self.not_utf8) > 1:
            found += "; --data.files FILE says what is wrong with one"
        return found

    def find_unknown(self) -> tuple[str, str] | None:
        """Return the most frequent suffix that is unknown and is text, and the glob for its files.

        None if there is no such suffix, or only those of files that are no prose.
        """
        for kind, paths in self.unknown_kinds():
            # Not of a compressed file, whose name has another suffix behind it.
            if paths[0].lower().endswith(kind) and begins_as_text(paths[0]):
                spellings = Counter(path[-len(kind):] for path in paths)
                ((suffix, _),) = spellings.most_common(1)  # .LRC, where most have capitals
                return suffix, os.path.join(glob.escape(self.pattern), "**", f"*{suffix}")
        return None

    def unknown_kinds(self) -> list[tuple[str, list[str]]]:
        """Return the suffixes that may be those of prose, each with its files, most files first."""
        known = {*PLAIN, *REFUSED, *CONVERTIBLE, *NO_PROSE.split()}
        unknown = [(kind, paths) for kind, paths in self.others.items() if kind not in known]
        return sorted(unknown, key=lambda item: (-len(item[1]), item[0]))

    def advise_conversion(self) -> str:
        """Return how to make text of files in a folder that have another format; "" for none."""
        kinds = sorted(CONVERTIBLE.intersection(self.others))
        if not kinds:
            return ""
        command = CONVERT.replace("FILES", shlex.quote(self.pattern))
        return f"; {command} writes the text of the {', '.join(kinds)} files"

    def advise_refused(self) -> str:
        """Return why a file of the most frequent suffix that is no text is not read; or "".

        If no suffix is known to be no text, those that are unknown are tried.
        """
        refused = {kind: paths for kind, paths in self.others.items() if kind in REFUSED}
        try:
            if refused:
                check_kind(max(refused.values(), key=len)[0])
            for _, paths in self.unknown_kinds():
                with reading(paths[0]):  # its start, of which the second piece is the end
                    for _ in islice(read_text(paths[0]), 2):
                        pass
        except UserError as error:
            return f"; {error}"
        return ""

    def list_files(self, unread: set[str]) -> list[str]:
        """Return notes on which files are read. `unread` are names of files that are left out."""
        lines: list[str] = []
        if self.is_folder or not unread.isdisjoint(self.paths):
            lines.append(self.describe(unread))
        software = self.describe_software()
        if software is not None:
            lines.append(software)
        return lines

    def lines(self) -> list[str]:
        """Return notes on files that cannot be read."""
        lines: list[str] = []
        if self.not_utf8:
            lines.append(f"note: {self.describe_not_utf8()}")
        if len(self.damaged) == 1:
            lines.append(f"note: 1 file is left out: {self.damage}")
        elif self.damaged:
            lines.append(f"note: {len(self.damaged):,} files are left out, which cannot be read: "
                         f"{list_names(self.damaged)}; of these, {self.damage}")
        return lines

    def describe(self, unread: set[str]) -> str:
        """Return a note on how many files are read, and what is left out by its name."""
        read = [path for path in self.paths if path not in unread]
        n_read = len(read)
        total = len(self.paths) + sum(map(len, self.others.values()))
        share = f"{n_read} files of {total} are read"
        if n_read == 1:
            share = f"1 file of {total} is read"
        kinds = Counter(map(file_kind, read))
        if len(kinds) > 1:
            share += f": {describe_kinds(kinds)}"
        left_out = self.describe_others()
        rest = f" (left out: {left_out})" if left_out else ""
        unknown = self.find_unknown()
        if unknown is not None:
            kind, glob_of_kind = unknown
            rest += f"; to read the {kind} files too, add --data.files {shlex.quote(glob_of_kind)}"
        rest += self.advise_conversion()
        return f"note: {self.pattern}: {share}{rest}"

    def describe_software(self) -> str | None:
        """Return a note on files of a glob that are in folders of software, such as node_modules.

        None if there are no such files, or if the glob names their folder.
        """
        if self.is_folder or self.is_named:
            return None
        folders = SOFTWARE - {*Path(self.pattern).parts}
        n_inside = 0
        names: set[str] = set()
        for path in self.paths:
            parents = folders.intersection(Path(path).parent.parts)
            if parents:
                n_inside += 1
                names |= parents
        if n_inside == 0:
            return None
        return (f"note: {self.pattern}: {n_inside} of {len(self.paths)} files are in "
                f"{', '.join(sorted(names))}: name a folder, which leaves these out, if you do not "
                "want them")


def describe_kinds(counts: Mapping[str, int]) -> str:
    """Return how many files there are of the five most frequent suffixes."""
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
    return ", ".join(f"{count} {kind or 'without a suffix'}" for kind, count in frequent)


@dataclass
class TextFile:
    """A file that is read."""

    path: str
    name: str
    """What errors and notes call it."""
    in_folder: bool = False
    """Whether the user named its folder, and not this file or a glob."""
    search: Search | None = None
    """The folder or glob that has led to it. None: the user named this file."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Name the file in every error.

        One that is not UTF-8 is left out of a folder or glob, and a damaged one out of a folder.
        """
        try:
            with reading(self.name):
                yield
        except NotUTF8 as error:
            if self.search is None:
                raise
            self.search.leave_out(self.name, error)
        except NoText:  # see `read_file`
            raise
        except UserError as error:
            if not self.in_folder or self.search is None or not is_damaged(error):
                raise
            self.search.leave_out_damaged(self.name, error)


# What may be in files of plain text that is trained as text there: what the note on it says before
# the names of the files, and after them. In the order of the notes.
IN_PLAIN = {
    "mail": ("mail, whose headers and attachments are trained as text",
             f"; {CONVERT} writes what its messages say"),
    "chats": ("chats of WhatsApp, whose dates and lines for images are trained as text",
              f"; {CONVERT} writes who says what"),
    "archives": ("JSON in JavaScript, as in an archive of X, whose names and braces are trained as "
                 "text", f"; {CONVERT} writes its rows"),
    "tables": ("tables with tabs, whose columns are all trained as text",
               "; renamed to .tsv, with a line above that names the columns, those of "
               "--data.column are read"),
    "books": ("books with the licence of Project Gutenberg, which is trained as text, and fills "
              "much of what is held out of one book", f"; {WITHOUT_LICENCE} drops it"),
    "subtitles": ("subtitles, whose numbers and times are trained as text",
                  f"; {CONVERT} writes what is said in each file"),
    "pages": ("web pages, whose tags are trained as text", f"; {CONVERT} writes their text"),
    "XML": ("XML, whose tags are trained as text",
            f"; {CONVERT} writes its texts, such as the posts of Stack Exchange or the articles of "
            "a wiki"),
    "JSON": ("JSON, whose names and braces are trained as text",
             "; renamed to .jsonl, its texts alone are read"),
    "images": ("images in base64 are trained as text", f"; {WITHOUT_IMAGES} drops them"),
    "NUL": ("NUL characters, as binary data has them, are trained as text", ""),
}


@dataclass
class Notes:
    """What was noticed in a text. After it has been read, each matter is said in one line."""

    config: DataConfig
    rows: int = 0
    rows_without_text: int = 0
    other_columns: set[str] = field(default_factory=set)
    """Columns that the rows without text have."""
    other_types: dict[str, str] = field(default_factory=dict)
    """Types of values that cannot be read, each with its column, in the order of the rows."""
    without_text: dict[str, str] = field(default_factory=dict)
    """Columns with such values, each with the type of the first."""
    joined: dict[str, str] = field(default_factory=dict)
    """Types of values whose parts are joined to a text, each with its column."""
    has_letters: bool = False
    """Whether a row has a letter in the column."""
    rows_with_tags: int = 0
    """Rows that have tags of web pages in their text."""
    skipped_tables: list[str] = field(default_factory=list)
    no_text: NoText | None = None
    """Why the first of these was left out."""
    sizes: ColumnSizes = field(default_factory=ColumnSizes)
    """Those of tables of which all columns are read (not .parquet)."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Unknown suffixes, each with the first file."""
    in_plain: dict[str, list[str]] = field(default_factory=dict)
    """Files of plain text in which something else is, by the keys of IN_PLAIN."""
    misread: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Texts that look like UTF-8 that was read in these encodings, each an example and its file."""
    markers: dict[str, str] = field(default_factory=dict)
    """Separators in plain text, each with the first file."""
    n_plain: int = 0
    """How many files of plain text have text."""
    has_blank_lines: bool = False
    """Whether one of them has blank lines."""
    undivided: list[str] = field(default_factory=list)
    """Those of them without data.separator."""

    def add(self, noticed: "Notes") -> None:
        """Add what was noticed in a file that has been read. Of two files, the first is named."""
        self.rows += noticed.rows
        self.rows_without_text += noticed.rows_without_text
        self.rows_with_tags += noticed.rows_with_tags
        self.other_columns |= noticed.other_columns
        self.has_letters |= noticed.has_letters
        self.sizes.update(noticed.sizes)
        self.n_plain += noticed.n_plain
        self.has_blank_lines |= noticed.has_blank_lines
        self.undivided += noticed.undivided
        for what, names in noticed.in_plain.items():
            self.in_plain.setdefault(what, []).extend(names)
        for kind, column in noticed.other_types.items():
            self.other_types.setdefault(kind, column)
        for column, kind in noticed.without_text.items():
            self.without_text.setdefault(column, kind)
        for kind, column in noticed.joined.items():
            self.joined.setdefault(kind, column)
        for kind, name in noticed.kinds.items():
            self.kinds.setdefault(kind, name)
        for marker, name in noticed.markers.items():
            self.markers.setdefault(marker, name)
        for encoding, found in noticed.misread.items():
            self.misread.setdefault(encoding, found)

    def leave_out_table(self, name: str, error: NoText) -> None:
        """Note that a table is left out, and why the first one is."""
        self.skipped_tables.append(name)
        if self.no_text is None:
            self.no_text = error

    def look_for_markers(self, text: str, name: str, kind: str) -> None:
        """Note which separators are in a piece of the file `name`, of this kind."""
        separator = self.config.separator
        wanted = MARKERS if separator is None else (separator,)
        for marker in wanted:
            if marker in self.markers or marker not in text:
                continue
            if marker == separator or divides(marker, text, kind):
                self.markers[marker] = name

    def look_for_misread(self, text: str, name: str) -> None:
        """Note whether a text looks like UTF-8 that was read in another encoding."""
        if self.misread or not ("\u00e2" in text or "\u00c3" in text):
            return
        match = MISREAD.search(text)
        if match is not None:
            encoding = "LATIN1" if re.search("[\x80-\x9f]", text) else "WINDOWS-1252"
            before = re.findall(r"\S*$", text[max(0, match.start() - NEARBY) : match.start()])[0]
            after = re.findall(r"^\S*", text[match.end() : match.end() + NEARBY])[0]
            self.misread[encoding] = (f"{before}{match[0]}{after}", name)

    def look_at_piece(self, text: str, name: str, kind: str) -> None:
        """Note what a piece of a file of plain text shows."""
        self.has_blank_lines = self.has_blank_lines or "\n\n" in text
        found = ["NUL"] if "\0" in text else []
        if kind not in CODE.split():
            self.look_for_misread(text, name)
            if ";base64," in text:
                found.append("images")
        self.note_in_plain(found, name)

    def note_in_plain(self, found: Iterable[str], name: str) -> None:
        """Note that a file has these of IN_PLAIN."""
        for what in found:
            names = self.in_plain.setdefault(what, [])
            if name not in names[-1:]:  # the pieces of a file come one after another
                names.append(name)

    def look_at_types(self, row: Mapping[str, Any], columns: list[str]) -> None:
        """Note which values in these columns of a row are joined, and which cannot be read."""
        for name in columns:
            kind = name_type(row.get(name))
            if kind in (TEXT_LIST, FORMATTED, CHAT):
                self.joined.setdefault(kind, name)
            elif kind not in ("str", NOTHING):
                self.other_types.setdefault(kind, name)
                self.without_text.setdefault(name, kind)

    def name_longest_column(self) -> list[str]:
        """Return a note if a column has much more text than the one that is read."""
        column = self.config.column
        texts = self.sizes.texts
        longest = self.sizes.longest([column, *texts])
        if texts[longest] <= LONGER * texts[column]:
            return []
        return [f"note: column {longest} has more than {LONGER} times the text of column {column}, "
                "which is read: to read the other one, say --data.column "
                f"{shlex.quote(longest)}"]

    def lines(self) -> list[str]:
        """Return the notes."""
        lines = self.lines_of_tables() + self.lines_of_plain_text()
        for encoding, (example, name) in self.misread.items():
            lines.append(f"note: {name} has {example!r} and perhaps more of UTF-8 that was read in "
                         f"another encoding: iconv -f UTF-8 -t {encoding} FILE > NEW mends a file "
                         "all of whose text is so")
        return lines

    def lines_of_tables(self) -> list[str]:
        """Return the notes on rows and columns."""
        lines: list[str] = []
        column = self.config.column
        if self.rows_without_text:
            values = [f"{name} as {kind}" for kind, name in self.other_types.items()]
            have = ", ".join(values + sorted(self.other_columns)[:8])
            rest = f" (they have {have})" if have else ""
            lines.append(f"note: {self.rows_without_text:,} of {self.rows:,} rows have no text in "
                         f"column {column}{rest}")
        lines += self.lines_of_silent_columns()
        for kind, name in self.joined.items():
            note = f"the lists of strings in column {name} are joined by line breaks"
            if kind == FORMATTED:
                note = (f"the parts of formatted texts in column {name}, such as links, are joined "
                        "without a separator")
            elif kind == CHAT:
                note = f"each turn in column {name} becomes a line such as 'user: Hello'"
                if self.config.tokenizer is not None:  # that of a model, which may have a template
                    note += ", in no chat template: see docs/interop.md#chat-templates"
            lines.append(f"note: {note}")
        if self.rows > self.rows_without_text and not self.has_letters:
            lines.append(f"note: column {column} has no letters: its numbers are trained as text")
        if self.rows_with_tags > TAGGED_SHARE * self.rows:
            lines.append(f"note: {self.rows_with_tags:,} of {self.rows:,} rows have tags of web "
                         f"pages, which are trained as text: {WITHOUT_TAGS} drops them")
        lines += self.lines_of_skipped_tables()
        if column == DataConfig.column:  # else it was chosen
            lines += self.name_longest_column()
        return lines

    def lines_of_silent_columns(self) -> list[str]:
        """Return a note for each of several columns that has values in rows, and never text."""
        lines: list[str] = []
        for name, kind in self.without_text.items():
            if self.rows > self.rows_without_text and self.sizes.texts[name] == 0:
                lines.append(f"note: column {name} has no text in any row (but {kind}), so nothing "
                             "of it is read")
                if kind == "dict" and name.isidentifier():
                    lines[-1] += (f"; jq -c '.{name} = .{name}.KEY' FILE > NEW.jsonl takes one key "
                                  "out of its objects")
        return lines

    def lines_of_skipped_tables(self) -> list[str]:
        """Return the notes on tables that are left out."""
        if not self.skipped_tables:
            return []
        lines = [f"note: 1 table is left out: {self.no_text}"]
        if len(self.skipped_tables) > 1:
            lines = [f"note: {len(self.skipped_tables):,} tables are left out, which have no text "
                     f"in column {self.config.column}: {list_names(self.skipped_tables)}; of "
                     f"these, {self.no_text}"]
        if self.rows > self.rows_without_text:
            lines.append("note: all tables of a training are read by the same columns: to have "
                         "those too, give a column of text the same name in each")
        return lines

    def lines_of_plain_text(self) -> list[str]:
        """Return the notes on files of plain text."""
        lines: list[str] = []
        if self.kinds:
            kinds = [f"{kind} ({name})" for kind, name in self.kinds.items()]
            lines.append(f"note: read as plain text, with any markup in it: {list_names(kinds)}")
        for what, (note, advice) in IN_PLAIN.items():
            if what in self.in_plain:
                lines.append(f"note: {note}: {list_names(self.in_plain[what])}{advice}")
        return lines + self.lines_of_separators()

    def lines_of_separators(self) -> list[str]:
        """Return the notes on what divides files of plain text, and does not."""
        lines: list[str] = []
        separator = self.config.separator
        if separator is None:
            for marker, name in self.markers.items():
                lines.append(f"note: {marker} in {name} is trained as ordinary characters: to "
                             "divide the text into documents there, say --data.separator "
                             f"'{marker}'")
        elif not self.markers:
            hint = " (in bash, a line break is $'\\n')" if "\\" in separator else ""
            lines.append(f"note: data.separator {separator!r} does not occur: each file of plain "
                         f"text is one document{hint}")
        elif self.undivided:
            lines.append(f"note: files of plain text without data.separator {separator!r} are one "
                         f"document each: {list_names(self.undivided)} "
                         f"({len(self.undivided):,} of {self.n_plain:,} files)")
        return lines


def look_at_start(text: str, kind: str) -> list[str]:
    """Return which of IN_PLAIN the first piece of a file of this kind begins with or has."""
    is_code = kind in CODE.split()
    is_page = re.match(r"\s*(<\?xml[^>]*>\s*)?<(!doctype )?html\b", text, re.IGNORECASE) is not None
    begins_as_xml = re.match(r"\s*<(\?xml|mediawiki)\b", text) is not None
    begins_as_mail = not is_code and MAIL_BEGINNING.match(text[:HEAD]) is not None
    found = {
        "mail": kind in MAIL or begins_as_mail,
        "chats": not is_code and CHAT_BEGINNING.match(text) is not None,
        "archives": text.startswith("window.YTD."),
        "tables": not is_code and begins_as_table(text),
        "books": re.search(LICENCE_BEGINS, text, re.MULTILINE) is not None,
        "subtitles": kind in SUBTITLES and "-->" in text,
        "pages": is_page,
        "XML": begins_as_xml and not is_page and kind not in NO_PROSE.split(),
        "JSON": not is_code and begins_as_rows(text),
    }
    return [what for what, is_found in found.items() if is_found]


def begins_as_table(text: str) -> bool:
    """Return whether the first lines of a text have tabs, and equally many.

    Comments, which begin with #, are not counted.
    """
    lines = [line for line in text[:HEAD].split("\n")[:-1] if line.strip() and line[0] != "#"]
    counts = {line.rstrip("\r").count("\t") for line in lines}
    begins = any(line.startswith("\t") for line in lines)
    return len(lines) >= ROWS_OF_TABLE and len(counts) == 1 and counts != {0} and not begins


def divides(marker: str, text: str, kind: str) -> bool:
    """Return whether one of MARKERS, which is in a text of a file of this kind, divides documents.
    """
    if kind in CODE.split():
        return False
    if marker not in TAGS:
        return True
    begins = rf"^[ \t]*{marker}"
    ends = rf"{marker}[ \t]*\r?$"
    place = rf"^[ \t]*{ends}"
    if kind in WITHOUT_MARKUP:
        place = f"{begins}|{ends}"
    return re.search(place, text, re.MULTILINE) is not None


def list_names(names: list[str]) -> str:
    """Return the first three names, and how many there are more."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def read_file(file: TextFile, notes: Notes) -> Iterator[Iterable[str]]:
    """Yield the documents of a file. What was noticed in it counts once all of it has been read.

    A document is a row of a table, or the text between two separators, or else a whole text file.
    Raises LeftOut for a file that is left out of its folder or glob.
    """
    separator = notes.config.separator
    noticed = Notes(notes.config)
    if file_kind(file.path) in TABLES:
        try:
            with file.reading():
                yield from read_column(read_rows(file.path, notes.config.column), noticed)
        except NoText as error:
            if not file.in_folder:
                raise
            notes.leave_out_table(file.name, error)
            # Of several columns, one may be missing, and rows may have been read of the others.
            raise LeftOut(str(error)) from error
    elif separator is None:
        yield read_plain(file, noticed)
    else:
        yield from split_documents(read_plain(file, noticed), separator)
    notes.add(noticed)


def read_plain(file: TextFile, notes: Notes) -> Iterator[str]:
    """Yield a text file in pieces. `notes` are of this file alone."""
    kind = file_kind(file.path)
    if kind not in PLAIN:
        notes.kinds.setdefault(kind, file.name)
    is_first = True
    # Characters in which a separator cut in two may begin; other markers may go unnoticed.
    carried = 0
    if notes.config.separator is not None:
        carried = len(notes.config.separator) - 1
    before = ""  # the end of the text before, in which the separator may begin
    with file.reading():
        for piece in read_text(file.path):
            if is_first:
                notes.n_plain += 1
                notes.note_in_plain(look_at_start(piece, kind), file.name)
            is_first = False
            notes.look_at_piece(piece, file.name, kind)
            text = before + piece
            notes.look_for_markers(text, file.name, kind)
            before = text[max(0, len(text) - carried):]
            yield piece
    has_text = not is_first
    if has_text and notes.config.separator not in (None, *notes.markers):
        notes.undivided.append(file.name)


def read_column(rows: Iterable[dict[str, Any]], notes: Notes) -> Iterator[Iterable[str]]:
    """Yield the text of each row as a document. At least one row must have the columns.

    A row without text (null, "", a value that cannot be read, or no such column) is no document,
    and is counted. Raises NoText if there are values, and none of the first ROWS_TRIED has text.
    `notes` are of these rows alone.
    """
    column = notes.config.column
    types: dict[str, str] = {}
    for row in rows:
        notes.rows += 1
        columns = split_column(column, row)
        notes.look_at_types(row, columns)
        text = row_text(row, column)
        if text is None:
            notes.rows_without_text += 1
            notes.other_columns |= columns_in_use(row) - set(columns)
        # What is in objects counts for an error only, if no row has text.
        measure_columns(row, types, notes.sizes, notes.rows == notes.rows_without_text)
        if text is not None:
            notes.look_for_misread(text, f"column {column}")
            notes.rows_with_tags += "<" in text and HTML_TAG.search(text) is not None
            if not notes.has_letters:
                notes.has_letters = any(map(str.isalpha, text))
            yield [text]
        if notes.rows == ROWS_TRIED == notes.rows_without_text:
            check_types(types, notes)
    for name in split_column(column, types):
        if types and name not in types:
            raise no_text(name, column, types, sizes=notes.sizes)
    if notes.rows == notes.rows_without_text:
        check_types(types, notes)


def measure_columns(
    row: Mapping[str, Any], types: dict[str, str], sizes: ColumnSizes, with_nested: bool
) -> None:
    """Add a row to what is known of each column: its type, and the characters in its texts.

    `with_nested` says whether those in objects and in lists of objects are counted, too.
    """
    sizes.rows += 1
    for name, value in row.items():
        kind = name_type(value)
        if types.get(name, NOTHING) == NOTHING:
            types[name] = kind
        if kind == "str":
            sizes.add(name, [value])
        elif kind == TEXT_LIST:
            sizes.add(name, value)
        elif kind in (FORMATTED, CHAT):
            sizes.add(name, [value_text(value) or ""])
        elif with_nested:
            sizes.add_nested(name, value)


def columns_in_use(row: dict[str, Any]) -> set[str]:
    """Return the names of the columns in which a row has a value other than "".

    A table of Excel or pandas may have a column without a name.
    """
    return {name or "''" for name, value in row.items() if value not in (None, "", [])}


def check_types(types: dict[str, str], notes: Notes) -> None:
    """Raise NoText if the rows so far, none of which has text, have values of other types."""
    if notes.other_types:
        kind, name = next(iter(notes.other_types.items()))
        # `types` may have the type of an empty string before it.
        raise no_text(name, notes.config.column, types | {name: kind}, sizes=notes.sizes)
