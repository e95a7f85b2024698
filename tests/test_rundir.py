"""A run folder describes itself, is whole or not there, and its points survive what happens."""

import json
import math
import os
import re
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from failing import cut, failures, file_size_limit, flip_a_bit
from safetensors.torch import save_file

from errors import UserError
from gyre import rundir
from gyre.checkpoint import METADATA, Checkpoints
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig

NO_WANDB = LogConfig(wandb="disabled")


# --- the folder -----------------------------------------------------------------------------------


def test_a_run_describes_itself(new_run, tmp_path):
    run = new_run(manifest={"text": "é"})
    assert run.path == tmp_path / "runs" / "a"
    assert sorted(p.name for p in run.path.iterdir()) == [
        "config.yaml", "manifest.json", "run.json", "tokenizer.model"
    ]
    assert (run.path / "config.yaml").read_text(encoding="utf-8") == "model:\n  dim: 48\n"
    for name, value in {"manifest.json": {"text": "é"}, "run.json": run.record}.items():
        written = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        assert (run.path / name).read_text(encoding="utf-8") == written
    contents = {path: path.read_bytes() for path in run.path.iterdir()}
    assert contents[run.path / "tokenizer.model"] == (tmp_path / "tokenizer.model").read_bytes()
    found = RunDir.open(run.path)
    assert found.record == run.record and found.manifest == {"text": "é"}
    assert found.tokenizer_sha256 == run.record["sha256"]["tokenizer.model"]
    assert run.record["torch"] == torch.__version__
    assert run.record["command"] and run.record["created"].endswith("+00:00")
    if (ROOT / ".git").exists():
        assert re.fullmatch("[0-9a-f]{40}", run.record["git"]["revision"])
    with pytest.raises(UserError, match=f"--resume {run.path}.*--name"):  # never overwritten
        new_run()
    assert {path: path.read_bytes() for path in run.path.iterdir()} == contents


def test_a_file_of_its_name_does_not_hide_a_run(new_run, tmp_path, monkeypatch):
    run = new_run()
    monkeypatch.chdir(tmp_path)
    Path("a").touch()
    assert RunDir.open("a").record == run.record


def test_words_that_are_not_utf_8_are_recorded(new_run, monkeypatch):
    words = os.fsdecode(b"caf\xe9.txt")
    monkeypatch.setattr("sys.argv", ["train.py", words])
    found = RunDir.open(new_run(manifest={"text": words}).path)
    assert words in found.record["command"] and found.manifest == {"text": words}


def test_outside_a_git_checkout_the_revision_is_null(new_run, monkeypatch, tmp_path):
    monkeypatch.setattr(rundir, "__file__", str(tmp_path / "rundir.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert new_run("a").record["git"] is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert new_run("b").record["git"] is None


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "wandb", "a b", "/tmp/a"])
def test_a_name_that_cannot_be_a_run_is_refused(new_run, name, tmp_path):
    with pytest.raises(UserError, match="choose another name"):
        new_run(name)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_run_is_there_completely_or_not_at_all(new_run, tmp_path):
    for failing in failures(at_least=6):
        path = tmp_path / "runs" / f"a-{failing.k}"
        with failing:
            new_run(path.name)
        if not path.exists():
            new_run(path.name)
        assert RunDir.open(path) and not [*path.parent.glob(".*")]


def test_weights_from_the_start_are_part_of_the_run(new_run):
    weights = {"a": torch.arange(3.0)}
    run = new_run(write_best=lambda file: save_file(weights, file, METADATA))
    assert torch.equal(run.load_weights()["a"], weights["a"])
    flip_a_bit(run.best / "model.safetensors")
    with pytest.raises(UserError, match="model.safetensors is damaged"):
        run.load_weights()
    with pytest.raises(UserError, match="b"):
        new_run("b", write_best=lambda file: (file / "none").write_bytes(b""))
    assert [path.name for path in run.path.parent.iterdir()] == ["a"]


def test_a_place_without_room_and_one_that_refuses_are_said(new_run, tmp_path):
    with pytest.raises(UserError, match=r"1,000,000,000,000\.0 MB.*\d MB free.*--log\.runs"):
        new_run(need_bytes=10**18)
    assert not (tmp_path / "runs").exists()
    (tmp_path / "runs").write_text("a file", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot write .*runs/a.*--log\.runs"):
        new_run()


def test_a_name_belongs_to_one_process_from_the_start(new_run, tmp_path):
    runs = tmp_path / "runs"
    with (RunDir.claim(runs, "a", numbered=True) as first,
          RunDir.claim(runs, "a", numbered=True) as second):
        new_run(first)
        assert (first, second) == ("a", "a-2")
        words = f"{runs}/a-2 is being trained .*process {os.getpid()} on"
        with pytest.raises(UserError, match=words), RunDir.claim(runs, "a-2", numbered=False):
            pass
    with RunDir.claim(runs, "a", numbered=True) as third:
        assert third == "a-2"  # nothing became of the second
    with (pytest.raises(UserError, match="already exists: continue it with --resume"),
          RunDir.claim(runs, "a", numbered=False)):
        pass
    assert [path.name for path in runs.iterdir()] == ["a"]


def test_open_takes_the_newest_run_that_has_weights(new_run, tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    with pytest.raises(UserError, match="python train.py"):
        RunDir.open(runs=runs)
    for name, checkpoint in {"b": "last", "c": "last", "a": "best", "compiles": None}.items():
        run = new_run(name)
        if checkpoint:
            run.save(checkpoint, {}, {} if checkpoint == "last" else None)
    foreign = {"wandb": None, "notes": None, "other": '{"id": 3}', "list": "[3]", "text": "no",
               ".half.tmp": json.dumps({"created": "9999"})}
    for name, content in foreign.items():
        (runs / name).mkdir()
        if content is not None:
            (runs / name / "run.json").write_text(content, encoding="utf-8")
    os.utime(runs / "b" / "run.json")  # the clock that counts is the one in run.json
    assert RunDir.open(runs=runs).path == runs / "a"
    assert RunDir.open(runs / "b").path == runs / "b"
    with pytest.raises(UserError, match="no run folder at .*nothing"):
        RunDir.open(runs / "nothing")
    monkeypatch.chdir(tmp_path)
    assert RunDir.open("b").path == Path("runs/b")
    (tmp_path / "b").mkdir()
    with pytest.raises(UserError, match="^b/run.json is missing: b is no run$"):
        RunDir.open("b")  # a path first


@pytest.mark.parametrize("file", ["config.yaml", "tokenizer.model", "manifest.json", "run.json"])
@pytest.mark.parametrize("damage", [
    Path.unlink, cut, lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b'{"other": [1]}\n'), lambda path: (path.unlink(), path.mkdir()),
], ids=["missing", "truncated", "empty", "foreign", "folder"])
def test_a_damaged_folder_is_named(new_run, file, damage):
    path = new_run().path / file
    damage(path)
    with pytest.raises(UserError, match=re.escape(str(path))):
        RunDir.open(path.parent)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_tokenizer_that_somebody_put_into_a_run_is_not_used(new_run, name):
    path = new_run().path
    (path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=f"{name} is no part of this run .*: remove it"):
        RunDir.open(path)


@pytest.mark.parametrize("record", [
    "[" * 99999, '{"created": "2026"}', '{"created": "2026", "sha256": {}}',
    '{"created": "2026", "sha256": [1]}', '{"created": "2026", "sha256": null}',
    lambda text: text.replace("python", "pythom"),
])
def test_a_record_that_is_none_is_named(new_run, record):
    path = new_run().path
    if callable(record):
        record = record((path / "run.json").read_text(encoding="utf-8"))
    (path / "run.json").write_text(record, encoding="utf-8")
    with pytest.raises(UserError, match=f"{path}/run.json is (missing or )?damaged"):
        RunDir.open(path)


# --- points ---------------------------------------------------------------------------------------


def test_points_come_back_as_they_went_in_and_lines_are_strict_json(new_run):
    run = new_run()
    points = [
        {"step": 1, "tokens": 2**40, "train/loss": 0.1 + 0.2, "train/lr": 3e-4},
        {"step": 1, "sample": 'def f():\n\t"\u2028 é 🙂 \0"'},
        {"step": 2, "train/loss": 5e-324},
    ]
    for n, point in enumerate(points, 1):
        run.log(point)
        assert RunDir.open(run.path).metrics() == points[:n]  # flushed: another reader sees it
    run.log({"step": 3, "x": math.nan, "y": math.inf, "z": -math.inf, "w": 1.5})
    *_, last = (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    assert last == '{"step": 3, "x": null, "y": null, "z": null, "w": 1.5}\n'


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_resume_leaves_every_step_exactly_once(new_run, cut):
    run = new_run()
    for step in range(1, 8):
        run.log({"step": step, "train/loss": 1 / step})
        if step % 3 == 0:
            run.log({"step": step, "val/loss": 2 / step})
    file = run.path / "metrics.jsonl"
    expected, content = run.metrics(), file.read_bytes()
    file.write_bytes(content[:-cut])  # killed within the last line

    run = RunDir.open(run.path)
    assert run.metrics() == expected[:-1]
    run.resume(3, NO_WANDB, {})
    assert run.metrics() == [p for p in expected if p["step"] <= 3]
    for point in expected:
        if point["step"] > 3:
            run.log(point)
    assert file.read_bytes() == content


def kill_and_resume(run, damage, capsys):
    """Three points, a save, a point, this damage: what is said, and the steps that are left."""
    for step in range(1, 4):
        run.log({"step": step, "train/loss": 1 / step})
    run.save("last", {}, {})
    run.log({"step": 4})
    damage(run.path / "metrics.jsonl")
    run = RunDir.open(run.path)
    run.resume(3, NO_WANDB, {}, run.load_training()[1]["metrics"])
    run.save("last", {}, {})
    said = capsys.readouterr().err
    RunDir.open(run.path).resume(3, NO_WANDB, {}, run.load_training()[1]["metrics"])
    assert capsys.readouterr().err == ""  # said once
    return said, [point["step"] for point in run.metrics()]


def change(old, new):
    return lambda file: file.write_bytes(file.read_bytes().replace(old, new))


@pytest.mark.parametrize("damage, words, left", [
    (lambda file: None, "", [1, 2, 3]),
    (Path.unlink, "3 of its 3 points are missing", []),
    (lambda file: os.truncate(file, 0), "3 of its 3 points are missing", []),
    (lambda file: os.truncate(file, 40), "2 of its 3 points are missing", [1]),
    (change(b"0.5", b"0.7"), "points were changed", [1, 2, 3]),
    (change(b'"step": 2,', b'"step": 2;'), "leaving out line 2 of", [1, 3]),
    (change(b'"step": 2,', b'"step":\xff2,'), "leaving out line 2 of", [1, 3]),
])
def test_resume_says_which_points_are_not_what_they_were(new_run, damage, words, left, capsys):
    said, steps = kill_and_resume(new_run(), damage, capsys)
    assert steps == left and words in said and bool(said) == bool(words)


def test_points_are_on_the_disk_before_the_checkpoint_that_counts_them(new_run, monkeypatch):
    run, synced = new_run(), []
    run.log({"step": 1})
    monkeypatch.setattr(rundir, "fsync", synced.append)
    monkeypatch.setattr(Checkpoints, "_replace_last", lambda self: synced.append("renamed"))
    run.save("last", {}, {})
    assert synced == [run.path / "metrics.jsonl", "renamed"]


@pytest.mark.parametrize("line", [
    "[1]", "3", "{}", '{"step": "1"}', '{"step": 1.5}', '{"step": true}', '{"step": -1}',
    '{"step": 1, "tokens": null}', '{"step": 1, "seconds": 0}', '{"step": 1, "seconds": "a"}',
    '{"step": 1, "train/loss": [1]}', '{"step": 1, "train/loss": NaN}', "[" * 99999,
])
def test_a_line_that_is_no_point_is_named(new_run, line):
    run = new_run()
    (run.path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged in line 2 \("):
        run.metrics()


def test_truncating_the_points_is_all_or_nothing(new_run):
    run = new_run()
    for step in range(5):
        run.log({"step": step})
    for failing in failures():
        with failing:
            run.resume(2, NO_WANDB, {})
        left = [p["step"] for p in run.metrics()]
        assert left == [0, 1, 2] or failing.error and left == [0, 1, 2, 3, 4]


def test_a_damaged_line_is_named(new_run):
    run = new_run()
    (run.path / "metrics.jsonl").write_text('{"step": 1}\n{"step": \n{"step": 3}\n',
                                            encoding="utf-8")
    with pytest.raises(UserError, match=r"metrics\.jsonl.*line 2"):
        run.metrics()


def test_a_point_on_a_full_disk_is_said_in_words(new_run):
    run = new_run()
    with file_size_limit(0), pytest.raises(UserError, match="metrics.jsonl: .*File too large"):
        run.log({"step": 1})
    assert run.metrics() == []
