"""Files that are no text: what they are, and the command that makes text of them."""

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from text_files import gz, notes, read, run_advised, run_command, short, write, zstd

from data import detect, tables
from errors import UserError


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
                "Deleted by x8.", {"by": "x9", "body": "It was."}]
    rows = [{"id": "a1", "comments": comments}, {"id": "a2", "comments": None}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=": column comments has more text: for the texts") as error:
        read(path)
    (command,) = re.findall("jq .* > NEW.jsonl", str(error.value))
    command = command.replace("FILE", path.name)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert read(tmp_path / "NEW.jsonl") == [f"{'A fine day. ' * 9}\nIt was."]


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
    ('{"my \\"rows\\"": [{"a": 1}]}', """jq -c '.["my \\"rows\\""][]' FILE > NEW.jsonl does"""),
    ('{"it\'s": [{"a": 1}]}', """jq -c '.["it'"'"'s"][]' FILE > NEW.jsonl does"""),
    ('{"\\u0061": [{"a": 1}]}', "jq -c '.a[]' FILE > NEW.jsonl does"),
    ('{"\\q": [{"a": 1}]}', "jq -c '.KEY[]' for a list under KEY"),  # a bad escape
    ('{"a": [{"created_date": "2023-01-31", "user_profile": {}, "sender_name": "b"}]}', "'.a[]'"),
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
    chat = {"participants": [{"name": "ann"}, {"name": "bob"}],
            "messages": [{"by": "ann", "content": "a long text, and then some more"}]}
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
