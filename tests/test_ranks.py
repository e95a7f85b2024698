"""What only the first of several processes does: print, and write the points of a run."""

from dataclasses import replace

import pytest
from conftest import CPU, build_setup

import train
from gyre.parallel import World
from gyre.rundir import RunDir


@pytest.fixture
def second(workdir, monkeypatch):
    """The setup of the second of two processes, which has all of the validation split."""
    setup = build_setup(workdir)
    monkeypatch.setattr(World, "sum", lambda self, *values: list(values))
    return replace(setup, world=World(1, 2, CPU, is_main=False))


def test_a_rank_other_than_0_prints_no_validation(second, capfd):
    capfd.readouterr()
    train.measure_validation(second)
    assert capfd.readouterr().err == ""


def test_a_rank_other_than_0_prints_no_sample(second, tmp_path, capfd):
    capfd.readouterr()
    train.sample(second, RunDir(tmp_path, {}, is_main=False))
    assert capfd.readouterr().err == ""


def test_a_rank_other_than_0_writes_no_point(tmp_path):
    RunDir(tmp_path, {}, is_main=False).log({"step": 1})
    assert list(tmp_path.iterdir()) == []
