"""A run folder describes itself, is whole or not there, and its points survive what happens."""

import math
import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
import torch
from builders import ROOT, parse_config, require_program
from disk_faults import cut, failing_disks

import evaluate
import files
from data.sources import DataConfig
from errors import UserError, find_script
from files import read_json, write_json
from gyre import rundir
from gyre.checkpoint import Checkpoints
from gyre.parallel import ALONE
from gyre.rundir import RunDir, check_runs_folder, claim_name, is_foreign, resolve_path
from gyre.yaml_files import read_config

NO_WANDB = parse_config("--log.wandb", "disabled")


# --- the folder -----------------------------------------------------------------------------------


def test_a_new_run_has_four_files(new_run):
    names = {path.name for path in new_run().path.iterdir()}
    assert names == {"config.yaml", "manifest.json", "run.json", "tokenizer.model"}


def test_a_configuration_names_its_own_copy_of_the_tokenizer(new_run, tmp_path):
    run = new_run()
    tokenizer = (tmp_path / "tokenizer.model").read_bytes()
    assert (run.path / "tokenizer.model").read_bytes() == tokenizer
    moved = Path(shutil.move(run.path, tmp_path / "moved"))
    config = read_config(moved / "config.yaml")
    assert config.name == "a"
    assert config.data.tokenizer == str(moved)


def test_a_run_is_read_as_it_was_made(new_run):
    words = os.fsdecode(b"caf\xe9.txt")  # not UTF-8
    run = new_run(manifest={"text": words, "x": "é"}, command=["train.py", words], runs="new/deep")
    again = RunDir.open(run.path)
    assert again.record == run.record
    assert again.manifest == {"text": words, "x": "é"}
    assert words in again.record["command"]


def test_the_record_says_when_and_with_what(new_run):
    rundir.git_revision.cache_clear()  # a test without PATH may have found no git
    record = new_run().record
    assert record["torch"] == torch.__version__
    assert record["git"] == rundir.git_revision(ROOT / "gyre")
    assert record["created"].endswith("+00:00")


@pytest.mark.parametrize("name", ["book.txt", "*.txt", "texts"])
def test_a_relative_name_is_of_the_folder_a_run_was_made_in(new_run, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").touch()
    (tmp_path / "texts").mkdir()
    run = new_run()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    data = RunDir.open(run.path).resolve_text_paths(DataConfig(files=[name]))
    assert data.files == [f"{tmp_path}/{name}"]


def test_brackets_in_the_folder_of_a_run_are_no_pattern(tmp_path):
    (tmp_path / "of [2026]").mkdir()
    (tmp_path / "of [2026]/book.txt").touch()
    assert resolve_path("*.txt", f"{tmp_path}/of [2026]") == f"{tmp_path}/of [[]2026]/*.txt"


@pytest.mark.parametrize("name", ["gone.txt", "/gone.txt", "~/gone.txt"])
def test_a_name_that_is_absolute_or_leads_nowhere_is_kept(new_run, tmp_path, monkeypatch, name):
    run = new_run()
    monkeypatch.chdir(tmp_path)
    assert run.resolve_text_paths(DataConfig(files=[name])).files == [name]


def test_names_of_a_run_that_does_not_say_where_are_kept(tmp_path, monkeypatch):
    (tmp_path / "book.txt").touch()
    monkeypatch.chdir(tmp_path)
    data = DataConfig(files=["book.txt"])
    assert RunDir(tmp_path, {}).resolve_text_paths(data).files == ["book.txt"]


def test_a_run_is_not_overwritten(new_run):
    path = re.escape(str(new_run().path))
    with pytest.raises(UserError, match=f"--resume {path}.*--name"):
        new_run()


@pytest.mark.parametrize("runs", ["text.txt", "text.txt/runs"])
def test_runs_below_a_file_are_refused(tmp_path, runs):
    (tmp_path / "text.txt").touch()
    with pytest.raises(UserError) as caught:
        check_runs_folder(tmp_path / runs)
    assert str(caught.value) == (
        f"no run can be made in {tmp_path / runs}, because {tmp_path}/text.txt is no folder: "
        "choose another folder with --log.runs")


def test_runs_in_a_folder_that_cannot_be_written_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write anywhere
    with pytest.raises(UserError) as caught:
        check_runs_folder(tmp_path / "runs")
    assert str(caught.value) == (
        f"no run can be made in {tmp_path}/runs, because {tmp_path} cannot be written: choose "
        "another folder with --log.runs")


def test_runs_may_be_in_a_folder_that_is_made_later(tmp_path):
    check_runs_folder(tmp_path / "new" / "runs")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def checkout(tmp_path):
    """(a file of code, the revision that has it)."""
    require_program("git")
    code = tmp_path / "code" / "rundir.py"
    code.parent.mkdir()
    code.write_text("1", encoding="utf-8")
    git = ["git", "-C", code.parent, "-c", "user.name=a", "-c", "user.email=a"]
    for words in ("init -q", "add .", "commit -qm 1", "tag -am 1 v1"):
        subprocess.run([*git, *words.split()], check=True)
    return code, subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()


def test_the_revision_is_that_of_the_code(checkout):
    code, head = checkout
    (code.parent / "untracked").touch()
    assert rundir.git_revision(code.parent) == {"revision": head, "dirty": False}


def test_a_changed_file_makes_the_revision_dirty(checkout):
    code, head = checkout
    code.write_text("2", encoding="utf-8")
    git = rundir.git_revision(code.parent)
    assert (git["revision"], git["dirty"]) == (head, True)


def test_the_changes_of_a_dirty_revision_have_a_hash(checkout):
    """Such as those to an encoding that was never committed."""
    code, _ = checkout
    hashes = []
    for text in ("2", "3", "2"):
        code.write_text(text, encoding="utf-8")
        rundir.git_revision.cache_clear()
        hashes.append(rundir.git_revision(code.parent)["diff_sha256"])
    assert hashes[0] == hashes[2] != hashes[1]


def changes_hash(code: Path, name: str, content: bytes) -> str:
    """The hash of the changes once this file beside `code` has this content."""
    (code.parent / name).parent.mkdir(parents=True, exist_ok=True)
    (code.parent / name).write_bytes(content)
    rundir.git_revision.cache_clear()
    git = rundir.git_revision(code.parent / "inner")
    assert git is not None
    return git["diff_sha256"]


@pytest.fixture
def dirty(checkout):
    """A file of a checkout that has changes, with a binary one and a folder `inner` beside it."""
    code, _ = checkout
    (code.parent / "inner").mkdir()
    (code.parent / "table.bin").write_bytes(b"\0" + bytes(1000))
    subprocess.run(["git", "-C", code.parent, "add", "."], check=True)
    code.write_text("2", encoding="utf-8")
    return code


# What git does not know is compared too, and what is binary, unless it has nothing to run.
@pytest.mark.parametrize("name, first, second, differ", [
    ("mine.py", b"1", b"2", True),
    ("inner/mine.py", b"1", b"2", True),
    ("env/lib/other.py", b"1", b"2", False),  # an environment that is not ignored
    ("table.bin", b"\0\1", b"\0\2", True),
    ("notes.txt", b"1", b"2", False)])
def test_a_hash_of_changes_differs_with_code_only(dirty, name, first, second, differ):
    assert (changes_hash(dirty, name, first) != changes_hash(dirty, name, second)) == differ


def test_a_hash_of_changes_differs_with_the_name_of_a_new_file(dirty):
    before = changes_hash(dirty, "mine.py", b"1")
    (dirty.parent / "mine.py").unlink()
    assert changes_hash(dirty, "yours.py", b"1") != before


def test_a_hash_of_changes_covers_all_folders_whatever_git_shows(dirty):
    subprocess.run(["git", "-C", dirty.parent, "config", "diff.relative", "true"], check=True)
    assert changes_hash(dirty, dirty.name, b"3") != changes_hash(dirty, dirty.name, b"4")


def test_a_lock_of_an_editor_hides_no_revision(dirty):
    (dirty.parent / ".#mine.py").symlink_to("somebody@somewhere")
    assert rundir.git_revision(dirty.parent)["dirty"]


def test_without_git_there_is_no_revision(checkout, monkeypatch, tmp_path):
    code, _ = checkout
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rundir.git_revision(code.parent) is None


def test_outside_of_a_checkout_there_is_no_revision(monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert rundir.git_revision(tmp_path) is None


def test_a_name_that_cannot_be_a_run_is_refused(new_run, tmp_path):
    for name in ("../a", "a/b", "wandb"):
        with pytest.raises(UserError, match="choose another name"):
            new_run(name)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_is_reached_by_a_link_has_one_lock(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "run")
    with (rundir.locked_run(tmp_path / "run"),
          pytest.raises(UserError, match="link is being trained by another process"),
          rundir.locked_run(link)):
        pass


def test_a_run_is_there_completely_or_not_at_all(new_run, tmp_path, monkeypatch):
    for disk in failing_disks(at_least=6):
        path = tmp_path / "runs" / f"a-{disk.k}"
        with disk:
            new_run(path.name, points=[{"step": 1}])
        assert disk.error is None or isinstance(disk.error, UserError)
        if not path.exists():
            new_run(path.name, points=[{"step": 1}])
        assert RunDir.open(path).metrics() == [{"step": 1}] and not [*path.parent.glob(".*")]


def test_a_name_belongs_to_one_process_from_the_start(new_run, tmp_path):
    runs = tmp_path / "runs"
    with ExitStack() as held, ExitStack() as second:
        assert claim_name(runs, None, "a", held) == "a"
        assert claim_name(runs, None, "a", second) == "a-2"
        assert claim_name(runs, None, "a", second) == "a-3"
        new_run("a")
        with pytest.raises(UserError, match="runs/a-2 is being trained by another process"):
            claim_name(runs, "a-2", "x", held)
        held.close()
        second.close()
        assert claim_name(runs, None, "a", held) == "a-2"  # nothing became of the second
    assert [path.name for path in runs.iterdir()] == ["a"]


@pytest.mark.parametrize("record, is_branch", [
    ({"branched_at": 5, "command": ""}, True), ({"branched_at": 0, "command": ""}, True),
    ({"branched_at": None, "command": "python train.py --branch-from a"}, False),
    ({"inherited": 0, "command": "python train.py --branch-from a --at 5"}, True),
    ({"inherited": 0, "command": "python train.py --branch-from=a"}, True),
    ({"inherited": 0, "command": "python train.py --name branch-from"}, False), ({}, False)])
def test_a_branch_is_known_by_its_step_or_of_old_by_its_command(record, is_branch):
    assert RunDir(Path("a"), record).is_branch == is_branch


def test_where_no_lock_can_be_written_no_name_is_searched(tmp_path, monkeypatch):
    """As on a disk that can hold no more files."""
    full = OSError(28, "No space left on device")
    once = Mock(side_effect=[full, AssertionError("searched on")])
    monkeypatch.setattr(files.FileLock, "acquire", once)
    words = r"cannot write .*/\.a\.lock: .*No space left on device"
    with ExitStack() as held, pytest.raises(UserError, match=words):
        claim_name(tmp_path, None, "a", held)


def test_without_a_run_the_whole_path_of_runs_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = f"no run with weights in {tmp_path}/runs/ yet: .*python .*train.py"
    with pytest.raises(UserError, match=words):
        RunDir.open()


@pytest.fixture
def several(new_run, tmp_path):
    """A folder with the runs b, c, a and compiles, made in this order, and with others that are no
    runs. All but the last have weights."""
    for name, checkpoint in {"b": "best", "c": "best", "a": "last", "compiles": "kept"}.items():
        (new_run(name).path / checkpoint).mkdir()
    runs = tmp_path / "runs"
    for name in ("wandb", "notes/best", "other", ".half.tmp/last", "study/plan.json"):
        (runs / name).mkdir(parents=True)
    for name in ("other", ".half.tmp"):
        (runs / name / "run.json").write_text('{"id": 3}', encoding="utf-8")
    # The clock that counts is the one in run.json, and not that of the file or its folder.
    copy = shutil.copy(runs / "b" / "run.json", tmp_path)
    shutil.move(copy, runs / "b" / "run.json")
    return runs


def test_open_takes_the_newest_run_that_has_weights(several):
    assert RunDir.open(runs=several).path == several / "a"


def test_the_newest_run_may_be_between_two_renames(several):
    """While a checkpoint replaces `last`, there is `previous` alone."""
    (several / "a" / "last").rename(several / "a" / "previous")
    assert RunDir.open(runs=several).path == several / "a"


def test_a_damaged_run_is_passed_over_for_the_newest(several, capsys):
    (several / "b" / "run.json").write_text("{", encoding="utf-8")
    assert RunDir.open(runs=several).path == several / "a"
    assert f"skipped: {several}/b/run.json is damaged" in capsys.readouterr().err


def set_created(run: Path, created: str | None) -> None:
    """Change when run.json says that a run was made; None: it no longer says it."""
    record = read_json(run / "run.json")
    del record["seal"]  # that of an earlier version, or made by hand
    del record["created"]
    if created is not None:
        record["created"] = created
    write_json(run / "run.json", record)


@pytest.mark.parametrize("created", [None, "yesterday"])
def test_a_run_that_does_not_say_when_is_not_the_newest(several, capsys, created):
    set_created(several / "b", created)
    assert RunDir.open(runs=several).path == several / "a"
    assert f"skipped: {several}/b/run.json does not say when" in capsys.readouterr().err


@pytest.mark.parametrize("created", [None, "yesterday"])
def test_a_run_that_does_not_say_when_is_not_listed(several, capsys, created):
    set_created(several / "c", created)
    assert [run.path.name for run in evaluate.open_all_runs(several)] == ["b", "a", "compiles"]
    assert f"skipped: {several}/c/run.json does not say when" in capsys.readouterr().err


def test_the_newest_run_is_found_across_time_zones(several):
    set_created(several / "a", "2026-01-01T00:30:00+00:00")
    set_created(several / "b", "2026-01-01T01:00:00+02:00")  # an hour and a half earlier
    set_created(several / "c", "2026-01-01T00:00:00+00:00")
    assert RunDir.open(runs=several).path == several / "a"


@pytest.mark.parametrize("name", ["config.yaml", "manifest.json"])
def test_a_run_without_a_hash_of_its_files_is_damaged(new_run, name):
    run = new_run().path
    record = read_json(run / "run.json")
    del record["seal"]
    del record["sha256"][name]
    write_json(run / "run.json", record)
    with pytest.raises(UserError, match="run.json is missing or damaged: restore it"):
        RunDir.open(run)


def test_all_runs_are_listed_in_the_order_they_were_made(several):
    names = [run.path.name for run in evaluate.open_all_runs(several)]
    assert names == ["b", "c", "a", "compiles"]


def test_folders_that_are_no_runs_are_skipped_and_listed(several, capsys):
    evaluate.open_all_runs(several)
    skipped = re.findall(r"skipped: .*?(\w+)(?:/run.json| is)", capsys.readouterr().err)
    assert sorted(skipped) == ["notes", "other"]


def test_a_run_is_opened_by_its_path_or_name(new_run, tmp_path, monkeypatch):
    for name in "bc":
        new_run(name)
    monkeypatch.chdir(tmp_path)
    Path("c").touch()  # a file of its name does not hide a run
    assert RunDir.open("runs/b").path == Path("runs/b")
    assert [RunDir.open(name).path for name in "bc"] == [Path("runs/b"), Path("runs/c")]


@pytest.mark.parametrize("inside, path", [(".", "."), ("best", ".."), ("best", "../")])
def test_a_run_has_its_name_from_inside_too(new_run, monkeypatch, inside, path):
    folder = new_run("b").path
    (folder / inside).mkdir(exist_ok=True)
    monkeypatch.chdir(folder / inside)
    assert RunDir.open(path).path.name == "b"


def test_a_run_comes_before_another_of_its_name_in_runs(new_run, tmp_path, monkeypatch):
    new_run("b")
    monkeypatch.chdir(tmp_path)
    shutil.copytree("runs/b", "b")
    assert RunDir.open("b").path == Path("b")


def refused(path):
    """What is said of a run that cannot be opened, with our commands as in their own folder."""
    with pytest.raises(UserError) as caught:
        RunDir.open(path)
    said = str(caught.value)
    for name in ("evaluate.py", "export.py"):
        said = said.replace(find_script(name), name)
    return said


@pytest.mark.parametrize("path, message", [
    ("smal-rope", "no run folder at runs/smal-rope (did you mean small-rope-s1?): python "
     "evaluate.py lists the runs"),
    ("small", "no run folder at runs/small (did you mean small-rope-s1?): python evaluate.py lists "
     "the runs"),
    ("runs/small-rope", "no run folder at runs/small-rope (did you mean runs/small-rope-s1?): "
     "python evaluate.py lists the runs"),
    ("rope", "no run folder at runs/rope (did you mean small-rope-s1?): python evaluate.py lists "
     "the runs"),
    ("s1", "no run folder at runs/s1: python evaluate.py lists the runs; a model of the Hub is the "
     "folder that it was downloaded to"),
    ("model.gguf", "there is no file HERE/model.gguf"),
    ("runs/gpt2", "no run folder at runs/gpt2: python evaluate.py lists the runs"),
    ("some/model", "no run folder at some/model in HERE: python evaluate.py lists the runs; a "
     "model of the Hub is the folder that it was downloaded to"),
    ("gpt2", "no run folder at runs/gpt2: python evaluate.py lists the runs; a model of the Hub is "
     "the folder that it was downloaded to")])
def test_the_nearest_run_is_suggested(new_run, tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    new_run("small-rope-s1")
    (tmp_path / "runs" / "smal").mkdir()  # no run
    assert refused(path) == message.replace("HERE", str(tmp_path))


@pytest.mark.parametrize("name, script", [
    (None, "train.py"), ("small", "evaluate.py"), ("runs", "evaluate.py"),
    ("foreign", "export.py"), ("x.gguf", "export.py")])
def test_the_advised_command_is_found_from_another_folder(tmp_path, monkeypatch, name, script):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("foreign").mkdir()
    Path("foreign/config.json").touch()
    Path("x.gguf").touch()
    with pytest.raises(UserError) as caught:
        RunDir.open(name)
    assert f"python {find_script(script)} " in str(caught.value)


def test_a_folder_without_runs_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused("small").startswith(f"no run folder at runs/small in {tmp_path}: ")


def test_no_run_is_told_from_a_damaged_one(tmp_path):
    assert refused(tmp_path) == f"{tmp_path} is no run: python evaluate.py lists the runs"
    (tmp_path / "config.yaml").touch()
    assert refused(tmp_path) == (f"{tmp_path}/run.json is missing or damaged: restore it, or "
                                 "choose another run")


def test_of_a_folder_of_runs_one_is_to_be_given(new_run, tmp_path):
    runs = new_run("b").path.parent
    new_run("a")
    assert refused(runs) == f"{runs} is no run: give one that is in it, such as {runs}/a"


def test_a_checkpoint_leads_to_its_run(new_run):
    run = new_run().path
    (run / "best").mkdir()
    assert refused(run / "best") == (
        f"{run}/best is no run: it is a part of {run}, which you can give")


def test_a_checkpoint_leads_to_its_run_by_the_name_of_that(new_run, monkeypatch):
    run = new_run("a").path
    (run / "best").mkdir()
    monkeypatch.chdir(run.parent.parent)
    runs = Path(run.parent.name)
    with pytest.raises(UserError, match=f"{runs}/a/best is no run: it is a part of {runs}/a, whi"):
        rundir.find_run(Path("a/best"), runs)


def test_of_a_folder_with_a_gguf_the_file_is_to_be_given(tmp_path):
    (tmp_path / "model.Q4_1.gguf").touch()
    assert refused(tmp_path) == (
        f"{tmp_path} is no run: give the GGUF in it, {tmp_path}/model.Q4_1.gguf")


@pytest.mark.parametrize("file", ["config.json", "params.json"])
def test_a_folder_of_another_program_is_to_be_imported(tmp_path, file):
    (tmp_path / file).touch()
    assert refused(tmp_path) == (f"{tmp_path} is no run: import this folder with python export.py "
                                 f"{tmp_path} --to run runs/NAME")


@pytest.mark.parametrize("name, advice", [
    ("a model", "export.py 'a model' --to run runs/NAME"),
    ("x y.gguf", "export.py 'x y.gguf' --to run runs/NAME")])
def test_advice_quotes_a_path_with_a_space(tmp_path, monkeypatch, name, advice):
    monkeypatch.chdir(tmp_path)
    Path("a model").mkdir()
    Path("a model/config.json").touch()
    Path("x y.gguf").touch()
    assert refused(name).endswith(advice)


def test_advice_quotes_the_path_of_a_run_that_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my runs/a").mkdir(parents=True)
    with pytest.raises(UserError, match="continue it with --resume 'my runs/a', or start"):
        RunDir.new_path("my runs", "a")


@pytest.mark.parametrize("name", ["हिन्दी", "v1.2_a=3+b-c", "_x", "7"])
def test_a_name_may_have_letters_with_their_marks(name):
    """The vowels of Hindi are marks, and not letters."""
    assert RunDir.new_path("runs", name) == Path("runs", name)


@pytest.mark.parametrize("name", [
    "", "-a", ".a", "a b", "a/b", "a\\b", "a:b", "\u0301a", "a\ufe0f", "wandb"])
def test_other_names_are_refused(name):
    with pytest.raises(UserError, match="must begin with a letter, a digit or _"):
        RunDir.new_path("runs", name)


@pytest.mark.parametrize("file", ["config.json", "params.json"])
def test_a_run_with_a_file_of_another_program_is_a_run(new_run, file):
    path = new_run().path
    (path / file).touch()
    assert not is_foreign(path)


@pytest.mark.parametrize("name, content", [("x.gguf", b""), ("sha256-6c0f", b"GGUF\3\0\0\0")])
def test_a_gguf_is_to_be_imported(tmp_path, monkeypatch, name, content):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    assert refused(name) == (f"{name} is GGUF, and no run: import it with python export.py {name} "
                             "--to run runs/NAME")


def test_a_run_may_have_the_name_of_its_folder_of_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("runs/notes").mkdir(parents=True)
    Path("runs/notes/run.json").touch()
    assert rundir.find_run(Path("notes"), Path("runs")) == Path("runs/notes")


def test_a_file_is_no_run(tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    assert refused(file) == f"{file} is a file: give the folder of a run"


def overwrite_a_byte(file):
    content = file.read_bytes()
    file.write_bytes(content[:9] + b"!" + content[10:])


@pytest.mark.parametrize("damage", [Path.unlink, cut, overwrite_a_byte])
@pytest.mark.parametrize("file", ["config.yaml", "tokenizer.model", "manifest.json", "run.json"])
def test_a_damaged_file_is_named(new_run, file, damage):
    path = new_run().path / file
    damage(path)
    with pytest.raises(UserError, match=re.escape(str(path))):
        RunDir.open(path.parent)


def test_a_tokenizer_that_somebody_added_is_refused(new_run):
    """It would be read instead of the run's own."""
    path = new_run().path
    (path / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert refused(path) == (f"{path}/tokenizer.json was added to this run, which has another "
                             "tokenizer: remove it, or choose another run")


def test_a_changed_file_is_to_be_restored_and_not_removed(new_run):
    path = new_run().path / "config.yaml"
    overwrite_a_byte(path)
    assert refused(path.parent) == (
        f"{path} is not what this run was made with (run.json has its sha256): restore it, or "
        "choose another run")


# --- points ---------------------------------------------------------------------------------------


def test_points_come_back_as_they_went_in(new_run):
    """At once: another process may read them."""
    run = new_run()
    first = {"step": 1, "tokens": 2**40, "train/loss": 0.1 + 0.2, "train/lr": 5e-324}
    second = {"step": 1, "sample": 'def f():\n\t"\u2028 é 🙂 \0"'}
    run.log(first)
    assert RunDir.open(run.path).metrics() == [first]
    run.log(second)
    assert RunDir.open(run.path).metrics() == [first, second]


def test_numbers_that_json_has_not_become_null(new_run):
    run = new_run()
    run.log({"step": 3, "x": math.nan, "y": math.inf, "z": -math.inf, "w": 1.5})
    assert (run.path / "metrics.jsonl").read_text(encoding="utf-8") == (
        '{"step": 3, "x": null, "y": null, "z": null, "w": 1.5}\n')


def test_a_resume_cuts_off_later_points_or_fails(new_run):
    steps = [0, 1, 1, 2, 2, 3, 3]
    run = new_run(points=[{"step": step} for step in steps])
    file = run.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-1])  # killed within the last line
    for disk in failing_disks():
        with disk:
            run.resume(2, NO_WANDB)
        left = [point["step"] for point in run.metrics()]
        assert left == steps[:5] or disk.error and left == steps[:6]
    run.log({"step": 3})
    assert [point["step"] for point in run.metrics()] == steps[:6]


def test_a_damaged_line_is_left_out_and_listed(new_run, capsys):
    run = new_run()
    damaged = ["[1]", "{}", '{"step": "1"}', '{"step": true}', '{"step"; 2}', "\0\0", "[" * 100_000]
    lines = ['{"step": 1}', *damaged, '{"step": 3}', ""]
    (run.path / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    run.resume(3, NO_WANDB)
    listed = re.findall(r"leaving out line (\d) of .*metrics.jsonl", capsys.readouterr().err)
    assert listed == [str(number) for number in range(2, 9)]
    assert run.metrics() == [{"step": 1}, {"step": 3}] and capsys.readouterr().err == ""


def test_points_are_on_the_disk_before_their_checkpoint(new_run, monkeypatch):
    run = new_run()
    synced = []
    run.log({"step": 1})
    monkeypatch.setattr(rundir, "fsync", synced.append)
    monkeypatch.setattr(Checkpoints, "save", lambda self, *args: synced.append("saved"))
    run.save("last", MagicMock(), {}, ALONE)
    assert synced == [run.path / "metrics.jsonl", "saved"]
