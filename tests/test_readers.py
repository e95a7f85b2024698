"""Files as people have them are read byte for byte, or refused with the way out."""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from contextlib import chdir, redirect_stdout
from email.message import EmailMessage
from pathlib import Path
from unittest.mock import Mock

import pyarrow
import pyarrow.parquet
import pytest
from builders import run_python

from data import columns, detect, readers, tables
from data.columns import value_text
from data.prepare import copy_parts
from data.readers import is_damaged, split_documents
from data.sources import SOURCES, DataConfig
from errors import UserError
from tools import as_lines


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(*paths, **options):
    """The documents of files and folders."""
    config = DataConfig(files=[str(path) for path in paths], **options)
    config.check()
    return ["".join(document) for document in SOURCES["files"](config).documents()]


def copied(*paths, **options):
    """The text of files and folders as it is prepared."""
    config = DataConfig(files=[str(path) for path in paths], **options)
    with io.BytesIO() as file:
        copy_parts(SOURCES["files"](config).parts(), file)
        return file.getvalue().decode()


def gz(content):
    return gzip.compress(content, mtime=0)  # the same bytes in every worker of pytest-xdist


def zstd(content):
    return pyarrow.compress(content, codec="zstd", asbytes=True)


def short(value):
    """The id of a parameter."""
    return repr(value)[:40]


def notes(capsys):
    """What was said, without "note: "."""
    return [line.removeprefix("note: ") for line in capsys.readouterr().err.splitlines()]


# Tables


@pytest.mark.parametrize("name, content", [
    ("plain.csv", "id,text,label\n1,a,0\n2,b,1\n"),
    ("excel.csv", "\ufeffid;text\r\n1;a\r\n2;b\r\n"),  # of a country that writes 1,5
    ("hint.csv", "sep=;\r\nid;text\r\n1;a\r\n2;b\r\n"),
    ("commas.csv", "name, first, last;text\nAnn, B., C.;a\nD, E, F;b\n"),
    ("pipes.csv", "id|text\n1|a\n2|b"),
    ("mac.csv", "id,text\r1,a\r2,b\r"), ("mac-end.csv", "text\ra\rb"),
    ("gaps.csv", "text,,\na,,\n\n,,\nb,,,\n"),  # a sheet with empty columns and lines
    ("one.csv", "text\na\nb\n"),
    ("rows.tsv", "id\ttext\n1\ta\n2\tb\n"),
    ("UPPER.TSV", '"id"\t"text"\r\n"1"\t"a"\r\n"2"\t"b"\r\n'),
    ("rows.csv.gz", gz(b"text\na\nb\n")),
    ("rows.ndjson", '{"text": "a"}\n{"text": "b"}\n'),
    ("rows.jsonl.gz", gz(b'{"text": "a"}\n') + gz(b'{"text": "b"}\n')),
    ("rows.jsonl.zst", zstd(b'{"text": "a"}\n{"text": "b"}\n')),
    ("windows.jsonl", '\ufeff{"text": "a"}\r\n\r\n{"text": "b"}\r\n')])
def test_rows_of_a_table_are_documents(tmp_path, name, content):
    assert read(write(tmp_path / name, content)) == ["a", "b"]


@pytest.mark.parametrize("text", [
    "007", "1.50", "2020-01-01", "NA", "null", "true", "  spaces ", 'He said "hi".', "a, b; c\td|e",
    "line\r\nbreak\rs\n\n", "#", "'", "=1+1", "caf\u00e9 \u4e2d\U0001f600\u2028",
    "x" * 200_000], ids=short)
def test_texts_of_a_csv_arrive_byte_for_byte(tmp_path, text):
    """Where a library guesses, 007 becomes 7 and NA nothing."""
    table = io.StringIO(newline="")
    csv.writer(table).writerows([["id", "text"], [1, text], [2, text]])
    assert read(write(tmp_path / "a.csv", table.getvalue())) == [text, text]


def test_quotes_inside_an_unquoted_field_stay(tmp_path):
    path = write(tmp_path / "a.tsv", 'text\tid\nHe said "hi"\t1\n5" disk\t2\n')
    assert read(path) == ['He said "hi"', '5" disk']


def test_a_chat_exported_as_csv_has_its_own_column(tmp_path):
    """As DiscordChatExporter writes it."""
    path = write(tmp_path / "general.csv", (
        "AuthorID,Author,Date,Content,Attachments,Reactions\n"
        '"1","ann","2024-05-01T10:00:00","hi, ""all""","",""\n'
        '"2","bob","2024-05-01T10:01:00","two\nlines","","\u2764 (1)"\n'))
    assert read(path, column="Content") == ['hi, "all"', "two\nlines"]


@pytest.mark.parametrize("name, content, words", [
    ("a.csv", "0,a tweet\n1,another\n", "'0', 'a tweet': its first line has to name the columns"),
    ("a.csv", "\nid,text\n1,a\n", "line 1 names no column: remove the lines above .* 'text'"),
    ("a.csv", "sep=,\n,,\nid,text,\n1,a,\n", "line 2 names no column"),
    ("a.csv", "text\na\nDear Sir,\n", "line 3 has 2 fields, .* names 1 columns: .*quotes"),
    ("a.csv", "id,text\n1,Hello, world\n", "line 2 has 3 fields, .* names 2 columns: .*quotes"),
    ("a.csv", 'id,text\n1,a\n2,"b\n3,c\n', "row that begins in line 3 is no CSV"),
    ("a.csv", 'sep=;\nid;text\n1;"a" b\n', "row that begins in line 3 is no CSV"),
    ("a.csv", 'sep=;\nid;text\n1;"a\nb"\n\n2;"a" b', "row that begins in line 6 is no CSV"),
    ("a.tsv", "id,text\n1,a\n", "no text in a column 'text', only 'id,text': "),
    ("a.csv", b"text\na\ncaf\xe9\n", "byte 0xe9 in line 3 .* cp1252, .*'caf\u00e9'")])
def test_a_csv_that_is_none_names_the_line(tmp_path, name, content, words):
    with pytest.raises(UserError, match=f"{name} cannot be read: .*{words}"):
        read(write(tmp_path / name, content))


@pytest.mark.parametrize("n_before", [0, 5000])
def test_a_csv_of_another_encoding_says_so_and_names_its_columns(tmp_path, n_before):
    """At once, where a user would else mend one and then meet the other."""
    rows = "1;It is fine\n" * n_before + "2;Es ist sch\u00f6n\n"
    path = write(tmp_path / "a.csv", f"id;review\n{rows}".encode("cp1252"))
    words = (r"the byte 0xf6 in line \d+ is not UTF-8; in cp1252, .* WINDOWS-1252 .*\. Besides, it "
             "has no text in a column 'text', only 'id', 'review': choose ")
    with pytest.raises(UserError, match=words):
        read(path)


@pytest.mark.parametrize("column, header, suggestion", [
    ("review text", "id,Review Text", "'Review Text'"), ("text", "id,Text", "Text"),
    ("reviewtext", "id,Review's text", """'Review'"'"'s text'"""), ("text", "id,texts", "texts"),
    ("Content", "CONTENT,contents", "CONTENT")])
def test_a_column_of_nearly_this_name_is_suggested(tmp_path, column, header, suggestion):
    path = write(tmp_path / "a.csv", f"{header}\n1,a\n")
    with pytest.raises(UserError) as error:
        read(path, column=column)
    assert str(error.value).endswith(f": did you mean --data.column {suggestion}?")


@pytest.mark.parametrize("column, suggestion", [
    ("title,ingredient,steps", "title,ingredients,steps"),
    ("title, Ingredients", "title,ingredients"), ("titel,ingredient", "title,ingredients"),
    ("ingredient,nothing", "ingredients,nothing"), ("title,step", "title,steps")])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_whole_list_of_columns_is_corrected(tmp_path, suffix, column, suggestion):
    path = tmp_path / f"a.{suffix}"
    row = {"title": "Soup", "ingredients": "water", "steps": "Boil it."}
    if suffix == "csv":
        write(path, f"{','.join(row)}\n{','.join(row.values())}\n")
    elif suffix == "jsonl":
        write(path, json.dumps(row))
    else:
        write_parquet(path, {name: [text] for name, text in row.items()})
    with pytest.raises(UserError) as error:
        read(path, column=column)
    assert str(error.value).endswith(f": did you mean --data.column {suggestion}?")


def test_no_column_is_suggested_twice(tmp_path):
    with pytest.raises(UserError) as error:
        read(write(tmp_path / "a.csv", "title,steps\nSoup,Boil it.\n"), column="title,titles")
    assert "did you mean" not in str(error.value)


def test_no_column_without_text_is_suggested(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"Text": 5, "summary": "b"}\n')
    with pytest.raises(UserError, match="choose its only column of text with .*column summary"):
        read(path)


def test_a_first_line_with_a_text_is_none_of_names(tmp_path):
    path = write(tmp_path / "a.csv", f"good,{'a long review ' * 5}\n")
    with pytest.raises(UserError, match="its first line has to name the columns: write such"):
        read(path)


def test_a_column_that_is_named_by_a_number_hides_no_other(tmp_path):
    path = write(tmp_path / "a.csv", "2024,Text\n1,a\n")
    with pytest.raises(UserError, match="did you mean --data.column Text"):
        read(path)


def test_a_table_without_any_text_is_not_sent_to_its_columns(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": {"body": "b"}}\n')
    with pytest.raises(UserError, match="only 'text' .dict.: write its texts into a .jsonl file"):
        read(path)


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize("name", ["data", "it's"])
def test_texts_in_an_object_become_rows_as_advised(tmp_path, name):
    path = write(tmp_path / "a.jsonl", json.dumps({"id": 1, name: {"body": "hi"}}))
    with pytest.raises(UserError) as error:
        read(path)
    (command,) = re.findall("jq .* > NEW.jsonl", str(error.value))
    command = command.replace("FILE", "a.jsonl").replace("KEY", "body")
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert read(tmp_path / "NEW.jsonl") == ["hi"]


def make_chat(*words):
    """A chat of ChatGPT, as it is exported, with a first answer that was asked for again."""
    def node(name, parent, role, *parts):
        message = {"id": f"{name:036}", "author": {"role": role}, "content": {"parts": [*parts]}}
        return {"id": name, "message": message, "parent": parent, "children": []}

    first, answer = words
    mapping = {"root": {"id": "root", "message": None, "parent": None, "children": ["s"]},
               "s": node("s", "root", "system", ""), "u": node("u", "s", "user", first),
               "no": node("no", "u", "assistant", "Another answer."),
               "a": node("a", "u", "assistant", {"asset_pointer": "file"}, answer)}
    mapping["u"]["message"]["content"]["content_type"] = "text"
    return {"title": "Trip plan", "create_time": 1.5, "mapping": mapping, "current_node": "a",
            "conversation_id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}


def write_chats(path):
    chats = [make_chat("Where to go? " * 20, "To Rome."), make_chat("And then?", "Home. " * 20)]
    return write(path, "\n".join(map(json.dumps, chats)))


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize("key", ["content", "it's"])
def test_of_an_object_the_key_with_most_text_is_advised(tmp_path, key):
    row = {"id": "a1", "object": {"by": "Ann Lee", key: "A longer text.", "tags": ["x y"] * 99}}
    path = write(tmp_path / "a.jsonl", json.dumps(row))
    run_command(path, "jq .* > NEW.jsonl")
    assert read(tmp_path / "NEW.jsonl") == ["A longer text."]


def test_chats_of_chatgpt_are_told_from_their_ids(tmp_path):
    with pytest.raises(UserError) as error:
        read(write_chats(tmp_path / "conv.jsonl"))
    assert str(error.value).endswith(
        "choose one with --data.column, as title, which has most text; --data.column A,B joins two;"
        " column mapping has more text: python tools/as_lines.py FILES > NEW.jsonl writes its "
        "chats, which --data.column messages reads")


def test_chats_of_chatgpt_are_read_as_advised(tmp_path):
    path = write_chats(tmp_path / "conv.jsonl")
    with pytest.raises(UserError) as error:
        read(path)
    assert run_advised(tmp_path, str(error.value), path.name, column="messages") == [
        f"user: {'Where to go? ' * 20}\nassistant: To Rome.",
        f"user: And then?\nassistant: {'Home. ' * 20}"]


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_texts_in_a_list_of_objects_become_rows_as_advised(tmp_path):
    comments = [{"by": "x7", "body": "A fine day. " * 9}, {"by": "x8", "body": None},
                {"by": "x9", "body": "It was."}]
    rows = [{"id": "a1", "comments": comments}, {"id": "a2", "comments": None}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match="; column comments has more text: for the texts") as error:
        read(path)
    (command,) = re.findall("jq .* > NEW.jsonl", str(error.value))
    command = command.replace("FILE", path.name)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert read(tmp_path / "NEW.jsonl") == [f"{'A fine day. ' * 9}\nIt was."]


@pytest.mark.parametrize("row", [
    {"summary": "A fine day. " * 20, "meta": {"by": "An author of it. " * 99}},  # no short text
    {"title": "A fine day.", "meta": {"by": "Ann Lee and others"}},
    {"title": "A fine day.", "meta": {"ids": ["6ba7b810"] * 99}, "ids": ["a", 5]}])
def test_objects_are_not_named_beside_a_column_of_text(tmp_path, row):
    with pytest.raises(UserError) as error:
        read(write(tmp_path / "a.jsonl", json.dumps(row)))
    assert "has more text" not in str(error.value) and "jq" not in str(error.value)


def test_the_object_that_was_chosen_is_named(tmp_path):
    row = {"title": "A fine day.", "meta": {"by": "An author of it. " * 9}, "text": {"body": "b"}}
    words = r"--data.column title; for the texts under KEY .*\{text: .text.KEY"
    with pytest.raises(UserError, match=words):
        read(write(tmp_path / "a.jsonl", json.dumps(row)))


def test_of_two_objects_that_with_most_text_is_named(tmp_path):
    row = {"meta": {"by": "Ann Lee"}, "data": {"body": "A longer text."}}
    with pytest.raises(UserError, match=r"\{text: .data.body\}"):
        read(write(tmp_path / "a.jsonl", json.dumps(row)))


@pytest.mark.parametrize("longer", [
    "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "2024-05-01 10:00:00 +00:00", "a" * 64,
    "https://example.org/a-fine-day/and-more"])
@pytest.mark.parametrize("text", ["a fine day", "Fine, so.", "\u4eca\u65e5\u306f"])
def test_ids_and_dates_are_not_the_column_with_most_text(tmp_path, longer, text):
    path = write(tmp_path / "a.jsonl", json.dumps({"origin": longer, "title": text}))
    with pytest.raises(UserError, match="as title, which has most text"):
        read(path)
    rows = f"origin,title\n{longer},{json.dumps(text, ensure_ascii=False)}\n"
    path = write(tmp_path / "a.csv", rows)
    with pytest.raises(UserError, match="as title, which has most text"):
        read(path)


POEM = {"title": "Night", "tags": [], "lines of it": ["It is dark.", "It's late."]}


def test_a_list_of_strings_is_one_text(tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps(POEM))
    assert read(path, column="lines of it") == ["It is dark.\nIt's late."]


LINK = {"type": "link", "text": "https://a.b"}
BOLD = {"type": "bold", "text": "now"}


@pytest.mark.parametrize("value, text", [
    (["see ", LINK, " and go ", BOLD, "."], "see https://a.b and go now."), ([LINK], "https://a.b"),
    (["", LINK, ""], "https://a.b"), (["two\n", BOLD], "two\nnow"),
    ([{"type": "plain", "text": "so "}, BOLD], "so now")])
def test_the_parts_of_a_telegram_message_are_joined(tmp_path, value, text):
    rows = [{"id": 1, "text": "hi"}, {"id": 2, "text": value}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert read(path) == ["hi", text]


def test_formatted_texts_can_be_the_column_with_most(tmp_path):
    row = {"title": "A day", "body": ["Here it is: ", LINK]}
    with pytest.raises(UserError, match="as body, which has most text"):
        read(write(tmp_path / "a.jsonl", json.dumps(row)))


@pytest.mark.parametrize("lines, words", [
    (["a line that is longer"], "--data.column, as lines, which has most"),
    (["line"], "--data.column, as title, which has most")])
def test_the_longest_of_texts_and_lists_is_named(tmp_path, lines, words):
    path = write(tmp_path / "a.jsonl", json.dumps({"title": "a title", "lines": lines}))
    with pytest.raises(UserError, match=words):
        read(path)


def test_lists_of_lines_are_named_where_a_later_row_has_none(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"lines": ["a", "b"]}\n{"lines": null}\n')
    with pytest.raises(UserError, match=r"only column of text with --data.column lines$"):
        read(path)


def write_parquet(path, table):
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    return path


def test_lists_of_lines_in_parquet_are_named(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"id": [1], "lines": [["b", "c"]]})
    with pytest.raises(UserError, match=r"only column of text with --data.column lines$"):
        read(path)


def test_lists_of_lines_in_parquet_are_read(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"id": [1, 2], "lines": [["b", "c"], ["d"]]})
    assert read(path, column="lines") == ["b\nc", "d"]


def test_a_csv_whose_columns_are_no_names_is_told_of_them(tmp_path):
    path = write(tmp_path / "a.csv", "I love it,positive\nI hate it,negative\n")
    with pytest.raises(UserError, match="if its first line is a row already, write a line above"):
        read(path)


def test_a_table_with_two_columns_of_text_says_how_to_join_them(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"instruction": "a", "output": "b"}\n')
    with pytest.raises(UserError, match="as instruction, which has most text; --data.column A,B"):
        read(path)


@pytest.mark.parametrize("name, words", [
    ("conversations.json", "jq .* rename it to .jsonl; without jq: python tools/as_lines.py FILES"),
    ("c4.json.gz", "jq"), ("a.HTML", "tools/as_lines.py .* pandoc"),
    ("b.htm", "plain text in UTF-8"), ("paper.pdf", "pdftotext"),
    ("book.docx", "tools/as_lines.py .* pandoc"), ("novel.epub", "tools/as_lines.py .* pandoc"),
    ("old.doc", "from its program$"), ("note.rtf", "pandoc"), ("a.azw3", "Calibre's ebook-convert"),
    ("notes.enex", "tools/as_lines.py"), ("deck.apkg", "tools/as_lines.py FILES > NEW.jsonl"),
    ("sheet.xlsx", "as CSV"), ("tour.ipynb", "as_lines.py .* nbconvert"), ("all.zip", "unpack"),
    ("src.tar.gz", "unpack"), ("a.txt.bz2", "bunzip2"), ("a.txt.xz", "unxz")])
def test_files_that_are_no_text_are_refused_by_name(tmp_path, name, words):
    with pytest.raises(UserError, match=f"{name} is not read, because .*{words}"):
        read(write(tmp_path / name, "x"))


@pytest.mark.parametrize("content, words", [
    ('[{"text": "a"}]', "jq -c '.[]' FILE > NEW.jsonl does"),
    ('\ufeff[\n {"a": 1}]', "jq -c '.[]' FILE > NEW.jsonl does"),
    ('[\n "a", "b"]', "jq -c '.[] | {text: .}' FILE > NEW.jsonl does"),
    ('{"name": "x", "messages": [{"text": "a"}]}', "jq -c '.messages[]' FILE > NEW.jsonl does"),
    ('{\n "ids": [1, 2],\n "rows": [\n {\n "a": 1}]}', "jq -c '.rows[]' FILE > NEW.jsonl does"),
    ('{"my \\"rows\\"": [{"a": 1}]}', """jq -c '."my \\"rows\\""[]' FILE > NEW.jsonl does"""),
    ('{"it\'s": [{"a": 1}]}', """jq -c '."it'"'"'s"[]' FILE > NEW.jsonl does"""),
    ('{"messages": [{"text": "a"}]}\n{"messages": []}', "one object on each line: rename it")],
    ids=short)
def test_the_advice_for_json_follows_its_content(tmp_path, content, words):
    with pytest.raises(UserError) as error:
        read(write(tmp_path / "chat.json", content))
    assert words in str(error.value)


NO_SUFFIX = pytest.mark.parametrize("content, words", [
    ('[{"text": "a"}]', "jq -c '.[]' FILE > NEW.jsonl does"),
    ('\ufeff\n[\n "a", "b"]', "jq -c '.[] | {text: .}' FILE > NEW.jsonl does"),
    ('{"messages": [{"text": "' + "\u00e9" * 9999, "jq -c '.messages[]' FILE > NEW.jsonl does"),
    ('{"text": "a"}\n{"text": "b"}\n', "one object on each line: rename it"),
    (gz(b'{"text": "a"}\n{"text": "b"}\n'), "one object on each line: rename it to .jsonl.gz"),
    (gz(b'{"note": "long"}'), "unpack it; it is one object: ")], ids=short)


@NO_SUFFIX
def test_json_without_a_suffix_is_told_by_its_start(tmp_path, content, words):
    name = "Takeout 3.1.gz" if isinstance(content, bytes) else "Takeout 3.1"
    with pytest.raises(UserError) as error:
        read(write(tmp_path / name, content))
    assert f"/{name} is not read, because JSON is no plain text: " in str(error.value)
    assert words in str(error.value)


@NO_SUFFIX
def test_a_folder_leaves_out_json_without_a_suffix(tmp_path, capsys, content, words):
    write(tmp_path / "notes" / ("chat.gz" if isinstance(content, bytes) else "chat"), content)
    with pytest.raises(UserError) as error:
        read(tmp_path / "notes")
    assert "is a folder without text files, and has 1 JSON; " in str(error.value)
    assert words.removeprefix("unpack it; ") in str(error.value)
    write(tmp_path / "notes/a.txt", "text")
    assert read(tmp_path / "notes") == ["text"]
    assert notes(capsys) == [f"{tmp_path}/notes: 1 file of 2 is read (left out: 1 JSON)"]


@pytest.mark.parametrize("content", [
    '{"text": "a"}\n\nThis is how a row looks.\n', "{}", "[1, 2]", '["Yes" she said]',
    '{"a": b}', "", '"Yes," she said.', '["Yes", she said.\n' * 999], ids=short)
def test_a_text_without_a_suffix_that_is_no_json_is_read(tmp_path, content):
    assert read(write(tmp_path / "note", content)) == [content]


def test_a_packed_json_is_to_be_unpacked_first(tmp_path):
    path = tmp_path / "chat.json.gz"
    path.write_bytes(gzip.compress(b'[{"text": "a"}]'))
    with pytest.raises(UserError, match=r"unpack it; .* as jq -c '\.\[\]' FILE .* does; without"):
        read(path)


def test_packed_json_lines_need_another_name_only(tmp_path):
    path = write(tmp_path / "chat.json.ZST", zstd(b'{"text": "a"}\n{"text": "b"}\n'))
    with pytest.raises(UserError, match=r"object on each line: rename it to .jsonl.ZST$"):
        read(path)
    assert read(path.rename(tmp_path / "chat.jsonl.ZST")) == ["a", "b"]


def test_a_folder_that_nobody_may_look_into_is_noted(tmp_path, monkeypatch, capsys):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "locked/b.txt", "more")
    stat = Path.stat
    scandir = os.scandir

    def refuse_stat(path, **options):
        if path.parent.name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    def refuse_listing(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(Path, "stat", refuse_stat)
    monkeypatch.setattr(os, "scandir", refuse_listing)
    assert "text" in read(tmp_path)
    assert capsys.readouterr().err == (
        f"note: {tmp_path}: 1 file of 1 is read (left out: folders that cannot be read)\n")


def test_of_several_lists_in_json_the_longest_is_advised(tmp_path):
    """As Facebook and Instagram export a chat."""
    chat = {"participants": [{"name": "ann"}, {"name": "bob"}],
            "messages": [{"sender_name": "ann", "content": "a long text, and then some more"}]}
    with pytest.raises(UserError, match=r"jq -c '\.messages\[\]'"):
        read(write(tmp_path / "message_1.json", json.dumps(chat)))


@pytest.mark.parametrize("name, pack", [("a.json", bytes), ("a.json.gz", gz)])
def test_the_start_of_large_json_is_enough_for_advice(tmp_path, monkeypatch, name, pack):
    monkeypatch.setattr(detect, "JSON_START", 50)
    content = b'{"users": [{"id": 1}], "messages": [{"text": "' + b"a" * 1000
    with pytest.raises(UserError, match=r"jq -c '\.messages\[\]'"):
        read(write(tmp_path / name, pack(content)))


@pytest.mark.parametrize("content", ['{"id": 1, "title": "a", "my text": "longer"}',
                                     '{"tags": ["some", "words"], "my text": "longer"}'], ids=short)
def test_the_advice_for_one_json_object_names_its_longest_text(tmp_path, content):
    with pytest.raises(UserError) as error:
        read(write(tmp_path / "note.json", content))
    assert ("it is one object: jq -c . FILES > NEW.jsonl writes each such file as a line, of which "
            "--data.column='my text' reads the longest text; without jq: ") in str(error.value)
    rows = write(tmp_path / "new.jsonl", f"{content}\n{content}\n")  # what jq writes
    assert read(rows, column="my text") == ["longer", "longer"]


@pytest.mark.parametrize("content", [
    '{"a": 1}', '{"about": {"a": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', "", "{", "\0\0",
    '{"a": ' + "[" * 100_000, '{"a": [[{}]]}'], ids=short)
def test_json_that_cannot_be_told_has_both_commands(tmp_path, monkeypatch, content):
    monkeypatch.setattr(detect, "JSON_START", 200_000)
    with pytest.raises(UserError, match=r"jq -c '\.\[\]' .*jq -c '\.KEY\[\]' .* rename it"):
        read(write(tmp_path / "a.json", content))


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize("key", ["messages", "my 'chat', \"x\"", "\u043e\u0442"])
def test_the_command_for_json_makes_rows(tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        read(write(tmp_path / "a.json", json.dumps({"id": 1, key: [{"text": "a"}]})))
    (command,) = re.findall("jq .* FILE > NEW.jsonl", str(error.value))
    subprocess.run(command.replace("FILE ", "a.json "), shell=True, check=True)
    assert read("NEW.jsonl") == ["a"]


# JSON lines that are none


@pytest.mark.parametrize("content, words", [
    ('[{"text": "a"}, {"text": "b"}]', "it holds one JSON array, not one object per line: .*jq"),
    ('[\n {\n  "text": "a"\n }\n]\n', "it holds one JSON array, not one object per line"),
    ('\ufeff[\r\n{"text": "a"}]', "it holds one JSON array, not one object per line"),
    ('[\n"a",\n"b"]', "it holds one JSON array, not one object per line"),
    ('[[{"role": "user", "content": "a"}]]', "it holds one JSON array"),
    ('"a"\n"b"\n', "line 1 is a string, not an object with a column 'text'"),
    ('{"text": "a"}\n["b"]\n', "line 2 is an array, not an object with a column 'text'"),
    ('["a", "b"]\n["c", "d"]\n', "line 1 is an array, not"),
    ("\n1\n2\n", "line 2 is a number, not"),
    ('{"text": "a"}\nnull\n', "line 2 is null, not"),
    ("true\n", "line 1 is true or false, not"),
    ('{\n  "text": "a"\n}\n', "objects are pretty-printed over several lines.*jq -c"),
    ("{'text': 'a'}\n", "line 1 is no JSON object: Expecting property name .*quotes at column 2"),
    ('{"text": "a"}{"text": "b"}\n', "line 1 is no JSON object: Extra data at column 14"),
    ('{"text": "a"},\n', "line 1 is no JSON object: Extra data at column 14"),
    ('{"text": "a"}\n\n{"text": "b"', "line 3 is no JSON object: Expecting ',' delimiter at col"),
    ('{"text": "b"\n{"text": "a"}\n', "line 1 .* Expecting ',' delimiter at column 13"),
    ('{"text": "b"\r\n', "line 1 .* Expecting ',' delimiter at column 13"),
    ("a plain text\n", "line 1 is no JSON object: Expecting value at column 1"),
    ('{"text": "a"}\n{"text": "b', "line 2 .* Unterminated string starting at column 10: mend or"),
    ('{"text": "\t"}\n', "line 1 .* Invalid control character at column 11: mend or remove that"),
    ('{"a": ' + "[" * 100_000, "line 1 is no JSON object: .*recursion"),
    ('{"text": "a"}\n{"text": "\\ud83d"}\n', "line 2 has half a character, the surrogate .*ud83d"),
    (b'{"text": "a"}\n{"text": "caf\xe9"}\n', "byte 0xe9 in line 2 is not UTF-8; in cp1252"),
    ('{"text": "中"}\n{"text": "'.encode() + b'\xe9"}', "byte 0xe9 in line 2 .*another encoding"),
    ('{"story": "a", "n": 1}\n', "only 'story', 'n' .int.: choose .*--data.column"),
    ('{"text": [5]}\n{"text": ""}\n', "no text in a column 'text', only 'text' .list.")],
    ids=short)
def test_jsonl_that_is_none_is_described(tmp_path, content, words):
    with pytest.raises(UserError, match=f"a.jsonl cannot be read: .*{words}"):
        read(write(tmp_path / "a.jsonl", content))


def test_an_array_on_one_line_is_never_held(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "read_lines", None)
    with pytest.raises(UserError, match="one JSON array"):
        read(write(tmp_path / "a.jsonl", b'[{"text": "a"},' * 1000))


CHAT_ROWS = [
    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes\n"}]},
    {"conversations": [{"from": "user", "value": "hi"}, {"from": "assistant", "value": "yes\n"}]}]


@pytest.mark.parametrize("row", CHAT_ROWS)
def test_chat_rows_are_named_as_such(tmp_path, row):
    path = write(tmp_path / "a.jsonl", json.dumps({"id": 1, **row}))
    (name,) = row
    with pytest.raises(UserError, match=f"rows are chats.* --data.column {name} reads each"):
        read(path)


@pytest.mark.parametrize("row", CHAT_ROWS)
def test_a_chat_is_a_text_with_a_line_for_each_turn(tmp_path, row):
    path = write(tmp_path / "a.jsonl", json.dumps({"id": 1, **row}))
    (name,) = row
    assert read(path, column=name) == ["user: hi\nassistant: yes\n"]


@pytest.mark.parametrize("content, expected", [
    ([{"type": "text", "text": "see"}, {"type": "image"}, {"type": "text", "text": "this"}],
     "user: see\nthis"),
    (None, None), ("", None), (5, None)])
def test_what_a_turn_says_may_have_parts_or_be_missing(content, expected):
    row = {"messages": [{"role": "tool", "content": None}, {"role": "user", "content": content}]}
    assert columns.row_text(row, "messages") == expected


@pytest.mark.parametrize(
    "value", [5, None, {}, [], [5], ["a", 5], [{"id": 1}], ["a", {"role": "b"}], [LINK, 5],
              ["a", {"type": "link"}], [{"text": "a"}], [{"type": 1, "text": "a"}],
              [{"role": "user", "text": "hi"}]])
def test_other_values_have_no_text(value):
    assert columns.row_text({"text": value}, "text") is None


def test_a_chat_without_known_words_is_refused(tmp_path):
    row = {"messages": [{"role": "user", "text": "hi"}]}
    with pytest.raises(UserError, match="no text in a column 'messages', only 'messages' .list."):
        read(write(tmp_path / "a.jsonl", json.dumps(row)), column="messages")


def test_the_keys_of_a_turn_may_be_mixed():
    assert columns.row_text({"a": [{"from": "user", "content": "hi"}]}, "a") == "user: hi"


@pytest.mark.parametrize("name", ["completion", "it's"])
def test_two_columns_of_jsonl_are_joined(tmp_path, name):
    rows = [{"prompt": "Who?", name: "I."}, {"prompt": "caf\u00e9", name: None}, {name: ["a", "b"]}]
    path = write(tmp_path / "qa.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read(path, column=f"prompt,{name}") == ["Who?\nI.", "caf\u00e9", "a\nb"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_two_columns_of_a_csv_are_joined(tmp_path, delimiter):
    rows = [["Date", "Sender", "it's"], ["Mo", "Anna", "hi,\nyou; caf\u00e9"], ["Tu", "Bob"]]
    path = tmp_path / "chats.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    assert read(path, column="Sender, it's") == ["Anna\nhi,\nyou; caf\u00e9", "Bob"]


def test_all_columns_of_a_csv_are_joined(tmp_path):
    """With a semicolon between columns, their names would be the name of one."""
    path = write(tmp_path / "qa.csv", "prompt,completion\nWho?,I.\n")
    assert read(path, column="prompt,completion") == ["Who?\nI."]


def test_two_columns_of_parquet_are_joined(tmp_path):
    table = {"prompt": ["hi"], "id": [1], "answer": [["a", "b"]]}
    path = write_parquet(tmp_path / "a.parquet", table)
    assert read(path, column="prompt,answer") == ["hi\na\nb"]


@pytest.mark.parametrize("name, content", [
    ("a.jsonl", '{"prompt": "hi", "body": "b"}\n'), ("a.csv", "prompt,body\nhi,b\n")])
def test_a_missing_one_of_two_columns_is_named(tmp_path, name, content):
    with pytest.raises(UserError, match="no text in a column 'answer', only 'prompt', 'body'"):
        read(write(tmp_path / name, content), column="prompt,answer")


def find_command(path, command, **options):
    """What this pattern finds in the error for a table."""
    with pytest.raises(UserError) as error:
        read(path, **options)
    (words,) = re.findall(command, str(error.value))
    return words


def run_command(path, command, **options):
    """Run it."""
    words = find_command(path, command, **options)
    words = words.replace("FILE", path.name).replace("python", shlex.quote(sys.executable), 1)
    subprocess.run(words, shell=True, cwd=path.parent, check=True)


def test_a_tsv_with_plain_quotes_is_read_as_advised(tmp_path):
    rows = 'label\ttext\r\n1\t"Yes," she said\r\n0\t"so\r\n1\tcaf\u00e9"\r\n'
    run_command(write(tmp_path / "a.tsv", rows), "python -c .* > NEW.jsonl")
    assert read(tmp_path / "NEW.jsonl") == ['"Yes," she said', '"so', 'caf\u00e9"']


def test_a_tsv_without_names_is_read_as_advised(tmp_path):
    rows = '1\t"Yes," she said\n0\t"so\n'
    path = write(tmp_path / "a.tsv", rows)
    words = r"that begins in line 1 .*; if that line is a row already, write a line of names above"
    with pytest.raises(UserError, match=words):
        read(path)
    write(path, "label\ttext\n" + rows)
    with pytest.raises(UserError, match="that begins in line 2 .* > NEW.jsonl reads them as such$"):
        read(path)
    run_command(path, "python -c .* > NEW.jsonl")
    assert read(tmp_path / "NEW.jsonl") == ['"Yes," she said', '"so']


@pytest.mark.parametrize("rows", [
    '1\t"I went home.\n0\tThen I slept."\n', '1\t"I went\n0\thome.\n1\tThen I slept."\n',
    '1\t"I went home.\r\n0\tThen I slept."\r\n'])
def test_a_quote_over_several_rows_of_a_tsv_is_refused(tmp_path, rows):
    path = write(tmp_path / "a.tsv", "label\ttext\n" + rows)
    with pytest.raises(UserError, match="that begins in line 2 has whole rows in it: if quotes"):
        read(path)


@pytest.mark.parametrize("rows, text", [
    ('1\t"two\nlines"\n', "two\nlines"), ('1\t"a\ttab"\n', "a\ttab"),
    ('1\t"if x:\n\t\treturn\n\ty"\n', "if x:\n\t\treturn\n\ty")])
def test_a_quoted_text_of_a_tsv_may_have_lines_and_tabs(tmp_path, rows, text):
    assert read(write(tmp_path / "a.tsv", "label\ttext\n" + rows)) == [text]


def test_a_csv_is_not_advised_to_be_read_without_quotes(tmp_path):
    with pytest.raises(UserError, match="inside a quoted text is written twice$"):
        read(write(tmp_path / "a.csv", 'id,text\n1,"a" b\n'))


# A table without a column of text, of whose rows jq makes texts.
AS_LINES = "first (python -c .*) makes FILE.jsonl, and then jq -c .* FILE.jsonl > NEW.jsonl"


def test_advice_for_a_parquet_file_says_how_jq_gets_its_rows(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"data": [{"body": "caf\u00e9"}]})
    command = find_command(path, AS_LINES)
    assert shlex.split(command) == ["python", "-c", columns.PARQUET_AS_LINES]


def test_a_parquet_file_becomes_lines_as_advised(tmp_path):
    """The test above shows that this is the code of the command."""
    write_parquet(tmp_path / "a.parquet", {"data": [{"body": "caf\u00e9"}]})
    with chdir(tmp_path):
        exec(columns.PARQUET_AS_LINES.replace("FILE", "a.parquet"), {})
    lines = (tmp_path / "a.parquet.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"data": {"body": "caf\u00e9"}}]


@pytest.mark.parametrize("name, content", [
    ("a.csv", '"review, full"\nfine\n'), ("a.csv", "sep=;\nreview, full\nfine\n"),
    ("a.csv", '"review, full";stars\nfine;5\n'), ("a.tsv", "review, full\nfine\n")])
def test_the_name_of_a_column_may_have_a_comma(tmp_path, name, content):
    assert read(write(tmp_path / name, content), column="review, full") == ["fine"]


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", "text,text\nfirst,second\n")
    with pytest.raises(UserError, match="names 2 columns 'text': give each another name"):
        read(path)


@pytest.mark.parametrize("values, is_read", [
    (["a"], True), (pyarrow.array(["a"]).dictionary_encode(), True),
    (pyarrow.array(["a"], pyarrow.large_string()), True),
    (pyarrow.array(["a"], pyarrow.string_view()), True),
    ([{"body": "a"}], False), ([[5]], False), ([[{"id": "a"}]], False), ([b"a"], False)])
def test_only_columns_of_text_are_read_of_parquet(tmp_path, values, is_read):
    path = write_parquet(tmp_path / "a.parquet", {"text": values})
    if is_read:
        assert list(tables.read_parquet(str(path), "text")) == [{"text": "a"}]
        return
    with pytest.raises(columns.NoText, match="no text in a column 'text', only"):
        next(tables.read_parquet(str(path), "text"))


def test_chats_in_parquet_are_named_and_read(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"messages": [CHAT_ROWS[0]["messages"]]})
    with pytest.raises(UserError, match="rows are chats.* --data.column messages reads each"):
        read(path)
    assert read(path, column="messages") == ["user: hi\nassistant: yes\n"]


@pytest.fixture(scope="module", params=[500, 50_000], ids=["many", "one"])
def large_parquet(tmp_path_factory, request):
    """A Parquet file of 250 MB of text, in row groups of so many rows."""
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    texts = [f"{i:5}" + "word " * 999 for i in range(50_000)]
    table = pyarrow.table({"text": texts})
    pyarrow.parquet.write_table(table, path, row_group_size=request.param, use_dictionary=False)
    return path


READ_AND_MEASURE = """
import sys
import pyarrow.parquet
from data.tables import read_rows

def peak():
    lines = open("/proc/self/status", encoding="utf-8").readlines()
    return [int(line.split()[1]) for line in lines if line.startswith("VmHWM")][0] // 1024

before = peak()
n = sum(len(row["text"]) for row in read_rows(sys.argv[1], "text"))
print(n, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_parquet_file_is_never_held(large_parquet):
    """The peak of memory grows by less than 100 MiB, while 250 MB are read."""
    size, grown = map(int, run_python(READ_AND_MEASURE, large_parquet).split())
    assert size == 250_000_000
    assert grown < 100


# Bytes


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
    (b"5\xa3, d\xe9j\xe0 vu", "in cp1252, .*'5\u00a3, d\u00e9j\u00e0 vu'"),
    (CHINESE + b"\xff\xfe!", "but the text before it is, so a part of it is damaged .* iconv -c"),
    (CHINESE[:-1], "a part of it is damaged"), (NAIVE + b"caf\xe9", "another encoding"),
    (CHINESE + b" text" * 50 + b"\xe9", "another encoding")], ids=short)
def test_a_bad_byte_is_shown_as_it_was_meant(tmp_path, content, words):
    with pytest.raises(UserError, match=words):
        read(write(tmp_path / "a.txt", content))


# Documents between separators


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


# Folders


def test_a_folder_means_its_text_files_in_order(tmp_path):
    for name in ("b.txt", "a/z.md", "a.txt", "a/b/main.rs", "README", "3. list"):
        write(tmp_path / "notes" / name, name)
    write(tmp_path / "notes/c.jsonl.gz", gz(b'{"text": "row"}'))
    write(tmp_path / "notes/d.gz", gz(b"prose"))
    assert read(tmp_path / "notes") == [
        "3. list", "README", "a/b/main.rs", "a/z.md", "a.txt", "b.txt", "row", "prose"]


@pytest.mark.parametrize("name, content", [
    ("cat.png", b"\x89PNG\r\n\x1a\n\0"), ("package.json", "{}"), ("page.html", "<p>"),
    ("paper.pdf", "%PDF-"), (".DS_Store", b"\0"), (".git/config", "x"), ("a.txt~", "x"),
    ("__pycache__/a.py", "x"), ("web/node_modules/b.js", "x"), (".venv/lib/c.py", "x"),
    ("venv/lib/site-packages/d.py", "x"), ("program", b"\x7fELF\0\0"), ("latin", b"caf\xe9")])
def test_a_folder_leaves_out_what_nobody_means(tmp_path, name, content):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / name, content)
    assert read(tmp_path) == ["text"]


def test_a_folder_says_how_many_files_it_reads(tmp_path, capsys):
    for name in ("a.txt", "b.md", "e.json", ".hidden.txt"):
        write(tmp_path / name, "x")
    for name in ("c.png", "d.png"):
        write(tmp_path / name, b"\x89PNG")
    write(tmp_path / "program", b"\x7fELF\0\0")
    read(tmp_path)
    left_out = "(left out: 2 .png, 1 without a suffix, 1 .json)"
    assert notes(capsys) == [f"{tmp_path}: 2 files of 6 are read: 1 .md, 1 .txt {left_out}"]


def test_a_folder_names_the_software_that_it_leaves_out(tmp_path, capsys):
    write(tmp_path / "a.js", "x")
    write(tmp_path / "web/node_modules/b.js", "x")
    read(tmp_path)
    assert notes(capsys) == [f"{tmp_path}: 1 file of 1 is read (left out: node_modules)"]


@pytest.mark.parametrize("project, built", [
    ("package.json", "dist"), ("Cargo.toml", "target"), ("CMakeLists.txt", "build")])
def test_a_folder_leaves_out_what_a_build_tool_wrote(tmp_path, capsys, project, built):
    write(tmp_path / "app/a.js", "source")
    write(tmp_path / "app" / project, "")
    write(tmp_path / "app" / built / "a.min.js", "bundle")
    assert "bundle" not in read(tmp_path)
    assert f"what was built in {built}" in notes(capsys)[0]
    assert read(tmp_path / "app" / built) == ["bundle"]  # it was named


def test_a_folder_called_build_without_a_build_tool_is_read(tmp_path):
    write(tmp_path / "build/a.txt", "text")
    assert read(tmp_path) == ["text"]


@pytest.mark.parametrize("pattern, noted", [
    ("**/*.js", "**/*.js: 1 of 2 files are in node_modules: name a folder, which leaves these out"),
    ("node_modules/*.js", None), ("*.js", None), ("node_modules/b.js", None)])
def test_a_glob_that_reads_software_is_noted(tmp_path, monkeypatch, capsys, pattern, noted):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.js", "x")
    write(tmp_path / "node_modules/b.js", "x")
    read(pattern)
    found = notes(capsys)
    if noted is None:
        assert found == []
    else:
        assert found[0].startswith(noted)


OUTPUTS = pytest.mark.parametrize("names, what", [
    (["config.yaml", "run.json", "metrics.jsonl"], "gyre's runs"),
    (["manifest.json", "train.bin", "tokenizer.txt"], "gyre's prepared texts"),
    (["index.html", "model.gguf", "index.js"], "gyre's pages"),
    (["plan.json", "results/rope-s0.json", "RESULTS.md"], "gyre's studies"),
    (["plan.json", "logs/tune-1M-rope.log"], "gyre's studies")])


@OUTPUTS
def test_a_folder_leaves_out_what_gyre_wrote(tmp_path, capsys, names, what):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "b.png", b"\x89PNG")
    for name in names:
        write(tmp_path / "deep/small" / name, '{"text": "output"}')
    assert read(tmp_path) == ["text"]
    assert notes(capsys) == [f"{tmp_path}: 1 file of 2 is read (left out: 1 .png, {what})"]


@pytest.mark.parametrize("run", ["run-2026-a1", "offline-run-2026-a1", "superseded/offline-run-1"])
def test_a_folder_leaves_out_logs_of_wandb(tmp_path, capsys, run):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "runs/wandb" / run / "files/config.yaml", "seed: 1")
    assert read(tmp_path) == ["text"]
    assert notes(capsys) == [f"{tmp_path}: 1 file of 1 is read (left out: wandb's logs)"]


@pytest.mark.parametrize("name", [
    "plan.json", "run.json", "manifest.json", "config.yaml", "results/a.csv", "wandb/a.txt"])
def test_one_marker_alone_leaves_no_folder_out(tmp_path, name):
    write(tmp_path / "mine" / name, "text\n")
    write(tmp_path / "mine/notes.txt", "notes")
    assert "notes" in read(tmp_path)


@OUTPUTS
def test_an_output_of_gyre_that_is_named_is_read(tmp_path, names, what):
    for name in names:
        write(tmp_path / name, '{"text": "output"}')
    write(tmp_path / "notes.md", "notes")
    assert "notes" in read(tmp_path)


def test_a_folder_of_runs_alone_says_what_it_has(tmp_path):
    for name in ("config.yaml", "run.json"):
        write(tmp_path / "small" / name, "{}")
    with pytest.raises(UserError, match="is a folder without text files, and has gyre's runs"):
        read(tmp_path)


def test_a_folder_leaves_out_tables_without_the_column(tmp_path, capsys):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "b.csv", "day,amount\nMo,5\n")
    write(tmp_path / "c.jsonl", '{"event": 1}\n')
    assert copied(tmp_path) == "text"
    b, c = f"{tmp_path}/b.csv", f"{tmp_path}/c.jsonl"
    count, note = notes(capsys)
    assert count == f"{tmp_path}: 1 file of 3 is read"
    assert note.startswith(
        f"2 tables are left out, which have no text in column text: {b}, {c}; of these, {b} cannot "
        "be read: it has no text in a column 'text', only 'day', 'amount': choose one with "
        "--data.column, as day, which has most text")


def test_tables_of_a_folder_need_the_same_columns(tmp_path, capsys):
    write(tmp_path / "a.csv", "day,text\nMo,good\n")
    write(tmp_path / "b.csv", "day,body\nMo,bad\n")
    assert copied(tmp_path) == "good"
    assert notes(capsys)[-1] == (
        "all tables of a training are read by the same columns: to have those too, give a column "
        "of text the same name in each")


def test_a_folder_of_tables_without_the_column_is_an_error(tmp_path):
    write(tmp_path / "a.csv", "day,review\nMo,good\n")
    write(tmp_path / "b.jsonl", '{"event": 1}\n')
    with pytest.raises(UserError, match="a.csv cannot be read: it has no text in a column 'text'"):
        copied(tmp_path)


def test_a_named_table_without_the_column_is_an_error(tmp_path):
    """Also where its folder is named, too."""
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "b.csv", "day,amount\nMo,5\n")
    with pytest.raises(UserError, match="only 'day', 'amount': "):
        read(tmp_path, tmp_path / "b.csv")


BAD_LINE = '{"text": "row"}\n{"text": "half\n'


def half_of_parquet():
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": ["row"]}), file)
    return file.getvalue()[:-20]


@pytest.mark.parametrize("name, content, reason", [
    ("b.jsonl", BAD_LINE, "line 2 is no JSON object: .*: mend or remove that line$"),
    ("b.jsonl", '{"text": "row"}\n5\n', "line 2 is a number, not an object"),
    ("b.jsonl", "[\n", "it holds one JSON array"),
    ("b.csv", 'id,text\n1,row\n2,"b" c\n', "the row that begins in line 3 is no CSV"),
    ("b.csv", "text,text\na,b\n", "its first line names 2 columns 'text'"),
    ("b.tsv", 'text\tid\nrow\t1\t2\n', "line 2 has 3 fields"),
    ("b.parquet", half_of_parquet(), "Arrow.*: "),
    ("b.jsonl.gz", gz(b'{"text": "row"}\n' * 999)[:40], "EOFError: "),
    ("b.jsonl.gz", gz(b'{"text": "row"}\n')[:-8] + b"\1" * 8, "BadGzipFile: "),
    ("b.txt.gz", gz(bytes(range(65, 91)) * 9)[:30], "EOFError: .*ended before"),
    ("b.txt.zst", zstd(b"a text" * 99)[:-9], "OSError: ")], ids=short)
def test_a_folder_leaves_out_a_damaged_file(tmp_path, capsys, name, content, reason):
    write(tmp_path / "a.txt", "first" * 400)
    write(tmp_path / name, content)
    write(tmp_path / "c.txt", "last")
    assert copied(tmp_path) == "first" * 400 + "last"
    count, note = notes(capsys)
    assert count == f"{tmp_path}: 2 files of 3 are read"
    assert re.match(f"1 file is left out: {tmp_path}/{name} cannot be read: {reason}", note)


def test_damaged_files_of_a_folder_are_counted(tmp_path, capsys):
    write(tmp_path / "a.txt", "text" * 400)
    for name in "bcdef":
        write(tmp_path / f"{name}.jsonl", BAD_LINE)
    copied(tmp_path)
    b, c, d = (f"{tmp_path}/{name}.jsonl" for name in "bcd")
    assert notes(capsys)[1].startswith(f"5 files are left out, which cannot be read: {b}, {c}, {d} "
                                       f"and 2 more; of these, {b} cannot be read: line 2 is no ")


def test_a_damaged_file_that_is_most_of_a_folder_is_an_error(tmp_path):
    """A note is not enough where the README is all that would be trained on."""
    write(tmp_path / "data.jsonl", '{"text": "row"}\n' * 99 + '{"text": "half')
    write(tmp_path / "README.md", "About.")
    with pytest.raises(UserError, match="data.jsonl cannot be read: line 100 is no JSON object"):
        copied(tmp_path)


def test_what_this_machine_lacks_is_no_damage():
    error = UserError("b.parquet cannot be read")
    error.__cause__ = ImportError("libarrow.so: cannot open shared object file")
    assert not is_damaged(error)


def test_paragraphs_are_no_formatted_text():
    """Other programs have objects with a type and a text, which must not run into one another."""
    parts = [{"type": "Title", "text": "Soups"}, {"type": "NarrativeText", "text": "Boil it."}]
    assert value_text(parts) is None


@pytest.mark.parametrize("names", [["b.jsonl"], [".", "b.jsonl"], ["*.jsonl"]])
def test_a_damaged_file_that_is_named_is_an_error(tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "a.jsonl", '{"text": "row"}')
    write(tmp_path / "b.jsonl", BAD_LINE)
    with pytest.raises(UserError, match="^b.jsonl cannot be read: line 2|^./b.jsonl cannot"):
        copied(*names)


@pytest.mark.parametrize("names", [["b.jsonl"], ["b.jsonl", "c.jsonl"]])
def test_a_folder_of_damaged_files_is_an_error(tmp_path, names):
    for name in names:
        write(tmp_path / name, BAD_LINE)
    with pytest.raises(UserError, match=f"^{tmp_path}/b.jsonl cannot be read: line 2 is no JSON"):
        copied(tmp_path)


@pytest.mark.parametrize("error, words", [
    (MemoryError(), "MemoryError"), (OSError(5, "Input/output error"), "Input/output error")])
def test_an_error_of_the_machine_leaves_no_file_out(tmp_path, monkeypatch, error, words):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "b.jsonl", '{"text": "row"}')
    monkeypatch.setattr(tables, "read_jsonl", Mock(side_effect=error))
    with pytest.raises(UserError, match=f"b.jsonl cannot be read: .*{words}"):
        copied(tmp_path)


def test_a_missing_package_leaves_no_file_out(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", "text")
    write_parquet(tmp_path / "b.parquet", {"text": ["row"]})
    monkeypatch.setattr("errors.find_spec", lambda module: None)
    with pytest.raises(UserError, match="b.parquet cannot be read: the package pyarrow is missing"):
        copied(tmp_path)


def test_an_empty_table_is_no_error_in_a_folder(tmp_path):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "b.csv", "")
    assert read(tmp_path) == ["text"]


def test_a_folder_leaves_out_tables_with_other_types(tmp_path, capsys):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "b.jsonl", '{"text": 5}\n')
    assert copied(tmp_path) == "text"
    assert notes(capsys)[1].startswith(f"1 table is left out: {tmp_path}/b.jsonl cannot be read: ")


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_table_without_one_of_two_columns_leaves_no_text(tmp_path, capsys, suffix):
    for name, table in {"a": {"title": "one"}, "b": {"title": "two", "body": "three"}}.items():
        path = tmp_path / f"{name}.{suffix}"
        if suffix == "jsonl":
            write(path, json.dumps(table))
        elif suffix == "csv":
            write(path, f"{','.join(table)}\n{','.join(table.values())}\n")
        else:
            write_parquet(path, {column: [text] for column, text in table.items()})
    assert copied(tmp_path, column="title,body") == "two\nthree"
    left_out = f"1 table is left out: {tmp_path}/a.{suffix} cannot be read: it has no text in a "
    assert notes(capsys)[1].startswith(f"{left_out}column 'body'")


def test_one_of_several_columns_that_never_has_text_is_noted(tmp_path, capsys):
    rows = [{"author": {"name": "ann"}, "id": 1, "year": 5, "content": text}
            for text in ("one", "two")]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert read(path, column="author,content,id,year") == ["one", "two"]
    assert notes(capsys) == [
        "column author has no text in any row (but dict), so nothing of it is read; jq -c '.author "
        "= .author.KEY' FILE > NEW.jsonl takes one key out of its objects",
        "column id has no text in any row (but int), so nothing of it is read",
        "column year has no text in any row (but int), so nothing of it is read"]


def test_a_column_that_has_text_in_some_rows_is_not_noted(tmp_path, capsys):
    rows = [{"author": author, "content": "x"} for author in ({"name": "ann"}, "bob")]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert read(path, column="author,content") == ["x", "bob\nx"]
    assert notes(capsys) == []


@pytest.mark.parametrize("value, words", [
    (5, "2 of 4 rows have no text in column title,body (they have title as int)"),
    (["a"], "the lists of strings in column title are joined by line breaks")])
def test_of_two_tables_the_column_of_the_first_is_named(tmp_path, capsys, value, words):
    first = {"title": value, "body": None}
    second = {"title": None, "body": value}
    whole = {"title": "a title", "body": "a body"}
    a = write(tmp_path / "a.jsonl", f"{json.dumps(first)}\n{json.dumps(whole)}\n")
    b = write(tmp_path / "b.jsonl", f"{json.dumps(second)}\n{json.dumps(whole)}\n")
    read(a, b, column="title,body")
    assert notes(capsys) == [words]


def test_a_folder_says_how_to_read_files_of_an_unknown_suffix(tmp_path, capsys):
    for name in ("vim [9]/a.txt", "vim [9]/b.vim", "vim [9]/deep/c.vim", "vim [9]/d.xyz"):
        write(tmp_path / name, name)
    for name in "efg":
        write(tmp_path / f"vim [9]/{name}.bin", b"\0\xff")
        write(tmp_path / f"vim [9]/{name}.json", "{}")
    folder = f"{tmp_path}/vim [9]"
    read(folder)
    pattern = f"{tmp_path}/vim [[]9]/**/*.vim"
    assert notes(capsys) == [
        f"{folder}: 1 file of 10 is read (left out: 3 .bin, 3 .json, 2 .vim, 1 .xyz); "
        f"to read the .vim files too, add --data.files '{pattern}'"]
    assert read(folder, pattern) == ["vim [9]/a.txt", "vim [9]/b.vim", "vim [9]/deep/c.vim"]


@pytest.mark.parametrize("suffix", ["svg", "aux", "lock", "map", "pem"])
def test_a_folder_gives_no_glob_for_files_that_are_no_prose(tmp_path, capsys, suffix):
    write(tmp_path / "a.txt", "a")
    for name in "bc":
        write(tmp_path / f"{name}.{suffix}", "text")
    read(tmp_path)
    assert notes(capsys) == [f"{tmp_path}: 1 file of 3 is read (left out: 2 .{suffix})"]
    write(tmp_path / "d.lrc", "[00:01.00] La")
    read(tmp_path)
    assert notes(capsys)[0].endswith(
        f"; to read the .lrc files too, add --data.files '{tmp_path}/**/*.lrc'")


def test_a_folder_of_an_unknown_suffix_alone_gives_its_glob(tmp_path):
    write(tmp_path / "a.lrc", "[00:01.00] La")
    with pytest.raises(UserError) as error:
        read(tmp_path)
    assert str(error.value).endswith(
        f", and has 1 .lrc; to read the .lrc files: --data.files '{tmp_path}/**/*.lrc'")


def test_the_log_of_latex_beside_its_text_is_left_out(tmp_path, capsys):
    write(tmp_path / "thesis.tex", "text")
    write(tmp_path / "thesis.log", "This is pdfTeX")
    write(tmp_path / "ship.log", "Monday")
    assert read(tmp_path) == ["Monday", "text"]
    assert notes(capsys) == [
        f"{tmp_path}: 2 files of 3 are read: 1 .log, 1 .tex (left out: 1 .log)"]


def test_the_glob_of_an_unknown_suffix_has_its_capitals(tmp_path):
    path = write(tmp_path / "song.LRC", "[00:01.00] La")
    pattern = f"{tmp_path}/**/*.LRC"
    with pytest.raises(UserError) as error:
        read(tmp_path)
    assert str(error.value).endswith(f"; to read the .LRC files: --data.files '{pattern}'")
    assert read(pattern) == [path.read_text(encoding="utf-8")]


def test_a_folder_of_an_unknown_suffix_that_is_not_utf8_says_so(tmp_path):
    path = write(tmp_path / "games.pgn", LATIN.strip())
    with pytest.raises(UserError) as error:
        read(tmp_path)
    assert f"and has 1 .pgn; {path} cannot be read: the byte 0xe9 at offset 3" in str(error.value)


LATIN = "caf\u00e9 ".encode("latin-1")
UTF_16 = "text".encode("utf-16")


@pytest.mark.parametrize("pattern", [".", "*"])
def test_files_that_are_not_utf8_are_left_out_and_counted(tmp_path, monkeypatch, capsys, pattern):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "b.txt", LATIN)
    write(tmp_path / "c.txt", UTF_16)
    write(tmp_path / "d.csv", b"text\nrow\n" + LATIN)
    write(tmp_path / "e.md", "e")
    assert copied(pattern) == "ae"
    count, note = notes(capsys)
    assert count == f"{pattern}: 2 files of 5 are read: 1 .md, 1 .txt"
    assert note.startswith("3 files are not UTF-8: ")
    assert note.replace("./", "").endswith(
        "b.txt, c.txt, d.csv; c.txt cannot be read: it is UTF-16: save it as UTF-8 (in Notepad: "
        "Save as, Encoding), or run iconv -f UTF-16 -t UTF-8 FILE > NEW; iconv -f WINDOWS-1252 "
        "-t UTF-8 FILE > NEW converts one of older Windows programs; --data.files FILE says what "
        "is wrong with one")


def test_a_pdf_of_another_name_in_a_folder_is_called_one(tmp_path, capsys):
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "b.txt", b"%PDF-1.7\n\xff")
    assert copied(tmp_path) == "a"
    _, note = notes(capsys)
    assert note.endswith("it is a PDF: extract its text, as pdftotext -nopgbrk FILE NEW.txt does")


def test_the_longest_column_of_a_csv_is_named(tmp_path):
    path = write(tmp_path / "a.csv", 'id;title;the review\n1;fine;"It is fine."\n')
    with pytest.raises(UserError, match="choose one with --data.column, as 'the review', which"):
        read(path)


def test_a_file_that_is_not_utf8_late_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "PIECE", 4)
    write(tmp_path / "a.txt", "first")
    write(tmp_path / "b.txt", b"x" * 40 + LATIN)
    write(tmp_path / "c.txt", "last")
    with io.BytesIO() as file:
        parts = SOURCES["files"](DataConfig(files=[str(tmp_path)])).parts()
        counts, spans, hashes, _ = copy_parts(parts, file)
        assert file.getvalue() == b"firstlast"
    assert counts == {
        "sha256":
            "6600861c7f8274a2c96894009f212ce368f90fe66296a97ef77f6820bff3ecd0",
        "documents": 2, "bytes": 9, "characters": 9}
    assert spans.tolist() == [[0, 5], [5, 9]]
    assert len(hashes) == 2


def test_rows_before_a_bad_byte_are_left_out_too(tmp_path):
    write(tmp_path / "a.jsonl", b'{"text": "row"}\n{"text": "' + LATIN + b'"}\n')
    write(tmp_path / "b.txt", "b")
    assert copied(tmp_path) == "b"


def test_a_left_out_file_may_come_last(tmp_path):
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "b.txt", LATIN)
    assert copied(tmp_path, separator="f") == "a"


def test_a_left_out_file_is_noted_for_nothing_else(tmp_path, capsys):
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "b.txt", b"<html>\0<|endoftext|>\n" + b"x" * readers.PIECE + LATIN)
    copied(tmp_path)
    _, note = notes(capsys)
    assert note.startswith("1 file is not UTF-8")


def test_a_separator_in_a_left_out_file_divides_nothing(tmp_path, capsys):
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "b.txt", b"x---y" + b"x" * readers.PIECE + LATIN)
    copied(tmp_path, separator="---")
    assert notes(capsys)[2].startswith("data.separator '---' does not occur")


def test_a_left_out_table_has_no_longer_column(tmp_path, capsys):
    write(tmp_path / "a.jsonl", '{"text": "abc"}\n')
    write(tmp_path / "b.jsonl", '{"other": "' + "x" * 99 + '"}\n')
    copied(tmp_path)
    note = notes(capsys)[1]
    assert note.endswith("only 'other': choose its only column of text with --data.column other")


def test_a_bad_file_of_a_folder_is_left_out_if_all_others_are_named(tmp_path):
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "b.txt", LATIN)
    assert copied(tmp_path / "a.txt", tmp_path) == "a"


def test_a_folder_with_nothing_left_says_why(tmp_path):
    write(tmp_path / "a.jsonl", '{"other": "x"}\n')
    write(tmp_path / "b.txt", LATIN)
    with pytest.raises(UserError, match="a.jsonl cannot be read: it has no text in a column"):
        copied(tmp_path)


def test_a_named_file_that_is_not_utf8_is_an_error_beside_its_folder(tmp_path):
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "b.txt", LATIN)
    with pytest.raises(UserError, match="b.txt cannot be read: the byte 0xe9 at offset 3 is not"):
        copied(tmp_path, tmp_path / "b.txt")


def test_a_folder_of_files_none_of_which_is_utf8_is_an_error(tmp_path):
    for name in "abcd":
        write(tmp_path / f"{name}.txt", LATIN)
    with pytest.raises(UserError, match="no file to read: 4 files are not UTF-8: .* and 1 more"):
        copied(tmp_path)


def test_the_only_file_of_a_folder_says_what_is_wrong(tmp_path):
    write(tmp_path / "a.txt", LATIN)
    with pytest.raises(UserError, match="a.txt cannot be read: the byte 0xe9 at offset 3 is not"):
        copied(tmp_path)


def test_the_only_file_of_a_folder_may_have_a_link_beside_it(tmp_path):
    write(tmp_path / "a.txt", LATIN)
    (tmp_path / "b.txt").symlink_to("a.txt")
    with pytest.raises(UserError, match="a.txt cannot be read: the byte 0xe9 at offset 3 is not"):
        copied(tmp_path)


def test_a_folder_says_that_links_to_folders_are_left_out(tmp_path, capsys):
    write(tmp_path / "notes/a.txt", "text")
    write(tmp_path / "others/b.txt", "other text")
    (tmp_path / "notes/linked").symlink_to(tmp_path / "others")
    assert read(tmp_path / "notes") == ["text"]
    assert notes(capsys) == [
        f"{tmp_path}/notes: 1 file of 1 is read (left out: links to folders)"]


def test_a_folder_says_that_links_to_missing_files_are_left_out(tmp_path, capsys):
    write(tmp_path / "notes/a.txt", "text")
    (tmp_path / "notes/dead.txt").symlink_to("gone.txt")
    assert read(tmp_path / "notes") == ["text"]
    assert notes(capsys) == [f"{tmp_path}/notes: 1 file of 1 is read (left out: links to files "
                             "that are not there)"]


def test_a_folder_without_text_says_what_it_has(tmp_path):
    write(tmp_path / "a.png", b"\x89PNG")
    write(tmp_path / "b.pdf", b"%PDF")
    write(tmp_path / "c.png", b"\x89PNG")
    with pytest.raises(UserError, match="is a folder without text files, and has 2 .png, 1 .pdf"):
        read(tmp_path)


@pytest.mark.parametrize("name, content, words", [
    ("a.pdf", b"%PDF", "a.pdf is not read, because .pdf is no plain text: extract its text, as"),
    ("chat.json", b'{"messages": [{"text": "hi"}]}', "as jq -c '.messages[]' FILE")])
def test_a_folder_of_files_that_are_not_read_says_how_to_read_one(tmp_path, name, content, words):
    write(tmp_path / name, content)
    write(tmp_path / "b.png", b"\x89PNG")
    with pytest.raises(UserError, match=f"without text files, and has 1 .*; .*{re.escape(words)}"):
        read(tmp_path)


def test_a_folder_says_how_to_make_text_of_its_other_formats(tmp_path, capsys):
    for name in ("a.html", "deep/b.HTML", "c.eml", "d.xml"):
        write(tmp_path / "my notes" / name, "<p>Hi.</p>")
    write(tmp_path / "my notes/package.json", "{}")
    command = (f"python tools/as_lines.py '{tmp_path}/my notes' > NEW.jsonl writes the text of the "
               ".eml, .html, .xml files")
    with pytest.raises(UserError) as error:
        read(tmp_path / "my notes")
    assert str(error.value).endswith(f", and has 2 .html, 1 .eml, 1 .json, 1 .xml; {command}")
    write(tmp_path / "my notes/a.lrc", "[00:01.00] La")
    write(tmp_path / "my notes/e.txt", "text")
    read(tmp_path / "my notes")
    assert notes(capsys)[0].endswith(f"/**/*.lrc'; {command}")


LICENSED = """\
The Project Gutenberg eBook of Days\r
\r
*** START OF THE PROJECT GUTENBERG EBOOK DAYS ***\r
It was.\r
*** END OF THE PROJECT GUTENBERG EBOOK DAYS ***\r
Section 1. General Terms of Use\r
"""


@pytest.mark.parametrize("content", [LICENSED, LICENSED.replace("*** ", "***", 2)])
def test_the_licence_of_gutenberg_is_noted_and_dropped(tmp_path, capsys, content):
    path = write(tmp_path / "book.txt", content)
    read(path)
    [note] = notes(capsys)
    assert f"of one book: {path}; sed " in note
    (command,) = re.findall("sed .* > NEW.txt", note)
    subprocess.run(command.replace("FILE", path.name), shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "NEW.txt").read_bytes() == b"It was.\r\n"


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="is a folder without text files$"):
        read(tmp_path)


def run_advised(folder, advice, *files, **options):
    """Do what the command in a note or an error does, and read what it has written.

    test_as_lines.py starts the program in a process of its own.
    """
    assert advice.count("python tools/as_lines.py FILES > NEW.jsonl") == 1
    new = folder / "NEW.jsonl"
    with (pytest.raises(SystemExit, match="^0$"), new.open("w", encoding="utf-8") as file,
          redirect_stdout(file), chdir(folder)):
        as_lines.main([*files])
    return read(new, **options)


STACK_EXCHANGE = """\
<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="1" PostTypeId="1" Title="Why?" Body="&lt;p&gt;I ask.&lt;/p&gt;" />
</posts>
"""
WIKI = """\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <page><title>Day</title><ns>0</ns><revision><text>A [[day]].</text></revision></page>
</mediawiki>
"""


ANDROID_CHAT = """\
12/31/20, 9:41\u202fPM - Messages and calls are end-to-end encrypted. Tap to learn more.
12/31/20, 9:42\u202fPM - Ann: Hi!
How are you?
12/31/20, 9:43\u202fPM - Bo: <Media omitted>
12/31/20, 9:43\u202fPM - Ann left
"""
IPHONE_CHAT = """\
\u200e[31.12.20, 21:41:05] Friends: \u200eMessages and calls are end-to-end encrypted.
[31.12.20, 21:42:00] Ann: Hi!
How are you? \u200e<This message was edited>
\u200e[31.12.20, 21:43:00] Bo: \u200eimage omitted
"""


def make_message(text):
    message = EmailMessage()
    message["Subject"] = "Greeting"
    message.set_content(text)
    return bytes(message)


@pytest.mark.parametrize("name, content, noted, expected", [
    ("a.eml", make_message("hi"), "mail, whose headers and attachments are trained as", "hi\n"),
    ("a.mbox", b"From a@b.c\n" + make_message("hi"), "mail, whose headers and ", "hi\n"),
    ("Inbox", b"From a@b.c\n" + make_message("hi"), "mail, whose headers and ", "hi\n"),
    ("a.txt", b"Subject: A\n day\n" + make_message("hi"), "mail, whose headers and ", "hi\n"),
    ("tweets.js", 'window.YTD.tweets.part0 = [ {"tweet": {"text": "hi"}} ]', "JSON in Java", "hi"),
    ("chat.txt", ANDROID_CHAT, "chats of WhatsApp, whose dates and", "Ann: Hi!\nHow are you?"),
    ("_chat.txt", IPHONE_CHAT, "chats of WhatsApp, whose dates and", "Ann: Hi!\nHow are you?"),
    ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n<i>Hi.</i>\n", "subtitles, whose numbers", "Hi."),
    ("page.txt", "<html><p>Hi.</html>", "web pages, whose tags are trained as text: ", "Hi."),
    ("page", "<?xml version='1.0'?>\n<!DOCTYPE html><p>Hi.", "web pages, whose tags", "Hi."),
    ("Posts.xml", STACK_EXCHANGE, "XML, whose tags are trained as text: ", "Why?\nI ask."),
    ("dump.xml", WIKI, "XML, whose tags are trained as text: ", "A [[day]].")])
def test_the_command_in_a_note_writes_the_text(tmp_path, capsys, name, content, noted, expected):
    path = write(tmp_path / name, content)
    read(path)
    [note] = [line for line in notes(capsys) if line.startswith(noted)]
    assert str(path) in note
    assert run_advised(tmp_path, note, name) == [expected]


@pytest.mark.parametrize("name, content, expected", [
    ("a.html", "<p>Hi.</p>", "Hi."), ("a.ipynb", '{"cells": [{"source": ["Hi."]}]}', "Hi."),
    ("a.json", '{"chat": [{"text": "Hi."}]}', "Hi."), ("a", '[{"text": "Hi."}]', "Hi."),
    ("a.json", '{"of": "x", "chats": {"list": [{"messages": [{"text": "Hi all."}]}]}}', "Hi all."),
    ("a.rtf", r"{\rtf1\ansi Hi.}", "Hi."), ("a", r"{\rtf1\ansi Hi.}", "Hi."),
    ("a.opml", '<opml><outline text="Hi."/></opml>', "Hi.")])
def test_the_command_in_a_refusal_writes_the_text(tmp_path, name, content, expected):
    with pytest.raises(UserError) as error:
        read(write(tmp_path / name, content))
    assert run_advised(tmp_path, str(error.value), name) == [expected]


def test_subtitles_are_told_by_their_times(tmp_path, capsys):
    write(tmp_path / "a.srt", "1\n00:00:01,000 --> 00:00:02,000\nHi.\n")
    write(tmp_path / "d.srt", "a text\n")
    read(tmp_path)
    assert f" as text: {tmp_path}/a.srt; python " in notes(capsys)[-1]


def test_a_drawing_is_not_called_xml(tmp_path, capsys):
    read(write(tmp_path / "a.svg", "<?xml version='1.0'?><svg/>"))
    assert len(notes(capsys)) == 1  # that it is read as plain text
