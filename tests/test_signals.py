"""A signal stops a training after its step, saved; and which signals do."""

import os
import runpy
import signal

import pytest
from builders import exit_code, read_metric, tiny_argv, train_tiny, wait_for
from resumption import last_checkpoint

import train
from errors import find_script
from gyre import signals
from gyre.parallel import World
from gyre.rundir import RunDir

needs_sighup = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", 0)])
def test_a_signal_finishes_the_step_saves_and_says_how_to_resume(workdir, launch_ranks, number):
    path = workdir / "runs" / f"signal-{int(number)}"
    process = launch_ranks(1, train.main, tiny_argv(workdir, "--name", path.name, "--train.steps",
                                                    "9999"))
    wait_for(lambda: (path / "metrics.jsonl").exists() and len(read_metric(path)) > 1)
    os.kill(process.processes[0].pid, number)
    errors = process.join(128 + number)
    assert f"python {find_script('train.py')} --resume {path}" in errors
    assert "Traceback" not in errors
    _, training = last_checkpoint(path)
    assert training["progress"]["step"] == max(read_metric(path)) >= 2


def test_a_signal_in_the_last_step_stops_nothing(workdir, monkeypatch, capfd):
    stop = signals.StopSignal()
    stop.number = signal.SIGTERM
    monkeypatch.setattr(train, "StopSignal", lambda: stop)
    path = train_tiny(workdir, "one", "--train.steps=1", "--optim.warmup_steps=0")
    assert RunDir.open(path).checkpoints.saved_step("last") == 1
    assert "To go on" not in capfd.readouterr().err


def test_a_signal_to_another_process_ends_this_one_as_a_signal(workdir, monkeypatch):
    # As if another process had been asked to stop: a sum that is 0 here is 1.
    monkeypatch.setattr(World, "sum", lambda self, *values: [value or 1.0 for value in values])
    assert exit_code(train.main, *tiny_argv(workdir, "--name", "other")) == 128 + signal.SIGTERM


@pytest.fixture
def sighup_is_ignored():
    """As nohup starts a process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@needs_sighup
def test_a_signal_that_is_ignored_stays_ignored(sighup_is_ignored):
    with signals.StopSignal() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert stop.number == 0


@needs_sighup
def test_all_handlers_are_restored(sighup_is_ignored):
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    with signals.StopSignal():
        pass
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before


@needs_sighup
@pytest.mark.parametrize("first", [signal.SIGTERM, getattr(signal, "SIGHUP", 0), signal.SIGINT])
def test_a_second_sigterm_does_nothing(first):
    """A scheduler sends it, and torchrun once more."""
    with signals.StopSignal() as stop:
        signal.raise_signal(first)
        signal.raise_signal(signal.SIGTERM)
        assert stop.number == first


@needs_sighup
@pytest.mark.parametrize("first", [signal.SIGTERM, getattr(signal, "SIGHUP", 0), signal.SIGINT])
def test_ctrl_c_after_any_signal_acts_at_once(first):
    with signals.StopSignal():
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_once_all_is_saved_ctrl_c_acts_at_once():
    with signals.StopSignal() as stop:
        stop.end_steps()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_once_all_is_saved_a_signal_announces_no_stop(capfd):
    with signals.StopSignal() as stop:
        stop.end_steps()
        signal.raise_signal(signal.SIGTERM)
        assert stop.number == signal.SIGTERM
    assert capfd.readouterr().err == "\nonly wandb is waited for; Ctrl-C ends that\n"


def test_the_next_training_has_all_to_save_again(capfd):
    stop = signals.StopSignal()
    with stop:
        stop.end_steps()
    with stop:
        signal.raise_signal(signal.SIGTERM)
    assert "stopping when this step is saved" in capfd.readouterr().err


def test_a_system_without_sighup_has_the_other_signals(monkeypatch):
    """As Windows."""
    monkeypatch.delattr(signal, "SIGHUP", raising=False)
    module = runpy.run_path(signals.__file__)
    assert module["SIGNALS"] == [signal.SIGINT, signal.SIGTERM]
