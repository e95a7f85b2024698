"""Text arrives byte for byte and streams; errors name the file and the option."""

import csv
import gzip
import hashlib
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from pydoc_data import topics
from types import ModuleType
from unittest.mock import MagicMock, Mock

import huggingface_hub
import pyarrow
import pyarrow.parquet
import pytest
from text_files import run_advised

from data import documents, readers, sources
from data.notes import WITHOUT_TAGS, WITHOUT_TIMES
from data.sources import SOURCES, DataConfig, Files
from errors import UserError

ODD = "a\ufeff\r\nb\rc\n\n\x0cd\u2028e\x85f\0g\x1c\tcaf\u00e9 \U0001f600  \n last line, not ended"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """Nothing of a test goes to, or comes from, the cache of whoever runs it."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "downloads")
    monkeypatch.setattr("huggingface_hub.file_download.time", Mock())  # no waits between retries
    return tmp_path / "downloads"


def source(files=None, **options):
    config = DataConfig(files=[files] if isinstance(files, str) else files, **options)
    config.check()
    return SOURCES[config.source](config)


def texts(**options):
    documents = chain.from_iterable(source(**options).parts())
    return ["".join(document) for document in documents]


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def write_jsonl(path, values, column="text"):
    return write(path, "".join(json.dumps({column: value, "n": 1}) + "\n" for value in values))


# The configuration


def test_files_replace_any_source():
    """And its options."""
    hub = {"hub": "a/b", "hub_config": "c", "hub_split": "d", "hub_revision": "e"}
    config = DataConfig(source="hub", **hub, files=["a.txt"], column="story")
    config.check()
    assert config == DataConfig(source="files", files=["a.txt"], column="story")


def test_files_leave_a_source_that_reads_them(monkeypatch):
    """One of a user's own, for files of another format."""
    class Poems(Files):
        pass

    monkeypatch.setitem(SOURCES, "poems", Poems)
    config = DataConfig(source="poems", files=["a.poem"], column="verse")
    config.check()
    assert (config.source, config.column) == ("poems", "verse")


def test_the_options_of_a_new_source_belong_to_its_text(monkeypatch):
    """A class and a line in data/sources.py are enough."""
    code = Path(sources.__file__).read_text(encoding="utf-8")
    code = code.replace("# A new source:", "class Shelf(Source):\n    options = ('shelf',)\n\n#")
    code = code.replace('"hub": Hub,', '"hub": Hub, "shelf": Shelf,')
    changed = ModuleType("changed_sources")
    monkeypatch.setitem(sys.modules, changed.__name__, changed)
    exec(code, vars(changed))
    for names in (changed.TEXT_OPTIONS, changed.TEXT_CHOICE, changed.TEXT_ORIGIN,
                  changed.TEXT_NAMES):
        assert "data.shelf" in names


# The standard library


def test_the_standard_library_comes_in_a_fixed_order():
    assert texts() == texts()


@pytest.mark.parametrize("name", [
    "os.py", "json/decoder.py", "asyncio/tasks.py", "unittest/case.py"])
def test_modules_of_the_standard_library_are_whole(name):
    root = Path(sysconfig.get_paths()["stdlib"])
    assert (root / name).read_bytes().decode() in texts()


def test_the_language_reference_is_plain_text():
    """And not the module that holds it in one escaped literal."""
    library = texts()
    assert set(topics.topics.values()) <= set(library)
    assert Path(topics.__file__).read_text(encoding="utf-8") not in library


def test_a_python_without_sources_names_the_alternative(monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(UserError, match="--data.files"):
        texts()


def test_foreign_code_and_undecodable_files_stay_out(monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)  # some distributions have none
    for name in ["b.py", "a/c.py", "z/y.py", "test/d.py", "a/tests/e.py", "site-packages/f.py",
                 "g.txt", "config-3/h.py", "_sysconfigdata_i.py", "testing.py", "a.py",
                 "dist-packages/j.py", "b/idle_test/k.py", "encodings/l.py"]:
        write(tmp_path / name, f"# {name}\r\n")
    write(tmp_path / "latin.py", b"# -*- coding: latin-1 -*-\n# \xe9")
    assert texts() == ["# a.py\r\n", "# a/c.py\r\n", "# b.py\r\n", "# testing.py\r\n",
                       "# z/y.py\r\n"]


def test_a_module_that_is_a_link_to_nothing_stays_out(monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    write(tmp_path / "a.py", "a = 1\n")
    (tmp_path / "sitecustomize.py").symlink_to(tmp_path / "gone.py")
    assert texts() == ["a = 1\n"]
    assert len(source().fingerprint()[1]) == 1


# Files


def test_text_files_arrive_byte_for_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "PIECE", 3)  # pieces end anywhere, also between "\r" and "\n"
    parts = source(write(tmp_path / "a.txt", ODD)).parts()
    (pieces,) = [[*document] for part in parts for document in part]
    assert "".join(pieces) == ODD and max(map(len, pieces)) == 3


@pytest.mark.parametrize("name, kind", [
    ("o [d] d*.jsonl", None), ("o [d] d*.PARQUET", pyarrow.string()),
    ("a.parquet", pyarrow.large_string()),
    ("a.parquet", pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))], ids=str)
def test_rows_arrive_byte_for_byte(tmp_path, name, kind):
    path = tmp_path / name
    rows = [ODD, None, "second", "", "2020-01-01"]  # null and "" are no documents
    if kind is None:
        write_jsonl(path, rows, "story")
    else:
        table = {"n": range(5), "story": pyarrow.array(rows).cast(kind)}
        pyarrow.parquet.write_table(pyarrow.table(table), path)
    assert texts(files=str(path), column="story") == [ODD, "second", "2020-01-01"]


@pytest.fixture
def mixed(monkeypatch, tmp_path):
    """The current folder, with files whose texts are their names, and a table."""
    for name in ["b.md", "a.md", "deep/er/c.py", "[x].md"]:
        write(tmp_path / name, name)
    write_jsonl(tmp_path / "d.jsonl", ["D1", "D2"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_paths_globs_and_kinds_mix_in_the_order_given(mixed):
    files = ["d.jsonl", "[x].md", "*.md", "**/*.py", "a.md"]
    assert texts(files=files) == ["D1", "D2", "[x].md", "a.md", "b.md", "deep/er/c.py"]


def test_a_glob_looks_into_subfolders(mixed):
    assert texts(files="deep*/**") == ["deep/er/c.py"]


def test_a_file_is_read_once_whatever_leads_to_it(mixed):
    (mixed / "deep/again").symlink_to("er")
    files = ["./a.md", str(mixed / "a.md"), "deep/**/*.py"]
    assert texts(files=files) == ["a.md", "deep/er/c.py"]


def test_a_tilde_is_the_home_of_the_user(mixed, monkeypatch):
    """No shell has seen what stands in brackets in a YAML file."""
    monkeypatch.setenv("HOME", ".")
    assert texts(files=["~/deep/**/*.py"]) == ["deep/er/c.py"]


def test_a_tilde_is_the_home_of_the_user_for_a_folder_of_data_sets_too(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert DataConfig(hub="~/stories").hub == "/home/me/stories"


def test_rows_without_a_text_are_no_documents(tmp_path):
    content = '{"version": 1}\n{"text": "a"}\n{}\n{"text": null}\n{"text": ""}\n{"text": "b"}'
    assert texts(files=write(tmp_path / "a.jsonl", content)) == ["a", "b"]


def test_rows_whose_value_is_no_text_are_no_documents(tmp_path):
    """Also in the first row."""
    content = '{"text": ["see ", {"type": "link"}]}\n{"text": "a"}\n{"text": 5}\n{"text": "b"}\n'
    assert texts(files=write(tmp_path / "a.jsonl", content)) == ["a", "b"]


def test_a_column_of_numbers_is_refused_early(tmp_path, monkeypatch):
    """And not after a data set of many gigabytes."""
    monkeypatch.setattr(documents, "ROWS_TRIED", 3)
    path = write_jsonl(tmp_path / "a.jsonl", [5, None, 6])
    with open(path, "a", encoding="utf-8") as file:
        file.write("a row that is no JSON\n")
    with pytest.raises(UserError, match="no text in a column 'text', only 'text' .int."):
        texts(files=path)


def test_one_text_among_the_first_rows_is_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "ROWS_TRIED", 3)
    path = write_jsonl(tmp_path / "a.jsonl", [5, "b", 6, "d"])
    assert texts(files=path) == ["b", "d"]


def test_a_late_text_is_found_after_rows_without(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "ROWS_TRIED", 3)
    path = write_jsonl(tmp_path / "a.jsonl", ["", None, "", None, "a"])
    assert texts(files=path) == ["a"]


def test_a_file_may_have_no_text_where_others_have(tmp_path):
    empty = write_jsonl(tmp_path / "a.jsonl", ["", None])
    assert texts(files=[write_jsonl(tmp_path / "b.jsonl", ["b"]), empty]) == ["b"]


def test_rows_may_differ_in_the_types_of_their_fields(tmp_path):
    """`datasets` takes those of the first rows for all."""
    content = ('{"text": "a", "version": 1}\n{"text": "b", "version": "x"}\n'
               '{"text": "c", "version": [{"of": "2020-01-01"}]}')
    assert texts(files=write(tmp_path / "a.jsonl", content)) == ["a", "b", "c"]


def test_jsonl_may_begin_with_a_mark_and_have_empty_lines(tmp_path):
    content = '\ufeff{"text": "a"}\r\n\r\n{"text": "b"}\r\n'
    assert texts(files=write(tmp_path / "a.jsonl", content)) == ["a", "b"]


@pytest.mark.parametrize("name, content, words", [
    ("a.txt", "caf\u00e9".encode("latin-1"), "a.txt cannot be read.* 0xe9"),
    ("a.jsonl", b'{"text": ""}\n{"text": true}\n', "only 'text' .bool."),
    ("no.txt", None, "no.txt matches no file")])
def test_missing_and_unreadable_files_are_named(tmp_path, name, content, words):
    if content is not None:
        write(tmp_path / name, content)
    with pytest.raises(UserError, match=words):
        texts(files=str(tmp_path / name))


@pytest.mark.parametrize("named, suggestion", [
    ("poem", " (did you mean {folder}/poem.txt?)"),
    ("peom.txt", " (did you mean {folder}/poem.txt?)"),
    ("pome.md", " (did you mean {folder}/poem.txt?)"), ("else", ""), ("no/poem.txt", "")])
def test_the_file_of_the_nearest_name_is_suggested(tmp_path, named, suggestion):
    write(tmp_path / "poem.txt", "a")
    with pytest.raises(UserError) as caught:
        texts(files=f"{tmp_path}/{named}")
    assert str(caught.value) == (f"--data.files {tmp_path}/{named} matches no file"
                                 + suggestion.format(folder=tmp_path))


def test_a_glob_whose_files_are_in_folders_is_told_how_to_reach_them(tmp_path):
    (tmp_path / "my work").mkdir()
    write(tmp_path / "my work" / "a.md", "a")
    with pytest.raises(UserError) as caught:
        texts(files=f"{tmp_path}/*.md")
    assert str(caught.value) == (
        f"--data.files {tmp_path}/*.md matches no file: did you mean --data.files "
        f"'{tmp_path}/**/*.md', which matches those in its folders too?")


@pytest.mark.parametrize("pattern, name", [("*", "a"), ("*.pdf", "sub/a.pdf"), ("**", "")])
def test_a_glob_that_would_match_nothing_either_is_not_suggested(tmp_path, pattern, name):
    (tmp_path / "sub").mkdir()
    if name == "sub/a.pdf":
        write(tmp_path / name, "%PDF")
    with pytest.raises(UserError) as caught:
        texts(files=f"{tmp_path}/{pattern}")
    assert "**/" not in str(caught.value)


def test_the_search_for_a_better_glob_follows_no_links(tmp_path):
    for name in "pq":
        (tmp_path / name).symlink_to(tmp_path)
    with pytest.raises(UserError, match="matches no file"):
        texts(files=f"{tmp_path}/*.md")


def test_a_dash_is_told_the_name_of_standard_input():
    with pytest.raises(UserError, match="^--data.files - matches .*: did you mean .* /dev/stdin.$"):
        texts(files="-")


def test_a_missing_relative_path_is_shown_with_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        texts(files="poem.txt")
    assert str(caught.value) == f"--data.files poem.txt matches no file in {tmp_path}"


def test_names_joined_by_a_comma_are_to_be_given_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "b c.txt", "b")
    with pytest.raises(UserError) as caught:
        texts(files="a.txt,b c.txt")
    assert str(caught.value) == ("--data.files a.txt,b c.txt matches no file: did you mean "
                                 "--data.files a.txt --data.files 'b c.txt'?")


@pytest.mark.parametrize("pattern", ["*.txt", "b.txt"])
def test_a_link_to_nothing_is_named(tmp_path, monkeypatch, pattern):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.txt", "a")
    (tmp_path / "b.txt").symlink_to("gone.txt")
    with pytest.raises(UserError) as caught:
        texts(files=pattern)
    assert str(caught.value) == (f"--data.files {pattern} names b.txt, a link to a file that is "
                                 "not there: remove it, or name the files without it")


def test_the_schema_of_a_parquet_file_is_read_first(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(pyarrow.table({"text": [5]}), tmp_path / "a.parquet")
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", None)
    with pytest.raises(UserError, match="no text in a column 'text', only 'text' .int64."):
        texts(files=str(tmp_path / "a.parquet"))


def test_the_fingerprint_of_a_folder_follows_its_files(tmp_path):
    write(tmp_path / "a.txt", "a")
    first = source(str(tmp_path)).fingerprint()
    write(tmp_path / "b.png", "no text")
    assert source(str(tmp_path)).fingerprint() == first
    write(tmp_path / "deep/b.txt", "b")
    assert source(str(tmp_path)).fingerprint() != first


def test_the_fingerprint_of_a_folder_survives_a_run_in_it(tmp_path):
    write(tmp_path / "a.txt", "a")
    first = source(str(tmp_path)).fingerprint()
    for name in ("config.yaml", "run.json", "metrics.jsonl"):
        write(tmp_path / "runs/small" / name, "{}")
    assert source(str(tmp_path)).fingerprint() == first


@pytest.mark.parametrize("name, entry", [
    ("a.txt", []), ("a.jsonl", []), ("a.parquet", []), ("a.csv", ["rows"]), ("a.tsv", ["rows"]),
    ("a.ndjson", ["rows"])])
def test_what_was_prepared_as_prose_is_not_taken_for_rows(tmp_path, name, entry):
    """And what was prepared of other files is found again."""
    path = write(tmp_path / name, "abc")
    os.utime(path, ns=(0, 5))
    assert source(path).fingerprint() == [[str(Path(path).resolve()), 3, 5, *entry]]


def test_the_fingerprint_lists_the_files(tmp_path):
    a = write(tmp_path / "a.txt", "abc")
    b = write(tmp_path / "b.txt", "abc")
    assert source(a).fingerprint() == source([a]).fingerprint()
    assert source([a, b]).fingerprint() != source([a]).fingerprint()


@pytest.mark.parametrize("name, text, time", [
    ("a.txt", "abc", 2), ("a.txt", "abcd", 1), ("deep/a.txt", "abc", 1)])
def test_the_fingerprint_follows_name_size_and_time(tmp_path, name, text, time):
    first = write(tmp_path / "a.txt", "abc")
    os.utime(first, ns=(0, 1))
    before = source(first).fingerprint()
    second = write(tmp_path / name, text)
    os.utime(second, ns=(0, time))
    assert source(second).fingerprint() != before


def test_the_fingerprint_of_a_local_data_set_follows_its_files(tmp_path):
    rows = tmp_path / "set" / "data" / "rows.jsonl"
    rows.parent.mkdir(parents=True)
    rows.write_text('{"text": "a"}', encoding="utf-8")
    source = SOURCES["hub"](DataConfig(hub=str(tmp_path / "set")))
    before = source.fingerprint()
    rows.write_text('{"text": "another"}', encoding="utf-8")
    assert None not in (before, source.fingerprint())
    assert before != source.fingerprint()


def test_a_data_set_of_the_hub_is_fetched_once():
    assert SOURCES["hub"](DataConfig(hub="no/folder")).fingerprint() is None


@pytest.mark.parametrize("version, text", [("3.99.0", "a"), ("3.98.0", "ab")])
def test_the_fingerprint_of_the_library_follows_version_and_sizes(
        monkeypatch, tmp_path, version, text):
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setattr("platform.python_version", lambda: "3.98.0")
    write(tmp_path / "a.py", "a")
    before = source().fingerprint()
    assert source().fingerprint() == before
    monkeypatch.setattr("platform.python_version", lambda: version)
    write(tmp_path / "a.py", text)
    assert source().fingerprint() != before


@pytest.mark.parametrize("name, fingerprint", [
    ("a.txt", None), ("a.jsonl", None), ("a.csv?raw=true", "rows"), ("a.ndjson.gz", "rows")])
def test_a_fetched_table_that_was_prose_is_prepared_again(name, fingerprint):
    assert source(source="url", url=f"http://a.b/{name}").fingerprint() == fingerprint


# What is said about a text


def notes(capsys):
    """What was said, without "note: "."""
    return [line.removeprefix("note: ") for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("rows, counts, have", [
    ([{"text": "a"}] * 60 + [{"content": "b"}] * 40, "40 of 100", "content"),
    ([{"text": "a"}, {"text": None, "id": 1}], "1 of 2", "id"),
    ([{"text": "a"}, {"text": [5], "id": 1}], "1 of 2", "text as list, id"),
    ([{"text": "a"}, {"text": 5}, {"text": [5]}], "2 of 3", "text as int, text as list"),
    ([{"text": "a"}, {"text": ""}, {}], "2 of 3", None),
    ([{"text": "a"}, {"text": "", "note": "", "": "5"}], "1 of 2", "''"),
    ([{"text": "a"}, {"messages": [{"role": "user"}]}], "1 of 2", "messages"),
    ([{"text": "a"}, {"title": "b", "body": None, "url": "c"}], "1 of 2", "title, url"),
    ([{"text": "a long text " * 4}] * 1000 + [{"text": ""}] * 1000, "1,000 of 2,000", None)])
def test_rows_without_a_text_are_counted_in_one_line(tmp_path, capsys, rows, counts, have):
    texts(files=write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))
    rest = f" (they have {have})" if have else ""
    assert notes(capsys) == [f"{counts} rows have no text in column text{rest}"]


@pytest.mark.parametrize("value, note", [
    (["b", "c"], "the lists of strings in column text are joined by line breaks"),
    (["b", {"type": "bold", "text": "c"}],
     "the parts of formatted texts in column text, such as links, are joined without a separator"),
    ([{"role": "user", "content": "b"}],
     "each turn in column text becomes a line such as 'user: Hello'")])
def test_what_is_joined_to_a_text_is_noted(tmp_path, capsys, value, note):
    texts(files=write_jsonl(tmp_path / "a.jsonl", ["a", value, value]))
    assert notes(capsys) == [note]


def test_chats_for_the_tokenizer_of_a_model_are_in_no_template(tmp_path, capsys):
    rows = [[{"role": "user", "content": "b"}]]
    texts(files=write_jsonl(tmp_path / "a.jsonl", rows), tokenizer="smol")
    assert notes(capsys)[0].endswith(", in no chat template: see docs/interop.md#chat-templates")


def test_a_chat_that_is_much_longer_than_the_column_is_named(tmp_path, capsys):
    row = {"text": "y" * 10, "messages": [{"role": "user", "content": "z" * 31}]}
    texts(files=write(tmp_path / "a.jsonl", json.dumps(row)))
    assert "column messages has more than 3 times the text of column text" in notes(capsys)[0]


@pytest.mark.parametrize("name, column, noted", [
    ("a.jsonl", "text", True), ("a.csv", "text", True), ("a.jsonl", "body", False)])
def test_a_much_longer_column_is_named(tmp_path, capsys, name, column, noted):
    rows = [{"id": "x" * 30, "text": "y" * 10, "body": "z" * 31}] * 5
    content = "\n".join(map(json.dumps, rows))
    if name == "a.csv":
        lines = [",".join(row.values()) for row in rows]
        content = "\n".join(["id,text,body", *lines])
    texts(files=write(tmp_path / name, content), column=column)
    expected = ["column body has more than 3 times the text of column text, which is read: to read "
                "the other one, say --data.column body"]
    assert notes(capsys) == (expected if noted else [])


def test_a_column_of_long_ids_is_not_named(tmp_path, capsys):
    row = {"text": "A fine day.", "signature": "0f" * 32}
    texts(files=write(tmp_path / "a.jsonl", json.dumps(row)))
    assert notes(capsys) == []


def test_a_column_with_one_text_is_not_named_as_longest(tmp_path, capsys):
    """Such as terms of use. The column of reviews is shorter."""
    terms = "These are our terms. " * 9
    rows = [{"text": "A day", "review": f"It was a fine day {n}.", "terms": terms} for n in "12"]
    texts(files=write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))
    (note,) = notes(capsys)
    assert note.endswith("say --data.column review")


def test_a_longer_column_is_not_named_if_the_text_is_a_third(tmp_path, capsys):
    rows = [{"text": "y" * 10, "body": "z" * 30}] * 5
    texts(files=write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))
    assert notes(capsys) == []


@pytest.mark.parametrize("years, noted", [
    (["1984", "2001"], True), (["1984", "2001?"], True), (["1984", "MMI"], False)])
def test_a_column_without_letters_is_noted(tmp_path, capsys, years, noted):
    rows = [f"{year},{'a long review ' * 3}" for year in years]
    texts(files=write(tmp_path / "a.csv", "\n".join(["year,review", *rows])), column="year")
    expected = ["column year has no letters: its numbers are trained as text"]
    assert notes(capsys) == (expected if noted else [])


@pytest.mark.parametrize("n_short, n_long, noted", [
    (100, 0, True), (51, 49, True), (50, 50, False), (99, 0, False)])
def test_rows_of_few_words_are_noted(tmp_path, capsys, n_short, n_long, noted):
    rows = ["Yes, see you there."] * n_short + ["Many words. " * 4] * n_long
    texts(files=write_jsonl(tmp_path / "a.jsonl", rows))
    note = (f"{n_short} of {len(rows)} texts have fewer than 40 characters, and each row is a "
            "document: a model of them writes such short texts. If rows belong together, as the "
            "messages of a chat do, join them first")
    assert notes(capsys) == ([note] if noted else [])


@pytest.mark.parametrize("n_characters, noted", [(39, True), (40, False)])
def test_rows_are_short_up_to_39_characters(tmp_path, capsys, n_characters, noted):
    rows = [("abc " * 10)[:n_characters]] * 100
    texts(files=write_jsonl(tmp_path / "a.jsonl", rows))
    assert bool(notes(capsys)) == noted


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_tags_of_web_pages_in_rows_are_noted_and_dropped(tmp_path, capsys, name):
    rows = ['It was.<br /><br />See <A href="x">this</A>.', "1 < 2, 3 > 2."]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    if name == "a.csv":
        with open(tmp_path / name, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text"], *([row] for row in rows)])
        path = str(tmp_path / name)
    assert texts(files=path) == rows
    [note] = notes(capsys)
    assert note.startswith("1 of 2 rows have tags of web pages, which are trained as text: sed ")
    (command,) = re.findall("sed .* > NEW", note)
    new = command.replace("FILE", name).replace("NEW", f"new.{name}")
    subprocess.run(new, shell=True, cwd=tmp_path, check=True)
    assert texts(files=f"{tmp_path}/new.{name}") == ["It was.  See  this .", rows[1]]


@pytest.mark.parametrize("line, expected", [
    (r'{"text": "\u003cp\u003eHello\u003c/p\u003e"}', '{"text": " Hello "}'),
    (r'{"text": "<p>Hello<\/p>"}', '{"text": " Hello "}'),
    (r'{"text": "<a title=\"b > c\" x>"}', r'{"text": "  c\" x>"}'),
    ('{"text": "<p>if a <x and c> d"}', '{"text": " if a <x and c> d"}'),
    ('{"text": "if a <b and", "y": "c> d"}', '{"text": "if a <b and", "y": "c> d"}'),
    (r'{"text": "a<br\/>b \\u003cp"}', r'{"text": "a b \\u003cp"}'),
    ('1\tsee <a href="http://x.org">this</a>', "1\tsee  this "),
    ('text,"<P CLASS=""x"">it</P>",y', 'text," it ",y')])
def test_the_command_drops_tags_within_a_text(tmp_path, line, expected):
    (tmp_path / "FILE").write_text(line + "\n", encoding="utf-8")
    subprocess.run(WITHOUT_TAGS, shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "NEW").read_text(encoding="utf-8") == expected + "\n"


@pytest.mark.parametrize("line", [
    "9:41 a.m. hi", "9:41 PM hi", "2020-12-31T21:41:05+02:00 hi", "2020-12-31T21:41:05.25Z hi",
    "[21:41:05] hi", "31/12/20, 21:41 hi"])
def test_the_command_drops_all_of_a_time(tmp_path, line):
    (tmp_path / "FILE").write_text(line + "\n", encoding="utf-8")
    subprocess.run(WITHOUT_TIMES, shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "NEW").read_text(encoding="utf-8") == "hi\n"


@pytest.mark.parametrize("text", ["a < b and c > d", "<ann@b.c> wrote", "<Prompt> it", "x <3 y"])
def test_other_signs_are_no_tags(tmp_path, capsys, text):
    texts(files=write_jsonl(tmp_path / "a.jsonl", [text]))
    assert notes(capsys) == []


def test_letters_in_one_of_two_tables_are_enough(tmp_path, capsys):
    first = write(tmp_path / "a.csv", "text\n1984\n")
    texts(files=[first, write(tmp_path / "b.csv", "text\nMMI\n")])
    assert notes(capsys) == []


def test_rows_without_a_text_are_counted_over_all_files(tmp_path, capsys):
    csv = write(tmp_path / "a.csv", "id,text\n1,a\n2,\n3\n")
    table = pyarrow.table({"text": ["b", None], "id": [1, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
    assert texts(files=[csv, str(tmp_path / "b.parquet")]) == ["a", "b"]
    assert notes(capsys) == ["3 of 5 rows have no text in column text (they have id)"]


@pytest.mark.parametrize("content, marker", [
    ("A cat.\n<|endoftext|>\nA dog.\n", "<|endoftext|>"), ("A cat.<|endoftext|>", "<|endoftext|>"),
    ("<s>A cat.", "<s>"), ("A cat.</s>A dog.</s>", "</s>"), ("A cat.\r\n</s>\r\n", "</s>"),
    ("A cat.<|end_of_text|>A dog.", "<|end_of_text|>")])
def test_a_separator_in_plain_text_is_noted(tmp_path, capsys, content, marker):
    path = write(tmp_path / "a.txt", content)
    assert texts(files=path) == [content]
    assert notes(capsys) == [f"{marker} in {path} is trained as ordinary characters: to divide the "
                             f"text into documents there, say --data.separator '{marker}'"]


@pytest.mark.parametrize("name, content, marker", [
    ("a.md", "A cat.\n</s>\nA dog.", "</s>"), ("a", "<s>\r\nA cat.", "<s>"),
    ("a.rst", "A cat.<|endoftext|>A dog.", "<|endoftext|>"), ("a.xml", "A.\n <s> \nB.", "<s>")])
def test_a_separator_on_a_line_of_its_own_is_noted_in_any_text(
        tmp_path, capsys, name, content, marker):
    path = write(tmp_path / name, content)
    texts(files=path)
    assert f"{marker} in {path} is trained as ordinary characters" in notes(capsys)[-1]


def test_a_separator_that_is_given_counts_in_source_code_too(tmp_path, capsys):
    path = write(tmp_path / "a.py", "a = '</s>'")
    assert texts(files=path, separator="</s>") == ["a = '", "'"]
    assert notes(capsys) == []


def test_files_are_divided_at_the_separator_and_rows_are_not(tmp_path, capsys):
    plain = write(tmp_path / "a.txt", "a---\nb\n---\n\nc\n")
    rows = write_jsonl(tmp_path / "b.jsonl", ["d---e"])
    assert texts(files=[plain, rows, plain], separator="---") == ["a", "b", "\nc\n", "d---e"]
    assert notes(capsys) == []


def test_a_separator_that_never_occurs_is_noted(tmp_path, capsys):
    texts(files=write(tmp_path / "a.txt", "a\n\nb"), separator="\\n\\n")
    (note,) = notes(capsys)
    assert note.startswith(r"data.separator '\\n\\n' does not occur: each file of plain")
    assert note.endswith("(in bash, a line break is $'\\n')")


def test_files_without_the_separator_are_noted(tmp_path, capsys):
    names = {"a.txt": "a===b", "b.txt": "b", "c.py": "c", "d.txt": "", "e.txt": "e = = =",
             "f.txt": "===f", "g.txt": "g"}
    files = [write(tmp_path / name, content) for name, content in names.items()]
    files.append(write_jsonl(tmp_path / "h.jsonl", ["h"]))
    texts(files=files, separator="===")
    assert notes(capsys) == [
        "files of plain text without data.separator '===' are one document each: "
        f"{tmp_path}/b.txt, {tmp_path}/c.py, {tmp_path}/e.txt and 1 more (4 of 6 files)"]


def test_files_of_a_folder_without_the_separator_are_noted(tmp_path, capsys):
    for name, content in {"c.txt": "a\n===\nb", "d.txt": "c"}.items():
        write(tmp_path / name, content)
    texts(files=str(tmp_path), separator="===")
    assert notes(capsys)[1:] == [
        "files of plain text without data.separator '===' are one document each: "
        f"{tmp_path}/d.txt (1 of 2 files)"]


@pytest.mark.parametrize("size", [4, 5, 9])  # cut in it: 1, 2 or 6 of 7 characters
def test_a_separator_across_two_pieces_gets_no_note(tmp_path, capsys, monkeypatch, size):
    monkeypatch.setattr(readers, "PIECE", size)
    assert texts(files=write(tmp_path / "a.txt", "aaa<|sep|>b"), separator="<|sep|>") == [
        "aaa", "b"]
    assert notes(capsys) == []


@pytest.mark.parametrize("separator", ["n", "nn", "t", "rnrn", "1"])
def test_a_separator_that_words_have_inside_is_refused(tmp_path, separator):
    """In bash, n is what --data.separator has of a backslash and n without quotes."""
    with pytest.raises(UserError, match=rf"'{separator}' would be cut out of the words .*\$'\\n'"):
        source(write(tmp_path / "a.txt", "a"), separator=separator)


@pytest.mark.parametrize("name, hinted", [
    ("owner/stories", True), ("owner/stories-2.5", True), ("here/stories", False),
    ("owner/stories.txt", False)])
def test_the_id_of_a_data_set_leads_to_its_option(tmp_path, monkeypatch, name, hinted):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        texts(files=name)
    hint = f"; of a data set of the Hugging Face Hub, say --data.hub {name}"
    assert str(caught.value).endswith(hint) == hinted


def test_an_empty_separator_is_refused(tmp_path):
    with pytest.raises(UserError, match="data.separator '' is in every text"):
        source(write(tmp_path / "a.txt", "a"), separator="")


def test_unknown_suffixes_are_noted_in_one_line(tmp_path, capsys):
    names = "a.txt b.xml c.xml d.wiki e.py README f.srt g.md.gz h.qqq i.zz"
    texts(files=[write(tmp_path / name, "x") for name in names.split()])
    assert notes(capsys) == [f"read as plain text, with any markup in it: .xml ({tmp_path}/b.xml), "
                             f".wiki ({tmp_path}/d.wiki), .qqq ({tmp_path}/h.qqq) and 1 more"]


@pytest.mark.parametrize("content", ["<!DOCTYPE html>\n<html>", " \n<HTML lang=en>"])
def test_a_web_page_under_another_name_is_noted(tmp_path, capsys, content):
    """Such as the page around a file, instead of the file."""
    path = write(tmp_path / "a.txt", content)
    texts(files=path)
    assert notes(capsys) == [f"web pages, whose tags are trained as text: {path}; python "
                             "tools/as_lines.py FILES > NEW.jsonl writes their text"]


ROWS = '{"text": "a"}\n{"text": "b"}\n'


@pytest.mark.parametrize("content", [ROWS, '[\n {"text": "a"},\n {"text": "b"}\n]'])
def test_rows_of_json_in_a_plain_file_are_noted(tmp_path, capsys, content):
    path = write(tmp_path / "a.txt", content)
    assert texts(files=path) == [content]
    assert notes(capsys) == [f"JSON, whose names and braces are trained as text: {path}; renamed "
                             "to .jsonl, its texts alone are read"]


@pytest.mark.parametrize("name, content", [
    ("a.py", ROWS), ("a.js", '[{"a": 1}]'), ("games.txt", '[Event "x"]\n\n1. e4 e5\n'),
    ("a.txt", '{"text": "a"}\n\nThis is how a row looks.\n'), ("b.txt", "{a}\n{b}\n")])
def test_code_and_texts_that_only_look_like_rows_are_not_noted(tmp_path, capsys, name, content):
    texts(files=write(tmp_path / name, content))
    assert notes(capsys) == []


def test_nul_characters_are_noted_once(tmp_path, capsys):
    path = write(tmp_path / "a.txt", "ab\0" * 2**20)  # read in several pieces
    texts(files=path)
    assert notes(capsys) == [
        f"NUL characters, as binary data has them, are trained as text: {path}"]


@pytest.mark.parametrize("row", ["{}\teng\tIt was.\n", "{}\tIt was.\r\n", "#{}\n1\ta\n"])
def test_a_table_in_a_plain_file_is_noted(tmp_path, capsys, row):
    path = write(tmp_path / "a.txt", "".join(map(row.format, range(12))))
    texts(files=path)
    assert notes(capsys) == [
        f"tables with tabs, whose columns are all trained as text: {path}; renamed to .tsv, with a "
        "line above that names the columns, those of --data.column are read"]


def test_ten_lines_are_enough_to_tell_a_table(tmp_path, capsys):
    texts(files=write(tmp_path / "a.txt", "1\ta\n" * 10))
    (note,) = notes(capsys)
    assert note.startswith("tables with tabs")


@pytest.mark.parametrize("content", [
    "\ta line of a list\n" * 12, "1\ta\n" * 9, "1\ta\n" * 12 + "a line\n", "a line\n" * 12])
def test_lines_with_tabs_are_not_always_a_table(tmp_path, capsys, content):
    texts(files=write(tmp_path / "a.txt", content))
    assert notes(capsys) == []


def test_a_data_set_that_was_saved_to_disk_says_how_to_read_it(tmp_path):
    write(tmp_path / "my set/train/data-00000-of-00001.arrow", "x")
    write(tmp_path / "my set/train/state.json", "{}")
    with pytest.raises(UserError) as error:
        texts(hub=str(tmp_path / "my set"))
    assert str(error.value) == (
        f"data.hub {tmp_path}/my set was written by save_to_disk: python tools/as_lines.py "
        f"'{tmp_path}/my set' > NEW.jsonl writes its rows for --data.files")


def test_other_files_of_arrow_are_loaded(tmp_path):
    table = pyarrow.table({"text": ["a", "b"]})
    folder = tmp_path / "set"
    folder.mkdir()
    with pyarrow.ipc.new_stream(str(folder / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert texts(hub=str(folder)) == ["a", "b"]


@pytest.mark.parametrize("read_as, wanted", [("latin-1", "LATIN1"), ("cp1252", "WINDOWS-1252")])
@pytest.mark.parametrize("word", [
    "don\u2019t", "\u2013", "\u2026", "na\u00efve", "caf\u00e9", "Zo\u00eb", "\u00eatre",
    "\u043d\u0435\u0431\u043e", "\U0001f602"])
def test_a_text_that_was_read_in_another_encoding_is_noted(tmp_path, capsys, word, read_as, wanted):
    text = f"It was {word} there \u2013 so."
    path = write(tmp_path / "a.txt", text.encode().decode(read_as))
    texts(files=path)
    [note] = notes(capsys)
    example = word.encode().decode(read_as)
    assert note.startswith(f"{path} has {example!r} and perhaps more of UTF-8 that was read in ")
    (command,) = re.findall("iconv .* > NEW", note)
    assert f"-t {wanted} FILE" in command
    subprocess.run(command.replace("FILE", "a.txt"), shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "NEW").read_text(encoding="utf-8") == text


def test_an_example_of_another_encoding_has_no_word_of_the_line_above(tmp_path, capsys):
    texts(files=write(tmp_path / "a.txt", "It was.\n\u00c3\u00a9t\u00c3\u00a9 fini"))
    [note] = notes(capsys)
    assert "a.txt has '\u00c3\u00a9t\u00c3\u00a9' and perhaps" in note


def decode_as_browsers(data):
    """cp1252 with a control character for each of the five bytes that it does not have."""
    return "".join(bytes([byte]).decode("cp1252", errors="ignore") or chr(byte) for byte in data)


def test_a_text_that_a_browser_read_in_another_encoding_is_mended(tmp_path, capsys):
    """A closing quotation mark has a byte that cp1252 does not have."""
    text = "She said \u201cHello\u201d to the caf\u00e9 owner.\r\n"
    path = write(tmp_path / "a.txt", decode_as_browsers(text.encode()))
    texts(files=path)
    [note] = notes(capsys)
    (command,) = re.findall("python .* > NEW", note)
    command = command.replace("FILE", "a.txt").replace("python", shlex.quote(sys.executable), 1)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "NEW").read_bytes() == text.encode()


def test_rows_that_were_read_in_another_encoding_are_noted_once(tmp_path, capsys):
    """As Facebook exports messages."""
    rows = [{"text": "Viens \u00c3\u00a9cout\u00c3\u00a9."}] * 9
    texts(files=write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))
    [note] = notes(capsys)
    assert note.startswith("column text has '\u00c3\u00a9cout\u00c3\u00a9.' and perhaps")
    assert "; of JSON, python tools/as_lines.py " in note
    assert run_advised(tmp_path, note, "a.jsonl") == ["Viens \u00e9cout\u00e9."] * 9


@pytest.mark.parametrize("word", [
    "\u65e5\u672c", "\u0645\u0631\u062d\u0628\u0627", "\u03c0\u03ce\u03c2"])
def test_other_scripts_that_were_read_as_latin1_are_noted(tmp_path, capsys, word):
    texts(files=write(tmp_path / "a.txt", word.encode().decode("latin-1")))
    [note] = notes(capsys)
    assert note.startswith(f"{tmp_path}/a.txt has {word.encode().decode('latin-1')!r} and perhaps")


@pytest.mark.parametrize("name, content", [
    ("a.txt", "D\u00e9j\u00e0\u00a0\u00bb, voil\u00e0\u2026\u00a0\u00bb, pass\u00e9\u2014\u00ab"),
    ("a.txt", "AMANH\u00c3\u00bb \u00c3\u00a0 S\u00c3O p\u00e2t\u00e9 \u00e2\u20ac"),
    ("a.py", "assert 'caf\u00c3\u00a9'"), ("a.csv", "text\nP\u00e2t\u00e9\nS\u00c3O\n")])
def test_accents_are_no_sign_of_another_encoding(tmp_path, capsys, name, content):
    texts(files=write(tmp_path / name, content))
    assert notes(capsys) == []


def test_images_in_base64_are_noted_and_dropped(tmp_path, capsys):
    """At the end of a document, as Google writes Markdown."""
    path = write(tmp_path / "a.md", "It was. " * 2**18 + "\n\n<data:image/png;base64,iV/O+w==>\n")
    texts(files=path)
    [note] = notes(capsys)
    assert note.startswith(f"images in base64 are trained as text: {path}; sed -E ")
    (command,) = re.findall("sed .* > NEW", note)
    subprocess.run(command.replace("FILE", "a.md"), shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "NEW").read_text(encoding="utf-8").endswith(". \n\n<data:image/png>\n")


def test_html_further_down_is_ordinary_text(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(readers, "PIECE", 8)
    texts(files=write(tmp_path / "a.txt", "Write:\n\n<html>\n"))
    assert notes(capsys) == []


@pytest.mark.parametrize("name, content", [
    ("a.txt", "a < b <sub>1</sub> endoftext"), ("a.md", "<div>a</div>"),
    ("a.txt", "a <s>b</s> c"), ("a.md", "<s>done</s>\n- <s>done</s>\n"),
    ("a.pl", "<s>\nwhile (<s>) {}\n"), ("a.py", "EOS = [\n</s>\n<|endoftext|>"),
    ("a.jsonl", '{"text": "</s>"}'), ("a.csv", "text\n<|endoftext|>\n"), ("empty.txt", "")])
def test_ordinary_files_need_no_note(tmp_path, capsys, name, content):
    texts(files=write(tmp_path / name, content))
    assert notes(capsys) == []


# Text that has to be fetched, from servers on this machine


COMMIT = "1" * 40
STORIES = [f"Story {i}.\r\n" for i in range(5)]
ROWS = "".join(json.dumps({"story": text}) + "\n" for text in STORIES).encode()
OF_COMMIT = {"X-Repo-Commit": COMMIT, "ETag": f'"{"2" * 40}"'}
INFO = {"id": "some/stories", "sha": COMMIT, "siblings": []}
TREE = [{"type": "file", "path": "train.jsonl", "size": len(ROWS), "oid": "2"}]


def as_json(value):
    return 200, json.dumps(value).encode() + b"\n", {"Content-Type": "application/json"}


class Server(BaseHTTPRequestHandler):
    """Some files, and as much of the Hub as reading one data set takes."""

    answers = {  # path -> status, body, headers
        "/text.txt": (200, ODD.encode(), {}), "/api/datasets/some/stories": as_json(INFO),
        "/rows.jsonl.gz": (200, gzip.compress(json.dumps({"text": ODD}).encode()), {}),
        "/rows.jsonl": as_json({"text": ODD}), "/b/rows.jsonl": as_json({"text": "b"}),
        f"/api/datasets/some/stories/revision/{COMMIT}": as_json(INFO),
        f"/api/datasets/some/stories/tree/{COMMIT}": as_json(TREE),
        f"/datasets/some/stories/resolve/{COMMIT}/train.jsonl": (200, ROWS, OF_COMMIT)}
    missing = {"some/stories/revision": "RevisionNotFound", "some/stories": "EntryNotFound",
               "": "RepoNotFound"}  # part of a path -> the Hub's word for what is not there

    def do_GET(self):
        path = self.path.split("?")[0]
        error = next(self.missing[part] for part in self.missing if part in path)
        not_there = 404, b"", {"X-Error-Code": error, **OF_COMMIT}
        status, body, headers = self.answers.get(path, not_there)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET
    log_message = Mock()


@contextmanager
def serving():
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


FETCHED = pytest.mark.parametrize("name", ["text.txt?raw=true", "rows.jsonl?x=1", "rows.jsonl.gz"])


@FETCHED
def test_a_url_is_fetched_once(name):
    """Then it needs no network."""
    with serving() as server:
        options = {"source": "url", "url": f"{server}/{name}"}
        assert texts(**options) == [ODD]
    assert texts(**options) == [ODD]


@pytest.mark.parametrize("option, source", [("url", "url"), ("hub", "hub"), ("column", "stdlib")])
def test_what_is_fetched_needs_no_name_of_a_source(option, source):
    assert DataConfig(**{option: "x"}).source == source


def test_a_url_among_files_is_told_its_option():
    with pytest.raises(UserError) as caught:
        texts(files="http://a/b?c=1&d=2")
    assert str(caught.value) == ("--data.files http://a/b?c=1&d=2 matches no file: did you mean "
                                 "--data.url 'http://a/b?c=1&d=2'?")


@pytest.mark.parametrize("option", ["url", "hub"])
def test_a_path_as_a_name_elsewhere_is_told_its_option(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    Path("my poem.txt").write_text("A line", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        texts(source=option, **{option: "my poem.txt"})
    assert str(caught.value) == (f"data.{option} my poem.txt is a path on this machine: did you "
                                 "mean --data.files 'my poem.txt'?")


def test_an_address_without_a_protocol_is_refused():
    with pytest.raises(UserError, match="^data.url a.org/b.txt must begin with http:// or https:/"):
        texts(source="url", url="a.org/b.txt")


def test_each_url_is_a_file_of_its_own():
    """Also where two end with the same name."""
    with serving() as server:
        assert texts(source="url", url=f"{server}/rows.jsonl") == [ODD]
        assert texts(source="url", url=f"{server}/b/rows.jsonl") == ["b"]


@FETCHED
def test_a_file_with_another_hash_leaves_nothing(cache, name):
    with serving() as server, pytest.raises(
            UserError, match="its SHA-256 is .*, and data.sha256 is 0{64}: correct .* has it$"):
        texts(source="url", url=f"{server}/{name}", sha256="0" * 64)
    assert [*cache.iterdir()] == []


def test_a_file_that_is_not_there_leaves_nothing(cache):
    with serving() as server, pytest.raises(
            UserError, match=f"{server}/no.txt .*404.*. Check its name and the network, or use a "):
        texts(source="url", url=f"{server}/no.txt")
    assert [*cache.iterdir()] == []


@FETCHED
def test_a_copy_with_another_hash_is_fetched_again(cache, name):
    with serving() as server:
        options = {"source": "url", "url": f"{server}/{name}"}
        assert texts(**options) == [ODD]
        (file,) = cache.iterdir()
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        file.write_bytes(b"changed")
        assert texts(**options, sha256=digest) == [ODD]
        file.write_bytes(b"changed")
        assert texts(**options, sha256=digest.upper()) == [ODD]
    file.write_bytes(b"changed")
    with pytest.raises(UserError, match="cannot be read"):  # without a network
        texts(**options, sha256=digest)


def test_a_server_that_does_not_answer_is_an_error_only(monkeypatch, capsys):
    """The client of the Hub tries six times."""
    handler = logging.StreamHandler(sys.stderr)  # its own writes past capsys
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "handlers", [handler])
    huggingface_hub.logging.set_verbosity_warning()
    with pytest.raises(UserError, match="http://127.0.0.1:1/a.txt cannot be read: ConnectError"):
        texts(source="url", url="http://127.0.0.1:1/a.txt")
    assert capsys.readouterr().err == "fetching http://127.0.0.1:1/a.txt\n"


def test_an_address_of_no_text_is_refused_unfetched():
    with pytest.raises(UserError, match="^http://127.0.0.1:1/a.json is not read, because .json"):
        texts(source="url", url="http://127.0.0.1:1/a.json?download=true")


def test_errors_in_a_fetched_file_name_its_address(monkeypatch):
    monkeypatch.setitem(Server.answers, "/latin.txt", (200, b"caf\xe9", {}))
    with serving() as server, pytest.raises(UserError, match=f"{server}/latin.txt cannot .*0xe9"):
        texts(source="url", url=f"{server}/latin.txt")


def test_the_options_of_a_data_set_reach_its_reader(monkeypatch):
    """Also its configuration, which the data set below has not."""
    load_dataset = MagicMock()
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    load_dataset.return_value.features = {"text": "string"}
    texts(source="hub", hub="a", hub_config="b", hub_split="c", hub_revision="d")
    load_dataset.assert_called_once_with("a", "b", split="c", revision="d")


def answer(file, environment, questions):
    """What each configuration gives in a process that reads this environment at import."""
    os.environ |= environment
    answers = []
    for options in questions:
        try:
            answers.append(texts(source="hub", **options))
        except UserError as error:
            answers.append(str(error))
    write(file, json.dumps(answers))


@pytest.mark.slow
def test_the_hub_answers_once_and_its_copy_serves_offline(tmp_path, launch_ranks):
    def ask(server, *questions, **environment):
        environment |= {"HF_ENDPOINT": server, "HF_HOME": str(tmp_path)}
        launch_ranks(1, answer, tmp_path / "answers", environment, questions).join()
        return json.loads((tmp_path / "answers").read_text(encoding="utf-8"))

    stories = {"hub": "some/stories", "column": "story"}
    asked = [stories, stories | {"hub_revision": COMMIT}, stories | {"hub_revision": "3" * 40},
             {"hub": "some/poems"}]
    more = [{"hub": "some/stories"}, stories | {"hub_split": "test"}]
    with serving() as server:
        *online, column, split = ask(server, *asked, *more)
    assert "no text in a column 'text', only 'story'" in column
    assert "some/stories" in split and "test" in split
    for answers in (online, ask(server, *asked, HF_HUB_OFFLINE="1")):
        got, got_pinned, unknown, missing = answers
        assert got == got_pinned == STORIES
        assert "some/stories" in unknown and "3" * 40 in unknown
        assert "some/poems" in missing and "--data.files PATH" in missing
