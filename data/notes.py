"""What is noticed in a text while it is read, and said after it."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from data.columns import (
    CHAT,
    DEFAULT_COLUMN,
    FORMATTED,
    LONGER,
    NOTHING,
    TEXT_LIST,
    ColumnSizes,
    NoText,
    jq_field,
    name_type,
)
from data.detect import begins_as_rows
from data.kinds import (
    CHAT_BEGINNING,
    CLIPPINGS_BEGINNING,
    CODE,
    CONVERT,
    HEAD,
    MAIL,
    MAIL_BEGINNING,
    NO_PROSE,
    SUBTITLE_TIME,
    SUBTITLES,
)
from data.readers import NEARBY
from data.search import list_names

# What other people put between documents. In source code they are program text and divide nothing
# (`divides`).
MARKERS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<s>")
# These also strike text through, in Markdown and other markup. They have to begin or end a line in
# files without markup, and to be alone on it in others.
TAGS = ("</s>", "<s>")
WITHOUT_MARKUP = (".txt", ".text", ".utf8", ".utf-8")
# What stands above the text of a book of Project Gutenberg, and how to have that text alone.
LICENCE_BEGINS = r"^\*\*\* ?START OF TH(E|IS) PROJECT GUTENBERG"
WITHOUT_LICENCE = (
    r"awk '/^\*\*\* *END OF/ {on = 0} on; /^\*\*\* *START OF/ {on = 1}' FILE > NEW.txt")
SHORT_ROW = 40  # characters: about eight words of English
LEAST_ROWS = 100  # with text, in tables of which short ones are noted
TAGGED_SHARE = 0.1  # of the rows; a note on less would name a few addresses in angle brackets
# The tags of web pages that are looked for in the rows of a table.
TAG_NAMES = "p|br|div|span|a|b|i|em|strong|ul|ol|li|h[1-6]"
# How to have the rows of a table without the tags of web pages, which have no line breaks. Some
# programs write \u003c and \u003e in JSON for < and >, or <\/p>. No tag goes on over a quotation
# mark that ends a text; those within a tag are \" in JSON, "" in a CSV, or behind an =.
WITHOUT_TAGS = (
    r"sed -E 's:(^|[^\\])\\u003[cC]:\1<:g; s:(^|[^\\])\\u003[eE]:\1>:g; "
    rf's:<(\\?/)?({TAG_NAMES})(([ /]|\\/)([^<>"\\]|\\.|""|="[^"<>]*")*)?>: :gI'
    "' FILE > NEW")
# How to have a text without its images in base64, as Markdown of Google Docs has them.
WITHOUT_IMAGES = r"sed -E 's/;base64,[A-Za-z0-9+/=]+//g' FILE > NEW"
# How to have files of Markdown without front matter. The old ones have .bak behind their names.
WITHOUT_FRONT_MATTER = (
    r"perl -0777 -i.bak -pe 's/\A(?:\xef\xbb\xbf)?(---|\+\+\+)\s*\n.*?\n\1\s*\n//s' FILES")
FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n[\w-]+ ?[:=].*\n(.*\n)*?\1[ \t]*\r?\n")
# How to have lines without the date and time that they begin with.
WITHOUT_TIMES = ("sed -E 's/^[][(0-9 ,./T-]*[0-9]{1,2}:[0-9]{2}"
                 "(:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
                 "( ?[APap]\\.?[Mm]\\.?)?[])>]*[[:space:]]*//' FILE > NEW")
# A time of day, and no verse such as 3:16: with two digits before the colon, with seconds, with am
# or pm, in brackets, or at the end of a line.
TIME = re.compile(r"(?<![\d:.])([0-2]\d:[0-5]\d(?!\d)"
                  r"|\d:[0-5]\d(:[0-5]\d|\s?[ap]\.?m\b|[\])]|\s*$))", re.IGNORECASE)
TIME_WITHIN = 40  # characters of a line
TIMED_LINES = 0.3  # of the lines that are not empty: in some chats, what is said has its own line
LEAST_TIMED = 5  # lines
# Parts of UTF-8 that was read as Latin-1 or cp1252. In Latin-1, most characters have a control
# character, \x80 to \x9f, which no text has. Languages have \u00c3 before a space (\xa0), an
# ordinal (\xaa, \xba) or a quotation mark (\xab, \xbb), as in AMANH\u00c3\u00bb, but not beside a
# small letter.
MISREAD = re.compile(
    "[\u00c3-\u00f0](?=[\x80-\xbf\u20ac\u0178])(?:"  # most letters fail here, fast
    "(?<=\u00c3)[\x80-\x9f\xa1-\xa9\xac-\xb9\xbc-\xbf]"  # Latin letters with accents
    "|(?<=[a-z]\u00c3)[\xa0\xaa\xab\xba\xbb]|(?<=\u00c3)[\xaa\xab\xba\xbb](?=[a-z])"  # beside one
    "|(?<=\u00e2)(?:\x80|\u20ac)[^\\w\\s]"  # a quotation mark, a dash or dots
    "|(?<=\u00d0)[\xb0-\xbf]"  # Cyrillic
    "|(?<=\u00f0)[\x9f\u0178]"  # emoji
    "|(?<=[\u00c4-\u00df])[\x80-\x9f]"
    "|(?<=[\u00e0-\u00ef])(?:[\x80-\x9f][\x80-\xbf]|[\xa0-\xbf][\x80-\x9f]))")
# The characters that cp1252 has in place of the control characters U+0080 to U+009F, but for five.
ONLY_CP1252 = set(bytes(range(0x80, 0xA0)).decode("cp1252", errors="ignore"))
# How to mend such a text, by the encoding in which it was read. Browsers read cp1252 with control
# characters in the place of the five, an encoding that iconv does not know.
MENDED_BY = {
    "latin-1": "iconv -f UTF-8 -t LATIN1 FILE > NEW",
    "cp1252": "iconv -f UTF-8 -t WINDOWS-1252 FILE > NEW",
    "cp1252 of browsers": (
        "python -c 'import codecs, sys; codecs.register_error(\"control\", lambda error: "
        "(error.object[error.start:error.end].encode(\"latin-1\"), error.end)); "
        'sys.stdout.buffer.write(open("FILE", encoding="utf-8-sig", newline="").read()'
        ".encode(\"cp1252\", \"control\"))' > NEW"
    ),
}
ROWS_OF_TABLE = 10  # lines with equally many tabs that make a table

# What may be in files of plain text that is trained as text there: what the note on it says before
# the names of the files, and after them. In the order of the notes.
IN_PLAIN = {
    "mail": ("mail, whose headers and attachments are trained as text",
             f"; {CONVERT} writes what its messages say"),
    "chats": ("chats, such as WhatsApp's, whose dates and lines for images are trained as text",
              f"; {CONVERT} writes who says what"),
    "clippings": ("clippings of a Kindle, whose places and dates are trained as text",
                  f"; {CONVERT} writes their texts"),
    "archives": ("JSON in JavaScript, as in an archive of X, whose names and braces are trained as "
                 "text", f"; {CONVERT} writes its rows"),
    "times": ("times of messages or lines are trained as text",
              f"; {WITHOUT_TIMES} drops those that begin a line"),
    "front matter": ("front matter is trained as text", f"; {WITHOUT_FRONT_MATTER} drops it"),
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

    column: str
    """data.column: the name of the column that is read, or several with commas between them."""
    separator: str | None
    """data.separator: what divides plain text into documents, or None."""
    has_given_tokenizer: bool
    """Whether the tokenizer is that of a model, which may have a chat template."""
    rows: int = 0
    rows_without_text: int = 0
    other_columns: set[str] = field(default_factory=set)
    """Columns that the rows without text have."""
    other_types: dict[str, str] = field(default_factory=dict)
    """Types of values that cannot be read, in the order of the rows, each with the first column
    that has one."""
    unreadable_columns: dict[str, str] = field(default_factory=dict)
    """Columns that have values of such types, each with the type of the first one."""
    unread_values: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By column and type, how many rows have such a value there, and text in other columns."""
    joined: dict[str, str] = field(default_factory=dict)
    """Types of values whose parts are joined to a text, each with its column."""
    silent_turns: int = 0
    """Turns of chats that are left out, see `count_silent_turns`."""
    has_letters: bool = False
    """Whether a row has a letter in the column."""
    short_rows: int = 0
    """Rows that have fewer than SHORT_ROW characters of text."""
    rows_with_tags: int = 0
    """Rows that have tags of web pages in their text."""
    skipped_tables: list[str] = field(default_factory=list)
    no_text: NoText | None = None
    """Why the first of these was left out."""
    sizes: ColumnSizes = field(default_factory=ColumnSizes)
    """Those of the columns that were read: all of a table's, but in .parquet and data sets of the
    Hub only the chosen ones."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Unknown suffixes, each with the first file."""
    in_plain: dict[str, list[str]] = field(default_factory=dict)
    """Files of plain text in which something else is, by the keys of IN_PLAIN."""
    misread: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Texts that look like UTF-8 that was read in these encodings of MENDED_BY, each an example and
    its file."""
    markers: dict[str, str] = field(default_factory=dict)
    """Separators in plain text, each with the first file."""
    n_plain: int = 0
    """How many files of plain text have text."""
    has_blank_lines: bool = False
    """Whether one of them has blank lines."""
    undivided: list[str] = field(default_factory=list)
    """Those of them without data.separator."""

    def new(self) -> "Notes":
        """Return notes for a file that is read in the same way, with nothing noticed yet."""
        return Notes(self.column, self.separator, self.has_given_tokenizer)

    def add(self, noticed: "Notes") -> None:
        """Add what was noticed in a file that has been read. Of two files, the first is named."""
        self.rows += noticed.rows
        self.rows_without_text += noticed.rows_without_text
        self.silent_turns += noticed.silent_turns
        self.short_rows += noticed.short_rows
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
        for column, kind in noticed.unreadable_columns.items():
            self.unreadable_columns.setdefault(column, kind)
        self.unread_values.update(noticed.unread_values)
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
        separator = self.separator
        wanted = MARKERS if separator is None else (separator,)
        for marker in wanted:
            if marker in self.markers or marker not in text:
                continue
            if marker == separator or divides(marker, text, kind):
                self.markers[marker] = name

    def look_for_misread(self, text: str, name: str) -> None:
        """Note whether a text looks like UTF-8 that was read in another encoding."""
        if self.misread or text.isascii():
            return
        match = MISREAD.search(text)
        if match is not None:
            encoding = "cp1252"
            if re.search("[\x80-\x9f]", text):
                encoding = "cp1252 of browsers" if ONLY_CP1252 & {*text} else "latin-1"
            before = word_end(text[max(0, match.start() - NEARBY) : match.start()])
            after = word_start(text[match.end() : match.end() + NEARBY])
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
            if not names or names[-1] != name:  # the pieces of a file come one after another
                names.append(name)

    def look_at_types(self, row: Mapping[str, Any], columns: list[str], has_text: bool) -> None:
        """Note which values in these columns of a row are joined, and which cannot be read.

        `has_text` says whether any of them has text.
        """
        for name in columns:
            kind = name_type(row.get(name))
            if kind in (TEXT_LIST, FORMATTED, CHAT):
                self.joined.setdefault(kind, name)
            elif kind not in ("str", NOTHING):
                self.other_types.setdefault(kind, name)
                self.unreadable_columns.setdefault(name, kind)
                self.unread_values[name, kind] += has_text

    def name_longest_column(self) -> list[str]:
        """Return a note if a column has much more text than the one that is read."""
        column = self.column
        texts = self.sizes.texts
        longest = self.sizes.column_with_most_text([column, *texts])
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
                         f"another encoding: {MENDED_BY[encoding]} mends a file all of whose text "
                         "is so")
            if self.rows:  # JSON may have escapes in place of these characters
                lines[-1] += f"; of JSON, {CONVERT} does"
        return lines

    def lines_of_tables(self) -> list[str]:
        """Return the notes on rows and columns."""
        lines: list[str] = []
        column = self.column
        if self.rows_without_text:
            values = [f"{name} as {kind}" for kind, name in self.other_types.items()]
            have = ", ".join(values + sorted(self.other_columns)[:8])
            rest = f" (they have {have})" if have else ""
            lines.append(f"note: {self.rows_without_text:,} of {self.rows:,} rows have no text in "
                         f"column {column}{rest}")
        lines += self.lines_of_silent_columns()
        lines += self.lines_of_unread_values()
        lines += self.lines_of_joined_values()
        if self.silent_turns:
            lines.append(f"note: {self.silent_turns:,} turns of chats in column {column} have no "
                         "words that can be read, and are left out")
        lines += self.lines_of_texts()
        lines += self.lines_of_skipped_tables()
        if column == DEFAULT_COLUMN:  # else it was chosen
            lines += self.name_longest_column()
        return lines

    def lines_of_joined_values(self) -> list[str]:
        """Return a note for each type of values whose parts are joined."""
        lines: list[str] = []
        for kind, name in self.joined.items():
            note = f"the lists of strings in column {name} are joined by line breaks"
            if kind == FORMATTED:
                note = (f"the parts of formatted texts in column {name}, such as links, are joined "
                        "without a separator")
            elif kind == CHAT:
                note = f"each turn in column {name} becomes a line such as 'user: Hello'"
                if self.has_given_tokenizer:  # that of a model, which may have a template
                    note += ", in no chat template: see docs/interop.md#chat-templates"
            lines.append(f"note: {note}")
        return lines

    def lines_of_texts(self) -> list[str]:
        """Return the notes on what the texts of rows are like."""
        lines: list[str] = []
        if self.rows > self.rows_without_text and not self.has_letters:
            lines.append(f"note: column {self.column} has no letters: its numbers are trained as "
                         "text")
        n_texts = self.rows - self.rows_without_text
        if n_texts >= LEAST_ROWS and 2 * self.short_rows > n_texts:
            lines.append(f"note: {self.short_rows:,} of {n_texts:,} texts have fewer than "
                         f"{SHORT_ROW} characters, and each row is a document: a model of "
                         "them writes such short texts. If rows belong together, as the messages "
                         "of a chat do, join them first")
        if self.rows_with_tags > TAGGED_SHARE * self.rows:
            lines.append(f"note: {self.rows_with_tags:,} of {self.rows:,} rows have tags of web "
                         f"pages, which are trained as text: {WITHOUT_TAGS} drops them")
        return lines

    def lines_of_silent_columns(self) -> list[str]:
        """Return a note for each of several columns that has values in rows, and never text."""
        lines: list[str] = []
        for name, kind in self.unreadable_columns.items():
            if self.rows > self.rows_without_text and self.sizes.texts[name] == 0:
                lines.append(f"note: column {name} has no text in any row (but {kind}), so nothing "
                             "of it is read")
                if kind == "dict":
                    path = jq_field(name)
                    program = shlex.quote(f"{path} = {path}.KEY")
                    lines[-1] += (f"; jq -c {program} FILE > NEW.jsonl takes one key out of its "
                                  "objects")
        return lines

    def lines_of_unread_values(self) -> list[str]:
        """Return a note for each type of values that are left out of rows, while others of the
        column are read."""
        return [f"note: {n:,} of {self.rows:,} rows are read without column {name}, which has "
                f"{kind} there" for (name, kind), n in self.unread_values.items()
                if n > 0 and self.sizes.texts[name] > 0]

    def lines_of_skipped_tables(self) -> list[str]:
        """Return the notes on tables that are left out."""
        if not self.skipped_tables:
            return []
        lines = [f"note: 1 table is left out: {self.no_text}"]
        if len(self.skipped_tables) > 1:
            lines = [f"note: {len(self.skipped_tables):,} tables are left out, which have no text "
                     f"in column {self.column}: {list_names(self.skipped_tables)}; of "
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
        separator = self.separator
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


def word_end(text: str) -> str:
    """Return what stands behind the last white space of a text, or all of it."""
    parts = re.split(r"\s", text)
    return parts[-1]


def word_start(text: str) -> str:
    """Return what stands before the first white space of a text, or all of it."""
    parts = re.split(r"\s", text)
    return parts[0]


def look_at_start(text: str, kind: str) -> list[str]:
    """Return which of IN_PLAIN the first piece of a file of this kind begins with or has."""
    is_code = kind in CODE.split()
    is_page = re.match(r"\s*(<\?xml[^>]*>\s*)?<(!doctype )?html\b", text, re.IGNORECASE) is not None
    begins_as_xml = re.match(r"\s*<(\?xml\b|mediawiki\b|doc id=)", text) is not None
    begins_as_mail = not is_code and MAIL_BEGINNING.match(text[:HEAD]) is not None
    found = {
        "mail": kind in MAIL or begins_as_mail,
        "clippings": not is_code and CLIPPINGS_BEGINNING.match(text[:HEAD]) is not None,
        "chats": not is_code and CHAT_BEGINNING.match(text) is not None,
        "archives": text.startswith("window.YTD."),
        "books": re.search(LICENCE_BEGINS, text, re.MULTILINE) is not None,
        "subtitles": kind in SUBTITLES and SUBTITLE_TIME.search(text) is not None,
        "pages": is_page,
        "XML": begins_as_xml and not is_page and kind not in NO_PROSE.split(),
        "JSON": not is_code and begins_as_rows(text),
        "front matter": not is_code and FRONT_MATTER.match(text[:HEAD]) is not None,
    }
    names = [what for what, is_found in found.items() if is_found]
    if names or is_code:
        return names
    return look_at_lines(text)


def look_at_lines(text: str) -> list[str]:
    """Return which of IN_PLAIN the first lines of a text have in common."""
    if has_times(text):
        return ["times"]
    return ["tables"] if begins_as_table(text) else []


def has_times(text: str) -> bool:
    """Return whether the first lines of a text have times at their start, as a chat or a log."""
    lines = [line for line in text[:HEAD].splitlines() if line.strip()]
    n_timed = sum(TIME.search(line[:TIME_WITHIN]) is not None for line in lines)
    return n_timed >= max(LEAST_TIMED, TIMED_LINES * len(lines))


def begins_as_table(text: str) -> bool:
    """Return whether the first lines of a text have tabs, and equally many, and none begins with a
    tab.

    Comments, which begin with #, are not counted.
    """
    lines = [line for line in text[:HEAD].split("\n")[:-1] if line.strip() and line[0] != "#"]
    counts = {line.rstrip("\r").count("\t") for line in lines}
    some_are_indented = any(line.startswith("\t") for line in lines)
    have_equal_tabs = len(counts) == 1 and counts != {0}
    return len(lines) >= ROWS_OF_TABLE and have_equal_tabs and not some_are_indented


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
