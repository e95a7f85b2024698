"""From the bytes of a file to its text: packed files, marks, other encodings, separators."""

import bz2
import codecs
import io
import lzma
import tarfile
import zipfile

import pytest
from text_files import gz, read, short, write, zstd

from data import readers
from data.readers import split_documents
from errors import UserError

MARK = codecs.BOM_UTF8


@pytest.mark.parametrize("name, content, expected", [
    ("a.txt", MARK + b"Title\r\n", "Title\r\n"), ("a.txt.gz", gz(MARK + b"a"), "a"),
    ("a.md", MARK + MARK + b"a", "\ufeffa"), ("a.txt", b"a" + MARK + b"b", "a\ufeffb"),
    ("a.csv", MARK + b'"text"\na\n', "a"), ("a.jsonl", b'{"text": "\xef\xbb\xbfa"}', "\ufeffa")])
def test_only_a_byte_order_mark_at_the_start_is_dropped(tmp_path, name, content, expected):
    assert read(write(tmp_path / name, content)) == [expected]


def test_a_file_of_a_byte_order_mark_alone_is_empty(tmp_path):
    assert read(write(tmp_path / "a.txt", MARK)) == [""]


NAIVE = "naïve\r\n".encode()


@pytest.mark.parametrize("name, content", [
    ("a.txt.gz", gz(NAIVE)), ("a.gz", gz(NAIVE)), ("a.md.zst", zstd(NAIVE)),
    ("a.zst", zstd(NAIVE)), ("packed.txt", gz(NAIVE)),
    ("unpacked.txt.gz", NAIVE),  # a browser has unpacked it and kept the name
    ("padded.gz", gz(NAIVE) + b"\0" * 512),
    ("parts.zst", zstd(NAIVE[:3]) + zstd(NAIVE[3:])),
    ("pzstd.zst", b"\x50\x2a\x4d\x18\4\0\0\0size" + zstd(NAIVE))], ids=short)
def test_the_content_tells_whether_a_file_is_packed(tmp_path, name, content):
    assert read(write(tmp_path / name, content)) == ["naïve\r\n"]


@pytest.mark.parametrize("pack", [gz, zstd])
def test_packed_text_streams(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(readers, "PIECE", 1000)
    pieces = [*readers.read_text(str(write(tmp_path / "a", pack(b"0123456789" * 100_000))))]
    assert len(pieces) == 1000 and set(map(len, pieces)) == {1000}


def zstd_with_header(header, content):
    """A frame of zstd with this header, and a block that is not compressed."""
    block = (1 | len(content) << 3).to_bytes(3, "little") + content
    return b"\x28\xb5\x2f\xfd" + header + block


@pytest.mark.parametrize("header, is_read", [
    # Windows of 128 MiB, 144 MiB and 2 GiB.
    (b"\0" + bytes([17 << 3]), True), (b"\0" + bytes([17 << 3 | 1]), False),
    (b"\0" + bytes([21 << 3]), False),
    # The window is the content, of 2 bytes and of 1 GiB.
    (b"\x20\2", True), (b"\xa0" + (1 << 30).to_bytes(4, "little"), False)])
def test_zstd_with_a_long_window_is_unpacked_as_advised(tmp_path, header, is_read):
    """As the dumps of Reddit are packed, and a file of 1 GiB by zstd --long=31."""
    path = write(tmp_path / "a.txt.zst", zstd_with_header(header, b"hi"))
    if is_read:
        assert read(path) == ["hi"]
        return
    with pytest.raises(UserError, match="packed by zstd --long: unpack it with unzstd --long=31"):
        read(path)


def tar(content):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"), io.BytesIO(content))
    return file.getvalue()


def archive(name):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as document:
        document.writestr(zipfile.ZipInfo(name), "x")
    return file.getvalue()


TEXT = "The old cat sat.\r\nКот.\r\n"


@pytest.mark.parametrize("content, words", [
    (TEXT.encode("utf-16"), "it is UTF-16: .*Notepad.*iconv -f UTF-16 -t UTF-8"),
    (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "it is UTF-16: save it as UTF-8"),
    (TEXT.encode("utf-16-le"), "it is UTF-16 without a byte order mark: .*iconv -f UTF-16LE"),
    (TEXT.encode("utf-16-be"), "it is UTF-16 without a byte order mark: .*iconv -f UTF-16BE"),
    ("Кот сидел на окне и смотрел".encode("utf-16-le"), "it is UTF-16 without"),
    (TEXT.encode("utf-32"), "it is UTF-32: save it as UTF-8"),
    (gz(TEXT.encode("utf-16")), "it is UTF-16"),
    (archive("word/document.xml"), "it is a zip archive .*docx.*: .*its suffix back .* unpack it"),
    (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "it is a PDF: extract its text"),
    (b"{\\rtf1\\ansi Hello}", "it is rich text"), (bz2.compress(b"a"), "bzip2: .*bunzip2"),
    (lzma.compress(b"a"), "xz: .*unxz"), (tar(b"a"), "it is a tar archive: unpack"),
    (gz(tar(b"a")), "it is a tar archive: unpack"),
    (b"PAR1\x15\x04", "it is a Parquet file: name it .parquet"),
    (b"\x89PNG\r\n\x1a\n\0\0", "it is an image: leave it out"),
    (b"SQLite format 3\0\x10", "SQLite: python tools/as_lines.py FILES > NEW.jsonl writes its"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1", "old Word or Excel"),
    (b"\x7fELF\x02\x01\0\0\0\xff", "byte 0xff at offset 9 .* NULs, so it is no text: leave it"),
    (gz(bytes(range(65, 91)) * 9)[:30], "EOFError: .*ended before")], ids=short)
def test_what_a_file_is_and_the_remedy_are_named(tmp_path, content, words):
    with pytest.raises(UserError, match=f"a.txt cannot be read: .*{words}"):
        read(write(tmp_path / "a.txt", content))


@pytest.mark.parametrize("text", [
    "PAR1 and PAR2 are receptors.", "Rar! said the lion.", "{\\rtfoo}", "%PDF-like comment"])
def test_texts_that_begin_as_other_formats_do_are_read(tmp_path, text):
    assert read(write(tmp_path / "a.txt", text)) == [text]


CHINESE = "\u4e2d\u6587".encode()


@pytest.mark.parametrize("content, words", [
    (b"word " * 9 + b"it\x92s late\n", "0x92 at offset 47"), (b"caf\xe9", "0xe9 at offset 3"),
    (MARK + b"\x93Hi\x94", "0x93 at offset 3"), (CHINESE + b"\xff", "0xff at offset 6"),
    (CHINESE[:-1], "0xe6 at offset 3"), (gz(b"abcdefg\xe9"), "0xe9 at offset 7")], ids=short)
@pytest.mark.parametrize("size", [3, 5, 1 << 20])
def test_a_bad_byte_has_its_offset_in_the_file(tmp_path, monkeypatch, content, words, size):
    monkeypatch.setattr(readers, "PIECE", size)
    with pytest.raises(UserError, match=f"a.txt cannot be read: the byte {words} is not UTF-8"):
        read(write(tmp_path / "a.txt", content))


@pytest.mark.parametrize("content, words", [
    (b"word " * 9 + b"it\x92s late\n", "'rd word word word it\u2019s late': .*-f WINDOWS-1252"),
    (b"caf\xe9", "in cp1252, .*'caf\u00e9'"), (MARK + b"\x93Hi\x94", "cp1252, .*'\u201cHi\u201d'"),
    ("\u732b".encode("shift_jis"), "or else with the encoding of its language .* SHIFT_JIS"),
    ("\u3000\u732b\u3067\u3042\u308b".encode("cp932"),
     "in cp932, the encoding of Japanese .* is '\u732b\u3067\u3042\u308b': .* -f CP932 "),
    ("\u201a\u00c4pfel\u2018 und \u201a\u00dcber\u2018".encode("cp1252"),
     "'\u201a\u00c4pfel\u2018 .* WINDOWS-1252 "),
    ("\u4eca\u5929\u5929\u6c14".encode("gb18030"), "with the encoding of its language .* GB18030"),
    (b"5\xa3, d\xe9j\xe0 vu", "in cp1252, .*'5\u00a3, d\u00e9j\u00e0 vu'"),
    (CHINESE + b"\xff\xfe!", "but the text before it is, so a part of it is damaged .* iconv -c"),
    (CHINESE[:-1], "a part of it is damaged"), (NAIVE + b"caf\xe9", "another encoding"),
    (CHINESE + b" text" * 50 + b"\xe9", "another encoding")], ids=short)
def test_a_bad_byte_is_shown_as_it_was_meant(tmp_path, content, words):
    with pytest.raises(UserError, match=words):
        read(write(tmp_path / "a.txt", content))


@pytest.mark.parametrize("separator, content, documents", [
    ("<|endoftext|>", "A cat.\n<|endoftext|>\nA dog.\n<|endoftext|>\n", ["A cat.", "A dog."]),
    ("<|endoftext|>", "A cat.<|endoftext|>A dog.\n", ["A cat.", "A dog.\n"]),
    ("<|endoftext|>", "<|endoftext|>\n\nA\n\n<|endoftext|>", ["\nA\n"]),
    ("==========", "Book (Ann)\r\n\r\nLine\r\n==========\r\nBook (Bob)\r\n==========\r\n",
     ["Book (Ann)\r\n\r\nLine", "Book (Bob)"]),  # a Kindle's clippings
    ("\n\n", "Roses\nare red\n\n\nViolets\n\nblue\n", ["Roses\nare red", "Violets", "blue\n"]),
    ("</s>", "<s>a</s>\n\n<s>b</s>", ["<s>a", "\n<s>b"]),
    ("\x0c", "page 1\x0cpage 2", ["page 1", "page 2"]),
    ("***", "a\n* * *\nb***\rc", ["a\n* * *\nb", "c"])])
def test_a_separator_divides_a_text_wherever_its_pieces_end(separator, content, documents):
    for size in (1, 2, 3, 7, 1000):
        pieces = [content[start : start + size] for start in range(0, len(content), size)]
        assert ["".join(parts) for parts in split_documents(pieces, separator)] == documents


def test_a_document_between_separators_streams():
    def pieces():
        yield from ["x" * 100] * 1000
        yield "<|endoftext|>end"

    first, last = ([*map(len, parts)] for parts in split_documents(pieces(), "<|endoftext|>"))
    assert sum(first) == 100_000 and max(first) <= 120 and last == [3]
