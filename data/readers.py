"""From the bytes of a file to its text.

Every text arrives byte for byte: no line end, form feed or final newline is touched. Only a byte
order mark at the start of a file is dropped. Files are read in pieces, and may be larger than
memory.
"""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from data.kinds import HEAD, SIGNATURES, UNPACK, UTF_8
from errors import UserError, require_modules
from files import first_line

PIECE = 1 << 20  # bytes of a text file that are read at a time
LONGEST_WINDOW = 1 << 27  # bytes before the current one to which zstd may refer
NEARBY = 20  # characters on each side of a bad byte that are shown
GZIP = b"\x1f\x8b"
# A frame of zstd. One that has no text, with a first byte of 0x50 to 0x5f, may come before it.
ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")


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
    return isinstance(cause, (UserError, EOFError, ValueError, zlib.error))


@contextmanager
def reading(name: str, advice: str = "") -> Iterator[None]:
    """Turn any error of reading a text into a UserError that names the text.

    `advice` is added to errors that are no UserError. Those that are say what to do.
    """
    try:
        yield
    except UserError as error:
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

    Raises NotUTF8 if they show that the file is not UTF-8.
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
    more as the lower three bits say, in KiB. If bit 5 of the fifth byte is set, there is no such
    byte: the window is the content, whose size follows the id of a dictionary (RFC 8878, 3.1.1.1).
    """
    if len(head) < 6 or not head.startswith(b"\x28\xb5\x2f\xfd"):
        return False
    descriptor = head[4]
    if descriptor & (1 << 5):
        begin = 5 + (0, 1, 2, 4)[descriptor & 3]
        n_bytes = 1 << (descriptor >> 6)
        return int.from_bytes(head[begin : begin + n_bytes], "little") > LONGEST_WINDOW
    base = 1 << (10 + (head[5] >> 3))
    return base + (base // 8) * (head[5] & 7) > LONGEST_WINDOW


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
    as_japanese = data[start : start + HEAD].decode("cp932", "ignore")
    if re.search("[\u3041-\u3096]{2}", as_japanese):  # hiragana
        codec = "cp932"
        encoding = "CP932"
        origin = "Japanese Windows programs"
    else:
        codec = "cp1252"
        encoding = "WINDOWS-1252"
        origin = "older Windows programs"
    nearby = before[-NEARBY:] + data[start : start + NEARBY].decode(codec, "replace")
    return NotUTF8(f"{byte}; in {codec}, the encoding of {origin}, the text there "
                   f"is {' '.join(nearby.split())!r}: if that is right, run iconv -f "
                   f"{encoding} -t UTF-8 FILE > NEW; or else with the encoding of its language in "
                   f"place of {encoding}, such as GB18030, BIG5, SHIFT_JIS, EUC-KR, WINDOWS-1251 "
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

    The builder "text" of `datasets` would translate line ends. It yields lines or, as a document, a
    whole file, which it holds in memory.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0  # of the next byte
    before = ""  # the end of what was yielded
    is_first = True  # nothing was yielded yet
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
            if is_first:
                text = text.removeprefix("\ufeff")
            if text:
                yield text
                is_first = False
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
        ahead = 2 if piece else 0  # the \r\n after a separator may be in the next piece
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
        if piece:  # keep what may be a separator with \r\n before and after it: 4 characters
            end = max(start, end - len(separator) - 4)
        yield number, text[start:end]
        text = text[end:]
