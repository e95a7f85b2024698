"""wandb mirrors metrics.jsonl, and whatever happens to wandb, training does not notice.

The real wandb, offline, read back with its own `wandb leet inspect`.
"""

import json
import math
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from gyre import wandb_log
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig


@pytest.fixture(autouse=True)
def nobody_is_logged_in(monkeypatch, tmp_path):
    """A machine without the developer's key and settings, and a wandb that has seen no other."""
    for name in os.environ:
        if name.startswith("WANDB_") or name == "NETRC":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_HTTP_TIMEOUT", "1")
    (tmp_path / "home").mkdir()
    yield
    if wandb := sys.modules.get("wandb"):
        wandb.teardown()


@pytest.fixture
def make(tmp_path):
    def make(name="a", wandb="auto", config=None, **options):
        tokenizer = tmp_path / "tokenizer.model"
        tokenizer.write_bytes(b"pieces")
        log = LogConfig(runs=str(tmp_path / "runs"), wandb=wandb, **options)
        return RunDir.create(log, name, config_yaml="seed: 1\n", config=config or {},
                             tokenizer=[tokenizer], manifest={})

    return make


def train(run, first, last):
    """What a training loop logs: losses at every step, now and then a validation and a sample."""
    for step in range(first, last + 1):
        axes = {"step": step, "tokens": 96 * step, "seconds": step / 8}
        run.log(axes | {"train/loss": 9 / step, "train/lr": 3e-4 * step})
        if step % 4 == 0:
            run.log(axes | {"val/loss": 2 + abs(step - 8), "val/bpb": 1 / step})
            run.log({"step": step, "sample": f"<b>{step}</b>\n"})


def records(folder):
    """Every record that wandb wrote, by wandb's own reader."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder)]
    reader = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in reader.stdout.splitlines()]


def folders(run):
    return sorted(p for p in (run.path.parent / "wandb").glob("*run-*") if p.name != "latest-run")


def history(*segments):
    """Step -> values, without what wandb adds of its own. No step may stand twice."""
    points = {}
    for segment in segments:
        for record in segment:
            if record["type"] == "history":
                item = record["history"]["item"]
                assert item["_step"] not in points
                points[item["_step"]] = {k: v for k, v in item.items() if not k.startswith("_")}
    return points


def merged(points):
    steps = {}
    for point in points:
        steps.setdefault(point["step"], {}).update(point)
    return steps


@pytest.mark.slow
def test_wandb_has_every_point_of_the_file(make, capfd):
    run = make(
        "rope-s1", config={"model": {"dim": 48}, "seed": 1}, project="p", group="g",
        job_type="probe", tags=["x", "y"],
    )
    train(run, 1, 12)
    run.log({"step": 13, "tokens": 1248, "train/loss": math.nan})
    run.finish()
    assert capfd.readouterr() == ("", "")  # the terminal belongs to the progress bar

    (folder,) = folders(run)
    assert folder.name.startswith("offline-run-") and "rope-s1" in folder.name
    written = records(folder)
    points = history(written)
    assert points.pop(13)["train/loss"] == "NaN"
    assert points == merged(run.metrics()[:-1]) and len(points) == 12

    (about,) = [r["run"] for r in written if r["type"] == "run"]
    assert about["run_id"] == run.record["wandb_id"] and about["display_name"] == "rope-s1"
    assert (about["project"], about["run_group"], about["job_type"]) == ("p", "g", "probe")
    assert about["tags"] == ["x", "y"]
    logged = {"model": {"dim": 48}, "seed": 1, "_wandb": {}}
    assert about["config"]["update"] | {"_wandb": {}} == logged
    axes = [r["metric"] for r in written if r["type"] == "metric"]
    assert {m["name"] for m in axes if "name" in m} == {
        "step", "tokens", "seconds", "tokens_seen", "context_length", "offset", "probe_step"
    }
    assert {m["glob_name"]: m["step_metric"] for m in axes if "glob_name" in m} == {
        "train/*": "tokens", "val/*": "tokens", "position/*": "tokens_seen",
        "context/*": "context_length", "shift/*": "offset", "probe/*": "probe_step",
    }
    summary = {}
    for record in written:
        if record["type"] == "summary":
            summary |= record["summary"]["update"]
    assert summary["val/loss"] == {"min": 2} and summary["val/bpb"] == {"min": 1 / 12}
    assert [r["exit"]["exit_code"] for r in written if r["type"] == "exit"] == [0]


@pytest.mark.slow
def test_a_resumed_run_continues_its_own_curve(make):
    run = make()
    train(run, 1, 5)
    run.finish(1)
    resumed = RunDir.open(run.path)
    resumed.resume(5, LogConfig(runs=str(run.path.parent), wandb="offline"), {})
    train(resumed, 6, 9)
    resumed.finish()
    segments = [records(folder) for folder in folders(run)]
    assert len(segments) == 2
    ids = {r["run"]["run_id"] for segment in segments for r in segment if r["type"] == "run"}
    assert ids == {run.record["wandb_id"]}
    assert history(*segments) == merged(resumed.metrics())
    assert sorted(history(*segments)) == list(range(1, 10))


def raise_error(*args, **kwargs):
    raise RuntimeError("wandb is broken\nin two lines")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["init", "define_metric", "log", "finish"])
def test_a_broken_wandb_costs_one_warning(make, monkeypatch, capfd, method):
    import wandb

    owner = wandb if method == "init" else wandb.Run
    monkeypatch.setattr(owner, method, raise_error)
    run = make(wandb="offline")
    train(run, 1, 5)
    run.finish()
    assert len(run.metrics()) == 7
    out, err = capfd.readouterr()
    assert out == "" and len(re.findall("^warning: .*without wandb", err, re.M)) == 1, err
    assert err.count("\n") == 1
    monkeypatch.undo()


@pytest.mark.slow
def test_a_wandb_that_hangs_is_left_behind(make, monkeypatch, capfd):
    import wandb

    monkeypatch.setattr(wandb_log, "WANDB_START", 0.1)
    monkeypatch.setattr(wandb_log, "WANDB_FINISH", 0.1)
    monkeypatch.setattr(wandb, "init", lambda **kwargs: threading.Event().wait())
    run = make(wandb="offline")
    train(run, 1, 5)
    run.finish()
    assert len(run.metrics()) == 7
    assert re.fullmatch("warning: wandb does not finish.*\n", capfd.readouterr().err)


def test_without_the_package_training_goes_on(make, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "wandb", None)
    run = make()
    train(run, 1, 5)
    run.finish()
    assert len(run.metrics()) == 7
    assert re.fullmatch("warning: going on without wandb.*\n", capfd.readouterr().err)
    monkeypatch.undo()


@pytest.mark.slow
def test_wandb_is_not_imported_before_it_is_needed():
    code = "import sys, gyre.rundir; sys.exit('wandb' in sys.modules)"
    root = Path(wandb_log.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["option", "environment"])
def test_disabled_leaves_nothing(make, monkeypatch, how, capfd):
    if how == "environment":
        monkeypatch.setenv("WANDB_MODE", "disabled")
    run = make(wandb="disabled" if how == "option" else "auto")
    train(run, 1, 5)
    run.finish()
    assert len(run.metrics()) == 7 and not folders(run)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def server(monkeypatch):
    """A wandb server that takes calls and never answers; yields the calls it has had."""
    calls = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept():
            try:
                while True:
                    calls.append(listener.accept()[0])
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        yield calls
        for call in calls:
            call.close()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
@pytest.mark.parametrize("login", ["nobody", "key", "netrc", "key, but WANDB_MODE=offline"])
def test_auto_is_online_when_logged_in_and_offline_otherwise(
    make, server, monkeypatch, login, tmp_path, capfd
):
    if login.startswith("key"):
        monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    if login.endswith("offline"):
        monkeypatch.setenv("WANDB_MODE", "offline")
    if login == "netrc":
        netrc = tmp_path / "home" / ".netrc"
        host = os.environ["WANDB_BASE_URL"].removeprefix("http://")
        words = f"machine {host}\nlogin user\npassword {'0' * 40}\n"
        netrc.write_text(words, encoding="utf-8")
        netrc.chmod(0o600)
    run = make()
    train(run, 1, 5)
    run.finish()
    err = capfd.readouterr().err
    if login in ("key", "netrc"):  # the server is asked, does not answer, and the run goes on
        assert server and re.fullmatch("warning: wandb is not reachable.*\n", err)
    else:
        assert not server and err == ""
    (folder,) = folders(run)
    assert folder.name.startswith("offline-run-")
    assert history(records(folder)) == merged(run.metrics())


@pytest.mark.slow
def test_online_without_a_login_says_so(make, server, capfd):
    run = make(wandb="online")
    run.log({"step": 1, "x": 2})
    run.finish()
    assert not server and "wandb login" in capfd.readouterr().err
    assert history(records(*folders(run))) == {1: {"step": 1, "x": 2}}


@pytest.mark.slow
def test_wandb_changes_nothing_that_training_computes(make):
    losses = []
    for mode in ("disabled", "offline"):
        run = make(mode, wandb=mode)
        torch.manual_seed(1)
        train(run, 1, 3)
        losses.append((torch.rand(3).tolist(), run.metrics()))
        run.finish()
    assert losses[0] == losses[1]
