"""The text in a row of a table, and advice on which column has it."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.kinds import CONVERT
from errors import UserError, closest

DEFAULT_COLUMN = "text"

# What `name_type` calls a value that is missing, and lists whose parts are joined to a text.
NOTHING = "NoneType"
TEXT_LIST = "list of str"
FORMATTED = "list of formatted parts"
CHAT = "list of turns"
# Patterns of the types of columns that can be read, as `name_type`, Arrow and `datasets` name them.
TEXT_PATTERN = r"str|(large_)?string(_view)?|Value\('(large_)?string'\)"
LIST_PATTERN = (
    rf"{TEXT_LIST}|{FORMATTED}|(large_)?list<[^<>]*: (large_)?string( not null)?>"
    r"|List\(Value\('(large_)?string'\)\)"
)
# Lists of objects with a speaker and what is said, such as Arrow's
# list<item: struct<content: string, role: string>>
CHAT_PATTERN = (
    rf"{CHAT}|(large_)?list<.*: struct<(?=.*\b(content|value|text|parts): )"
    r".*\b(role|from|sender|speaker): (large_)?string.*>>"
    r"|List\(\{(?=.*'(content|value|text|parts)': )"
    r".*'(role|from|sender|speaker)': Value\('(large_)?string'\).*\}\)"
)
# The keys of a turn of a chat under which it says who speaks, and what is said.
SPEAKER_KEYS = ("role", "from", "sender", "speaker")
SAID_KEYS = ("content", "value", "text", "parts")
# Columns of usual data sets whose texts belong together, in this order. Of two answers to a prompt,
# `rejected` is the worse one.
COLUMN_SETS = (
    ("instruction", "input", "output"), ("instruction", "output"),
    ("instruction", "context", "response"), ("instruction", "response"), ("prompt", "chosen"),
    ("prompt", "completion"), ("prompt", "response"), ("question", "answer"),
)

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
SHORT = 200  # a column with fewer characters per row than this is short
# A note suggests a column with more than this many times the text of another one.
LONGER = 3

# What is no name of a column in the first line of a CSV: a number, or a text.
NO_NAME = r"(?s)[-\d.,]*\d|.{60,}"
# `datasets` needs pandas, so whoever has Parquet files has it.
PARQUET_AS_LINES = (
    'import pandas; pandas.read_parquet("FILE").to_json("FILE.jsonl", orient="records", '
    "lines=True, force_ascii=False)"
)


class NoText(UserError):
    """A table has no text in the column that is read."""


@dataclass
class ColumnSizes:
    """How many characters each column of some tables has, as far as they are known."""

    rows: int = 0
    texts: Counter[str] = field(default_factory=Counter)
    """In columns that can be read."""
    prose: Counter[str] = field(default_factory=Counter)
    """In columns that can be read, but only in texts with WORDS_IN_ROW."""
    nested: Counter[str] = field(default_factory=Counter)
    """In objects and lists that cannot be read, in strings with WORDS_IN_ROW at any depth."""
    keys: dict[str, Counter[str]] = field(default_factory=dict)
    """Characters by column and key, for columns of objects, or of lists of objects, that cannot be
    read: those in strings with WORDS_IN_ROW that are the value of this key."""
    first: dict[str, str] = field(default_factory=dict)
    """The first text of each column that can be read."""
    varied: set[str] = field(default_factory=set)
    """Columns that have another text, too."""

    def add(self, name: str, texts: Iterable[str]) -> None:
        """Add a value of a column: its text, or the texts in its list."""
        for text in texts:
            self.texts[name] += len(text)
            self.compare(name, text)
            if WORDS_IN_ROW.search(text):
                self.prose[name] += len(text)

    def compare(self, name: str, text: str) -> None:
        """Note whether a text of a column is another one than its first."""
        if name not in self.varied and self.first.setdefault(name, text) != text:
            self.varied.add(name)

    def add_nested(self, name: str, value: Any) -> None:
        """Add an object or a list that cannot be read, with what is in it at any depth."""
        members = value if isinstance(value, list) else [value]
        for member in members:
            if not isinstance(member, dict):
                continue
            for key, text in member.items():
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
        self.varied |= other.varied
        for name, text in other.first.items():
            self.compare(name, text)
        for name, keys in other.keys.items():
            self.keys.setdefault(name, Counter()).update(keys)

    def column_with_most_text(self, names: Iterable[str]) -> str:
        """Return the name of the column with most prose, or with most characters if none has any.

        Columns with the same text in all rows come last.
        """
        return max(names, key=lambda name: (name in self.varied, self.prose[name],
                                            self.texts[name]))


def advise_jq(program: str, is_parquet: bool) -> str:
    """Return the end of a sentence such as "for the texts under KEY of a .jsonl file, jq -c PROGRAM
    FILE > NEW.jsonl does that". For a Parquet file, another command makes lines of it first."""
    if is_parquet:
        return (f"first python -c {shlex.quote(PARQUET_AS_LINES)} makes FILE.jsonl, and then "
                f"jq -c {shlex.quote(program)} FILE.jsonl > NEW.jsonl does that")
    return f"of a .jsonl file, jq -c {shlex.quote(program)} FILE > NEW.jsonl does that"


def jq_field(name: str) -> str:
    """Return the filter of jq for the value under a key."""
    is_plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
    return f".{name}" if is_plain else f".[{json.dumps(name)}]"


def split_column(column: str, present: Container[str]) -> list[str]:
    """Return the names in data.column: the whole of it if a column is called so, or else the names
    between its commas, each once."""
    if column in present:
        return [column]
    names = [name if name in present else name.strip() for name in column.split(",")]
    return list(dict.fromkeys(names))


def row_text(row: Mapping[str, Any], column: str) -> str | None:
    """Return the texts of the columns in data.column, below each other; None if there is none."""
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
    if any(first_of(SPEAKER_KEYS, turn) is None for turn in value):
        return False
    return any(first_of(SAID_KEYS, turn) is not None for turn in value)


def is_formatted(value: list[Any]) -> bool:
    """Return whether a list holds strings and objects with a type and a text, as Telegram writes a
    message with a link or in bold."""
    objects = [part for part in value if not isinstance(part, str)]
    if not objects:
        return False
    return all(map(is_formatted_part, objects))


def is_formatted_part(part: Any) -> bool:
    """Return whether this is an object with one of Telegram's types and a text."""
    if not isinstance(part, dict) or part.get("type") not in TELEGRAM.split():
        return False
    return isinstance(part.get("text"), str)


def first_of(keys: Iterable[str], turn: Mapping[str, Any]) -> Any:
    """Return the value of the first of these keys that a turn has, or None."""
    return next((turn[key] for key in keys if turn.get(key) is not None), None)


def turn_text(turn: Mapping[str, Any]) -> str:
    """Return a turn of a chat as "user: Hello"; "" if it has no words, as the call of a tool."""
    words = said_words(turn)
    return f"{first_of(SPEAKER_KEYS, turn)}: {words}" if words else ""


def count_silent_turns(value: Any) -> int:
    """Return how many turns of a chat are left out although they have something under SAID_KEYS,
    such as a number or only images. A call of a tool, which says nothing, does not count."""
    if not isinstance(value, list) or not is_chat(value):
        return 0
    silent = [turn for turn in value if not turn_text(turn)]
    return sum(first_of(SAID_KEYS, turn) not in (None, "", [], {}) for turn in silent)


def said_words(turn: Mapping[str, Any]) -> str:
    """Return what is said under the first of SAID_KEYS with words: an empty content may stand
    beside parts that have them."""
    for key in SAID_KEYS:
        words = read_words(turn.get(key))
        if words:
            return words
    return ""


def read_words(value: Any) -> str:
    """Return the words of a string, of a list of parts, among which may be images, or of an object
    such as {"parts": ["Hello"]}; "" for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return said_words(value)
    if not isinstance(value, list):
        return ""
    parts = [read_words(part.get("text") if isinstance(part, dict) else part) for part in value]
    return "\n".join(part for part in parts if part)


def no_text_error(
    name: str, column: str, types: Mapping[str, str], delimiter: str | None = None,
    is_parquet: bool = False, sizes: ColumnSizes | None = None,
) -> NoText:
    """Return the error for a table whose column `name` is missing, or is no text.

    column: data.column, of which `name` is one name
    types: of each column of the table
    delimiter: that of a CSV
    sizes: those of the columns, if they are known
    """
    for other, kind in types.items():
        if re.fullmatch(CHAT_PATTERN, kind):
            return NoText(f"its rows are chats, with a list of turns in the column {other!r}: "
                          f"--data.column {shlex.quote(other)} reads each as one text, with a line "
                          "such as 'user: Hello' for each turn. For a model with a chat template, "
                          "write the turns as it does: see docs/interop.md#chat-templates")
    described = []
    for other, kind in types.items():
        is_text = re.fullmatch(TEXT_PATTERN, kind)
        described.append(repr(other) if is_text else f"{other!r} ({kind})")
    text_columns = [other for other, kind in types.items()
                    if re.fullmatch(f"{TEXT_PATTERN}|{LIST_PATTERN}", kind)]
    if sizes is None:
        sizes = ColumnSizes()
    advice = suggest_column(name, column, types, text_columns)
    if not advice:
        advice = advise_column(text_columns, sizes, is_csv=delimiter is not None)
        nested = advise_nested(name, types, text_columns, sizes, is_parquet)
        have_words = any(sizes.prose[other] for other in text_columns)
        if nested and text_columns and sizes.rows > 0 and not have_words:
            advice = nested  # the columns of text have ids or dates only
        elif nested:
            advice += f"; {nested}"
    return NoText(f"it has no text in a column {name!r}, only {', '.join(described)}: {advice}")


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
    name: str, column: str, present: Container[str], text_columns: Iterable[str]
) -> str:
    """Return which --data.column may have been meant, as a question, or "".

    `column` is the value that was given. Each of its names that is not in `present`, and `name`,
    becomes the nearest name of `text_columns`. If none is near `name`, return "". Other wrong names
    then stay as they are. A name with a comma is suggested only alone: it cannot be joined.
    """
    names = split_column(column, present)
    candidates = {}
    for other in text_columns:
        can_be_joined = "," not in other
        if other not in names and (can_be_joined or len(names) == 1):
            candidates[other.lower()] = other
    suggested = []
    for other in names:
        is_wrong = other == name or other not in present
        nearest = closest(other.lower(), candidates) if is_wrong else None
        if nearest is not None:
            suggested.append(candidates.pop(nearest))  # so that no column is suggested twice
        elif other != name:
            suggested.append(other)
        else:
            return ""
    return f"did you mean --data.column {shlex.quote(','.join(suggested))}?"


def advise_column(text_columns: Sequence[str], sizes: ColumnSizes, is_csv: bool) -> str:
    """Return how to choose one of the columns of text, or what to do if there is none."""
    if not text_columns:
        return "write its texts into a .jsonl file with a column 'text'"
    if is_csv and any(re.fullmatch(NO_NAME, name) for name in text_columns):
        return "its first line has to name the columns: write such a line above it"
    longest = sizes.column_with_most_text(text_columns)
    together = next((names for names in COLUMN_SETS if set(names) <= set(text_columns)), None)
    if together is not None:
        advice = f"--data.column {','.join(together)} reads these as one text"
    elif len(text_columns) == 1:
        advice = f"choose its only column of text with --data.column {shlex.quote(longest)}"
    elif sizes.texts[longest] > 0:
        advice = (f"choose one with --data.column, as {shlex.quote(longest)}, which has most text; "
                  "--data.column A,B joins two")
    else:
        advice = "choose a column of text with --data.column; --data.column A,B joins two"
    if is_csv:
        advice += ("; if its first line is a row already, write a line above it that names the "
                   "columns")
    return advice


def advise_nested(
    name: str, types: Mapping[str, str], text_columns: Sequence[str], sizes: ColumnSizes,
    is_parquet: bool,
) -> str:
    """Return how to take texts out of the objects in a column that `choose_nested` returns, or "".
    """
    nested = choose_nested(name, types, text_columns, sizes)
    if nested is None:
        return ""
    advice = ""
    if nested != name and text_columns:
        advice = f"column {nested} has more text: "
    if nested == "mapping" and "current_node" in types and not is_parquet:  # ChatGPT's
        return f"{advice}{CONVERT} writes its chats, which --data.column messages reads"
    key = "KEY"  # where it is not known, or deeper
    if nested in sizes.keys:
        ((key, _),) = sizes.keys[nested].most_common(1)
    program = jq_program(nested, key, is_list=types[nested] == "list")
    return f"{advice}for the texts under {key} {advise_jq(program, is_parquet)}"


def choose_nested(
    name: str, types: Mapping[str, str], text_columns: Sequence[str], sizes: ColumnSizes
) -> str | None:
    """Return the column of objects, or of lists of them, whose texts are worth advice, or None.

    That is the column `name` if it is one. Otherwise it is the one with most text, but only if
    there are no columns of text, or if the longest of those is short, and much shorter than this
    one (SHORT, LONGER).
    """
    nested = [other for other, kind in types.items()
              if re.match("dict$|struct<", kind) or (kind == "list" and sizes.nested[other] > 0)]
    if name in nested:
        return name
    if not nested:
        return None
    richest = max(nested, key=lambda other: sizes.nested[other])
    if text_columns:
        n_characters = sizes.texts[sizes.column_with_most_text(text_columns)]
        is_short = n_characters < SHORT * sizes.rows
        if not is_short or sizes.nested[richest] <= LONGER * n_characters:
            return None
    return richest


def jq_program(column: str, key: str, is_list: bool) -> str:
    """Return a program of jq that makes rows of the texts under a key of the objects in a column.
    """
    path = jq_field(key)
    if path.startswith(".["):
        path = path[1:]  # earlier versions of jq do not know .a.["b"]
    if is_list:
        return f'{{text: ([{jq_field(column)}[]?{path}? | strings] | join("\\n"))}}'
    return f"{{text: {jq_field(column)}{path}}}"
