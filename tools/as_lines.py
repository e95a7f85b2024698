"""Write texts that gyre does not read as lines of JSON: of web pages, books, mail, XML and others.

    python tools/as_lines.py FILES > NEW.jsonl

It takes files and folders, and writes a line {"text": ...} for each text: a page, a book, a
document, a mail, an article of a wiki, a card, a day of a chat. The rows of other .json and of
.arrow files stay as they are, and so do those of the table with most text in a database of SQLite.
Layout and markup are lost, but for the markup of a wiki. It needs no package, but pyarrow for
.arrow and for a deck of Anki in its newest format.
"""

import codecs
import email
import functools
import html
import json
import mailbox
import os
import posixpath
import re
import shlex
import sqlite3
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import default
from html.parser import HTMLParser
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

SHARE_OF_TEXT = 1 / 3  # of the list with most text; a list around it that has as much is read

# --- web pages ------------------------------------------------------------------------------------

# Elements that begin and end on a line of their own.
BLOCK_TAGS = """
address article aside blockquote body br caption center dd div dl dt fieldset figcaption figure
footer form h1 h2 h3 h4 h5 h6 head header hr html li main nav ol option p pre section table td th
title tr ul
"""
BLOCKS = frozenset(BLOCK_TAGS.split())


class PageReader(HTMLParser):
    """Collects the text of a web page, without scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.is_hidden = False
        self.is_preformatted = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.is_hidden = tag in ("script", "style")
        self.is_preformatted |= tag == "pre"
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.is_hidden = False
        self.is_preformatted &= tag != "pre"
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self.is_hidden or not data:
            return
        if not self.is_preformatted:
            data = re.sub(r"\s+", " ", data)
            if not self.parts or self.parts[-1][-1:].isspace():
                data = data.lstrip()
        if data:
            self.parts.append(data)


def page_text(page: str) -> str:
    """Return the text of HTML: a line for each paragraph, without empty lines."""
    reader = PageReader()
    reader.feed(page)
    reader.close()
    return join_lines("".join(reader.parts).split("\n"))


def join_lines(lines: list[str]) -> str:
    """Return those of the lines that are not empty, below each other."""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def decode(data: bytes) -> str:
    """Return text that is UTF-8, or has the encoding that its start names, or else cp1252.

    UTF-16 has a mark at its start, as Windows writes it.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    named = re.search(rb"""(?:charset|encoding)=["']?([\w-]+)""", data[:2000])
    for encoding in ("utf-8-sig", named[1].decode() if named else "cp1252"):
        try:
            return data.decode(encoding)
        except (LookupError, ValueError):
            continue
    return data.decode("cp1252", errors="replace")


def read_page(path: Path) -> Iterator[str]:
    yield page_text(decode(path.read_bytes()))


# --- documents ------------------------------------------------------------------------------------


def local_name(element: Element) -> str:
    """Return the tag of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def find_all(root: Element, *names: str) -> list[Element]:
    """Return the elements with these names, in any namespace, in their order."""
    return [element for element in root.iter() if local_name(element) in names]


def read_book(path: Path) -> Iterator[str]:
    """An .epub: its chapters in order."""
    with zipfile.ZipFile(path) as book:
        (root_file, *_) = find_all(parse(book, "META-INF/container.xml"), "rootfile")
        package = root_file.get("full-path", "")
        content = parse(book, package)
        files = {item.get("id"): item.get("href", "") for item in find_all(content, "item")}
        chapters = []
        for item in find_all(content, "itemref"):
            name = unquote(files.get(item.get("idref"), ""))
            path_in_book = posixpath.normpath(posixpath.join(posixpath.dirname(package), name))
            if path_in_book in book.namelist():
                chapter = decode(book.read(path_in_book))
                # Its head has a title that no page shows.
                chapters.append(page_text(re.sub(r"(?is)<head\b.*?</head>", "", chapter)))
    yield "\n".join(filter(None, chapters))


def parse(archive: zipfile.ZipFile, name: str) -> Element:
    """Return the root of an XML file in an archive."""
    return ElementTree.fromstring(archive.read(name))


def read_office(path: Path) -> Iterator[str]:
    """A .docx, .pptx, .odt or .odp: its paragraphs, each in a line."""
    lines = []
    with zipfile.ZipFile(path) as archive:
        slides = [name for name in archive.namelist() if re.match(r"ppt/slides/\w+\.xml", name)]
        slides.sort(key=lambda name: int(re.sub(r"\D", "", name)))
        names = {".docx": ["word/document.xml"], ".pptx": slides}
        for name in names.get(path.suffix.lower(), ["content.xml"]):
            root = parse(archive, name)
            # Tab stops of a paragraph, and a text box once more, for old versions of Word.
            for element in find_all(root, "pPr", "Fallback"):
                element.clear()
            lines_from_last = []
            for paragraph in reversed(find_all(root, "p", "h")):
                if name == "content.xml":
                    for gap in find_all(paragraph, "tab", "line-break"):
                        gap.text = " "
                    lines_from_last.append("".join(paragraph.itertext()))
                else:  # text is in <w:t> or <a:t>
                    runs = find_all(paragraph, "t", "tab", "br")
                    lines_from_last.append("".join(run.text or " " for run in runs))
                paragraph.clear()  # it may be in a text box or a note within another one
            lines += lines_from_last[::-1]
    yield join_lines(lines)


def read_notebook(path: Path) -> Iterator[str]:
    """A notebook of Jupyter: its cells, without what they have printed."""
    cells = json.loads(decode(path.read_bytes()))["cells"]
    yield "\n\n".join("".join(cell["source"]) for cell in cells)


def read_json(path: Path) -> Iterator[Any]:
    """The rows of JSON: the elements of a list, or those of the list with most text in an object.

    An object without lists is one row, and so is each of several objects. The archive of X has JSON
    in files of JavaScript, and each row in an object of its own. Exports of Facebook have UTF-8
    that was read as Latin-1. Of messages, each day is a row.
    """
    text = re.sub(r"\A\s*window\.[\w.]+\s*=", "", decode(path.read_bytes()))
    rows = mend_encoding(list(parse_values(text)))
    if len(rows) == 1:
        (value,) = rows
        rows = value if isinstance(value, list) else find_rows(value)
    # Slack exports a folder for each channel, and the list of all people beside these.
    people = read_slack_people(path.resolve().parent.parent / "users.json")
    for row in join_days(rows, people):
        inner = list(row.values()) if isinstance(row, dict) else []
        if len(inner) == 1 and isinstance(inner[0], dict):
            yield inner[0]
        elif isinstance(row, dict) and "mapping" in row and "current_node" in row:
            messages = find_turns(row)
            del row["mapping"]
            yield row | {"messages": messages}
        elif isinstance(row, (dict, str)):
            yield row
        else:
            raise ValueError(f"a row is of the type {type(row).__name__}, and no object or string")


def parse_values(text: str) -> Iterator[Any]:
    """Yield the values of JSON that stand one after another, each perhaps over several lines."""
    beginning = re.compile(r"\S")
    position = 0
    while begin := beginning.search(text, position):
        value, position = json.JSONDecoder().raw_decode(text, begin.start())
        yield value


# Where a message has who wrote it, what it says and when, in exports of Telegram, Discord, Facebook
# and Instagram, Slack, and Google Chat. A name with a dot is a key in an object; of several names
# of authors, the first that a message has counts.
MESSAGE_FIELDS = (
    ("from from_id", "text", "date_unixtime"),
    ("author.name", "content", "timestamp"),
    ("sender_name", "content", "timestamp_ms"),
    ("user_profile.real_name user username", "text", "ts"),
    ("creator.name creator.email", "text", "created_date"),
)


# What Slack writes for mentions and links: <@U1>, <@U1|ann>, <#C1|general>, <!here>, <URL|words>.
SLACK_MARK = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")


def look_up(row: dict[str, Any], path: str) -> Any:
    """Return the value under a key, or under a key in an object; None if there is none."""
    value: Any = row
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


@functools.cache
def read_slack_people(path: Path) -> dict[str, str]:
    """Return the names of people in Slack's users.json by their ids; none if it is not there."""
    people: Any = []
    with suppress(OSError, ValueError, RecursionError):
        people = json.loads(path.read_bytes())
    names = {}
    for person in people if isinstance(people, list) else []:
        if not isinstance(person, dict) or not isinstance(person.get("id"), str):
            continue
        known = [look_up(person, key) for key in ("real_name", "profile.real_name", "name")]
        name = next((name for name in known if isinstance(name, str) and name), None)
        if name is not None:
            names[person["id"]] = name
    return names


def find_slack_names(rows: list[Any]) -> dict[str, str]:
    """Return the names of people in messages of Slack by their ids."""
    names = {}
    for row in rows:
        if not isinstance(row, dict):
            continue
        person = row.get("user")
        name = look_up(row, "user_profile.real_name")
        if isinstance(person, str) and isinstance(name, str) and name:
            names[person] = name
    return names


def plain_slack_text(text: str, names: dict[str, str]) -> str:
    """Return a text of Slack as it is shown there. `names` has the names of people by their ids."""
    def show(mark: re.Match[str]) -> str:
        sign, target, label = mark.groups()
        if target.startswith("date^"):
            return label or target
        sign = sign.replace("!", "@")
        if not label:
            label = names.get(target, target)
        return sign + label.removeprefix(sign)

    # Slack escapes these three characters only.
    shown = SLACK_MARK.sub(show, text)
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def read_message_row(row: Any, slack_names: dict[str, str]) -> tuple[str, str] | None:
    """Return the day of a message and "NAME: TEXT", or "" if it has no text; None for other rows.

    `slack_names` has the names of people in messages of Slack by their ids.
    """
    if not isinstance(row, dict):
        return None
    for authors, text_key, date_key in MESSAGE_FIELDS:
        names = [look_up(row, path) for path in authors.split()]
        author = next((name for name in names if isinstance(name, str) and name), None)
        if author is None or date_key not in row:
            continue
        text = plain_text(row.get(text_key))
        if date_key == "ts":
            author = slack_names.get(author, author)
            text = plain_slack_text(text, slack_names)
        said = f"{author}: {text}" if text.strip() else ""
        return day_of(row[date_key]), said
    return None


def plain_text(value: Any) -> str:
    """Return a text, or the texts of a list of parts, as Telegram has them; "" for others."""
    if isinstance(value, str):
        return value
    texts = []
    for part in value if isinstance(value, list) else []:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
    return "".join(texts)


def day_of(time: Any) -> str:
    """Return the day of a time: seconds or milliseconds since 1970, in UTC, or a date as text."""
    try:
        seconds = float(time)
    except (TypeError, ValueError):
        return re.split(r"\d{1,2}:\d{2}", str(time))[0]
    if seconds > 1e11:
        seconds /= 1000
    return str(datetime.fromtimestamp(seconds, UTC).date())


def join_days(rows: list[Any], slack_people: dict[str, str]) -> list[Any]:
    """Return the messages of each day as one text, or the rows if most are no messages.

    `slack_people` has names that Slack's list of people knows, by the ids.
    """
    slack_names = slack_people | find_slack_names(rows)
    read = [read_message_row(row, slack_names) for row in rows]
    messages = [message for message in read if message is not None]
    said = [(day, text) for day, text in messages if text]
    if not said or 2 * len(messages) < len(rows):
        return rows
    times = [row["timestamp_ms"] for row in rows if isinstance(row, dict) and "timestamp_ms" in row]
    if times and times[0] > times[-1]:  # Facebook has the newest message first
        said.reverse()
    days = groupby(said, key=itemgetter(0))
    return ["\n".join(text for _, text in day) for _, day in days]


def find_turns(chat: dict[str, Any]) -> list[dict[str, str]]:
    """Return the turns of a chat of ChatGPT, from the first message to the one shown last.

    The chat is a tree, because answers can be asked for again.
    """
    turns = []
    node = chat["current_node"]
    while node is not None:
        message = chat["mapping"][node].get("message") or {}
        parts = (message.get("content") or {}).get("parts") or []
        words = "\n".join(part for part in parts if isinstance(part, str))
        if words:
            turns.append({"role": message["author"]["role"], "content": words})
        node = chat["mapping"][node].get("parent")
    return turns[::-1]


def find_rows(value: dict[str, Any]) -> list[Any]:
    """Return the objects of the lists that have most text in an object, or else the object.

    Lists that the same keys lead to count as one: those of the messages in several chats.
    """
    lists: dict[tuple[str, ...], list[Any]] = {}

    def collect(inner: Any, keys: tuple[str, ...]) -> None:
        if isinstance(inner, dict):
            for key, member in inner.items():
                collect(member, (*keys, key))
        elif isinstance(inner, list):
            objects = [each for each in inner if isinstance(each, dict)]
            if objects:
                lists.setdefault(keys, []).extend(objects)
            for each in objects:
                collect(each, keys)

    collect(value, ())
    sizes = {keys: sum(map(count_characters, rows)) for keys, rows in lists.items()}
    # An outer list with a good part of the text: articles, and not the comments in them.
    for keys in sorted(lists, key=len):
        if SHARE_OF_TEXT * max(sizes.values()) <= sizes[keys]:
            return lists[keys]
    return [value]


def count_characters(value: Any) -> int:
    """Return the length of all strings in a value, without those in lists of objects."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(count_characters, value.values()))
    if isinstance(value, list):
        return sum(len(each) for each in value if isinstance(each, str))
    return 0


def encode_control(error: UnicodeError) -> tuple[bytes, int]:
    """Encode characters that cp1252 has not: browsers have control characters in their places."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return error.object[error.start : error.end].encode("latin-1"), error.end


codecs.register_error("control", encode_control)


def mend_encoding(value: Any) -> Any:
    """Return JSON with the characters that were meant, if all its strings are UTF-8 that was read
    as Latin-1, or all as cp1252, or ASCII."""
    def mend(inner: Any, encoding: str) -> Any:
        if isinstance(inner, str):
            return inner.encode(encoding, "control").decode()
        if isinstance(inner, list):
            return [mend(each, encoding) for each in inner]
        if isinstance(inner, dict):
            return {key: mend(member, encoding) for key, member in inner.items()}
        return inner

    for encoding in ("latin-1", "cp1252"):
        with suppress(UnicodeError):
            return mend(value, encoding)
    return value


# Parts of RTF that are no text, and characters that have a name or a sign there.
RTF_HIDDEN = "fonttbl colortbl stylesheet info pict object themedata header footer listtable"
RTF_WORDS = {
    "par": "\n", "line": "\n", "row": "\n", "cell": " ", "tab": "\t", "emdash": "\u2014",
    "endash": "\u2013", "lquote": "\u2018", "rquote": "\u2019", "ldblquote": "\u201c",
    "rdblquote": "\u201d", "bullet": "\u2022",
}
RTF_SIGNS = {"~": " ", "\n": "\n", "\r": "\n", "\\": "\\", "{": "{", "}": "}"}
# \word or \word5, bytes such as \'e9\'e8, a sign such as \~, a brace, a line break or a text.
RTF_TOKEN = re.compile(
    r"\\([a-z]+)(-?\d+)? ?|((?:\\'[0-9a-fA-F]{2})+)|\\([^a-z'])|([{}])|[\r\n]+|([^\\{}\r\n]+)",
    re.DOTALL)


def read_rtf(path: Path) -> Iterator[str]:
    """Rich text (RTF): its paragraphs, each in a line.

    One long loop, because what a token means depends on those before it.
    """
    source = path.read_bytes().decode("latin-1")
    page = re.search(r"\\ansicpg(\d+)", source)
    encoding = f"cp{page[1]}" if page else "cp1252"
    parts: list[str] = []
    groups: list[tuple[bool, int]] = []  # what held before each group around this place
    hidden = False
    stand_ins = 1  # characters after \u that programs without Unicode show in its place
    skip = 0  # of these
    for word, number, codes, sign, brace, text in RTF_TOKEN.findall(source):
        if brace == "{":
            groups.append((hidden, stand_ins))
        elif brace == "}":
            hidden, stand_ins = groups.pop() if groups else (False, 1)
        elif sign == "*" or word in RTF_HIDDEN.split():
            hidden = True
        elif word == "uc":
            stand_ins = int(number)
        elif hidden:
            continue
        elif word == "u":
            parts.append(chr(int(number) % 0x10000))
            skip = stand_ins
        elif codes or text:
            if codes:
                data = bytes.fromhex(codes.replace("\\'", ""))
                text = data.decode(encoding, errors="replace")
            parts.append(text[skip:])
            skip = max(0, skip - len(text))
        elif word in RTF_WORDS:
            parts.append(RTF_WORDS[word])
        else:
            parts.append(RTF_SIGNS.get(sign, ""))
    # Of a character beyond 0xFFFF, \u has the two halves.
    joined = "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    yield join_lines(joined.split("\n"))


# --- mail and subtitles ---------------------------------------------------------------------------


def message_text(message: Any) -> str:
    """Return the plain text of a message, or else that of its page, without its attachments."""
    body = message.get_body(("plain", "html"))
    if body is None:
        return ""
    try:
        text = body.get_content()
    except (LookupError, ValueError):  # an encoding that is none
        text = decode(body.get_payload(decode=True))
    return page_text(text) if body.get_content_subtype() == "html" else text


def parse_message(file: Any) -> Any:
    """Return the message in an open file."""
    return email.message_from_binary_file(file, EmailMessage, policy=default)


def read_message(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        yield message_text(parse_message(file))


def read_mailbox(path: Path) -> Iterator[str]:
    yield from map(message_text, mailbox.mbox(path, parse_message, create=False))


# How a line of a chat of WhatsApp begins, as data/kinds.py has it.
CHAT_BEGINNING = re.compile(
    r"[\u200e\u200f]?\[?(\d{1,4}[./-]\d{1,2}[./-]\d{2,4}),? \d{1,2}[:.]\d{2}"
    r"([:.]\d{2}(?=[^\]]{0,7}\]))?([\s\u202f]?[ap]\.?[\s\u202f]?m\.?)?(\] | - )", re.IGNORECASE)


# A remark in place of an image or the like: on an iPhone after an invisible mark, U+200E, elsewhere
# in angle brackets, or with the name that WhatsApp gives to a file.
NO_MESSAGE = r"\u200e|<[^<>]*>$|[A-Z]{3}-\d{8}-WA\d+\.\w+ \("


def read_chat(path: Path) -> Iterator[str]:
    """A chat of WhatsApp: the messages of each day, as NAME: TEXT.

    Without those in whose place the export has a remark, as for images.
    """
    day = ""
    lines: list[str] = []
    is_kept = False
    for line in decode(path.read_bytes()).replace("\r\n", "\n").split("\n"):
        beginning = CHAT_BEGINNING.match(line)
        if beginning is not None:
            if beginning[1] != day:
                yield join_lines(lines)
                day = beginning[1]
                lines = []
            line = line[beginning.end() :]
            _, has_name, text = line.partition(": ")  # no name: a remark on the group
            is_kept = has_name != "" and re.match(NO_MESSAGE, text) is None
        if is_kept:
            lines.append(re.sub(r"\u200e(<[^<>]*>$)?", "", line))  # <This message was edited>
    yield join_lines(lines)


def read_subtitles(path: Path) -> Iterator[str]:
    """Subtitles: what stands below each line of times, without tags.

    A number or a name may stand above it, and in .vtt there are blocks without times. Where words
    have times, as YouTube's, lines that go on from cue to cue are written once.
    """
    text = decode(path.read_bytes()).replace("\r\n", "\n")
    blocks = re.split(r"\n\n+|\n(?=(?:\d+\n)?.*-->)", text)
    cues = [block.split("-->", 1)[1].partition("\n")[2] for block in blocks if "-->" in block]
    has_timed_words = re.search(r"<\d\d:", text)
    is_webvtt = text.startswith("WEBVTT")
    text = re.sub(r"</?[a-z0-9][^<>\n]*>", "", "\n".join(cues))
    if is_webvtt:
        text = html.unescape(text)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if has_timed_words:
        lines = [line for line, _ in groupby(lines)]
    yield "\n".join(lines)


def read_styled_subtitles(path: Path) -> Iterator[str]:
    """Subtitles of Aegisub (.ass, .ssa): the text in the tenth field of each line, without styles.
    """
    text = decode(path.read_bytes())
    fields = re.findall(r"(?m)^Dialogue:(?:[^,\n]*,){9}(.*)$", text)
    spoken = re.sub(r"\{[^{}]*\}", "", "\n".join(fields)).replace(r"\h", " ")
    yield join_lines(re.split(r"\n|\\[Nn]", spoken))


def read_lyrics(path: Path) -> Iterator[str]:
    """Lyrics with times (.lrc): the lines without times and without the tags above them."""
    text = re.sub(r"\[\w+:[^\]\n]*\]|<\d+:[\d.:]+>", "", decode(path.read_bytes()))
    yield join_lines([line.strip() for line in text.split("\n")])


# How the clippings of a Kindle begin: a book, a place, an empty line, a text and a line of signs,
# as data/kinds.py has it.
CLIPPINGS_BEGINNING = re.compile(r".+\n- .+ \| .+\n\s*\n(.*\n)*?={10}\r?\n")


def read_clippings(path: Path) -> Iterator[str]:
    """The clippings of a Kindle: the text of each, without its book and place."""
    text = decode(path.read_bytes()).replace("\r\n", "\n")
    for clipping in text.split("\n==========\n"):
        yield clipping.partition("\n\n")[2].strip()


# --- XML and Anki ---------------------------------------------------------------------------------

# Elements that are a text: a page of MediaWiki, a row of Stack Exchange, an SMS, a note of
# Evernote, and an entry of a blog that is exported from WordPress or Blogger, or of a feed.
RECORDS = ("page", "row", "sms", "note", "item", "entry")
# Their attributes and elements with text, the best one first.
TITLES = ("Title", "title")
BODIES = ("Body", "Text", "AboutMe", "body", "encoded", "content", "description", "summary")
WITHOUT_TEXT = ("binary", "teiHeader")  # images of a book in FictionBook; who has made an edition


def read_xml(path: Path) -> Iterator[str]:
    """The records of an XML file or, if it has none, all its text. Records are read one by one."""
    events = ElementTree.iterparse(path, ("start", "end"))
    _, root = next(events)
    has_records = False
    for event, element in events:
        if event == "end" and local_name(element) in RECORDS:
            text = record_text(element)
            if text:
                has_records = True
                yield text
                root.clear()
    if not has_records:
        yield all_text(root)


def read_extracted_wiki(path: Path) -> Iterator[str]:
    """Articles as WikiExtractor writes them, between <doc ...> and </doc>."""
    for article in re.findall(r"(?s)<doc [^>\n]*>(.*?)</doc>", decode(path.read_bytes())):
        yield html.unescape(article.strip())


def record_text(record: Element) -> str:
    """Return the text of one of RECORDS, or "" if it has none."""
    values = dict(record.items())
    for child in record:  # of two with one name, as content and excerpt of WordPress, the longer
        name = local_name(child)
        text = child.text or ""
        if name in BODIES and len(child) > 0:  # elements of XHTML, as in some feeds
            text = html.escape(element_text(child)).replace("\n", "<br>")
        values[name] = max(values.get(name, ""), text, key=len)
    if local_name(record) == "page":
        return article_text(record, values)
    title = next((values[name] for name in TITLES if values.get(name)), "")
    body = next((values[name] for name in BODIES if values.get(name)), "")
    return join_lines([title, page_text(body)]) if body else ""


def article_text(page: Element, values: dict[str, str]) -> str:
    """Return the last revision of a page of a wiki, or "" if it is no article but a redirection, a
    template or a discussion. `values` has its elements by their names."""
    is_article = values.get("ns", "0") == "0" and "redirect" not in values
    revisions = [text.text or "" for text in find_all(page, "text")]
    return revisions[-1] if is_article and revisions else ""


def all_text(root: Element) -> str:
    """Return the text in all elements or, of an outline (OPML), in their attributes."""
    text = join_lines(element_text(root).split("\n"))
    lines = [item.get(name, "") for item in find_all(root, "outline") for name in ("text", "_note")]
    return join_lines(lines) or text


def element_text(element: Element) -> str:
    """Return the text in an element of XML. Elements without text around them have lines each."""
    if local_name(element) in WITHOUT_TEXT:
        return ""
    texts = [element.text or ""]
    for child in element:
        texts += [element_text(child), child.tail or ""]
    has_own_text = any(text.strip() for text in texts[::2])
    return ("" if has_own_text else "\n").join(texts)


def read_arrow(path: Path) -> Iterator[dict[str, Any]]:
    """A file of Arrow, as `datasets` writes by save_to_disk: its rows."""
    import pyarrow

    with pyarrow.memory_map(str(path)) as source:
        if source.read(6) == b"ARROW1":
            reader = pyarrow.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield from reader.get_batch(number).to_pylist()
            return
        source.seek(0)
        for batch in pyarrow.ipc.open_stream(source):
            yield from batch.to_pylist()


def read_database(path: Path) -> Iterator[dict[str, Any]]:
    """A database of SQLite: the rows of the table with most text, without bytes."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    connection.text_factory = lambda data: data.decode(errors="replace")
    names = [row["name"] for row in
             connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]

    def rows_of(name: str) -> Iterator[dict[str, Any]]:
        quoted = name.replace('"', '""')
        for row in connection.execute(f'SELECT * FROM "{quoted}"'):
            yield {key: value for key, value in dict(row).items() if not isinstance(value, bytes)}

    def count_characters(name: str) -> int:
        try:
            return sum(len(value) for row in rows_of(name) for value in row.values()
                       if isinstance(value, str))
        except sqlite3.Error:  # a table that needs an extension
            return -1

    yield from rows_of(max(names, key=count_characters))
    connection.close()


def read_anki(path: Path) -> Iterator[str]:
    """An .apkg or .colpkg: the fields of each note, each in a line."""
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
        # Of several, the last is the newest format, and others only say that Anki is too old.
        name = max(name for name in archive.namelist() if name.startswith("collection.anki2"))
        data = archive.read(name)
        if name.endswith("b"):
            import pyarrow

            data = pyarrow.input_stream(pyarrow.py_buffer(data), compression="zstd").read()
        database = Path(folder, "collection")
        database.write_bytes(data)
        connection = sqlite3.connect(database)
        for (fields,) in connection.execute("SELECT flds FROM notes ORDER BY id"):
            yield join_lines([page_text(field) for field in fields.split("\x1f")])
        connection.close()


# --- files ----------------------------------------------------------------------------------------

READERS: dict[str, Callable[[Path], Iterator[Any]]] = {
    ".html": read_page, ".htm": read_page, ".xhtml": read_page, ".mhtml": read_message,
    ".mht": read_message, ".epub": read_book, ".docx": read_office, ".odt": read_office,
    ".pptx": read_office, ".odp": read_office, ".rtf": read_rtf, ".ipynb": read_notebook,
    ".json": read_json, ".arrow": read_arrow, ".eml": read_message, ".mbox": read_mailbox,
    ".srt": read_subtitles, ".vtt": read_subtitles, ".ass": read_styled_subtitles,
    ".ssa": read_styled_subtitles, ".lrc": read_lyrics, ".xml": read_xml, ".enex": read_xml,
    ".opml": read_xml, ".fb2": read_xml, ".apkg": read_anki, ".colpkg": read_anki,
}


# Of mail, perhaps with the line that begins a message in an mbox, as data/kinds.py has it.
MAIL_BEGINNING = re.compile(
    r"(From \S+.*\n)?([\w-]+:.*\n([ \t].*\n)*)*?(Message-ID|MIME-Version|Received|Return-Path):",
    re.IGNORECASE)


class Unknown(ValueError):
    """A file is of none of the kinds that are known."""


# How text of each kind begins. The first that matches counts.
BEGINNINGS = (
    (re.compile(r"\{\\rtf"), read_rtf),
    (CHAT_BEGINNING, read_chat),
    (CLIPPINGS_BEGINNING, read_clippings),
    (re.compile(r"""[\[{]\s*["\[{\]}]|window\.YTD\."""), read_json),
    (re.compile(r"(<\?xml[^>]*>\s*)?<(!doctype )?html", re.IGNORECASE), read_page),
    (re.compile("<doc id="), read_extracted_wiki),
    (re.compile("<"), read_xml),
)


def choose_reader(path: Path) -> Callable[[Path], Iterator[Any]]:
    """Return how to read a file, by its suffix or else by its start. Raises Unknown."""
    if path.suffix.lower() in READERS:
        return READERS[path.suffix.lower()]
    with path.open("rb") as file:
        head = file.read(4096)
    if len(head) == 4096:  # it may end within a character
        head = head[: head.rfind(b"\n") + 1] or head
    start = decode(head).lstrip()
    if head.startswith(b"SQLite format 3"):
        return read_database
    for beginning, reader in BEGINNINGS:
        if beginning.match(start):
            return reader
    mail = MAIL_BEGINNING.match(head.decode("latin-1"))
    if mail:
        return read_mailbox if mail[1] else read_message
    raise Unknown(f"it has none of the suffixes {' '.join(READERS)}, and does not begin as JSON, "
                  "mail, a chat, XML, RTF or a database of SQLite. train.py reads plain text and "
                  "tables as they are, and says what to do with other files")


# Text that is no prose, in files whose suffixes say nothing of it.
IN_PLAIN_TEXT = (read_chat, read_clippings, read_extracted_wiki)


def is_read_in_folder(path: Path) -> bool:
    """Return whether a file is read if its folder is named.

    A .json file has to be named itself, because some tool may have left it in a folder.
    """
    suffix = path.suffix.lower()
    if suffix in ("", ".txt", ".md"):
        with suppress(Unknown, OSError):
            return choose_reader(path) in IN_PLAIN_TEXT
    return suffix in READERS and suffix != ".json"


def find_files(name: str) -> list[Path]:
    """Return the file of this name, or the files of a folder that are read, sorted.

    Hidden files are none of them. Raises Unknown if there are none.
    """
    if not os.path.isdir(name):
        return [Path(name)]
    files = []
    for path in sorted(Path(name).rglob("*")):
        is_hidden = any(part[0] == "." for part in path.relative_to(name).parts)
        if path.is_file() and not is_hidden:
            files.append(path)
    found = list(filter(is_read_in_folder, files))
    if not found:
        kinds = Counter(path.suffix.lower() or "without a suffix" for path in files)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(5))
        advice = "train.py reads plain text and tables as they are"
        for path in files:
            if path.suffix.lower() == ".json":
                named = f"{shlex.quote(str(path.parent))}/*.json"
                advice = f"files of .json have to be named, such as {named}"
        raise Unknown(f"it is a folder with {counts or 'no files'}: {advice}")
    return found


def describe_error(error: Exception) -> str:
    """Return what is wrong with a file."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, Unknown):
        return str(error)
    return f"{type(error).__name__}: {error}"


def main(names: list[str]) -> None:
    """Print the texts of files. Exit with code 2 at the end if some cannot be read, or else with 1
    if a folder has none that is read."""
    if not names:
        sys.exit(__doc__)
    if names[0] in ("-h", "--help"):
        print(__doc__)
        return
    exit_code = 0
    for name in names:
        try:
            paths = find_files(name)
        except Unknown as error:
            print(f"error: nothing is written of {name}: {error}", file=sys.stderr)
            exit_code = max(exit_code, 1)
            continue
        for path in paths:
            if not write_rows(path):
                exit_code = 2
    write_line("")
    sys.exit(exit_code)


def write_line(line: str) -> None:
    """Print a line, or write what was printed to its file if it is "".

    If that cannot be written, exit at once, because Python would try again at its end.
    """
    try:
        sys.stdout.write(line)
        if not line:
            sys.stdout.flush()
    except BrokenPipeError:  # of a command such as head, which has ended
        os._exit(141)
    except OSError as error:
        print(f"error: the lines cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(2)


def write_rows(path: Path) -> bool:
    """Print the rows of a file, or else an error. Return whether it can be read."""
    has_text = False
    try:
        for row in choose_reader(path)(path):
            if isinstance(row, str):
                row = {"text": row} if row.strip() else {}
            if row:
                write_line(json.dumps(row, default=str) + "\n")
                has_text = True
    except Exception as error:
        print(f"error: {path} cannot be read: {describe_error(error)}", file=sys.stderr)
        return False
    if not has_text:
        print(f"note: {path} has no text", file=sys.stderr)
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
