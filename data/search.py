"""Which files a name, a glob or a folder of --data.files leads to."""

import fnmatch
import glob
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NoReturn

from data.detect import begins_as_text, check_kind, find_kind, is_minified, is_text_file
from data.kinds import CONVERT, CONVERTIBLE, NO_PROSE, PLAIN, READABLE, REFUSED, file_kind
from data.readers import NotUTF8, OtherFormat, read_text, reading
from errors import UserError, closest

MOST_NAMES = 10_000  # that are looked at to suggest a glob
SOFTWARE = {"__pycache__", "node_modules", "site-packages", "venv"}  # folders of other people
# Folders that a build tool writes, and the files beside them that tell that it does.
BUILT = {"build", "dist", "target"}
BUILD_FILES = (
    "package.json", "tsconfig.json", "pyproject.toml", "setup.py", "Cargo.toml", "CMakeLists.txt",
    "pom.xml", "build.gradle", "build.gradle.kts", "build.sbt", "pubspec.yaml",
)
# Folders that gyre writes, and the files that mark each: see gyre/rundir.py, data/prepare.py and
# formats/web.py. For studies see `is_study`.
OUTPUTS = (
    ("gyre's runs", "run.json", "config.yaml"),
    ("gyre's prepared texts", "manifest.json", "train.bin"),
    ("gyre's pages", "index.html", "model.gguf"),
)
PLAN_START = 2**16  # bytes of a plan.json, in which a study of ours has PLAN_FIELD
PLAN_FIELD = b'"tuning_seeds"'


def list_folder(folder: str) -> tuple[list[str], dict[str, list[str]], set[str]]:
    """Return the text files in a folder and its subfolders, the others, and what is skipped.

    The text files are sorted, and the others grouped by suffix, with minified code apart. What is
    skipped is described, each kind once: outputs of gyre below `folder`, folders of software and of
    built files by their names, folders that cannot be read, links to folders, and links that lead
    nowhere. Hidden files and folders are skipped without a description.
    """
    texts: list[str] = []
    others: dict[str, list[str]] = {}
    skipped: set[str] = set()

    def skip_unreadable(error: OSError) -> None:
        skipped.add("folders that cannot be read")

    for parent, subfolders, names in os.walk(folder, onerror=skip_unreadable):
        entered = []
        for name in subfolders:
            if name[0] == ".":
                continue
            path = os.path.join(parent, name)
            reason = why_not_entered(path)
            if reason is None:
                entered.append(name)
            else:
                skipped.add(reason)
        subfolders[:] = entered
        for name in names:
            path = os.path.join(parent, name)
            if name[0] == ".":
                continue
            if not os.path.exists(path):
                skipped.add("links to files that are not there")
            elif not os.path.isfile(path):
                continue
            elif is_minified(path):
                others.setdefault(f"minified {file_kind(path)}", []).append(path)
            elif is_text_file(path):
                texts.append(path)
            else:
                others.setdefault(find_kind(path), []).append(path)
    return sorted(texts, key=lambda path: Path(path).parts), others, skipped


def why_not_entered(folder: str) -> str | None:
    """Return why a subfolder is skipped, such as "links to folders", or None if it is not."""
    name = os.path.basename(folder)
    if name in SOFTWARE:
        return name
    if os.path.islink(folder):  # os.walk does not follow it
        return "links to folders"
    project = os.path.dirname(folder)
    if name in BUILT and any(os.path.exists(os.path.join(project, file)) for file in BUILD_FILES):
        return f"what was built in {name}"
    return describe_output(Path(folder))


def describe_output(folder: Path) -> str | None:
    """Return what a folder is if a command of gyre wrote it, or else None.

    An exported model counts as the user's own folder.
    """
    for what, *markers in OUTPUTS:
        # Not Path.exists, which raises an error for a folder that nobody may look into.
        if all(os.path.exists(folder / name) for name in markers):
            return what
    if is_study(folder):
        return "gyre's studies"
    if folder.name == "wandb":
        for pattern in ("run-*", "offline-run-*", "superseded"):
            if any(folder.glob(pattern)):
                return "wandb's logs"
    return None


def is_study(folder: Path) -> bool:
    """Return whether a folder has the plan.json of a study (ablation/plan.py), and not one that
    other programs write."""
    plan = folder / "plan.json"
    if not os.path.isfile(plan):
        return False
    try:
        with plan.open("rb") as file:
            return PLAN_FIELD in file.read(PLAN_START)
    except OSError:  # nobody may read it
        return False


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


def has_below(folder: str, pattern: str) -> bool:
    """Return whether a file that can be read has such a name in a folder below this one.

    Looks at the first MOST_NAMES names, and follows no links.
    """
    n_names = 0
    for _, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        n_names += len(folders) + len(names)
        found = fnmatch.filter(names, pattern)
        if any(file_kind(name) not in REFUSED for name in found):
            return True
        if n_names > MOST_NAMES:
            return False
    return False


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
    folder, name = os.path.split(pattern)
    if glob.has_magic(name) and has_below(folder or ".", name):
        deeper = shlex.quote(os.path.join(folder, "**", name))
        return f": did you mean --data.files {deeper}, which matches those in its folders too?"
    hint = suggest_file(pattern)
    is_id = re.fullmatch(r"[\w-]+/[\w-]+(\.\d[\w-]*)*", pattern) is not None
    if is_id and not os.path.exists(Path(pattern).parent):
        hint += f"; of a data set of the Hugging Face Hub, say --data.hub {pattern}"
    return hint


def suggest_file(pattern: str) -> str:
    """Return a hint on a file that is not there: the working directory if its path is relative, and
    the nearest name in its folder."""
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
        advice = search.advise_conversion() + search.advise_unknown()
        if not advice:
            advice = search.advise_refused()
        if not advice:
            advice = search.advise_unknown(with_readable=True)
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
    """Files in a folder that are no text by their names, and minified code, by suffix."""
    skipped: list[str] = field(default_factory=list)
    """What else is in the folder and not read, as `list_folder` describes it."""
    is_folder: bool = False
    is_named: bool = False
    """Whether the name is that of a file."""
    not_utf8: list[str] = field(default_factory=list)
    """Those of its files that turned out not to be UTF-8. A file that an earlier name in data.files
    leads to as well is counted there only."""
    other_formats: list[OtherFormat] = field(default_factory=list)
    """Errors that name a format: for those of `not_utf8` whose first bytes show one."""
    damaged: list[str] = field(default_factory=list)
    """Those of its files that turned out to be damaged, each counted once, as in `not_utf8`."""
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
        """Count a file that is damaged.

        Raises LeftOut, or the error itself if damaged files are half of the bytes or more.
        """
        self.damaged.append(name)
        if self.damage is None:
            self.damage = error
        size = sum(map(os.path.getsize, self.paths))
        lost = sum(map(os.path.getsize, self.damaged))
        if self.n_files == 1 or 2 * lost >= size:
            raise error
        raise LeftOut(str(error))

    def describe_others(self) -> str:
        """Return what in a folder is left out: files by their suffixes, and what is `skipped`."""
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

    def advise_unknown(self, with_readable: bool = False) -> str:
        """Return the option that reads the files of `find_unknown`; "" if there are none."""
        unknown = self.find_unknown(with_readable)
        if unknown is None:
            return ""
        kind, glob_of_kind = unknown
        return f"; to read the {kind} files: --data.files {shlex.quote(glob_of_kind)}"

    def find_unknown(self, with_readable: bool = False) -> tuple[str, str] | None:
        """Return the most frequent suffix that is unknown and is text, and the glob for its files.

        None if there is no such suffix. `with_readable`: those of READABLE count, too
        """
        for kind, paths in self.unknown_kinds(with_readable):
            # Not those of compressed files, whose names have another suffix behind it.
            unpacked = [path for path in paths if path.lower().endswith(kind)]
            if unpacked and begins_as_text(unpacked[0]):
                spellings = {path[-len(kind):] for path in unpacked}
                if len(spellings) > 1:
                    suffix = kind
                    ending = in_any_case(kind)
                else:
                    (suffix,) = spellings  # .LRC, if all are spelled so
                    ending = glob.escape(suffix)
                return suffix, os.path.join(glob.escape(self.pattern), "**", f"*{ending}")
        return None

    def unknown_kinds(self, with_readable: bool = False) -> list[tuple[str, list[str]]]:
        """Return the suffixes that may be those of prose, each with its files, most files first.

        with_readable: also those of READABLE
        """
        known = {*PLAIN, *REFUSED, *CONVERTIBLE, *NO_PROSE.split()}
        if with_readable:
            known -= READABLE
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
        refused = [paths for kind, paths in self.others.items() if kind in REFUSED]
        if refused:
            # The largest one, because a small one may be a list of names beside the texts.
            return why_refused(max(max(refused, key=len), key=os.path.getsize))
        for _, paths in self.unknown_kinds():
            reason = why_unreadable(paths[0])
            if reason:
                return reason
        return ""

    def notes_on_files(self, unread: set[str]) -> list[str]:
        """Return notes on which files are read. `unread` are names of files that are left out."""
        lines: list[str] = []
        if self.is_folder or not unread.isdisjoint(self.paths):
            lines.append(self.describe(unread))
        software = self.describe_software()
        if software is not None:
            lines.append(software)
        return lines

    def notes_on_unread(self) -> list[str]:
        """Return notes on files that turned out to be damaged or not UTF-8."""
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
        # A file is counted once, however many links lead to it.
        left_out = {*map(os.path.realpath, unread)}
        read = {os.path.realpath(path): path for path in self.paths}
        for path in left_out:
            read.pop(path, None)
        n_read = len(read)
        total = self.n_files + sum(map(len, self.others.values()))
        share = f"{n_read} files of {total} are read"
        if n_read == 1:
            share = f"1 file of {total} is read"
        kinds = Counter(map(file_kind, read.values()))
        if len(kinds) > 1:
            share += f": {describe_kinds(kinds)}"
        others = self.describe_others()
        rest = f" (left out: {others})" if others else ""
        unknown = self.find_unknown()
        if unknown is not None:
            kind, glob_of_kind = unknown
            rest += f"; to read the {kind} files too, add --data.files {shlex.quote(glob_of_kind)}"
        rest += self.advise_conversion()
        return f"note: {self.pattern}: {share}{rest}"

    def describe_software(self) -> str | None:
        """Return a note on files of a glob that are minified code, or in folders of software, such
        as node_modules.

        None if there are no such files, or if the glob names their folder or minified code.
        """
        if self.is_folder or self.is_named:
            return None
        folders = SOFTWARE - {*Path(self.pattern).parts}
        n_found = 0
        names: set[str] = set()
        has_minified = False
        for path in self.paths:
            parents = folders.intersection(Path(path).parent.parts)
            if parents:
                n_found += 1
                names |= parents
            elif "min." not in self.pattern and is_minified(path):
                n_found += 1
                has_minified = True
        if n_found == 0:
            return None
        places = [f"in {', '.join(sorted(names))}"] if names else []
        places += ["minified code"] if has_minified else []
        return (f"note: {self.pattern}: {n_found} of {len(self.paths)} files are "
                f"{' or '.join(places)}: name a folder, which leaves these out, if you do not want "
                "them")


def in_any_case(suffix: str) -> str:
    """Return the end of a glob that matches a suffix in small letters and capitals: .[vV][iI][mM].
    """
    parts = []
    for character in suffix:
        small, capital = character.lower(), character.upper()
        is_letter = small != capital and len(small + capital) == 2
        parts.append(f"[{small}{capital}]" if is_letter else glob.escape(character))
    return "".join(parts)


def why_refused(path: str) -> str:
    """Return "; " and the error of `check_kind` for a file, or "" if there is none."""
    try:
        check_kind(path)
    except UserError as error:
        return f"; {error}"
    return ""


def why_unreadable(path: str) -> str:
    """Return "; " and the error of reading the beginning of a file, or "" if there is none."""
    try:
        with reading(path):
            # The second step finds half a character at the end of a short file.
            for _ in islice(read_text(path), 2):
                pass
    except UserError as error:
        return f"; {error}"
    return ""


def describe_kinds(counts: Mapping[str, int]) -> str:
    """Return how many files there are of the five most frequent suffixes."""
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
    return ", ".join(f"{count} {kind or 'without a suffix'}" for kind, count in frequent)


def list_names(names: list[str]) -> str:
    """Return the first three names, and how many there are more."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
