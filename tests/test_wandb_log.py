"""wandb mirrors metrics.jsonl, and whatever happens to wandb, training does not notice.

The real wandb, offline, read back with its own `wandb leet inspect`.
"""

import json
import math
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import asdict
from unittest.mock import MagicMock

import pytest
from builders import parse_config, require_package, start_python
from wandb_server import WandbServer

from gyre import wandb_log
from gyre.rundir import RunDir
from gyre.wandb_log import set_aside_older
from gyre.yaml_files import read_config

KEY = {"WANDB_API_KEY": "0123456789" * 4}
pytestmark = pytest.mark.usefixtures("nobody_is_logged_in")


@pytest.fixture
def real_wandb():
    """Skip the test where wandb is not installed."""
    require_package("wandb")


def train(run, first=1, last=5):
    """What a training loop logs: losses at every step, now and then a validation and a sample."""
    for step in range(first, last + 1):
        axes = {"step": step, "tokens": 96 * step, "seconds": step / 8}
        run.log(axes | {"train/loss": 9 / step, "train/grad_norm": 3e-4 * step})
        if step % 4 == 0:
            run.log(axes | {"val/loss": 2 + abs(step - 8), "val/bpb": 1 / step})
            run.log(axes | {"sample": f"<b>{step}</b>\n"})


def train_and_finish(run):
    train(run)
    run.finish()
    assert len(run.metrics()) == 7  # whatever happened to wandb


def records(folder):
    """Every record that wandb wrote, by wandb's own reader."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder)]
    return [json.loads(line) for line in subprocess.check_output(command).splitlines()]


def folders(run):
    return sorted(p for p in (run.path.parent / "wandb").glob("*run-*") if p.name != "latest-run")


def contents(written, kind):
    return [record[kind] for record in written if record["type"] == kind]


def history(written):
    """Tokens -> values, without what wandb adds of its own. What stands twice is the same."""
    points = {}
    for record in contents(written, "history"):
        values = {k: v for k, v in record["item"].items() if not k.startswith("_")}
        assert points.setdefault(record["item"]["_step"], values) == values
    return points


def merged(points):
    """Tokens -> values, without the other axes."""
    rows = {}
    for point in points:
        values = {k: v for k, v in point.items() if k not in ("step", "tokens", "seconds")}
        rows[point["tokens"]] = rows.get(point["tokens"], {}) | values
    return rows


@pytest.mark.slow
@pytest.mark.usefixtures("real_wandb")
def test_wandb_has_every_point_of_the_file(new_run, capfd):
    log = {"project": "p", "group": "g", "job_type": "probe", "tags": ["x", "y"]}
    run = new_run("small-rope-s1", log)
    train(run, 1, 12)
    run.log({"step": 13, "tokens": 1248, "train/loss": math.nan})
    run.finish()
    assert capfd.readouterr() == ("", "")  # the terminal belongs to the progress bar

    (folder,) = folders(run)
    # `wandb leet` lists runs by the name of this folder, of which it may show the start only.
    assert re.fullmatch(r"offline-run-\d{8}_\d{6}-rope-s1-small-\w{6}", folder.name)
    written = records(folder)
    points = history(written)
    assert points.pop(1248)["train/loss"] == "NaN"
    assert points == merged(run.metrics()[:-1]) and len(points) == 12

    (about,) = contents(written, "run")
    names = ["run_id", "display_name", "project", "run_group", "job_type", "tags"]
    assert [about[name] for name in names] == [run.record["wandb_id"], run.path.name, *log.values()]
    logged = asdict(read_config(run.path / "config.yaml"))
    logged["data"]["tokenizer"] = "elsewhere"  # where the run's own copy is from
    assert about["config"]["update"] | {"_wandb": {}} == logged | {"_wandb": {}}
    summary = {}
    for record in contents(written, "summary"):
        summary |= record["update"]
    assert summary["val/loss"] == {"min": 2} and summary["val/bpb"] == {"min": 1 / 12}


def test_a_damaged_point_is_not_handed_over(monkeypatch):
    """A changed byte in metrics.jsonl is no reason not to resume a run."""
    thread = wandb_log.WandbThread(wandb_log.LogConfig(), "name", "id", {})
    monkeypatch.setattr(thread, "is_alive", lambda: True)
    thread.log({"step": 1, "tokenz": 96, "train/loss": 2.0})
    thread.log({"step": 2, "tokens": 192, "train/loss": 1.5})
    assert thread.queue.get_nowait() == (192, {"train/loss": 1.5})
    assert thread.queue.empty()


def resume(run, step, mode="offline"):
    """Go on with a run behind this step, to step 9."""
    resumed = RunDir.open(run.path)
    resumed.resume(step, parse_config(f"--log.runs={run.path.parent}", f"--log.wandb={mode}"))
    train(resumed, step + 1, 9)
    resumed.finish()


@pytest.mark.slow
@pytest.mark.usefixtures("real_wandb")
def test_a_resumed_run_continues_its_own_curve(new_run):
    run = new_run(log={"wandb": "offline"})
    train(run)
    run.finish(1)
    resume(run, 5)
    (older,) = (run.path.parent / "wandb" / "superseded").iterdir()
    (folder,) = folders(run)
    first = records(older)
    second = records(folder)
    ids = [about["run_id"] for about in contents(first + second, "run")]
    assert ids == 2 * [run.record["wandb_id"]]
    assert [end["exit_code"] for end in contents(first + second, "exit")] == [1, 0]
    # Whatever of the first folder was lost in a kill.
    assert history(first + second) == history(second) == merged(run.metrics())
    assert sorted(history(second)) == [96, 192, 288, 384, 480, 576, 672, 768, 864]


@pytest.fixture
def server(monkeypatch):
    """A stand-in for wandb's server, which this machine and its processes are logged in to."""
    with WandbServer() as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY["WANDB_API_KEY"])
        monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
        monkeypatch.setenv("WANDB_HTTP_TIMEOUT", "20")
        yield server
        server.shutdown()


def sync(*paths):
    """`wandb sync` of these folders."""
    command = [sys.executable, "-m", "wandb", "sync", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100,
                          cwd=paths[0].parent)  # it writes a log there
    assert "Finished syncing" in done.stderr, done.stderr


ALL_STEPS = [96, 192, 288, 384, 480, 576, 672, 768, 864]


@pytest.mark.slow
@pytest.mark.usefixtures("real_wandb")
def test_a_resumed_offline_run_is_uploaded_once(new_run, server):
    run = new_run(log={"wandb": "offline"})
    train(run, 1, 6)
    run.finish(1)
    resume(run, 4)
    sync(*folders(run))
    assert server.steps(run.record["wandb_id"]) == ALL_STEPS


@pytest.mark.slow
@pytest.mark.usefixtures("real_wandb")
def test_a_folder_that_was_uploaded_before_resuming_is_written_over(new_run, server):
    run = new_run(log={"wandb": "offline"})
    train(run, 1, 6)
    run.finish(1)
    sync(*folders(run))
    assert server.steps(run.record["wandb_id"]) == ALL_STEPS[:6]
    resume(run, 4)
    sync(*folders(run))
    assert server.steps(run.record["wandb_id"]) == ALL_STEPS


KILLED = """
import os
import signal
import sys
import time
from pathlib import Path

from test_wandb_log import folders, train

from gyre.options import make_config
from gyre.rundir import RunDir
from gyre.wandb_log import set_aside_older

run = RunDir.open(sys.argv[1])
runs = str(run.path.parent)
run.start_wandb(make_config({"log": {"runs": runs, "wandb": sys.argv[2]}}))
train(run, 1, 6)
while not run.wandb.queue.empty():
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("real_wandb")
@pytest.mark.parametrize("mode", ["offline", "online"])
def test_a_run_that_was_killed_and_resumed_is_uploaded_once(new_run, server, mode):
    run = new_run()
    process = start_python(KILLED, run.path, mode, PYTHONPATH=os.pathsep.join(sys.path))
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    resume(run, 4, mode)
    if mode == "offline":
        sync(*folders(run))
    assert server.steps(run.record["wandb_id"]) == ALL_STEPS


def test_older_folders_of_a_run_are_set_aside_and_no_others(tmp_path):
    wandb = tmp_path / "wandb"
    new = wandb / "offline-run-20260102_030405-a-1"
    others = ["offline-run-20260101_030405-b-a-1", "offline-run-20260101_030405-a-12",
              "run-20260101_030405-a-1", new.name]
    for name in [*others, "offline-run-20260101_030405-a-1"]:
        (wandb / name).mkdir(parents=True)
    set_aside_older(new, "a-1")
    assert sorted(path.name for path in wandb.iterdir()) == sorted([*others, "superseded"])
    (older,) = (wandb / "superseded").iterdir()
    assert older.name == "offline-run-20260101_030405-a-1"


def test_every_start_sets_the_folder_before_it_aside(tmp_path):
    names = [f"offline-run-2026010{day}_030405-a-1" for day in (1, 2, 3)]
    for name in names:
        (tmp_path / name).mkdir()
        set_aside_older(tmp_path / name, "a-1")
    assert sorted(path.name for path in (tmp_path / "superseded").iterdir()) == names[:2]


def test_an_older_folder_that_cannot_be_set_aside_is_named(tmp_path, capsys):
    new = tmp_path / "offline-run-20260102_030405-a-1"
    older = tmp_path / "offline-run-20260101_030405-a-1"
    older.mkdir()
    (tmp_path / "superseded").touch()
    set_aside_older(new, "a-1")
    assert re.fullmatch(f"warning: {older} stays .*: do not upload it, {new} has all its points\n",
                        capsys.readouterr().err)


@pytest.mark.parametrize("method", [None, "setup", "init", "init.return_value.log",
                                    "init.return_value.finish"])
def test_a_broken_wandb_costs_one_warning(new_run, monkeypatch, capfd, method):
    """One that is not installed, too."""
    broken = {f"{method}.side_effect": OSError("wandb is broken\nin two lines")}
    wandb = MagicMock(**{"init.return_value.url": None}, **broken) if method else None
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    train_and_finish(new_run(log={"wandb": "offline"}))
    out, err = capfd.readouterr()
    assert out == "" and re.fullmatch("warning: going on without wandb.*\n", err), err


def test_a_wandb_that_hangs_is_left_behind(new_run, monkeypatch, capfd):
    monkeypatch.setattr(wandb_log, "WANDB_START", 0.03)
    monkeypatch.setattr(wandb_log, "WANDB_FINISH", 0.03)
    hanging = MagicMock(**{"init.side_effect": lambda **options: threading.Event().wait()})
    monkeypatch.setitem(sys.modules, "wandb", hanging)
    train_and_finish(new_run(log={"wandb": "offline"}))
    assert re.fullmatch("warning: wandb does not finish.*\n", capfd.readouterr().err)


@pytest.mark.slow
@pytest.mark.usefixtures("real_wandb")
@pytest.mark.parametrize("wandb, environment, warning", [
    ("auto", KEY, "warning: wandb is offline: .+\n"),  # the server does not answer
    ("auto", KEY | {"WANDB_MODE": "offline"}, ""), ("auto", {"WANDB_MODE": "disabled"}, ""),
    ("online", {}, "warning: wandb is offline: not logged in, see `wandb login`\n"),
    ("auto", {}, ""), ("disabled", {}, "")])
def test_auto_is_online_when_logged_in(new_run, monkeypatch, capfd, wandb, environment, warning):
    """Otherwise it is offline. Disabled, it writes nothing."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as server:  # it lets its callers wait
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        run = new_run(log={"wandb": wandb})
        train_and_finish(run)
        called, _, _ = select.select([server], [], [], 0)
    out, err = capfd.readouterr()
    assert re.fullmatch(warning, err) and out == ""
    assert bool(called) == (environment == KEY)  # else there is nothing to ask
    offline = [folder.name.startswith("offline-run-") for folder in folders(run)]
    assert offline == ([] if "disabled" in (wandb, *environment.values()) else [True])


@pytest.mark.parametrize("name, distinct, start", [
    ("small-rope-s1", "rope-s1", "rope-s1-small-"),
    ("small-rope-s1-2", "rope-s1", "rope-s1-2-small-"),
    ("rope-s0-1M", "rope-s0", "rope-s0-1M-"), ("mine", "rope-s1", "mine-"),
    ("mine", None, "mine-")])
def test_an_id_begins_with_what_distinguishes_a_run(name, distinct, start):
    assert re.fullmatch(f"{start}[0-9a-f]{{6}}", wandb_log.wandb_id(name, distinct))
