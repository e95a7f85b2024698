"""A run folder survives what happens to it: crashes, full disks, foreign files, pickles."""

import itertools
import json
import math
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from errors import UserError
from gyre import rundir
from gyre.rundir import NullRun, RunDir
from gyre.wandb_log import LogConfig

ROOT = Path(rundir.__file__).parent


@pytest.fixture
def log(tmp_path):
    return LogConfig(runs=str(tmp_path / "runs"), wandb="disabled")


@pytest.fixture
def make(tmp_path, log):
    def make(name="a", **kwargs):
        tokenizer = tmp_path / "tokenizer.model"
        tokenizer.write_bytes(bytes(range(256)) * 9)
        kwargs = {"config_yaml": "model:\n  dim: 48\n", "config": {}, "manifest": {"n": 7}} | kwargs
        return RunDir.create(log, name, tokenizer=[tokenizer], **kwargs)

    return make


def checkpoint(step):
    """Weights and training state from which one can read which step they belong to."""
    weights = {
        "a": torch.full((3, 5), float(step)),
        "b": torch.full((7,), step, dtype=torch.bfloat16),
    }
    return weights, {"step": step, "optimizer": {"state": [torch.full((3, 5), float(step))]}}


def step_of(weights, training):
    steps = {weights["a"][0, 0].item(), weights["b"][0].item(), training["step"],
             training["optimizer"]["state"][0][0, 0].item()}  # fmt: skip
    assert len(steps) == 1, f"weights and training state of different steps: {steps}"
    return steps.pop()


# --- the folder -----------------------------------------------------------------------------------


def test_a_run_describes_itself(make, tmp_path):
    run = make(manifest={"text": "é"})
    assert run.path == tmp_path / "runs" / "a"
    assert sorted(p.name for p in run.path.iterdir()) == [
        "config.yaml", "manifest.json", "run.json", "tokenizer.model"
    ]  # fmt: skip
    assert (run.path / "config.yaml").read_text(encoding="utf-8") == "model:\n  dim: 48\n"
    assert (run.path / "tokenizer.model").read_bytes() == (
        tmp_path / "tokenizer.model"
    ).read_bytes()
    assert json.loads((run.path / "manifest.json").read_text(encoding="utf-8")) == {"text": "é"}
    record = RunDir.open(run.path).record
    assert record == run.record
    assert record["torch"] == torch.__version__
    assert record["command"] and record["created"].endswith("+00:00")
    if (ROOT / ".git").exists():
        assert re.fullmatch("[0-9a-f]{40}", record["git"]["revision"])


def test_outside_a_git_checkout_the_revision_is_null(make, monkeypatch, tmp_path):
    monkeypatch.setattr(rundir, "__file__", str(tmp_path / "rundir.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert make("a").record["git"] is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert make("b").record["git"] is None


def test_an_existing_run_is_never_overwritten(make):
    path = make().path
    before = (path / "run.json").read_bytes()
    with pytest.raises(UserError, match=f"--resume {path}.*--name"):
        make()
    assert (path / "run.json").read_bytes() == before


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "wandb", "a b", "/tmp/a"])
def test_a_name_that_cannot_be_a_run_is_refused(make, name, tmp_path):
    with pytest.raises(UserError, match="choose another name"):
        make(name)
    assert not (tmp_path / "runs").exists()


def test_a_run_is_there_completely_or_not_at_all(make, monkeypatch, tmp_path):
    for k in itertools.count():
        path = tmp_path / "runs" / f"a-{k}"
        with monkeypatch.context() as patch:
            calls = fail_at(patch, k)
            try:
                make(path.name)
            except UserError:
                assert not path.exists() or RunDir.open(path)
        if not path.exists():
            make(path.name)
        assert RunDir.open(path) and not path.with_name(f".{path.name}.tmp").exists()
        if len(calls) <= k:
            break
    assert k >= 6


def test_too_little_disk_is_said_with_numbers_before_anything_is_written(make, tmp_path):
    with pytest.raises(UserError, match=r"1,000,000,000,000\.0 MB.*\d MB free.*--log\.runs"):
        make(need_bytes=10**18)
    assert list((tmp_path / "runs").iterdir()) == []


def test_an_unwritable_place_is_said(make, tmp_path):
    (tmp_path / "runs").write_text("a file", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot write .*runs/a.*--log\.runs"):
        make()


def test_a_name_is_free_until_its_run_exists(make, log):
    names = []
    for _ in range(3):
        names.append(RunDir.free_name(log.runs, "a"))
        make(names[-1])
    assert names == ["a", "a-2", "a-3"]


def test_open_takes_the_newest_run(make, log, tmp_path):
    runs = tmp_path / "runs"
    with pytest.raises(UserError, match="python train.py"):
        RunDir.open(runs=runs)
    for name in ("b", "c", "a"):
        make(name)
    for foreign in ("wandb", "notes", "other", ".half.tmp"):
        (runs / foreign).mkdir()
    (runs / "other" / "run.json").write_text('{"id": 3}', encoding="utf-8")
    record = json.loads((runs / "a" / "run.json").read_text(encoding="utf-8"))
    (runs / ".half.tmp" / "run.json").write_text(
        json.dumps(record | {"created": "9999"}), encoding="utf-8"
    )
    os.utime(runs / "b" / "run.json")  # the clock that counts is the one in run.json
    assert RunDir.open(runs=runs).path == runs / "a"
    assert RunDir.open(runs / "b").path == runs / "b"
    with pytest.raises(UserError, match="no run folder at .*nothing"):
        RunDir.open(runs / "nothing")


@pytest.mark.parametrize("file", ["config.yaml", "tokenizer.model", "manifest.json", "run.json"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "empty", "foreign", "folder"])
def test_a_damaged_folder_is_named(make, file, damage):
    path = make().path / file
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        new = {"truncated": content[:-2], "empty": b"", "foreign": b'{"other": [1]}\n'}
        path.write_bytes(new[damage])
    with pytest.raises(UserError, match=re.escape(str(path))):
        RunDir.open(path.parent)


# --- points ---------------------------------------------------------------------------------------


def test_points_come_back_as_they_went_in(make):
    run = make()
    points = [
        {"step": 1, "tokens": 2**40, "train/loss": 0.1 + 0.2, "train/lr": 3e-4},
        {"step": 1, "sample": 'def f():\n\t"\u2028 é 🙂 \0"'},
        {"step": 2, "train/loss": 5e-324},
    ]
    for n, point in enumerate(points, 1):
        run.log(point)
        assert RunDir.open(run.path).metrics() == points[:n]  # flushed: another reader sees it


def test_the_lines_are_strict_json(make):
    run = make()
    run.log({"step": 3, "x": math.nan, "y": math.inf, "z": -math.inf, "w": 1.5})
    text = (run.path / "metrics.jsonl").read_text(encoding="utf-8")
    point = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert point == {"step": 3, "x": None, "y": None, "z": None, "w": 1.5}


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_resume_leaves_every_step_exactly_once(make, log, cut):
    run = make()
    for step in range(1, 8):
        run.log({"step": step, "train/loss": 1 / step})
        if step % 3 == 0:
            run.log({"step": step, "val/loss": 2 / step})
    expected = run.metrics()
    file = run.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])  # killed within the last line

    run = RunDir.open(run.path)
    assert run.metrics() == expected[:-1]
    run.resume(3, log, {})
    assert run.metrics() == [p for p in expected if p["step"] <= 3]
    for point in expected:
        if point["step"] > 3:
            run.log(point)
    assert run.metrics() == expected


def test_truncating_the_points_is_all_or_nothing(make, log, monkeypatch):
    run = make()
    for step in range(5):
        run.log({"step": step})
    for k in itertools.count():
        with monkeypatch.context() as patch:
            calls = fail_at(patch, k)
            try:
                run.resume(2, log, {})
            except UserError:
                assert [p["step"] for p in run.metrics()] in ([0, 1, 2, 3, 4], [0, 1, 2])
        if len(calls) <= k:
            break
    assert k >= 3
    assert [p["step"] for p in run.metrics()] == [0, 1, 2]


def test_a_damaged_line_is_named(make):
    run = make()
    run.log({"step": 1})
    with (run.path / "metrics.jsonl").open("a", encoding="utf-8") as lines:
        lines.write('{"step": \n{"step": 3}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl.*line 2"):
        run.metrics()


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_bit_for_bit(make):
    run = make()
    weights = {
        "tok_embeddings.weight": torch.randn(7, 5),
        "layers.0.attention.wq.weight": torch.randn(5, 6).T,  # not contiguous
        "norm.weight": torch.randn(5).to(torch.bfloat16).requires_grad_(),
    }
    parameter = torch.nn.Parameter(torch.randn(3, 5))
    optimizer = torch.optim.AdamW([parameter])
    parameter.sum().backward()
    optimizer.step()
    training = {
        "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(),
        "count": {"step": 9, "best": math.inf},
    }  # fmt: skip
    run.save("last", weights, training, metadata={"step": "9"})
    loaded, state = RunDir.open(run.path).load_training()
    assert loaded.keys() == weights.keys()
    for key in weights:
        assert loaded[key].dtype == weights[key].dtype and torch.equal(loaded[key], weights[key])
    assert state["count"] == training["count"] and torch.equal(state["rng"], training["rng"])
    moments = state["optimizer"]["state"][0]
    assert torch.equal(moments["exp_avg"], optimizer.state[parameter]["exp_avg"])
    with safe_open(run.path / "last" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"step": "9"}


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_wrapped_names_never_reach_the_disk(make, prefix):
    run = make()
    with pytest.raises(AssertionError, match="bare module"):
        run.save("best", {f"{prefix}norm.weight": torch.ones(3)})
    assert not (run.path / "best").exists()


def test_weights_are_the_best_ones_or_else_the_last(make):
    run = make()
    with pytest.raises(UserError, match="no checkpoint yet"):
        run.load_weights()
    run.save("last", *checkpoint(1))
    assert run.load_weights()["a"][0, 0] == 1
    run.save("best", checkpoint(1)[0])
    run.save("last", *checkpoint(2))
    assert run.load_weights()["a"][0, 0] == 1
    assert run.load_weights("last")["a"][0, 0] == 2
    assert sorted(p.name for p in (run.path / "best").iterdir()) == ["model.safetensors"]
    file = run.path / "best" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=re.escape(f"{file} is damaged")):  # not quietly the last
        run.load_weights()


DAMAGE = {
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "empty": lambda file: os.truncate(file, 0),
    "missing": Path.unlink,
    "of another step": lambda file: shutil.copy(file.parents[1] / "previous" / file.name, file),
}


@pytest.mark.parametrize("file", ["model.safetensors", "training.pt"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_falls_back_on_the_one_before(make, file, damage, capsys):
    run = make()
    for step in (1, 2):
        run.save("last", *checkpoint(step))
    DAMAGE[damage](run.path / "last" / file)
    run = RunDir.open(run.path)
    assert step_of(*run.load_training()) == 1
    warning = capsys.readouterr().err
    assert str(run.path / "last" / file) in warning and str(run.path / "previous") in warning

    run.save("last", *checkpoint(2))  # the damaged one must not displace the good one
    assert step_of(*run.load_training()) == 2
    shutil.rmtree(run.path / "last")
    assert step_of(*RunDir.open(run.path).load_training()) == 1


def test_weights_with_one_bit_wrong_are_not_trained_on(make, capsys):
    run = make()
    for step in (1, 2):
        run.save("last", *checkpoint(step))
    file = run.path / "last" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert step_of(*run.load_training()) == 1
    assert str(file) in capsys.readouterr().err


def test_without_any_whole_checkpoint_the_error_names_the_file(make):
    run = make()
    run.save("last", *checkpoint(1))
    file = run.path / "last" / "training.pt"
    DAMAGE["truncated"](file)
    with pytest.raises(UserError, match=re.escape(f"{file} is damaged")):
        run.load_training()


def test_a_pickle_cannot_run_code(make, tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    run = make()
    run.save("last", *checkpoint(1))
    file = run.path / "last" / "training.pt"
    torch.save({"training": Payload(), "weights_sha256": ""}, file)
    with pytest.raises(UserError, match=re.escape(f"{file} is damaged")):
        run.load_training()
    file.write_bytes(pickle.dumps(Payload(), protocol=2))
    with pytest.raises(UserError, match=re.escape(f"{file} is damaged")):
        run.load_training()
    assert not (tmp_path / "executed").exists()
    pickle.loads(file.read_bytes())
    assert (tmp_path / "executed").exists()  # the payload would have worked


def fail_at(patch, k):
    """Let the k-th filesystem operation of rundir fail, half done where it writes a file."""
    calls = []

    def wrap(owner, name):
        original = getattr(owner, name)

        def call(*args, **kwargs):
            calls.append(name)
            if len(calls) != k + 1:
                return original(*args, **kwargs)
            if name in ("save", "save_file"):
                original(*args, **kwargs)
                target = args[1]
                if name == "save":
                    target.flush()
                    target = target.name
                os.truncate(target, os.path.getsize(target) // 2)
            raise OSError(28, f"No space left on device, said {name}")

        patch.setattr(owner, name, call)

    for owner, name in (
        (rundir.os, "replace"), (rundir.os, "rename"), (rundir.os, "fsync"), (rundir.os, "mkdir"),
        (rundir.os, "unlink"), (rundir.os, "rmdir"), (rundir.torch, "save"), (rundir, "save_file"),
    ):  # fmt: skip
        wrap(owner, name)
    return calls


@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["last", "best"])
def test_a_failure_anywhere_in_a_save_costs_nothing(make, monkeypatch, name, before):
    """The k-th operation fails, for all k, with 0 ... 3 checkpoints saved before."""
    for k in itertools.count():
        run = make(f"{name}-{k}")
        for step in range(1, before + 1):
            run.save(name, *arguments(name, step))
        with monkeypatch.context() as patch:
            calls = fail_at(patch, k)
            try:
                run.save(name, *arguments(name, before + 1))
                failed = False
            except UserError as error:
                failed = True
                assert str(run.path / name) in str(error) and "No space left" in str(error)
        reader = RunDir.open(run.path)
        if before or not failed:
            assert load(reader, name) in (before, before + 1)
        if name == "best" and before:
            assert (run.path / "best" / "model.safetensors").exists()
        RunDir.open(run.path).save(name, *arguments(name, 9))
        assert load(RunDir.open(run.path), name) == 9
        left = {p.name for p in run.path.iterdir()}
        assert left <= {"last", "previous", "best", "run.json", *run.record["sha256"]}
        if len(calls) <= k:
            break
    assert not failed and k >= 7


def arguments(name, step):
    weights, training = checkpoint(step)
    return (weights, training) if name == "last" else (weights,)


def load(run, name):
    return step_of(*run.load_training()) if name == "last" else run.load_weights()["a"][0, 0].item()


def test_a_failure_after_a_fallback_keeps_the_only_good_one(make, monkeypatch):
    for k in itertools.count():
        run = make(f"a-{k}")
        for step in (1, 2):
            run.save("last", *checkpoint(step))
        DAMAGE["truncated"](run.path / "last" / "training.pt")
        run = RunDir.open(run.path)
        run.load_training()
        with monkeypatch.context() as patch:
            calls = fail_at(patch, k)
            try:
                run.save("last", *checkpoint(3))
            except UserError:
                assert step_of(*RunDir.open(run.path).load_training()) in (1, 3)
        if len(calls) <= k:
            break
    assert k >= 7


def test_a_checkpoint_is_on_the_disk_before_it_gets_its_name(make, monkeypatch):
    run = make()
    with monkeypatch.context() as patch:
        calls = fail_at(patch, -1)
        run.save("last", *checkpoint(1))
    renamed = calls.index("rename")
    assert calls[:renamed].count("fsync") == 3  # two files and their folder
    assert {"save", "save_file"} <= set(calls[: calls.index("fsync")])
    assert calls[renamed + 1 :] == ["fsync"]


def test_what_cannot_be_pickled_costs_nothing(make):
    run = make()
    run.save("last", *checkpoint(1))
    with pytest.raises(Exception, match="pickle"):
        run.save("last", checkpoint(2)[0], {"step": lambda: None})
    assert step_of(*run.load_training()) == 1


@pytest.mark.parametrize("limit", [0, 100, 1200, 100_000])  # at the start, within each file
def test_a_full_disk_is_said_in_words(make, limit):
    """A file-size limit refuses writes where a full disk would, from inside the real writers."""
    run = make()
    big = {"a": torch.ones(200)}, {"b": torch.ones(70_000)}
    run.save("last", *checkpoint(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(UserError, match=f"cannot write {run.path / 'last'}: .*File too large"):
            run.save("last", *big)
        if limit == 0:
            with pytest.raises(UserError, match="metrics.jsonl: .*File too large"):
                run.log({"step": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert step_of(*RunDir.open(run.path).load_training()) == 1


def test_kill_9_at_any_moment_leaves_a_whole_checkpoint(make):
    """A process that does nothing but save is killed again and again, and goes on where it was."""
    run = make()
    run.save("last", *checkpoint(0))
    run.save("best", checkpoint(0)[0])
    saver = textwrap.dedent(
        f"""
        import sys
        sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
        from gyre.rundir import RunDir
        from test_rundir import checkpoint, step_of
        run = RunDir.open({str(run.path)!r})
        step = int(step_of(*run.load_training()))
        while True:
            step += 1
            run.save("last", *checkpoint(step))
            run.save("best", checkpoint(step)[0])
            print(step, flush=True)
        """
    )
    steps = [0]
    for kill in range(4):
        process = subprocess.Popen([sys.executable, "-c", saver], stdout=subprocess.PIPE, text=True)
        finished = [int(process.stdout.readline()) for _ in range(2)]
        time.sleep(0.0017 * kill)  # another moment of the save each time
        process.send_signal(signal.SIGKILL)
        finished += [int(line) for line in process.communicate()[0].split()]
        reader = RunDir.open(run.path)
        steps.append(step_of(*reader.load_training()))
        best = reader.load_weights("best")["a"][0, 0].item()
        assert steps[-1] >= finished[-1] > steps[-2]
        assert best in (steps[-1] - 1, steps[-1])


def test_the_other_ranks_keep_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = NullRun()
    run.log({"step": 1})
    run.save("last", *checkpoint(1), metadata={"step": "1"})
    run.finish(exit_code=1)
    assert list(tmp_path.iterdir()) == []
