"""A wandb that has failed costs no memory: points are handed to one that takes them only."""

import sys
import threading
from unittest.mock import MagicMock

import pytest

from gyre.wandb_log import LogConfig, WandbThread

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
    assert thread.queue.get() == {"train/loss": 2.5, "x": 96}
    go_on.set()
    thread.finish(0)


def test_no_point_is_kept_for_a_wandb_that_has_failed(thread, monkeypatch):
    wandb = MagicMock(**{"setup.side_effect": OSError("wandb is broken")})
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    thread.start()
    thread.join(10)
    thread.log(POINT)
    assert thread.queue.empty()
