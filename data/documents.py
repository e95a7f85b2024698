"""The documents of a file: rows of a table, parts between separators, or a whole text."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from data.columns import (
    CHAT,
    FORMATTED,
    NOTHING,
    TEXT_LIST,
    ColumnSizes,
    NoText,
    count_silent_turns,
    name_type,
    no_text_error,
    row_text,
    split_column,
    value_text,
)
from data.kinds import PLAIN, TABLES, file_kind
from data.notes import SHORT_ROW, TAG_NAMES, Notes, look_at_start
from data.readers import NotUTF8, is_damaged, read_text, reading, split_documents
from data.search import LeftOut, Search
from data.tables import read_rows
from errors import UserError

HTML_TAG = re.compile(rf"</?({TAG_NAMES})\b[^<>]*>", re.IGNORECASE)
ROWS_TRIED = 10_000  # rows that are read before a column without any text is refused


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


def read_file(file: TextFile, notes: Notes) -> Iterator[Iterable[str]]:
    """Yield the documents of a file. What was noticed in it counts once all of it has been read.

    A document is a row of a table, or the text between two separators, or else a whole text file.
    Raises LeftOut for a file that is left out of its folder or glob.
    """
    separator = notes.separator
    noticed = notes.new()
    if file_kind(file.path) in TABLES:
        try:
            with file.reading():
                yield from read_column(read_rows(file.path, notes.column), noticed)
        except NoText as error:
            if not file.in_folder:
                raise
            notes.leave_out_table(file.name, error)
            # LeftOut also takes rows back that were read before: of several columns, only one may
            # be missing.
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
    # How many characters are looked at again with the next piece: as many as can be the beginning
    # of a separator that is cut in two. A longer marker may go unnoticed.
    carried = 0
    if notes.separator is not None:
        carried = len(notes.separator) - 1
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
    if has_text and notes.separator not in (None, *notes.markers):
        notes.undivided.append(file.name)


def read_column(rows: Iterable[dict[str, Any]], notes: Notes) -> Iterator[Iterable[str]]:
    """Yield the text of each row as a document. At least one row must have the columns.

    A row without text (null, "", a value that cannot be read, or no such column) is no document,
    and is counted. Raises NoText if there are values, and none of the first ROWS_TRIED has text.
    `notes` are of these rows alone.
    """
    column = notes.column
    types: dict[str, str] = {}
    for row in rows:
        notes.rows += 1
        columns = split_column(column, row)
        text = row_text(row, column)
        notes.look_at_types(row, columns, has_text=text is not None)
        if text is None:
            notes.rows_without_text += 1
            notes.other_columns |= columns_in_use(row) - set(columns)
        # The sizes of what is in objects are for the error that is raised if no row has text.
        measure_columns(row, types, notes.sizes, notes.rows == notes.rows_without_text)
        if text is not None:
            notes.silent_turns += sum(count_silent_turns(row.get(name)) for name in columns)
            notes.look_for_misread(text, f"column {column}")
            notes.short_rows += len(text) < SHORT_ROW
            notes.rows_with_tags += "<" in text and HTML_TAG.search(text) is not None
            if not notes.has_letters:
                notes.has_letters = any(map(str.isalpha, text))
            yield [text]
        no_row_has_text = notes.rows == notes.rows_without_text
        if no_row_has_text and notes.rows == ROWS_TRIED:
            check_types(types, notes)
    for name in split_column(column, types):
        if types and name not in types:
            raise no_text_error(name, column, types, sizes=notes.sizes)
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
    """Return the names of the columns in which a row has a value other than null, "" and [].

    A table of Excel or pandas may have a column without a name.
    """
    return {name or "''" for name, value in row.items() if value not in (None, "", [])}


def check_types(types: dict[str, str], notes: Notes) -> None:
    """Raise NoText if the rows so far, none of which has text, have values of other types."""
    if notes.other_types:
        kind, name = next(iter(notes.other_types.items()))
        # If an earlier row had an empty string there, `types` says that the column has text.
        raise no_text_error(name, notes.column, types | {name: kind}, sizes=notes.sizes)
