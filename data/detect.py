"""What a file holds, by its name and its beginning, and what to do with one that is not read."""

import codecs
import json
import os
import re
import shlex
from pathlib import PurePath

from data.columns import LONGER, ColumnSizes, jq_field
from data.kinds import (
    AS_LINES,
    COMPRESSED,
    CONVERT,
    HEAD,
    JSON,
    LINES,
    PLAIN,
    REFUSED,
    RENAME,
    TABLES,
    file_kind,
)
from data.readers import open_file, reading
from errors import UserError

JSON_START = 4 << 20  # bytes of a .json file that are read to tell what is in it
# How JSON with text begins: an object with a key, or a list of objects or of strings.
JSON_BEGINNING = re.compile(
    r'''\s*(\{\s*"(?:[^"\\]|\\.)*"\s*:|\[\s*(\{\s*"|"(?:[^"\\]|\\.)*"\s*[,\]]))''')
# In a JSON object: what is before a key, the key, and the colon.
JSON_KEY = re.compile(r'''[\s,{]*("(?:[^"\\]|\\.)*")\s*:\s*''')
# Keys that only messages have, as Telegram, Discord, Facebook, Slack and Google Chat export them.
# Google Chat writes a day of the week before the date.
MESSAGE_KEY = re.compile(
    r'"((date_unixtime|timestampEdited|timestamp_ms|client_msg_id)"\s*:|created_date"\s*:\s*"[^\W\d])')
PACKED_CODE = (".js", ".mjs", ".cjs", ".css")  # kinds of code that are minified for browsers
LONGEST_LINE = 1000  # characters, of a line of code that a person may have written


def find_kind(path: str) -> str:
    """Return the suffix that tells the kind of a file; without one, JSON or "" by its first bytes.
    """
    kind = file_kind(path)
    return JSON if kind == "" and begins_as_json(path) else kind


def check_kind(path: str) -> None:
    """Raise UserError for a file that is no text by its suffix or, without one, by its first bytes.

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
    if MESSAGE_KEY.search(start):
        return f"{CONVERT} writes who says what on each day"
    if start.startswith("["):
        return AS_LINES
    if begins_with_object_lines(start):
        return RENAME
    key = longest_list(start)
    if key is None:
        return advise_object(start)
    return LINES.format(shlex.quote(f"{jq_field(key)}[]"))


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
    """Return the key of the longest list of objects in a JSON object, or None.

    `start` may be cut off: the list that it is cut in counts as the longest.
    """
    lengths: dict[str, int] = {}
    member = JSON_KEY.match(start)
    while member is not None:
        begin = member.end()
        try:
            key = json.loads(member[1])
        except ValueError:  # a bad escape
            return None
        try:
            value, end = json.JSONDecoder().raw_decode(start, begin)
        except (ValueError, RecursionError):
            is_list = re.compile(r"\[\s*\{").match(start, begin)
            return key if is_list else None
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lengths[key] = end - begin
        member = JSON_KEY.match(start, end)
    return max(lengths, key=lambda key: lengths[key], default=None)


def is_text_file(path: str) -> bool:
    """Return whether a file in a folder is read, by its suffix or, without one, by its start."""
    kind = file_kind(path)
    if kind == "":
        return begins_as_text(path) and not begins_as_json(path)
    stem, _ = os.path.splitext(path)
    if kind == ".log" and any(os.path.exists(f"{stem}{tex}") for tex in (".tex", ".TEX")):
        return False  # it is what LaTeX says of that file
    return kind in TABLES or kind in PLAIN


def is_minified(path: str) -> bool:
    """Return whether a file is code that a program has packed for browsers, by its name or start.
    """
    if file_kind(path) not in PACKED_CODE:
        return False
    if re.search(r"[.-]min\.\w+(\.\w+)?$", path.lower()):
        return True
    lines = (read_head(path) or "").split("\n")
    return max(map(len, lines)) > LONGEST_LINE


def read_head(path: str) -> str | None:
    """Return the first HEAD bytes of a file, decompressed, as text; None if they are not UTF-8, or
    have a NUL."""
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
