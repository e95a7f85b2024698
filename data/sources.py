"""Where text comes from: a registry of sources, and the configuration that chooses one.

Every text arrives byte for byte, and a text larger than memory streams: see data/readers.py.
"""

import hashlib
import logging
import os
import platform
import re
import shlex
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Annotated, Any
from urllib.parse import urlsplit

from data.bpe import SMALLEST_VOCABULARY
from data.columns import DEFAULT_COLUMN, no_text_error, split_column
from data.detect import check_kind
from data.documents import TextFile, read_column, read_file
from data.kinds import COMPRESSED, CONVERT, TABLES, file_kind
from data.notes import Notes
from data.readers import reading
from data.search import LeftOut, Search, list_names, search_files
from errors import Range, UserError, check_ranges, place_scripts, require_modules, say
from files import atomic_path, sha256

AUTO = "auto"
Fitted = Annotated[int, AUTO]
"""A number of the configuration that may be `auto`: then it is chosen for the text."""
# Earlier versions read these as plain text. "rows" in their fingerprint makes what those versions
# prepared invalid.
ONCE_PLAIN = {".ndjson", ".csv", ".tsv"}
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
    column: str = DEFAULT_COLUMN
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
    configuration and this option is not given with it, the share is fitted: it is raised until it
    holds 4 kB, but to a tenth of the text at most, and lowered until it holds 500 kB."""
    second_val: bool = False
    """Validate on a second held-out part, and leave the first one out. The second part is as large
    as the first if whole documents are held out. Otherwise it is data.val_fraction of what the
    first one leaves. So settings can be chosen without looking at the first part, whose loss is
    reported. This is how a study chooses its learning rates."""
    prepared: str = "data/prepared"
    """Folder for what is prepared: tokenizer and token ids, one folder for each setting."""

    def __post_init__(self) -> None:
        self.expand_home()
        self.name_source()
        self.prefer_files()

    def _set(self, option: str, value: Any) -> None:
        """Set an option while this configuration is made. Afterwards it is frozen."""
        object.__setattr__(self, option, value)

    def expand_home(self) -> None:
        """Replace a tilde at the start of a path by the home of the user."""
        self._set("prepared", os.path.expanduser(self.prepared))
        for option in ("tokenizer", "hub"):  # a data set may be a folder
            path = getattr(self, option)
            if path is not None:
                self._set(option, os.path.expanduser(path))

    def name_source(self) -> None:
        """Let data.url or data.hub choose its source, if no other one is chosen."""
        named = [source for source in ("url", "hub") if getattr(self, source)]
        if self.source == DataConfig.source and len(named) == 1:
            self._set("source", named[0])

    def prefer_files(self) -> None:
        """Let data.files replace a source that does not read them: a local copy stands in for a
        download."""
        if self.files is None or self.source not in SOURCES:
            return
        options = SOURCES[self.source].options
        if "files" in options:
            return
        # What only the other source reads goes back to its default, or check() would refuse it.
        for option in {*options} - {*Files.options}:
            self._set(option, getattr(DataConfig, option))
        self._set("source", "files")

    def check(self) -> None:
        """Raise UserError for settings that contradict."""
        if self.source not in SOURCES:
            raise UserError(f"data.source must be one of {', '.join(SOURCES)}, not {self.source}")
        if self.separator == "":
            raise UserError("data.separator '' is in every text: leave it out")
        # A letter or a digit is part of words, and so is nn. That is what a shell makes of \n\n
        # without quotes: the user means a line break.
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
        if self.sha256 is not None and not re.fullmatch("[0-9A-Fa-f]{64}", self.sha256):
            raise UserError(f"data.sha256 must be 64 hexadecimal digits, not {self.sha256!r}")
        check_ranges(self, "data.")


@dataclass
class Source:
    """A source of text, of which `parts` gives the documents.

    A subclass defines `documents`, or `parts` if it has several or can leave some out.
    """

    options = ()
    """The fields of DataConfig that a subclass reads. One with the name of the source, as in
    SOURCES, has to be given: it names the text."""
    config: DataConfig
    notes: list[str] = field(default_factory=list)
    """What was printed about what is in the text."""
    left_out: list[int] = field(default_factory=list)
    """The files that `parts` has left out, as indices into those that `Files.find` returns."""
    part_names: list[str] = field(default_factory=list)
    """What notes call each part, if there are several."""

    def say(self, note: str) -> None:
        """Print a note, and keep it for later trainings on the prepared text."""
        self.notes.append(note)
        say(place_scripts(note))

    def documents(self) -> Iterator[Iterable[str]]:
        """Yield the documents in a fixed order, each as pieces of bounded size. See `parts`."""
        raise NotImplementedError

    def parts(self) -> Iterator[Iterable[Iterable[str]]]:
        """Yield the documents in parts, in a fixed order, each document as pieces of bounded size.

        Read each part before asking for the next one, and all of them: notes and `left_out` come
        after the last one. A part that raises LeftOut is no part of the text: forget what it has
        given. Raises UserError if the source is missing, empty, not UTF-8, or does not answer.
        """
        yield self.documents()

    def names(self) -> Sequence[str]:
        """Return the names of the files whose text was read, where it is of files."""
        return [name for number, name in enumerate(self.part_names) if number not in self.left_out]

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

        `numbers` are those in `left_out` at that time.
        """

    def notes_on_files(self, left_out: Iterable[int]) -> list[str]:
        """Return notes on which files of folders and globs are read, by the names there now.

        left_out: the numbers of the files that were left out when the text was read
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
            if name == "pydoc_data/topics.py":  # it has the topics as one escaped literal
                continue
            try:
                text = path.read_bytes().decode()
            except UnicodeDecodeError:  # its first lines name another encoding
                continue
            yield [text]
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

    def find(self) -> tuple[list[TextFile], list[Search]]:
        """Return the files, and a Search for each glob and folder, but none for a named file.

        The files of a glob or folder are sorted. A file is returned once, however many links lead
        to it. Raises UserError for a name that leads to no file, and for files that are no text by
        their name.
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

    def parts(self) -> Iterator[Iterable[Iterable[str]]]:
        files, searches = self.find()
        self.part_names = [file.name for file in files]
        notes = make_notes(self.config)
        for file in files:
            yield read_file(file, notes)
        unread = {*notes.skipped_tables}
        for search in searches:
            unread.update(search.not_utf8, search.damaged)
        self.left_out = [number for number, file in enumerate(files) if file.name in unread]
        self.n_files = len(files) - len(self.left_out)
        self.has_blank_lines = notes.has_blank_lines
        if self.n_files == 0:
            raise_first_error(searches, notes)
        self.say_notes(searches, notes, unread)

    def say_notes(self, searches: list[Search], notes: Notes, unread: set[str]) -> None:
        """Print what was noticed in the files, and keep it for later trainings.

        The notes on which files are read are not kept, but made anew at every start
        (`notes_on_files`): files may come that are not read.
        """
        for search in searches:
            for line in search.notes_on_files(unread):
                say(place_scripts(line))
        for search in searches:
            for line in search.notes_on_unread():
                self.say(line)
        for line in notes.lines():
            self.say(line)

    def notes_on_files(self, left_out: Iterable[int]) -> list[str]:
        files, searches = self.find()
        unread = {files[number].name for number in left_out}
        return list(chain.from_iterable(search.notes_on_files(unread) for search in searches))

    def check_left_out(self, numbers: Iterable[int]) -> None:
        # The fingerprint has the files, and not by which names they were found.
        files, _ = self.find()
        for number in numbers:
            file = files[number]
            if file.in_folder and file_kind(file.path) in TABLES:
                continue  # it is left out again, and may be long
            with suppress(LeftOut):  # reading it again raises its error
                for document in read_file(file, make_notes(self.config)):
                    for _ in document:
                        pass

    def advise_split(self) -> str:
        if self.n_files <= 1:
            return ""
        advice = f". So it is from the last files only, of {self.n_files}"
        if self.config.separator is None and self.has_blank_lines:
            advice += (". To validate on parts of all, divide plain text into documents: "
                       "--data.separator $'\\n\\n' does so at blank lines")
        return advice


def url_path(url: str) -> str:
    """Return the path in an address. UserError if the address is malformed."""
    try:
        return urlsplit(url).path
    except ValueError as error:
        raise UserError(f"data.url {url} is no address: {error}") from None


class Url(Source):
    """The address of a file. It is fetched once, into the cache of `datasets`."""

    options = ("url", "sha256", "column", "separator")

    def fingerprint(self) -> Any:
        kind = file_kind(url_path(str(self.config.url)))
        return "rows" if kind in ONCE_PLAIN else None

    def documents(self) -> Iterator[Iterable[str]]:
        require_modules("datasets", "huggingface_hub", advice=LOCAL)
        url = str(self.config.url)
        refuse_local("data.url", url)
        if not re.match("https?://", url):
            raise UserError(f"data.url {url} must begin with http:// or https://")
        check_kind(re.split("[?#]", url)[0])
        path = self.cached_path(url)
        is_current = path.exists() and self.describe_difference(path) is None
        if not is_current:
            self.fetch(url, path)
        notes = make_notes(self.config)
        yield from read_file(TextFile(str(path), url), notes)
        for line in notes.lines():
            self.say(line)

    def names(self) -> Sequence[str]:
        return [url_path(str(self.config.url))]

    def cached_path(self, url: str) -> Path:
        """Return where the file of an address is kept, with the suffixes that tell its kind."""
        name = PurePosixPath(url_path(url))
        suffixes = name.suffixes[-2:] if name.suffix.lower() in COMPRESSED else [name.suffix]
        return Path(import_datasets().config.DOWNLOADED_DATASETS_PATH,
                    hashlib.sha256(url.encode()).hexdigest() + "".join(suffixes))

    def fetch(self, url: str, path: Path) -> None:
        """Fetch the file of an address. Raises UserError, also if it does not have data.sha256."""
        # The Hub's client resumes a download, and knows proxies and HF_HUB_OFFLINE.
        from huggingface_hub.file_download import http_get

        path.parent.mkdir(parents=True, exist_ok=True)
        say(f"fetching {url}")
        with reading(url, ELSEWHERE), atomic_path(path) as staging:
            with staging.open("wb") as file:
                http_get(url, file)
            difference = self.describe_difference(staging)
            if difference is not None:
                raise UserError(f"{difference}: correct data.sha256, or find the file that has it")

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
        if not os.path.isdir(name):  # a folder may be a data set
            refuse_local("data.hub", name)
        elif was_saved_to_disk(Path(name)):
            raise UserError(f"data.hub {name} was written by save_to_disk: "
                            f"{CONVERT.replace('FILES', shlex.quote(name))} writes its rows for "
                            "--data.files")
        datasets = import_datasets()
        notes = make_notes(config)
        with reading(name, ELSEWHERE):
            rows = datasets.load_dataset(name, config.hub_config, split=config.hub_split,
                                         revision=config.hub_revision)
            check_commit(config.hub_revision, rows)
            types = {column: str(feature) for column, feature in rows.features.items()}
            columns = split_column(config.column, types)
            for column in columns:
                if column not in types:
                    raise no_text_error(column, config.column, types)
            yield from read_column(rows.select_columns(columns), notes)
        for line in notes.lines():
            self.say(line)


def import_datasets() -> ModuleType:
    """Return Hugging Face `datasets`, silent with its client of the Hub.

    Errors reach the user once, as a UserError.
    """
    import datasets
    import huggingface_hub

    datasets.logging.set_verbosity(logging.CRITICAL)
    # It warns of each of six tries to reach a server.
    huggingface_hub.logging.set_verbosity(logging.CRITICAL)
    return datasets


def was_saved_to_disk(folder: Path) -> bool:
    """Return whether a data set below a folder was written by save_to_disk of `datasets`.

    Other folders with .arrow files can be loaded.
    """
    return any(path.with_name("state.json").exists() for path in folder.rglob("*.arrow"))


# A new source: a class above, and a line here.
SOURCES: dict[str, type[Source]] = {
    "stdlib": StandardLibrary, "files": Files, "url": Url, "hub": Hub,
}

# Four sets of options that belong to a text. The others are parts of the first.
# What a run with --init-from does not take over from its base if it has another text.
TEXT_OPTIONS = {"data.source", *(f"data.{option}" for source in SOURCES.values()
                                 for option in source.options)}
# If one of these has another value, the text has another size, and numbers are fitted to it.
TEXT_CHOICE = TEXT_OPTIONS - {"data.sha256", "data.column", "data.separator"}
# Their values are names. If a command gives one, it is a part of the default name of its run.
TEXT_NAMES = tuple(f"data.{name}" for name, source in SOURCES.items() if name in source.options)
# If none of these has another value, a run with --init-from reads the text of its base, as its base
# did. With --data.hub_split alone, that is another part of the same data set.
TEXT_ORIGIN = ("data.source", *TEXT_NAMES)


def raise_first_error(searches: Iterable[Search], notes: Notes) -> None:
    """Raise the error of the first table without text, or else of the first damaged file, if any.
    """
    for error in (notes.no_text, *(search.damage for search in searches)):
        if error is not None:
            raise error


def make_notes(config: DataConfig) -> Notes:
    """Return notes on a text that is read by this configuration, with nothing noticed yet."""
    return Notes(config.column, config.separator, config.tokenizer is not None)


def name_text(config: DataConfig) -> str:
    """Return how the user has named the text: its files, its address or its data set.

    The text of a source that has no option of its own name is called as the source.
    """
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
    named = [name for name in TEXT_NAMES if layer.get(name)]
    source = layer.get("data.source")
    if len(named) > 1:
        raise UserError(f"{' and '.join(named)} are different texts: leave one of them out")
    if not named or source not in SOURCES:
        return
    (name,) = named
    if name.removeprefix("data.") not in SOURCES[source].options:
        raise UserError(f"data.source {source} and {name} are different texts: leave one of them "
                        "out")


def check_use(config: DataConfig) -> None:
    """Raise UserError for a data.column where no file has columns, and for a data.separator where
    all files have.

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
        paths = [url_path(str(config.url))]
    else:
        # A data set of the Hub always has columns, and a source of a user's own may have them.
        # `DataConfig.check` refuses a column for a source that reads none.
        return
    tables = ", ".join(sorted(TABLES))
    have_columns = [file_kind(path) in TABLES for path in paths]
    if config.column != DataConfig.column and not any(have_columns):
        raise UserError(f"data.column {config.column} has no effect on plain text, only on tables "
                        f"({tables}): leave it out")
    if config.separator is not None and all(have_columns):
        raise UserError(f"data.separator {config.separator!r} has no effect on tables ({tables}), "
                        "of which each row is a document: leave it out")
