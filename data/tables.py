"""The rows of tables: .jsonl, .csv, .tsv and .parquet. Files may be larger than memory."""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
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
                check_header(names, column, delimiter, begin, rows)
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


def check_header(
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
            missing = no_text_error(each, column, columns, delimiter, sizes=sizes)
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
            if not re.match(f"({TEXT_PATTERN}|{LIST_PATTERN}|{CHAT_PATTERN})(,|$)", kind):
                raise no_text_error(each, column, types, is_parquet=True)
        for batch in file.iter_batches(ROWS, columns=columns, use_threads=False):
            yield from batch.to_pylist()
