"""The rows of tables: .jsonl, .csv, .tsv and .parquet. Files may be larger than memory."""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

from data.columns import (
    CHAT_PATTERN,
    LIST_PATTERN,
    TEXT_PATTERN,
    ColumnSizes,
    NoText,
    no_text_error,
    row_text,
    split_column,
)
from data.kinds import AS_LINES, CONVERT, HEAD, file_kind
from data.readers import PIECE, NotUTF8, not_utf8, open_file, require_pyarrow
from errors import UserError
from files import first_line

ROWS = 100  # rows of a Parquet file in memory at a time
ROWS_MEASURED = 10_000  # rows of a CSV that are read to advise a column
# Many .tsv files have no quoting: a quote is a character, also where it begins a text.
ADVISE_UNQUOTED = (
    "if quotes are ordinary characters in this file, python -c 'import csv, json; "
    "csv.field_size_limit(2**31 - 1); [print(json.dumps(row)) for row in csv.DictReader("
    'open("FILE", encoding="utf-8-sig", newline=""), delimiter="\\t", quoting=csv.QUOTE_NONE)]\' '
    "> NEW.jsonl reads them as such"
)

JSON_TYPES = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}


class NotCSV(UserError):
    """A row of a CSV has quotes where it may have none, or lacks the one that ends a text."""


def read_rows(path: str, column: str) -> Iterable[dict[str, Any]]:
    """Return the rows of a table as dicts; of Parquet with the columns in data.column alone.

    A row may lack these columns. Raises UserError for a table that cannot be read.
    """
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
                row = parse_object(line, column, f"line {number}")
                check_surrogates(row, column, f"line {number}")
                yield row


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
    return value


def check_surrogates(row: dict[str, Any], column: str, place: str) -> None:
    """Raise UserError, which begins with `place`, if the text of a row cannot be written as UTF-8.

    JSON can have half of a surrogate pair, such as "\\ud83d".
    """
    text = row_text(row, column)
    if text is None:
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise UserError(f"{place} has half a character, the surrogate {half!r} without its "
                        "other half: remove it") from None


def read_csv(path: str, column: str, delimiters: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV, whose first line names its columns.

    Of the possible delimiters it takes the one that makes `column` a column. The builder "csv" of
    `datasets` would make numbers of texts such as "007", and nothing of "NA".
    """
    with open_file(path) as file, unlimited_fields():
        lines = read_csv_lines(file)
        first = next(lines, "")
        first_number = 1
        if re.fullmatch("sep=.", first.strip("\r\n")):  # written for Excel
            delimiters = first[4]
            first = next(lines, "")
            first_number = 2
        if not first:  # the file is empty
            return
        delimiter = choose_delimiter(first, column, delimiters)
        rows = number_rows(chain([first], lines), delimiter, first_number)
        _, names = next(rows)
        check_header(names, column, delimiter, first_number, rows)
        for number, fields in rows:
            check_fields(fields, names, delimiter, number)
            if fields:  # else the line is empty
                yield dict(zip(names, fields, strict=False))


def number_rows(
    lines: Iterable[str], delimiter: str, first_number: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of a CSV: (the number of the line in which it begins, its fields).

    first_number: that of the first of these lines, which names the columns

    Raises NotCSV for a row that is none.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    number = first_number
    try:
        for fields in reader:
            yield number, fields
            number = first_number + reader.line_num
    except csv.Error as error:
        advice = "a quote inside a quoted text is written twice"
        if delimiter == "\t":
            advice += f"; {ADVISE_UNQUOTED}"
            if number == first_number:
                advice += "; if that line is a row already, write a line of names above it first"
        raise NotCSV(f"the row that begins in line {number} is no CSV: {error}; "
                     f"{advice}") from None


def check_header(
    names: list[str], column: str, delimiter: str, number: int,
    rows: Iterable[tuple[int, list[str]]],
) -> None:
    """Raise UserError unless each of the columns is one of the names in the first line of a CSV,
    once.

    number: that of the line
    rows: those below it, of which some are read if a column is missing
    """
    if not any(names):
        raise NoText(f"line {number} names no column: remove the lines above the one that names "
                     f"{column!r}")
    for name in split_column(column, names):
        if name not in names:
            raise missing_column_error(name, column, names, delimiter, rows)
        check_once(name, names, f"line {number}")


def check_once(name: str, names: Sequence[str], where: str) -> None:
    """Raise UserError if several columns of a table have this name, in `names` or in words."""
    if names.count(name) > 1:
        raise UserError(f"{where} names {names.count(name)} columns {name!r}: give each another "
                        "name")


def missing_column_error(
    name: str, column: str, names: list[str], delimiter: str,
    rows: Iterable[tuple[int, list[str]]],
) -> UserError:
    """Return the error for a CSV that has no column `name`, which data.column, `column`, names.

    To name the column with most text, it reads the first ROWS_MEASURED rows, or those above a
    damaged one. If that row is not UTF-8, the error says so too.
    """
    sizes = ColumnSizes()
    bad_byte: NotUTF8 | None = None
    try:
        for _, fields in islice(rows, ROWS_MEASURED):
            sizes.rows += 1
            for other, text in zip(names, fields, strict=False):
                sizes.add(other, [text])
    except NotUTF8 as error:
        bad_byte = error
    except NotCSV:
        pass
    missing = no_text_error(name, column, dict.fromkeys(names, "str"), delimiter, sizes=sizes)
    return missing if bad_byte is None else NotUTF8(f"{bad_byte}. Besides, {missing}")


def check_fields(fields: list[str], names: Sequence[str], delimiter: str, number: int) -> None:
    """Raise UserError if a text was cut at a delimiter, or if several rows were read as one text.

    names: of the columns, of which the last ones may be empty
    number: that of the line in which the row begins
    """
    n_columns = len(names)
    while n_columns > 0 and not names[n_columns - 1]:
        n_columns -= 1
    # Excel ends rows with empty fields. But in a table of one column, an empty field shows that a
    # text was cut which ends with the delimiter, such as "Dear Sir,".
    ends_with_delimiter = len(names) == 1 and len(fields) > 1
    if any(fields[n_columns:]) or ends_with_delimiter:
        unnamed = ", or name the last column too" if n_columns < len(names) else ""
        columns = "1 column" if n_columns == 1 else f"{n_columns} columns"
        raise UserError(f"line {number} has {len(fields)} fields, and the table has {columns}"
                        f": a text with {delimiter!r} in it needs quotes around it{unnamed}")
    if delimiter == "\t" and has_whole_rows(fields):
        raise UserError(f"the text in quotes that begins in line {number} has whole rows in it: "
                        f"{ADVISE_UNQUOTED}, and if not, write the table as .jsonl")


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
    """Return the delimiter by which the first line of a CSV has data.column, or most columns.

    Of delimiters that are equal in this, it is the first one.
    """
    names_by = {delimiter: next(csv.reader([first], delimiter=delimiter), [])
                for delimiter in delimiters}

    def has_columns(delimiter: str) -> bool:
        names = names_by[delimiter]
        # A data.column "prompt;completion" is no name of the only column that a comma makes of the
        # line "prompt;completion", so that the error names both columns.
        is_undivided_line = len(names) == 1 and any(other in column for other in delimiters)
        return set(split_column(column, names)) <= set(names) and not is_undivided_line

    def preference(delimiter: str) -> tuple[bool, int]:
        return has_columns(delimiter), len(names_by[delimiter])

    return max(delimiters, key=preference)


def read_csv_lines(file: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a CSV, which may also end with a carriage return alone."""
    for line in read_lines(file):
        if "\r" in line.removesuffix("\n").removesuffix("\r"):
            yield from io.StringIO(line, newline="")
        else:
            yield line


@contextmanager
def unlimited_fields() -> Iterator[None]:
    """Let a field of a CSV be longer than the 131,072 characters that `csv` allows.

    The limit is one for the whole process: while a table is read, all other readers have none.
    """
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
    import pyarrow
    from pyarrow import parquet

    with parquet.ParquetFile(path, pre_buffer=False, buffer_size=PIECE) as file:
        types = {}
        for field in file.schema_arrow:
            is_category = isinstance(field.type, pyarrow.DictionaryType)
            types[field.name] = str(field.type.value_type if is_category else field.type)
        columns = split_column(column, types)
        for name in columns:
            check_once(name, file.schema_arrow.names, "it")
            if not re.fullmatch(f"{TEXT_PATTERN}|{LIST_PATTERN}|{CHAT_PATTERN}",
                                types.get(name, "")):
                raise no_text_error(name, column, types, is_parquet=True)
        for batch in file.iter_batches(ROWS, columns=columns, use_threads=False):
            yield from batch.to_pylist()
