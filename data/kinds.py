"""Kinds of files, by their names and first bytes, and what to do with those that are not read."""

import codecs
import re
from pathlib import PurePath

HEAD = 4096  # bytes at the start of a file that tell what it is

JSON_LINES = {".jsonl", ".ndjson"}
TABLES = JSON_LINES | {".csv", ".tsv", ".parquet"}
COMPRESSED = {".gz", ".zst"}
# Suffixes that are read without a note, and that are read of a folder: those of text, and those of
# source code and settings.
TEXT = """
.txt .text .utf8 .utf-8 .md .mdx .markdown .rmd .qmd .rst .adoc .asciidoc .org .tex .log .po
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
.info .geojson .topojson .kml .gpx .ics .vcf .har .plist .webmanifest .jsonld .edn .canvas .opf .ncx
.aux .toc .lof .lot .lol .out .bib .bbl .blg .bcf .fls .fdb_latexmk .nav .snm .idx .ilg .ind
.synctex
.lock .map .sum .mod .pid .tmp .bak .orig .rej .swp .snap .patch .diff
.sln .csproj .vcxproj .pbxproj .xcscheme .iml
.pem .crt .cer .key .pub .csr .sig .md5 .sha1 .sha256 .sha512
"""
# Of these, what somebody may want to train on: a folder without other text says how to read them.
READABLE = {".bib", ".ics", ".diff", ".patch"}

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
JSON = "JSON"  # the kind of files without a suffix that begin as JSON
REFUSED[JSON] = REFUSED[".json"]

# Files of which tools/as_lines.py writes the text, also if their folder is named.
CONVERTIBLE = {kind for kind, advice in REFUSED.items() if advice.startswith(CONVERT)}
CONVERTIBLE |= {".eml", ".mbox", ".xml", ".ass", ".ssa", ".lrc"}

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
    (b"%PDF-1.", "a PDF", REFUSED[".pdf"]),
    (b"%PDF-2.", "a PDF", REFUSED[".pdf"]),
    (b"{\\rtf1", "rich text (RTF)", CONVERTED),
    (b"\xd0\xcf\x11\xe0", "an old Word or Excel file, or a message of Outlook", SAVE_AS_TEXT),
    (b"PAR1\x15", "a Parquet file", "name it .parquet"),
    (b"BZh91AY&SY", "compressed with bzip2", REFUSED[".bz2"]),
    (b"\xfd7zXZ", "compressed with xz", REFUSED[".xz"]),
    (b"7z\xbc\xaf", "a 7z archive", UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (b"SQLite format 3\0", "a database of SQLite", f"{CONVERT} writes its table with most text"),
    (b"\x89PNG", "an image", "leave it out"),
    (b"\xff\xd8\xff", "an image", "leave it out"),
)
MAIL = {".mbox", ".eml"}
# How mail begins: perhaps with the line that begins a message in an mbox, and then with headers,
# among which is one that no other text has.
MAIL_BEGINNING = re.compile(
    r"(From \S+.*\n)?([\w-]+:.*\n([ \t].*\n)*)*?(Message-ID|MIME-Version|Received|Return-Path):",
    re.IGNORECASE)
# How a line of a chat of WhatsApp begins: "[31.12.20, 21:41:05] ", "12/31/20, 9:41 PM - ",
# or "31/12/20 21:41 - ": some languages have no comma. Seconds stand in
# brackets only, by which a line of a log, "2020-12-31 21:41:05 - INFO", is none.
CHAT_BEGINNING = re.compile(
    r"[\u200e\u200f]?\[?(\d{1,4}[./-]\d{1,2}[./-]\d{2,4}),? \d{1,2}[:.]\d{2}"
    r"([:.]\d{2}(?=[^\]]{0,7}\]))?([\s\u202f]?[ap]\.?[\s\u202f]?m\.?)?(\] | - )", re.IGNORECASE)
# How the clippings of a Kindle begin: a book, a place, an empty line, a text and a line of signs.
CLIPPINGS_BEGINNING = re.compile(r".+\n- .+ \| .+\n\s*\n(.*\n)*?={10}\r?\n")
SUBTITLES = {".srt", ".vtt", ".ass", ".ssa", ".lrc"}
# Their times: of .srt and .vtt, of .ass and .ssa, and of .lrc.
SUBTITLE_TIME = re.compile(r"-->|^Dialogue: |^\[\d+:\d\d", re.MULTILINE)


def file_kind(path: str | PurePath) -> str:
    """Return the suffix that decides how a file is read: .jsonl for rows.JSONL.gz.

    A suffix begins with a letter and has no space: "notes 1.2" and "3. Dr. No" have none. The long
    list of packages that pnpm writes counts as those of other programs, which have .lock.
    """
    name = PurePath(str(path).lower())
    if name.name == "pnpm-lock.yaml":
        return ".lock"
    if name.suffix in COMPRESSED:
        name = name.with_suffix("")
    return name.suffix if re.fullmatch(r"\.[a-z]\S*", name.suffix) else ""
