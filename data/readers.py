"""Files as people have them: which kinds are read, and how they become texts and rows.

Every text arrives byte for byte: no line end, form feed or final newline is touched. Only a byte
order mark at the start of a file is dropped. Files are read in pieces, and may be larger than
memory.
"""

import codecs
import csv
import gzip
import io
import json
import logging
import os
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from errors import UserError, closest, require_modules
from files import first_line

PIECE = 1 << 20  # bytes of a text file that are read at a time
ROWS = 100  # rows of a Parquet file in memory at a time
ROWS_MEASURED = 10_000  # rows of a CSV that are read to advise a column
HEAD = 4096  # bytes at the start of a file that tell what it is
JSON_START = 4 << 20  # bytes of a .json file that are read to tell what is in it
LONGEST_WINDOW = 1 << 27  # bytes before the current one to which zstd may refer
NEARBY = 20  # characters on each side of a bad byte that are shown

# --- kinds of files -------------------------------------------------------------------------------

TABLES = {".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"}
COMPRESSED = {".gz", ".zst"}
# Suffixes that are read without a note, and that are read of a folder: those of text, and those of
# source code and settings.
TEXT = """
.txt .text .utf8 .utf-8 .md .mdx .markdown .rmd .qmd .rst .adoc .asciidoc .org .tex .bib .log .po
.srt .vtt
"""
CODE = """
.py .pyi .pyx .c .h .cc .cpp .cxx .hh .hpp .hxx .cu .cuh .m .mm .cs .fs .vb .java .kt .kts .scala
.groovy .gradle .clj .cljs .go .rs .zig .nim .d .v .sv .vhd .vhdl .swift .dart .js .jsx .mjs .cjs
.ts .tsx .vue .svelte .css .scss .sass .less .php .rb .pl .pm .t .r .jl .lua .tcl .sh .bash .zsh
.fish .ps1 .bat .cmd .awk .sed .sql .hs .lhs .ml .mli .elm .ex .exs .erl .hrl .lisp .el .scm .rkt
.pro .f .f90 .f95 .for .pas .ada .adb .ads .cob .asm .s .cmake .mk .make .proto .graphql .tf .nix
.toml .yaml .yml .ini .cfg .conf
"""
PLAIN = {"", *TEXT.split(), *CODE.split()}  # "": no suffix
# Suffixes of files that are text and no prose: drawings, data, what tools leave behind, keys and
# checksums. No note says how to read them, and such a file is read if it is named.
NO_PROSE = """
.svg .eps .ps .dxf .obj .mtl .stl .ply .gltf .xpm .dot .gv .drawio
.geojson .topojson .kml .gpx .ics .vcf .har .plist .webmanifest .jsonld .edn .canvas .opf .ncx
.aux .toc .lof .lot .lol .out .bbl .blg .bcf .fls .fdb_latexmk .nav .snm .idx .ilg .ind .synctex
.lock .map .sum .mod .pid .tmp .bak .orig .rej .swp .snap .patch .diff
.sln .csproj .vcxproj .pbxproj .xcscheme .iml
.pem .crt .cer .key .pub .csr .sig .md5 .sha1 .sha256 .sha512
"""

SOFTWARE = {"__pycache__", "node_modules", "site-packages", "venv"}  # folders of other people
# Folders that a build tool writes, and the files beside them that tell that it does.
BUILT = {"build", "dist", "target"}
BUILD_FILES = (
    "package.json", "tsconfig.json", "pyproject.toml", "setup.py", "Cargo.toml", "CMakeLists.txt",
    "pom.xml", "build.gradle", "build.gradle.kts", "build.sbt", "pubspec.yaml",
)
# Folders that gyre writes, and the files that mark each: see gyre/rundir.py, data/prepare.py,
# ablation/plan.py and formats/web.py.
OUTPUTS = (
    ("gyre's runs", "run.json", "config.yaml"),
    ("gyre's prepared texts", "manifest.json", "train.bin"),
    ("gyre's studies", "plan.json", "results"),
    ("gyre's studies", "plan.json", "logs"),  # before its first record
    ("gyre's pages", "index.html", "model.gguf"),
)

CONVERT = "python tools/as_lines.py FILES > NEW.jsonl"  # see `place_scripts` of errors.py
SAVE_AS_TEXT = "save it as plain text in UTF-8, from its program"
AS_TEXT = f"{SAVE_AS_TEXT} or with pandoc FILE -t plain -o NEW.txt"
CONVERTED = f"{CONVERT} writes its text; or {AS_TEXT}"
CALIBRE = "save it as plain text, as Calibre's ebook-convert FILE NEW.txt does"
LINES = "write one object on each line of a .jsonl file, as jq -c {} FILE > NEW.jsonl does"
RENAME = "it has one object on each line: rename it to .jsonl"
AS_LINES = LINES.format("'.[]'")
AS_CSV = "save its sheet as CSV in UTF-8"
UNPACK = "unpack it, and name what is in it"
# Files that are no plain text although some of them look like it, and what to do with them.
REFUSED = {
    ".json": f"{AS_LINES} for a list, and jq -c '.KEY[]' for a list under KEY in an object; if it "
             "has one object on each line already, rename it to .jsonl",
    ".html": CONVERTED, ".htm": CONVERTED, ".xhtml": CONVERTED, ".mhtml": CONVERTED,
    ".mht": CONVERTED, ".docx": CONVERTED, ".odt": CONVERTED, ".pptx": CONVERTED,
    ".odp": CONVERTED, ".epub": CONVERTED,
    ".fb2": CONVERTED, ".enex": CONVERTED, ".opml": CONVERTED,
    ".arrow": f"{CONVERT} writes its rows",
    ".apkg": f"{CONVERT} writes its notes", ".colpkg": f"{CONVERT} writes its notes",
    ".pdf": "extract its text, as pdftotext -nopgbrk FILE NEW.txt does",
    ".rtf": CONVERTED, ".doc": SAVE_AS_TEXT, ".pages": SAVE_AS_TEXT,
    ".mobi": CALIBRE, ".azw": CALIBRE, ".azw3": CALIBRE,
    ".xlsx": AS_CSV, ".xls": AS_CSV, ".ods": AS_CSV,
    ".ipynb": f"{CONVERT} writes its cells; so does jupyter nbconvert --to markdown FILE",
    ".zip": UNPACK, ".tar": UNPACK, ".tgz": UNPACK, ".7z": UNPACK, ".rar": UNPACK,
    ".bz2": "unpack it with bunzip2 FILE", ".xz": "unpack it with unxz FILE",
}

# Files of which tools/as_lines.py writes the text, also if their folder is named.
CONVERTIBLE = {kind for kind, advice in REFUSED.items() if advice.startswith(CONVERT)}
CONVERTIBLE |= {".eml", ".mbox", ".xml"}

# First bytes of files that are no UTF-8, what they are, and what to do with them. UTF-32 comes
# before UTF-16, whose mark is the beginning of its own.
UTF_8 = "save it as UTF-8 (in Notepad: Save as, Encoding), or run iconv -f {0} -t UTF-8 FILE > NEW"
SIGNATURES = (
    (codecs.BOM_UTF32_LE, "UTF-32", UTF_8.format("UTF-32")),
    (codecs.BOM_UTF32_BE, "UTF-32", UTF_8.format("UTF-32")),
    (codecs.BOM_UTF16_LE, "UTF-16", UTF_8.format("UTF-16")),
    (codecs.BOM_UTF16_BE, "UTF-16", UTF_8.format("UTF-16")),
    (b"PK\3\4", "a zip archive (.docx, .xlsx, .odt and .epub are such)",
     "give it its suffix back to learn how to read it, or else unpack it"),
    (b"%PDF-", "a PDF", REFUSED[".pdf"]),
    (b"{\\rtf", "rich text (RTF)", CONVERTED),
    (b"\xd0\xcf\x11\xe0", "an old Word or Excel file, or a message of Outlook", SAVE_AS_TEXT),
    (b"PAR1", "a Parquet file", "name it .parquet"),
    (b"BZh91AY&SY", "compressed with bzip2", REFUSED[".bz2"]),
    (b"\xfd7zXZ", "compressed with xz", REFUSED[".xz"]),
    (b"7z\xbc\xaf", "a 7z archive", UNPACK),
    (b"Rar!", "a RAR archive", UNPACK),
    (b"SQLite format 3\0", "a database of SQLite", f"{CONVERT} writes its table with most text"),
    (b"\x89PNG", "an image", "leave it out"),
    (b"\xff\xd8\xff", "an image", "leave it out"),
)
JSON = "JSON"  # the kind of files without a suffix that begin as JSON
REFUSED[JSON] = REFUSED[".json"]
# How JSON with text begins: an object with a key, or a list of objects or of strings.
JSON_BEGINNING = re.compile(
    r'''\s*(\{\s*"(?:[^"\\]|\\.)*"\s*:|\[\s*(\{\s*"|"(?:[^"\\]|\\.)*"\s*[,\]]))''')
# In a JSON object: what is before a key, the key, and the colon.
JSON_KEY = re.compile(r'''[\s,{]*("(?:[^"\\]|\\.)*")\s*:\s*''')
GZIP = b"\x1f\x8b"
# A frame of zstd. One that has no text, with a first byte of 0x50 to 0x5f, may come before it.
ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")


def file_kind(path: str | PurePath) -> str:
    """Return the suffix that decides how a file is read: .jsonl for rows.JSONL.gz.

    A suffix begins with a letter and has no space: "notes 1.2" and "3. Dr. No" have none.
    """
    name = PurePath(str(path).lower())
    if name.suffix in COMPRESSED:
        name = name.with_suffix("")
    return name.suffix if re.fullmatch(r"\.[a-z]\S*", name.suffix) else ""


def find_kind(path: str) -> str:
    """Return the kind of a file by its name or, without a suffix, whether its first bytes are JSON.
    """
    kind = file_kind(path)
    return JSON if kind == "" and begins_as_json(path) else kind


def check_kind(path: str) -> None:
    """Raise UserError for a file that its name shows to be no text, or without a suffix its start.

    Of JSON on this machine, the first bytes are read for the advice.
    """
    kind = find_kind(path)
    if kind in REFUSED:
        advice = REFUSED[kind]
        if kind in (".json", JSON) and os.path.isfile(path):
            advice = advise_json(path)
            suffix = PurePath(path).suffix
            is_packed = suffix.lower() in COMPRESSED
            if advice == RENAME:
                advice += suffix if is_packed else ""
            elif is_packed:
                advice = f"unpack it; {advice}"
            if "jq" in advice:
                advice += f"; without jq: {CONVERT}"
        raise UserError(f"{path} is not read, because {kind} is no plain text: {advice}")


def advise_json(path: str) -> str:
    """Return how to make lines of a .json file, or general advice if its start does not tell."""
    try:
        with reading(path), open_file(path) as file:
            data = file.read(JSON_START)
    except UserError:
        return REFUSED[".json"]
    start = data.decode(errors="replace").removeprefix("\ufeff").lstrip()
    if re.match(r'\[\s*"', start):  # a list of strings
        return LINES.format("'.[] | {text: .}'")
    if start.startswith("["):
        return AS_LINES
    if begins_with_object_lines(start):
        return RENAME
    key = longest_list(start)
    if key is None:
        return advise_object(start)
    if not re.fullmatch('"[A-Za-z_][A-Za-z0-9_]*"', key):
        return LINES.format(shlex.quote(f".{key}[]"))
    name = key.strip('"')
    return LINES.format(f"'.{name}[]'")


def advise_object(text: str) -> str:
    """Return how to make a line of one JSON object, or general advice if it has no text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return REFUSED[".json"]
    lengths: dict[str, int] = {}
    if isinstance(value, dict):
        lengths = {key: len(member) for key, member in value.items() if isinstance(member, str)}
    if not lengths:
        return REFUSED[".json"]
    longest = max(lengths, key=lambda key: lengths[key])
    sizes = ColumnSizes()
    sizes.add_nested("", list(value.values()))
    if sizes.nested[""] > LONGER * lengths[longest] > 0 and len(lengths) < len(value):
        return f"{CONVERT} writes the objects of its list with most text"
    return ("it is one object: jq -c . FILES > NEW.jsonl writes each such file as a line, of which "
            f"--data.column={shlex.quote(longest)} reads the longest text")


def begins_with_object_lines(start: str) -> bool:
    """Return whether the first line of a text is a JSON object, and another object follows it."""
    first, _, rest = start.partition("\n")
    if not rest.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def begins_as_rows(text: str) -> bool:
    """Return whether a text begins as objects of JSON, one on each line, or as a list of them."""
    start = text.lstrip()
    return re.match(r'\[\s*\{\s*"', start) is not None or begins_with_object_lines(start)


def longest_list(start: str) -> str | None:
    """Return the key, as JSON, of the longest list of objects in a JSON object, or None.

    `start` may be cut off: the list that it is cut in counts as the longest.
    """
    lengths: dict[str, int] = {}
    member = JSON_KEY.match(start)
    while member is not None:
        begin = member.end()
        try:
            value, end = json.JSONDecoder().raw_decode(start, begin)
        except (ValueError, RecursionError):
            is_list = re.compile(r"\[\s*\{").match(start, begin)
            return member[1] if is_list else None
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lengths[member[1]] = end - begin
        member = JSON_KEY.match(start, end)
    return max(lengths, key=lambda key: lengths[key], default=None)


def list_folder(folder: str) -> tuple[list[str], dict[str, list[str]], set[str]]:
    """Return the text files in a folder and its subfolders, the others, and what is skipped.

    The text files are sorted, and the others grouped by suffix. What is skipped is described, each
    kind once: outputs of gyre below `folder`, folders of software and of built files by their
    names, folders that cannot be read, links to folders, and links that lead nowhere. Hidden files
    and folders are skipped without a description.
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
            elif os.path.isfile(path) and is_text_file(path):
                texts.append(path)
            elif os.path.isfile(path):
                others.setdefault(find_kind(path), []).append(path)
    return sorted(texts, key=lambda path: Path(path).parts), others, skipped


def is_text_file(path: str) -> bool:
    """Return whether a file in a folder is read, by its suffix or, without one, by its start."""
    kind = file_kind(path)
    if kind == "":
        return begins_as_text(path) and not begins_as_json(path)
    stem, _ = os.path.splitext(path)
    if kind == ".log" and any(os.path.exists(f"{stem}{tex}") for tex in (".tex", ".TEX")):
        return False  # it is what LaTeX says of that file
    return kind in TABLES or kind in PLAIN


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
    if folder.name == "wandb":
        for pattern in ("run-*", "offline-run-*", "superseded"):
            if any(folder.glob(pattern)):
                return "wandb's logs"
    return None


def read_head(path: str) -> str | None:
    """Return the first HEAD bytes of a file, decompressed; None if they are no UTF-8 without NUL.
    """
    try:
        with reading(path), open_file(path) as file:
            head = file.read(HEAD)
            # A longer file may have half a character there.
            text = codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
    except UserError:
        return None
    return None if "\0" in text else text


def begins_as_text(path: str) -> bool:
    """Return whether the first bytes of a file, decompressed, are UTF-8 without NUL."""
    return read_head(path) is not None


def begins_as_json(path: str) -> bool:
    """Return whether the first bytes of a file on this machine, decompressed, are JSON."""
    head = read_head(path) if os.path.isfile(path) else None
    if head is None:
        return False
    start = head.removeprefix("\ufeff").lstrip()
    if not JSON_BEGINNING.match(start):
        return False
    try:
        _, end = json.JSONDecoder().raw_decode(start)
    except RecursionError:
        return True
    except json.JSONDecodeError as error:
        was_cut = len(head.encode()) > HEAD - 4  # perhaps in a character
        is_at_end = error.pos > len(start) - 10 or error.msg.startswith("Unterminated string")
        return was_cut and is_at_end
    return start[end:].lstrip()[:1] in ("", "{", "[")


# --- bytes ----------------------------------------------------------------------------------------


class NotUTF8(UserError):
    """A file has bytes that are no UTF-8."""


class OtherFormat(NotUTF8):
    """The first bytes of a file show what it is instead."""


class NoReader(UserError):
    """The package that reads a file is not installed."""


def require_pyarrow(advice: str) -> None:
    """Raise NoReader, which ends with `advice`, unless pyarrow is installed."""
    try:
        require_modules("pyarrow", advice=advice)
    except UserError as error:
        raise NoReader(str(error)) from None


def is_damaged(error: UserError) -> bool:
    """Return whether an error of `reading` is about what is in the file, and not this machine."""
    cause = error.__cause__
    if isinstance(error, NoReader):
        return False
    if isinstance(cause, OSError):  # libraries raise it for bad content, without a number
        return cause.errno is None
    return cause is None or isinstance(cause, (UserError, EOFError, ValueError, zlib.error))


@contextmanager
def reading(name: str, advice: str = "") -> Iterator[None]:
    """Turn any error of reading a text into a UserError, which ends with `advice`."""
    try:
        yield
    except UserError as error:  # it says what to do
        raise type(error)(f"{name} cannot be read: {error}") from error
    except Exception as error:
        reason = first_line(error).rstrip(".")
        end = f" {advice}" if advice else ""
        raise UserError(
            f"{name} cannot be read: {type(error).__name__}: {reason}.{end}") from error


@contextmanager
def open_file(path: str) -> Iterator[io.BufferedReader]:
    """Yield the bytes of a file, decompressed. The first bytes tell whether it is compressed,
    because browsers unpack a file and keep its name.

    Raises NotUTF8 if they show that it is none.
    """
    with open(path, "rb") as packed, unpack(packed) as file:
        check_head(file.peek(HEAD)[:HEAD])
        yield file


def unpack(file: io.BufferedReader) -> io.BufferedReader:
    """Return the content of a file that is compressed with gzip or zstd, or the file itself."""
    head = file.peek(HEAD)
    content: Any = file
    if head.startswith(GZIP):
        content = io.BufferedReader(gzip.GzipFile(fileobj=file))
    elif ZSTD.match(head):
        require_pyarrow("unpack it with unzstd FILE")
        if has_long_window(head):
            raise UserError("it was packed by zstd --long: unpack it with unzstd --long=31 FILE")
        import pyarrow

        content = io.BufferedReader(pyarrow.input_stream(file, compression="zstd"))
    return content


def has_long_window(head: bytes) -> bool:
    """Return whether a frame of zstd needs more memory than decoders use unless they are told to.

    Its window is in the sixth byte: two to the power of the upper five bits, and as many eighths
    more as the lower three bits say, in KiB. Bit 5 of the byte before says that there is none: the
    window is the content, whose size follows the id of a dictionary (RFC 8878, 3.1.1.1).
    """
    if len(head) < 6 or not head.startswith(b"\x28\xb5\x2f\xfd"):
        return False
    descriptor = head[4]
    if descriptor & 1 << 5:
        begin = 5 + (0, 1, 2, 4)[descriptor & 3]
        n_bytes = 1 << (descriptor >> 6)
        return int.from_bytes(head[begin : begin + n_bytes], "little") > LONGEST_WINDOW
    base = 1 << 10 + (head[5] >> 3)
    return base + base // 8 * (head[5] & 7) > LONGEST_WINDOW


def check_head(head: bytes) -> None:
    """Raise NotUTF8 if the first bytes of a file show that it is no UTF-8."""
    for signature, what, advice in SIGNATURES:
        if head.startswith(signature):
            raise OtherFormat(f"it is {what}: {advice}")
    if head[257:262] == b"ustar":
        raise OtherFormat(f"it is a tar archive: {UNPACK}")
    # In UTF-16, a space and each Latin letter have a NUL, always in the same half.
    nuls = head.count(0)
    if nuls >= max(2, len(head) // 20) and nuls in (head[0::2].count(0), head[1::2].count(0)):
        order = "BE" if head[0::2].count(0) else "LE"
        raise OtherFormat("it is UTF-16 without a byte order mark: "
                          f"{UTF_8.format(f'UTF-16{order}')}")


def not_utf8(
    error: UnicodeDecodeError, place: str, before: str = "", is_ascii: bool = True
) -> NotUTF8:
    """Return the error for bytes that are no UTF-8; `place` says where they are.

    `before` is the end of the text before those that were decoded; `is_ascii` says whether all of
    that text is.
    """
    data = error.object
    start = error.start
    byte = f"the byte 0x{data[start]:02x} {place} is not UTF-8"
    if b"\0" in data[:HEAD]:
        return NotUTF8(f"{byte}, and there are NULs, so it is no text: leave it out")
    before += data[:start].decode().removeprefix("\ufeff")
    if not (is_ascii and before.isascii()):
        return NotUTF8(f"{byte}, but the text before it is, so a part of it is damaged or has "
                       "another encoding: mend that part, or drop such bytes with iconv -c -f "
                       "UTF-8 -t UTF-8 FILE > NEW")
    nearby = before[-NEARBY:] + data[start : start + NEARBY].decode("cp1252", "replace")
    return NotUTF8(f"{byte}; in cp1252, the encoding of older Windows programs, the text there "
                   f"is {' '.join(nearby.split())!r}: if that is right, run iconv -f "
                   "WINDOWS-1252 -t UTF-8 FILE > NEW; or else with the encoding of its language in "
                   "place of WINDOWS-1252, such as GB18030, BIG5, SHIFT_JIS, EUC-KR, WINDOWS-1251 "
                   "or KOI8-R")


def decode(data: bytes) -> str:
    """Return the text of a whole file without its byte order mark. UserError if it is no UTF-8."""
    check_head(data[:HEAD])
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise not_utf8(error, f"at offset {error.start:,}") from None


def read_text(path: str) -> Iterator[str]:
    """Yield a text file in pieces.

    The builder "text" of `datasets` would translate line ends, and hold a whole file in memory.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0  # of the next byte
    before = ""  # the end of what was yielded
    is_ascii = True
    with open_file(path) as file:
        while True:
            data = file.read(PIECE)
            pending, _ = decoder.getstate()  # half a character of the piece before
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                place = offset - len(pending) + error.start
                raise not_utf8(error, f"at offset {place:,}", before, is_ascii) from None
            if not before:
                text = text.removeprefix("\ufeff")
            if text:
                yield text
                before = (before + text)[-NEARBY:]
                is_ascii &= text.isascii()
            if not data:
                return
            offset += len(data)


def split_documents(pieces: Iterable[str], separator: str) -> Iterator[Iterator[str]]:
    """Yield the documents between separators, each in pieces; `pieces` are not empty.

    The line break before a separator and the one after it belong to it. Read a document before
    asking for the next one.
    """
    parts = (part for part in number_pieces(pieces, separator) if part[1])
    for _, document in groupby(parts, key=itemgetter(0)):
        yield (text for _, text in document)


def number_pieces(pieces: Iterable[str], separator: str) -> Iterator[tuple[int, str]]:
    """Yield the text between separators in pieces, each with the number of its document."""
    number = 0
    text = ""
    for piece in chain(pieces, [""]):  # "" is the end
        text += piece
        ahead = 2 if piece else 0  # the line break after a separator may be in the next piece
        start = 0
        place = text.find(separator)
        while place >= 0 and place + len(separator) + ahead <= len(text):
            yield number, text[start:place].removesuffix("\n").removesuffix("\r")
            number += 1
            start = place + len(separator)
            for line_break in "\r\n":
                if text.startswith(line_break, start):
                    start += 1
            place = text.find(separator, start)
        end = len(text)
        if piece:  # keep what may be a separator with \r\n before and after it
            end = max(start, end - len(separator) - 4)
        yield number, text[start:end]
        text = text[end:]


# --- rows -----------------------------------------------------------------------------------------


# How Python, Arrow and `datasets` call the type of text, and that of a list of texts.
TEXT_TYPE = r"str|(large_)?string(_view)?|Value\('(large_)?string'\)"
NOTHING = "NoneType"  # that of a value that is missing, as `name_type` calls it
TEXT_LIST = "list of str"  # likewise
FORMATTED = "list of formatted parts"  # likewise
TEXT_LISTS = (
    rf"{TEXT_LIST}|{FORMATTED}|(large_)?list<.*: (large_)?string>"
    r"|List\(Value\('(large_)?string'\)\)"
)
CHAT = "list of turns"  # likewise
CHATS = (
    rf"{CHAT}|(large_)?list<.*: struct<.*\b(role|from): (large_)?string.*>>"
    r"|List\(\{.*'(role|from)': Value\('(large_)?string'\).*\}\)"
)
# The keys of a turn of a chat under which it says who speaks, and what is said.
SPEAKERS = ("role", "from")
WORDS = ("content", "value")


# Two words, or a character of a language without spaces between words: Thai, Lao, Burmese, Khmer,
# Japanese and Chinese. Ids, hashes, addresses and most dates have neither.
WORDS_IN_ROW = re.compile(r"[^\W\d_][^\w\s]*\s+[^\w\s]*[^\W\d_]"
                          r"|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u9fff]")
# The types of formatted parts. Other programs have objects with a type and a text, too, such as
# paragraphs, which have to be kept apart.
TELEGRAM = """
plain bold italic underline strikethrough spoiler code pre blockquote link text_link email phone
mention mention_name hashtag cashtag bot_command bank_card custom_emoji
"""
SHORT = 200  # characters that a row of short texts has on average
# A note suggests a column with more than this many times the text of another one.
LONGER = 3


class NoText(UserError):
    """A table has no text in the column that is read."""


@dataclass
class ColumnSizes:
    """How many characters each column of some tables has, as far as they are known."""

    rows: int = 0
    texts: Counter[str] = field(default_factory=Counter)
    """In columns that can be read."""
    prose: Counter[str] = field(default_factory=Counter)
    """Likewise, in values with WORDS_IN_ROW."""
    nested: Counter[str] = field(default_factory=Counter)
    """In objects and lists that cannot be read, in strings with WORDS_IN_ROW."""
    keys: dict[str, Counter[str]] = field(default_factory=dict)
    """Likewise, by the keys of these objects, and of the objects in these lists."""

    def add(self, name: str, texts: Iterable[str]) -> None:
        """Add a value of a column: its text, or the texts in its list."""
        for text in texts:
            self.texts[name] += len(text)
            if WORDS_IN_ROW.search(text):
                self.prose[name] += len(text)

    def add_nested(self, name: str, value: Any) -> None:
        """Add an object or a list that cannot be read, with what is in it at any depth."""
        for member in value if isinstance(value, list) else [value]:
            for key, text in member.items() if isinstance(member, dict) else ():
                if isinstance(text, str) and WORDS_IN_ROW.search(text):
                    self.keys.setdefault(name, Counter())[key] += len(text)
        values = [value]
        while values:
            inner = values.pop()
            if isinstance(inner, dict):
                values += inner.values()
            elif isinstance(inner, list):
                values += inner
            elif isinstance(inner, str) and WORDS_IN_ROW.search(inner):
                self.nested[name] += len(inner)

    def update(self, other: "ColumnSizes") -> None:
        """Add the sizes of another table."""
        self.rows += other.rows
        self.texts.update(other.texts)
        self.prose.update(other.prose)
        self.nested.update(other.nested)
        for name, keys in other.keys.items():
            self.keys.setdefault(name, Counter()).update(keys)

    def longest(self, names: Iterable[str]) -> str:
        """Return the name of the column with most prose, or with most characters if none has any.
        """
        return max(names, key=lambda name: (self.prose[name], self.texts[name]))


# What is no name of a column in the first line of a CSV: a number, or a text.
NO_NAME = r"(?s)[-\d.,]*\d|.{60,}"
# Many .tsv files have no quoting: a quote is a character, also where it begins a text.
ADVISE_UNQUOTED = (
    "if quotes are ordinary characters in this file, python -c 'import csv, json; "
    "csv.field_size_limit(2**31 - 1); [print(json.dumps(row)) for row in csv.DictReader("
    'open("FILE", encoding="utf-8-sig", newline=""), delimiter="\\t", quoting=csv.QUOTE_NONE)]\' '
    "> NEW.jsonl reads them as such"
)
MAIL = {".mbox", ".eml"}
# How mail begins: perhaps with the line that begins a message in an mbox, and then with headers,
# among which is one that no other text has.
MAIL_BEGINNING = re.compile(
    r"(From \S+.*\n)?([\w-]+:.*\n([ \t].*\n)*)*?(Message-ID|MIME-Version|Received|Return-Path):",
    re.IGNORECASE)
# How a line of a chat of WhatsApp begins: "[31.12.20, 21:41:05] " or "12/31/20, 9:41 PM - ".
CHAT_BEGINNING = re.compile(
    r"[\u200e\u200f]?\[?(\d{1,4}[./-]\d{1,2}[./-]\d{2,4}), \d{1,2}[:.]\d{2}([:.]\d{2})?"
    r"([\s\u202f]?[ap]\.?[\s\u202f]?m\.?)?(\] | - )", re.IGNORECASE)
SUBTITLES = {".srt", ".vtt"}
# `datasets` needs pandas, so whoever has Parquet files has it.
PARQUET_AS_LINES = (
    'import pandas; pandas.read_parquet("FILE").to_json("FILE.jsonl", orient="records", '
    "lines=True, force_ascii=False)"
)


def run_jq(program: str, is_parquet: bool) -> str:
    """Return how a filter of jq makes a column of text, if need be of a Parquet file."""
    if is_parquet:
        return (f"first python -c {shlex.quote(PARQUET_AS_LINES)} makes FILE.jsonl, and then "
                f"jq -c {shlex.quote(program)} FILE.jsonl > NEW.jsonl does that")
    return f"of a .jsonl file, jq -c {shlex.quote(program)} FILE > NEW.jsonl does that"


def jq_field(name: str) -> str:
    """Return the filter of jq for the value under a key."""
    is_plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
    return f".{name}" if is_plain else f".[{json.dumps(name)}]"


def split_column(column: str, present: Container[str]) -> list[str]:
    """Return the names in data.column: one that is present, or else those between its commas."""
    if column in present:
        return [column]
    return [name if name in present else name.strip() for name in column.split(",")]


def row_text(row: Mapping[str, Any], column: str) -> str | None:
    """Return the text of a row, or None: those of the columns in data.column, below each other."""
    texts = [value_text(row.get(name)) for name in split_column(column, row)]
    return "\n".join(text for text in texts if text) or None


def value_text(value: Any) -> str | None:
    """Return the text of a value in a column, or None if it has none.

    The strings of a list stand below each other, and so do the turns of a chat, as "user: Hello".
    The parts of a formatted text are joined without a separator.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    if is_chat(value):
        value = [turn for turn in map(turn_text, value) if turn]
    elif is_formatted(value):
        return "".join(part if isinstance(part, str) else part["text"] for part in value)
    if not all(isinstance(part, str) for part in value):
        return None
    return "\n".join(value)


def is_chat(value: list[Any]) -> bool:
    """Return whether a list holds turns of a chat: who speaks in each, and what is said in some."""
    if not all(isinstance(turn, dict) for turn in value):
        return False
    have_speakers = all(first_of(SPEAKERS, turn) is not None for turn in value)
    return have_speakers and any(first_of(WORDS, turn) is not None for turn in value)


def is_formatted(value: list[Any]) -> bool:
    """Return whether a list holds strings and objects with a type and a text, as Telegram writes a
    message with a link or in bold."""
    objects = [part for part in value if not isinstance(part, str)]
    return objects != [] and all(
        isinstance(part, dict) and part.get("type") in TELEGRAM.split()
        and isinstance(part.get("text"), str) for part in objects)


def first_of(keys: Iterable[str], turn: Mapping[str, Any]) -> Any:
    """Return the value of the first of these keys that a turn has, or None."""
    return next((turn[key] for key in keys if turn.get(key) is not None), None)


def turn_text(turn: Mapping[str, Any]) -> str:
    """Return a turn of a chat as "user: Hello"; "" if it has no words, as the call of a tool."""
    words = first_of(WORDS, turn)
    if isinstance(words, list):  # of parts, among which may be images
        parts = [part.get("text") for part in words if isinstance(part, dict)]
        words = "\n".join(part for part in parts if isinstance(part, str))
    if not isinstance(words, str) or not words:
        return ""
    return f"{first_of(SPEAKERS, turn)}: {words}"


def no_text(
    column: str, wanted: str, columns: Mapping[str, str], delimiter: str | None = None,
    is_parquet: bool = False, sizes: ColumnSizes | None = None,
) -> NoText:
    """Return the error for a table of these columns and types, of which `column` is no text.

    `wanted` is data.column, which may have further names. `delimiter` is that of a CSV. `sizes` are
    those of the columns, if they are known.
    """
    for name, kind in columns.items():
        if re.fullmatch(CHATS, kind):
            return NoText(f"its rows are chats, with a list of turns in the column {name!r}: "
                          f"--data.column {shlex.quote(name)} reads each as one text, with a line "
                          "such as 'user: Hello' for each turn. For a model with a chat template, "
                          "write the turns as it does: see docs/interop.md#chat-templates")
    names = []
    for name, kind in columns.items():
        is_text = re.fullmatch(TEXT_TYPE, kind)
        names.append(repr(name) if is_text else f"{name!r} ({kind})")
    readable = [name for name, kind in columns.items()
                if re.fullmatch(f"{TEXT_TYPE}|{TEXT_LISTS}", kind)]
    if sizes is None:
        sizes = ColumnSizes()
    advice = suggest_column(column, wanted, columns, readable)
    if not advice:
        advice = advise_column(readable, sizes, is_csv=delimiter is not None)
        advice += advise_nested(column, columns, readable, sizes, is_parquet)
    return NoText(f"it has no text in a column {column!r}, only {', '.join(names)}: {advice}")


def name_type(value: Any) -> str:
    """Return what a value of a row is called. An empty list has nothing to be called by."""
    if value == []:
        return NOTHING
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return TEXT_LIST
    if isinstance(value, list) and is_chat(value):
        return CHAT
    if isinstance(value, list) and is_formatted(value):
        return FORMATTED
    return type(value).__name__


def suggest_column(
    column: str, wanted: str, columns: Container[str], texts: Iterable[str]
) -> str:
    """Return `wanted` with a name of `texts` that is nearly `column`, as a question; "" if none is.

    Other names in it that are no columns are corrected too, where they can be.
    """
    names = split_column(wanted, columns)
    in_lower_case = {name.lower(): name for name in texts if name not in names}
    corrected = []
    for name in names:
        nearest = None
        if name == column or name not in columns:
            nearest = closest(name.lower(), in_lower_case)
        if nearest is not None:
            corrected.append(in_lower_case.pop(nearest))
        elif name == column:
            return ""
        else:
            corrected.append(name)
    return f"did you mean --data.column {shlex.quote(','.join(corrected))}?"


def advise_column(texts: Sequence[str], sizes: ColumnSizes, is_csv: bool) -> str:
    """Return how to choose one of `texts`, the columns of text, or what to do if there is none."""
    if not texts:
        return "write its texts into a .jsonl file with a column 'text'"
    if is_csv and any(re.fullmatch(NO_NAME, name) for name in texts):
        return "its first line has to name the columns: write such a line above it"
    longest = sizes.longest(texts)
    advice = "choose a column of text with --data.column"
    if sizes.texts[longest] > 0:
        advice = f"choose one with --data.column, as {shlex.quote(longest)}, which has most text"
    advice += "; --data.column A,B joins two"
    if len(texts) == 1:
        advice = f"choose its only column of text with --data.column {shlex.quote(texts[0])}"
    if is_csv:
        advice += ("; if its first line is a row already, write a line above it that names the "
                   "columns")
    return advice


def advise_nested(
    column: str, columns: Mapping[str, str], texts: Sequence[str], sizes: ColumnSizes,
    is_parquet: bool,
) -> str:
    """Return how to take texts out of objects: those in `column`, or else where most text is.

    "" if there are none, and if the columns of text, `texts`, are neither missing nor short.
    """
    nested = [name for name, kind in columns.items()
              if re.match("dict$|struct<", kind) or (kind == "list" and sizes.nested[name] > 0)]
    if not nested:
        return ""
    name = max(nested, key=lambda name: sizes.nested[name])
    advice = "; "
    if column in nested:
        name = column
    elif texts:
        longest = sizes.texts[sizes.longest(texts)]
        is_short = longest < SHORT * sizes.rows
        if not is_short or sizes.nested[name] <= LONGER * longest:
            return ""
        advice = f"; column {name} has more text: "
    if name == "mapping" and "current_node" in columns and not is_parquet:  # ChatGPT's
        return (f"{advice}{CONVERT} writes its chats, which --data.column messages reads")
    key = "KEY"  # where it is not known, or deeper
    if name in sizes.keys:
        ((key, _),) = sizes.keys[name].most_common(1)
    program = take_out(name, key, is_list=columns[name] == "list")
    return f"{advice}for the texts under {key} {run_jq(program, is_parquet)}"


def take_out(column: str, key: str, is_list: bool) -> str:
    """Return a program of jq that makes rows of the texts under a key of the objects in a column.
    """
    path = jq_field(key)
    if path.startswith(".["):
        path = path[1:]  # earlier versions of jq do not know .a.["b"]
    if is_list:
        return f'{{text: ([{jq_field(column)}[]?{path} | strings] | join("\\n"))}}'
    return f"{{text: {jq_field(column)}{path}}}"


def read_rows(path: str, column: str) -> Iterable[dict[str, Any]]:
    """Return the rows of a table, with at least one column. Raises UserError."""
    kind = file_kind(path)
    if kind == ".parquet":
        return read_parquet(path, column)
    if kind in (".csv", ".tsv"):
        return read_csv(path, column, "\t" if kind == ".tsv" else ",;\t|")
    return read_jsonl(path, column)


def read_lines(file: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a file with their line ends. UserError, with the line, if one is no UTF-8.
    """
    is_ascii = True
    for number, line in enumerate(file, 1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(error, f"in line {number}", is_ascii=is_ascii) from None
        if number == 1:
            text = text.removeprefix("\ufeff")
        yield text
        is_ascii &= text.isascii()


def read_jsonl(path: str, column: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in the lines of a file.

    The builder "json" of `datasets` would turn texts that look like dates into dates, and infer the
    columns of the whole file from its first 10 MB.
    """
    with open_file(path) as file:
        head = file.peek(HEAD).removeprefix(codecs.BOM_UTF8)
        # An array may be a single line that is larger than memory.
        if re.match(rb"\s*\[(\s*[\[{]|[ \t\r]*(\n|$))", head):
            raise UserError("it holds one JSON array, not one object per line: "
                            f"{AS_LINES}; without jq: {CONVERT}")
        for number, line in enumerate(read_lines(file), 1):
            if line.strip():
                yield parse_object(line, column, f"line {number}")


JSON_TYPES = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}


def parse_object(line: str, column: str, place: str) -> dict[str, Any]:
    """Return the JSON object in a line. Raises UserError, which begins with `place`."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        if line.strip() == "{":
            raise UserError("its objects are pretty-printed over several lines, not one object per "
                            f"line: run jq -c . FILE > NEW.jsonl; without jq: {CONVERT}") from None
        words = first_line(error)
        if isinstance(error, json.JSONDecodeError):
            # The parser takes the line break for white space, and goes on to the line after it.
            column_number = min(error.pos, len(line.rstrip("\r\n"))) + 1
            message = error.msg.removesuffix(" at")  # of a control character or an open string
            words = f"{message} at column {column_number}"
        raise UserError(f"{place} is no JSON object: {words}: mend or remove that line") from None
    if not isinstance(value, dict):
        what = JSON_TYPES.get(type(value), "a number")
        raise UserError(f"{place} is {what}, not an object with a column {column!r}: write each "
                        f"line as {{\"{column}\": \"...\"}}")
    text = row_text(value, column)
    if text is not None:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = text[error.start]
            raise UserError(f"{place} has half a character, the surrogate {half!r} without its "
                            "other half: remove it") from None
    return value


def read_csv(path: str, column: str, delimiters: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV, whose first line names its columns.

    Of the possible delimiters it takes the one that makes `column` a column. The builder "csv" of
    `datasets` would make numbers of texts such as "007", and nothing of "NA".
    """
    with open_file(path) as file, unlimited_fields():
        lines = read_csv_lines(file)
        first = next(lines, "")
        skipped = 0
        if re.fullmatch("sep=.", first.strip("\r\n")):  # written for Excel
            delimiters = first[4]
            first = next(lines, "")
            skipped = 1
        delimiter = choose_delimiter(first, column, delimiters)
        rows = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
        begin = 1 + skipped  # line of the row
        names: list[str] = []
        try:
            names = next(rows, [])
            if first:  # else the file is empty
                check_names(names, column, delimiter, begin, rows)
            begin = rows.line_num + 1 + skipped
            for fields in rows:
                further = fields[len(names) :]
                # Excel may end rows with delimiters. A text alone on its line ends with its own.
                if any(further) or (further and len(names) == 1):
                    raise UserError(f"line {begin} has {len(fields)} fields, and the first line "
                                    f"names {len(names)} columns: a text with {delimiter!r} in it "
                                    "needs quotes around it")
                if delimiter == "\t" and has_whole_rows(fields):
                    raise UserError(f"the text in quotes that begins in line {begin} has whole "
                                    f"rows in it: {ADVISE_UNQUOTED}, and if not, write "
                                    "the table as .jsonl")
                if fields:  # else the line is empty
                    yield dict(zip(names, fields, strict=False))
                begin = rows.line_num + 1 + skipped
        except csv.Error as error:
            raise UserError(f"the row that begins in line {begin} is no CSV: {error}; "
                            f"{advise_quotes(delimiter, with_names=names != [])}") from None


def advise_quotes(delimiter: str, with_names: bool) -> str:
    """Return how to mend the quotes of a row of a CSV. `with_names`: the names were read before it.
    """
    advice = "a quote inside a quoted text is written twice"
    if delimiter == "\t":
        advice += f"; {ADVISE_UNQUOTED}"
        if not with_names:
            advice += "; if that line is a row already, write a line of names above it first"
    return advice


def measure_fields(
    names: list[str], rows: Iterable[list[str]]
) -> tuple[ColumnSizes, NotUTF8 | None]:
    """Return the sizes of the columns of a CSV, up to the first row that is damaged, and the error
    if that row is not UTF-8."""
    sizes = ColumnSizes()
    try:
        for fields in rows:
            sizes.rows += 1
            for name, text in zip(names, fields, strict=False):
                sizes.add(name, [text])
    except NotUTF8 as error:
        return sizes, error
    except csv.Error:
        pass
    return sizes, None


def check_names(
    names: list[str], column: str, delimiter: str, line: int, rows: Iterable[list[str]]
) -> None:
    """Raise UserError unless each of the columns is one of the names in this line of a CSV, once.

    If one is missing, reads the first of the rows below, to name the column with most text. If
    these are not UTF-8, the error says so too.
    """
    if not any(names):
        raise NoText(f"line {line} names no column: remove the lines above the one that names "
                     f"{column!r}")
    for each in split_column(column, names):
        if each not in names:
            sizes, bad_byte = measure_fields(names, islice(rows, ROWS_MEASURED))
            columns = dict.fromkeys(names, "str")
            missing = no_text(each, column, columns, delimiter, sizes=sizes)
            if bad_byte is not None:
                raise NotUTF8(f"{bad_byte}. Besides, {missing}")
            raise missing
        if names.count(each) > 1:
            raise UserError(f"its first line names {names.count(each)} columns {each!r}: give each "
                            "another name")


def has_whole_rows(fields: list[str]) -> bool:
    """Return whether a field of a row, between quotes, has tabs where further rows would have them.

    So a quote that begins a text and one that ends a later text would make one text of both.
    """
    for number, text in enumerate(fields):
        further = text.split("\n")[1:]  # lines below the one on which the field begins
        if not further or (number == 0 and len(further) == 1):  # too little to tell
            continue
        *whole, last = [line.count("\t") for line in further]
        if last == number and set(whole) <= {len(fields) - 1}:
            return True
    return False


def choose_delimiter(first: str, column: str, delimiters: str) -> str:
    """Return the delimiter by which the first line of a CSV has data.column, or most columns."""
    columns = {each: next(csv.reader([first], delimiter=each), []) for each in delimiters}

    def has_columns(delimiter: str) -> bool:
        names = columns[delimiter]
        # A whole line that another delimiter divides, such as "prompt,completion", is no name.
        is_undivided = len(names) == 1 and any(each in column for each in delimiters)
        return set(split_column(column, names)) <= set(names) and not is_undivided

    return max(delimiters, key=lambda each: (has_columns(each), len(columns[each])))


def read_csv_lines(file: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a CSV, which may also end with a carriage return alone."""
    for line in read_lines(file):
        if "\r" in line.removesuffix("\n").removesuffix("\r"):
            yield from io.StringIO(line, newline="")
        else:
            yield line


@contextmanager
def unlimited_fields() -> Iterator[None]:
    """Let a field of a CSV be longer than the 131,072 characters that `csv` allows."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def read_parquet(path: str, column: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, with the columns in data.column alone.

    `datasets` would read ahead, and hold the whole file in memory. Raises NoText for a column that
    is not there or holds no text.
    """
    require_pyarrow("write its texts to a .jsonl file")
    from pyarrow import parquet

    with parquet.ParquetFile(path, pre_buffer=False, buffer_size=PIECE) as file:
        types = {field.name: str(field.type) for field in file.schema_arrow}
        columns = split_column(column, types)
        for each in columns:
            kind = types.get(each, "").removeprefix("dictionary<values=")
            if not re.match(f"({TEXT_TYPE}|{TEXT_LISTS}|{CHATS})(,|$)", kind):
                raise no_text(each, column, types, is_parquet=True)
        for batch in file.iter_batches(ROWS, columns=columns, use_threads=False):
            yield from batch.to_pylist()


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
