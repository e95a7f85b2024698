"""Folders and globs: which of their files are read, which are left out, and how this is said."""

import io
import json
import re
import shutil
import subprocess
from unittest.mock import Mock

import pyarrow.parquet
import pytest
from builders import ROOT
from text_files import SLACK, copied, gz, notes, read, short, write, write_parquet, zstd

from data import readers, search, tables
from data.columns import value_text
from data.prepare import copy_parts
from data.readers import is_damaged
from data.sources import SOURCES, DataConfig
from errors import UserError


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
    ("pnpm-lock.yaml", "packages:"),
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


def test_the_five_most_frequent_suffixes_of_a_folder_are_named(tmp_path, capsys):
    for name in ("a.c", "a.md", "a.py", "a.rst", "a.tex", "a.txt", "b.txt"):
        write(tmp_path / name, "x")
    read(tmp_path)
    kinds = "2 .txt, 1 .c, 1 .md, 1 .py, 1 .rst"
    assert notes(capsys) == [f"{tmp_path}: 7 files of 7 are read: {kinds}"]


def test_a_file_that_a_link_leads_to_is_counted_once(tmp_path, capsys):
    write(tmp_path / "a.txt", b"caf\xe9 au lait\n")
    (tmp_path / "b.txt").symlink_to("a.txt")
    write(tmp_path / "c.txt", "text")
    assert copied(tmp_path) == "text"
    assert notes(capsys)[0] == f"{tmp_path}: 1 file of 2 is read"


def test_a_folder_names_the_software_that_it_leaves_out(tmp_path, capsys):
    write(tmp_path / "a.js", "x")
    write(tmp_path / "web/node_modules/b.js", "x")
    read(tmp_path)
    assert notes(capsys) == [f"{tmp_path}: 1 file of 1 is read (left out: node_modules)"]


@pytest.mark.parametrize("name, content", [
    ("vendor.min.js", "a=1"), ("all-min.css", "a{b:c}"), ("app.MIN.mjs.gz", gz(b"a=1")),
    ("bundle.js", "/*! a licence */\n" + "a=1;" * 300)])
def test_minified_code_in_a_folder_is_left_out_and_counted(tmp_path, capsys, name, content):
    write(tmp_path / "a.js", f"const long = '{'x' * 900}';\n" * 9)
    write(tmp_path / "admin.js", "b")
    write(tmp_path / name, content)
    assert read(tmp_path)[1:] == ["b"]
    kind = "." + name.lower().removesuffix(".gz").rpartition(".")[2]
    assert notes(capsys)[0] == (
        f"{tmp_path}: 2 files of 3 are read (left out: 1 minified {kind})")
    assert "".join(read(tmp_path / name)) != ""  # it is read if it is named


@pytest.mark.parametrize("length, n_read", [(1000, 2), (1001, 1)])
def test_code_with_a_line_of_1001_characters_is_minified(tmp_path, length, n_read):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "b.js", "x" * length)
    assert len(read(tmp_path)) == n_read


@pytest.mark.parametrize("project, built", [
    ("package.json", "dist"), ("Cargo.toml", "target"), ("CMakeLists.txt", "build")])
def test_a_folder_leaves_out_what_a_build_tool_wrote(tmp_path, capsys, project, built):
    write(tmp_path / "app/a.js", "source")
    write(tmp_path / "app" / project, "")
    write(tmp_path / "app" / built / "b.js", "bundle")
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


@pytest.mark.parametrize("pattern, noted", [
    ("*.js", "*.js: 1 of 2 files are minified code: name a folder, which leaves these out, if you"),
    ("**/*.js", "**/*.js: 2 of 3 files are in node_modules or minified code: name a folder, "),
    ("*.min.js", None)])
def test_a_glob_says_that_minified_code_is_among_its_files(
        tmp_path, monkeypatch, capsys, pattern, noted):
    monkeypatch.chdir(tmp_path)
    for name in ("a.js", "b.min.js", "node_modules/c.min.js"):
        write(tmp_path / name, name)
    read(pattern)
    assert [line.startswith(noted or "") for line in notes(capsys)] == [True] * (noted is not None)


OUTPUTS = pytest.mark.parametrize("names, what", [
    (["config.yaml", "run.json", "metrics.jsonl"], "gyre's runs"),
    (["manifest.json", "train.bin", "tokenizer.txt"], "gyre's prepared texts"),
    (["index.html", "model.gguf", "index.js"], "gyre's pages"),
])


@OUTPUTS
def test_a_folder_leaves_out_what_gyre_wrote(tmp_path, capsys, names, what):
    write(tmp_path / "a.txt", "text")
    write(tmp_path / "b.png", b"\x89PNG")
    for name in names:
        write(tmp_path / "deep/small" / name, '{"text": "output"}')
    assert read(tmp_path) == ["text"]
    assert notes(capsys) == [f"{tmp_path}: 1 file of 2 is read (left out: 1 .png, {what})"]


def test_a_folder_leaves_out_a_study(tmp_path, capsys):
    write(tmp_path / "a.txt", "text")
    shutil.copytree(ROOT / "studies/qk-rates", tmp_path / "deep/rates")
    assert read(tmp_path) == ["text"]
    assert notes(capsys) == [f"{tmp_path}: 1 file of 1 is read (left out: gyre's studies)"]


def test_a_plan_that_nobody_may_read_marks_no_study(tmp_path, monkeypatch):
    write(tmp_path / "plan.json", '{"tuning_seeds": []}')
    assert search.is_study(tmp_path)
    monkeypatch.setattr(search.Path, "open", Mock(side_effect=PermissionError))
    assert not search.is_study(tmp_path)


def test_a_plan_of_another_program_leaves_no_folder_out(tmp_path):
    write(tmp_path / "mine/plan.json", '{"resources": []}')
    for name in ("logs/a.txt", "results/b.txt"):
        write(tmp_path / "mine" / name, name)
    assert "logs/a.txt" in read(tmp_path)


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
    ("b.csv", "text,text\na,b\n", "line 1 names 2 columns 'text'"),
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


@pytest.mark.parametrize("utf_16, damaged", [("a.txt", "b.jsonl"), ("b.txt", "a.jsonl")])
def test_files_that_are_not_utf8_are_not_counted_as_damage(tmp_path, utf_16, damaged):
    write(tmp_path / utf_16, ("text" * 400).encode("utf-16"))
    write(tmp_path / damaged, BAD_LINE)
    write(tmp_path / "c.txt", "text")
    assert copied(tmp_path) == "text"


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


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
@pytest.mark.parametrize("name", ["author", "gr\u00f6\u00dfe", "who's by"])
def test_a_key_is_taken_out_of_objects_as_advised(tmp_path, capsys, name):
    path = write(tmp_path / "a.jsonl", json.dumps({name: {"KEY": "ann"}, "content": "one"}))
    read(path, column=f"{name},content")
    (command,) = re.findall("jq .* > NEW.jsonl", notes(capsys)[0])
    subprocess.run(command.replace("FILE", path.name), shell=True, cwd=tmp_path, check=True)
    assert read(tmp_path / "NEW.jsonl", column=f"{name},content") == ["ann\none"]


def test_a_column_that_has_text_in_some_rows_is_noted_with_their_number(tmp_path, capsys):
    rows = [{"author": author, "content": "x"} for author in ({"name": "ann"}, "bob")]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert read(path, column="author,content") == ["x", "bob\nx"]
    assert notes(capsys) == ["1 of 2 rows are read without column author, which has dict there"]


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
    write(tmp_path / "d.vim", "syntax on")
    read(tmp_path)
    assert notes(capsys)[0].endswith(
        f"; to read the .vim files too, add --data.files '{tmp_path}/**/*.vim'")


def test_a_folder_of_an_unknown_suffix_alone_gives_its_glob(tmp_path):
    write(tmp_path / "a.vim", "syntax on")
    with pytest.raises(UserError) as error:
        read(tmp_path)
    assert str(error.value).endswith(
        f", and has 1 .vim; to read the .vim files: --data.files '{tmp_path}/**/*.vim'")


def test_the_glob_of_an_unknown_suffix_is_not_that_of_packed_files(tmp_path):
    for name in "xyz":
        (tmp_path / f"{name}.foo.gz").write_bytes(gz(b"text"))
    write(tmp_path / "a.foo", "text")
    with pytest.raises(UserError, match=r"--data\.files '.*/\*\*/\*\.foo'$"):
        read(tmp_path)


def test_the_references_of_a_thesis_are_no_text_of_its_folder(tmp_path, capsys):
    """They would be the last file, and so the validation text."""
    write(tmp_path / "thesis.tex", "text")
    write(tmp_path / "thesis.bib", "@book{key, title = {A Title}}")
    assert read(tmp_path) == ["text"]
    assert notes(capsys) == [f"{tmp_path}: 1 file of 2 is read (left out: 1 .bib)"]


def test_the_log_of_latex_beside_its_text_is_left_out(tmp_path, capsys):
    write(tmp_path / "thesis.tex", "text")
    write(tmp_path / "thesis.log", "This is pdfTeX")
    write(tmp_path / "ship.log", "Monday")
    assert read(tmp_path) == ["Monday", "text"]
    assert notes(capsys) == [
        f"{tmp_path}: 2 files of 3 are read: 1 .log, 1 .tex (left out: 1 .log)"]


def test_the_glob_of_an_unknown_suffix_escapes_brackets(tmp_path):
    write(tmp_path / "a.foo[1]", "text")
    with pytest.raises(UserError) as error:
        read(tmp_path)
    assert str(error.value).endswith(f"--data.files '{tmp_path}/**/*.foo[[]1]'")


def test_a_suffix_in_two_spellings_has_one_glob_for_both(tmp_path, capsys):
    write(tmp_path / "a.txt", "text")
    for name in ("B.VIM", "C.VIM", "d.vim"):
        write(tmp_path / name, name)
    pattern = f"{tmp_path}/**/*.[vV][iI][mM]"
    assert read(tmp_path) == ["text"]
    assert notes(capsys)[0].endswith(f"; to read the .vim files too, add --data.files '{pattern}'")
    assert read(pattern) == ["B.VIM", "C.VIM", "d.vim"]


def test_the_glob_of_an_unknown_suffix_has_its_capitals(tmp_path):
    path = write(tmp_path / "song.VIM", "syntax on")
    pattern = f"{tmp_path}/**/*.VIM"
    with pytest.raises(UserError) as error:
        read(tmp_path)
    assert str(error.value).endswith(f"; to read the .VIM files: --data.files '{pattern}'")
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


def test_a_folder_of_references_only_says_how_to_read_them(tmp_path):
    write(tmp_path / "thesis.bib", "@book{a, title = {A title}}")
    with pytest.raises(UserError) as error:
        read(tmp_path)
    assert str(error.value).endswith(
        f"has 1 .bib; to read the .bib files: --data.files '{tmp_path}/**/*.bib'")


def test_a_folder_of_json_says_how_to_read_its_largest_file(tmp_path):
    """Slack's lists of channels and people come before its messages."""
    write(tmp_path / "channels.json", '[{"name": "general"}]')
    write(tmp_path / "general/2023-01-31.json", json.dumps(SLACK))
    with pytest.raises(UserError, match="; .*2023-01-31.json is not read, .* writes who says what"):
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
    write(tmp_path / "my notes/a.vim", "syntax on")
    write(tmp_path / "my notes/e.txt", "text")
    read(tmp_path / "my notes")
    assert notes(capsys)[0].endswith(f"/**/*.vim'; {command}")
