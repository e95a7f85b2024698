"""A wandb that has failed costs no memory and no study."""

import sys
import threading
from unittest.mock import MagicMock

import pytest

from gyre.wandb_log import LogConfig, WandbThread, log_report

POINT = {"step": 1, "tokens": 96, "seconds": 0.5, "train/loss": 2.5}


@pytest.fixture
def thread():
    return WandbThread(LogConfig(wandb="offline"), "a", "a-123456", {})


def test_points_wait_for_a_wandb_that_starts(thread, monkeypatch):
    go_on = threading.Event()
    wandb = MagicMock(**{"setup.side_effect": lambda settings: go_on.wait(10)})
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    thread.start()
    thread.log(POINT)
    assert thread.queue.get() == (96, {"train/loss": 2.5})
    go_on.set()
    thread.finish(0)


def test_no_point_is_kept_for_a_wandb_that_has_failed(thread, monkeypatch):
    wandb = MagicMock(**{"setup.side_effect": OSError("wandb is broken")})
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    thread.start()
    thread.join(10)
    thread.log(POINT)
    assert thread.queue.empty()


@pytest.mark.parametrize("mode, resume", [
    ("online", "allow"), ("offline", None), ("dryrun", None)])
def test_only_a_run_online_is_appended_to(thread, monkeypatch, mode, resume):
    wandb = MagicMock()
    wandb.setup.return_value.settings.mode = mode
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    thread.init()
    assert wandb.init.call_args.kwargs["resume"] == resume


def test_a_wandb_that_makes_no_table_leaves_the_study_finished(monkeypatch, capsys):
    wandb = MagicMock(**{"Table.side_effect": TypeError("Descriptors cannot be created directly")})
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    log_report(LogConfig(), "study", {}, [], [], [])
    assert capsys.readouterr().err == (
        "warning: the study is not in wandb: Descriptors cannot be created directly\n")
