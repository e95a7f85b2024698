"""A run folder describes itself, is whole or not there, and its points survive what happens."""

import math
import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from conftest import load
from disk_faults import cut, failing_disks

import evaluate
from errors import UserError
from gyre import rundir
from gyre.checkpoint import Checkpoints
from gyre.options import read_config
from gyre.parallel import ALONE
from gyre.rundir import RunDir, claim_name

NO_WANDB = load("--log.wandb", "disabled")


# --- the folder -----------------------------------------------------------------------------------


def test_a_run_describes_itself(new_run, tmp_path):
    words = os.fsdecode(b"caf\xe9.txt")  # not UTF-8
    run = new_run(manifest={"text": words, "x": "é"}, command=["train.py", words], runs="new/deep")
    contents = {path.name: path.read_bytes() for path in run.path.iterdir()}
    assert contents.keys() == {"config.yaml", "manifest.json", "run.json", "tokenizer.model"}
    config = read_config(Path(shutil.copy(run.path / "config.yaml", tmp_path)))  # or moved there
    assert config.name == "a" and config.data.tokenizer == str(tmp_path)  # its own copy
    assert contents["tokenizer.model"] == (tmp_path / "tokenizer.model").read_bytes()
    again = RunDir.open(tmp_path / "new" / "deep" / "a")
    assert again.record == run.record and again.manifest == {"text": words, "x": "é"}
    assert run.record["torch"] == torch.__version__ and words in run.record["command"]
    assert run.record["git"] == rundir.git_revision() and "+00:00" in run.record["created"]
    with pytest.raises(UserError, match=f"--resume {re.escape(str(run.path))}.*--name"):
        new_run(runs="new/deep")  # would overwrite it


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_revision_is_that_of_the_code_or_null(monkeypatch, tmp_path):
    code = tmp_path / "code" / "rundir.py"
    code.parent.mkdir()
    code.write_text("1", encoding="utf-8")
    monkeypatch.setattr(rundir, "__file__", str(code))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert rundir.git_revision() is None  # no checkout

    git = ["git", "-C", code.parent, "-c", "user.name=a", "-c", "user.email=a"]
    for words in ("init -q", "add .", "commit -qm 1", "tag -am 1 v1"):
        subprocess.run([*git, *words.split()], check=True)
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
    (code.parent / "untracked").touch()
    revision = {"revision": head.strip(), "dirty": False}
    assert rundir.git_revision() == revision
    code.write_text("2", encoding="utf-8")
    assert rundir.git_revision() == revision | {"dirty": True}
    monkeypatch.setenv("PATH", str(tmp_path))  # no git
    assert rundir.git_revision() is None


def test_a_name_that_cannot_be_a_run_is_refused(new_run, tmp_path):
    for name in ("../a", "a/b", "wandb"):
        with pytest.raises(UserError, match="choose another name"):
            new_run(name)
    assert not (tmp_path / "runs").exists()


def test_a_run_is_there_completely_or_not_at_all(new_run, tmp_path, monkeypatch):
    monkeypatch.setattr(rundir, "git_revision", lambda: None)  # it takes longest
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


def test_open_takes_the_newest_run_that_has_weights(new_run, tmp_path, capsys):
    runs = tmp_path / "runs"
    with pytest.raises(UserError, match="python train.py"):
        RunDir.open(runs=runs)
    for name, checkpoint in {"b": "best", "c": "best", "a": "last", "compiles": "kept"}.items():
        (new_run(name).path / checkpoint).mkdir()
    for name in ("wandb", "notes/best", "other", ".half.tmp/last", "study/plan.json"):
        (runs / name).mkdir(parents=True)
    for name in ("other", ".half.tmp"):
        (runs / name / "run.json").write_text('{"id": 3}', encoding="utf-8")
    # The clock that counts is the one in run.json, and not that of the file or its folder.
    shutil.move(shutil.copy(runs / "b" / "run.json", tmp_path), runs / "b" / "run.json")
    assert RunDir.open(runs=runs).path == runs / "a"
    assert [run.path.name for run in evaluate.open_all_runs(runs)] == ["b", "c", "a", "compiles"]
    skipped = re.findall(r"skipped: .*?(\w+)(?:/run.json| is)", capsys.readouterr().err)
    assert sorted(skipped) == ["notes", "other"]


def test_a_run_is_opened_by_its_path_or_else_by_its_name(new_run, tmp_path, monkeypatch):
    for name in "bc":
        new_run(name)
    monkeypatch.chdir(tmp_path)
    Path("c").touch()  # a file of its name does not hide a run
    assert [RunDir.open(name).path for name in "bc"] == [Path("runs/b"), Path("runs/c")]
    with pytest.raises(UserError, match="no run folder at runs/nothing"):
        RunDir.open("nothing")
    Path("b").mkdir()
    with pytest.raises(UserError, match="^b is no run"):
        RunDir.open("b")  # a path first


def refused(path):
    """What is said of a run that cannot be opened."""
    with pytest.raises(UserError) as caught:
        RunDir.open(path)
    return str(caught.value)


@pytest.mark.parametrize("path, message", [
    ("smal-rope", "no run folder at runs/smal-rope (did you mean small-rope-s1?): python "
     "evaluate.py lists the runs"),
    ("small", "no run folder at runs/small (did you mean small-rope-s1?): python evaluate.py lists "
     "the runs"),
    ("runs/small-rope", "no run folder at runs/small-rope (did you mean runs/small-rope-s1?): "
     "python evaluate.py lists the runs"),
    ("else/small-rope", "no run folder at else/small-rope: python evaluate.py lists the runs"),
    ("nothing", "no run folder at runs/nothing: python evaluate.py lists the runs")])
def test_the_nearest_run_is_suggested(new_run, tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    new_run("small-rope-s1")
    (tmp_path / "runs" / "smal").mkdir()  # no run
    assert refused(path) == message


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


@pytest.mark.parametrize("file", ["config.json", "params.json"])
def test_a_folder_of_another_program_is_to_be_imported(tmp_path, file):
    (tmp_path / file).touch()
    assert refused(tmp_path) == (f"{tmp_path} is no run: import this folder with python export.py "
                                 f"{tmp_path} --to run runs/NAME")


@pytest.mark.parametrize("exists", [True, False])
def test_gguf_is_only_written(tmp_path, monkeypatch, exists):
    monkeypatch.chdir(tmp_path)
    if exists:
        Path("x.gguf").touch()
    assert refused("x.gguf") == ("x.gguf is GGUF, which is only written: give the run or the "
                                 "folder that it was made from")


def test_a_file_is_no_run(tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    assert refused(file) == f"{file} is a file: give the folder of a run"


@pytest.mark.parametrize("file", ["config.yaml", "tokenizer.model", "manifest.json", "run.json"])
def test_a_damaged_folder_is_named(new_run, file):
    path = new_run().path / file
    content = path.read_bytes()
    for damage in (Path.unlink, cut, lambda it: it.write_bytes(content[:9] + b"!" + content[10:])):
        damage(path)
        with pytest.raises(UserError, match=re.escape(str(path))):
            RunDir.open(path.parent)
        path.write_bytes(content)
    # A tokenizer that somebody added would be read instead of the run's own.
    (path.parent / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="tokenizer.json is not what this run was made with"):
        RunDir.open(path.parent)


# --- points ---------------------------------------------------------------------------------------


def test_points_come_back_as_they_went_in_and_lines_are_strict_json(new_run):
    run = new_run()
    points = [{"step": 1, "tokens": 2**40, "train/loss": 0.1 + 0.2, "train/lr": 5e-324},
              {"step": 1, "sample": 'def f():\n\t"\u2028 é 🙂 \0"'}]
    for n, point in enumerate(points, 1):
        run.log(point)
        assert RunDir.open(run.path).metrics() == points[:n]  # flushed: another reader sees it
    run.log({"step": 3, "x": math.nan, "y": math.inf, "z": -math.inf, "w": 1.5})
    *_, last = (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    assert last == '{"step": 3, "x": null, "y": null, "z": null, "w": 1.5}\n'


def test_a_resume_cuts_the_points_off_after_its_step_or_leaves_them(new_run):
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
    damaged = ["[1]", "{}", '{"step": "1"}', '{"step": true}', '{"step"; 2}', "\0\0"]
    lines = ['{"step": 1}', *damaged, '{"step": 3}', ""]
    (run.path / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    run.resume(3, NO_WANDB)
    listed = re.findall(r"leaving out line (\d) of .*metrics.jsonl", capsys.readouterr().err)
    assert listed == [str(number) for number in range(2, 8)]
    assert run.metrics() == [{"step": 1}, {"step": 3}] and capsys.readouterr().err == ""


def test_points_are_on_the_disk_before_the_checkpoint_that_counts_them(new_run, monkeypatch):
    run, synced = new_run(), []
    run.log({"step": 1})
    monkeypatch.setattr(rundir, "fsync", synced.append)
    monkeypatch.setattr(Checkpoints, "save", lambda self, *args: synced.append("saved"))
    run.save("last", MagicMock(), {}, ALONE)
    assert synced == [run.path / "metrics.jsonl", "saved"]
