"""What only the first of several processes does: print, and write the points of a run."""

from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import Mock

import pytest
from builders import CPU, build_setup

import gyre.auto
import gyre.build
import train
from data.sources import DataConfig
from gyre.parallel import Replicated, World
from gyre.rundir import RunDir
from gyre.sharding import Sharded
from gyre.step import Progress

SECOND = World(1, 2, CPU, is_main=False)


@pytest.fixture
def second(workdir, monkeypatch):
    """The setup of the second of two processes, which has all of the validation split."""
    setup = build_setup(workdir)
    monkeypatch.setattr(World, "sum", lambda self, *values: list(values))
    return replace(setup, world=SECOND)


def test_a_rank_other_than_0_prints_no_validation(second, capfd):
    capfd.readouterr()
    train.measure_validation(second)
    assert capfd.readouterr().err == ""


def test_a_rank_other_than_0_prints_no_sample(second, capfd):
    capfd.readouterr()
    train.show_sample(second, train.draw_sample(second))
    assert capfd.readouterr().err == ""


def test_a_rank_other_than_0_prints_no_note_on_its_base(second, tmp_path, capfd):
    """Its loss is not below that of the base, which is at step 0."""
    RunDir(tmp_path, {}).log({"step": 0, "val/loss": 1.0})
    tuned = replace(second, config=replace(second.config, init_from="runs/base"))
    capfd.readouterr()
    train.note_better_base(tuned, RunDir(tmp_path, {}, is_main=False))
    assert capfd.readouterr().err == ""


def test_a_rank_other_than_0_does_not_print_how_to_go_on(second, capfd):
    capfd.readouterr()
    train.print_how_to_go_on(second, "stopped", ["--resume", "runs/a"])
    assert capfd.readouterr().err == ""


def test_a_rank_other_than_0_prints_no_schedule(monkeypatch):
    """A run of 5 steps is resumed after 3, and gets 9."""
    printed = Mock()
    monkeypatch.setattr(gyre.build, "print_schedule", printed)
    monkeypatch.setattr(gyre.build, "load_checkpoint", lambda *_: (Progress(step=3), 5))
    start = Mock(trunk=None, given={"train.steps": 9})
    start.config.train.steps = 9
    start.source.checkpoints.saved_step.return_value = 0
    gyre.build.restore(start, SECOND, Mock(), Mock(), Mock())
    printed.assert_not_called()


def test_a_rank_other_than_0_prints_no_note_on_a_changed_text(monkeypatch, capfd):
    monkeypatch.setattr(gyre.auto, "find_data_of", lambda *_: Mock(manifest={"files": {}}))
    monkeypatch.setattr(gyre.auto, "has_changed", lambda *_: True)
    source = Mock(manifest={"files": {}, "settings": {}})
    gyre.auto.find_same_text(source, DataConfig(), SECOND)
    assert capfd.readouterr().err == ""


def test_notes_that_another_rank_has_printed_are_not_repeated(workdir, monkeypatch):
    """Of processes that need the same text, any may be the one that prepares it."""
    build_setup(workdir)  # prepares the text, if no test has done so yet
    monkeypatch.setattr(World, "all_gather", lambda self, value: [value, True])
    assert build_setup(workdir).data.is_new


def test_ranks_train_the_run_that_rank_0_has_named(second, monkeypatch):
    monkeypatch.setattr(World, "all_gather", lambda self, value: ["of-rank-0", value])
    assert train.create_run(Mock(), second, ExitStack()).path.name == "of-rank-0"


@pytest.mark.parametrize("was_logged", [True, False])
def test_ranks_validate_a_checkpoint_if_rank_0_has_no_loss(second, monkeypatch, was_logged):
    """Other ranks do not read what was logged."""
    monkeypatch.setattr(World, "all_gather", lambda self, value: [was_logged, value])
    second.progress.step = second.config.train.steps  # a step that is validated
    assert train.lacks_validation(Mock(), second) is not was_logged


def test_a_rank_other_than_0_writes_no_point(tmp_path):
    RunDir(tmp_path, {}, is_main=False).log({"step": 1})
    assert list(tmp_path.iterdir()) == []


def test_a_rank_measures_the_bits_of_all(workdir, monkeypatch):
    """As many nats come from another rank as from this one, of texts and of their ends."""
    setup = build_setup(workdir, "--data.separator= ")
    alone = train.measure_validation(setup)
    monkeypatch.setattr(World, "sum", lambda self, *values: [2 * value for value in values])
    measured = train.measure_validation(setup)
    assert alone["val/eos_share"] > 0
    assert measured["val/eos_share"] == pytest.approx(alone["val/eos_share"])
    assert measured["val/bpb"] == pytest.approx(2 * alone["val/bpb"])


def test_only_sharded_ranks_take_equally_many_passes():
    """They gather weights together in each pass, and would wait for a rank that takes fewer."""
    assert (Sharded.pads_micro_batches, Replicated.pads_micro_batches) == (True, False)
