"""Steps whose numbers are read one step later, as on a GPU: they change nothing but the times."""

import math
import signal
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
import torch
from builders import (
    build_setup,
    exit_code,
    quick_for,
    read_metric,
    stop_at,
    tiny_argv,
    train_tiny,
)
from resumption import EXACT, assert_equal_runs, kill_before
from tqdm import tqdm

import gyre.step
import train
from gyre.build import build
from gyre.optim import Muon
from gyre.rundir import RunDir
from gyre.signals import StopSignal
from gyre.step import PendingStep, StepQueue, start_step, summed_loss, train_step

KEPT = ["--train.keep=[2, 4]"]
MUON = ["--optim.optimizer=muon"]


@pytest.fixture
def late(monkeypatch):
    """Trainings of this test read late. `straight` reads at once: a fixture of the module is made
    before this one."""
    monkeypatch.setattr(train, "build", build_late)


def build_late(*args):
    return replace(build(*args), reads_late=True)


@pytest.fixture
def calls(monkeypatch):
    """What train.py calls, in order: ("start_step", 0), ("log_step", 0) ..."""
    made = []

    def recorded(name, label):
        module = gyre.step if name == "start_step" else train
        function = getattr(module, name)

        def call(setup, *args):
            made.append((name, label(setup, *args)))
            return function(setup, *args)

        monkeypatch.setattr(module, name, call)

    recorded("start_step", lambda setup, step: step)
    recorded("log_step", lambda setup, *args: setup.progress.step - 1)
    recorded("validate_and_sample", lambda setup, run, may_stop_early: setup.progress.step)
    recorded("save", lambda setup, run, name: name)
    return made


@pytest.fixture(scope="module")
def straight(workdir):
    """The run of 7 steps whose numbers are read at once."""
    return train_tiny(workdir, "straight", *EXACT, *KEPT)


def spoil(monkeypatch, *steps):
    """Make the losses of these steps, counted from 0, NaN."""
    start = gyre.step.start_step

    def spoiled(setup, step):
        factor = math.nan if step in steps else 1.0
        with setup.model.norm.register_forward_hook(lambda module, args, out: out * factor):
            return start(setup, step)

    monkeypatch.setattr(gyre.step, "start_step", spoiled)


# --- when a step is read --------------------------------------------------------------------------


def test_a_step_is_started_before_the_one_before_is_read(workdir, late, calls):
    train_tiny(workdir, "order", "--train.steps=4", "--train.eval_interval=9")
    assert calls[:7] == [
        ("start_step", 0), ("start_step", 1), ("log_step", 0), ("start_step", 2),
        ("log_step", 1), ("start_step", 3), ("log_step", 2)]


def test_validation_sees_all_steps_counted_and_no_later_one(workdir, late, calls):
    train_tiny(workdir, "order-val", "--train.steps=6", "--train.eval_interval=3",
               "--train.sample_tokens=0")
    at = calls.index(("validate_and_sample", 3))
    assert calls[at - 1 : at + 4] == [
        ("log_step", 2), ("validate_and_sample", 3), ("save", "best"), ("save", "last"),
        ("start_step", 3)]


def test_a_kept_step_is_saved_before_the_next_is_started(workdir, late, calls):
    train_tiny(workdir, "order-keep", "--train.steps=4", "--train.keep=[2]")
    at = calls.index(("save", 2))
    assert calls[at - 1 : at + 2] == [("log_step", 1), ("save", 2), ("start_step", 2)]


def test_a_step_is_read_at_once_on_a_cpu(workdir):
    assert not build_setup(workdir).reads_late


def test_the_bar_shows_the_loss_of_the_step_that_it_counts():
    shown = StringIO()
    bar = tqdm(total=2, file=shown, mininterval=0)
    train.show_step(bar, loss=2.5, rate=1.0)
    last = shown.getvalue().rpartition("\r")[2]
    assert "1/2" in last and "loss 2.500" in last


def test_no_time_is_counted_twice(workdir):
    """A step is started before the one before it is finished."""
    setup = build_setup(workdir)
    first = start_step(setup, 0)
    second = start_step(setup, 1)
    first = replace(first, started_at=10.0, finished_at=14.0)
    second = replace(second, started_at=11.0, finished_at=17.0)
    assert first.read().seconds == 4.0
    assert second.read(since=14.0).seconds == 3.0


def test_a_queue_counts_no_second_twice(workdir, monkeypatch):
    """Both begin before the first is finished."""
    setup = build_setup(workdir)
    steps = StepQueue(replace(setup, reads_late=True))
    times = iter([10.0, 11.0, 14.0, 17.0])
    monkeypatch.setattr(gyre.step, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    assert steps.take(0, 1).seconds == 4.0
    assert steps.take(1, None).seconds == 3.0


@pytest.mark.parametrize("reads_late, rates", [
    (True, [60.0, 40.0, 40.0]), (False, [60.0, 30.0, 40.0])])
def test_the_rate_is_over_several_steps_if_they_are_read_late(
        workdir, run_name, monkeypatch, reads_late, rates):
    """The three steps take 1, 2 and 1.5 seconds for 60 tokens each."""
    monkeypatch.setattr(train, "build", lambda *args: replace(build(*args), reads_late=reads_late))
    read = PendingStep.read
    seconds = iter([1.0, 2.0, 1.5])
    monkeypatch.setattr(PendingStep, "read", lambda *args, **kwargs: read(*args, **kwargs)._replace(
        seconds=next(seconds)))
    path = train_tiny(workdir, run_name, "--train.steps=3", "--train.batch_size=3")
    assert [*read_metric(path, "train/tokens_per_second").values()] == rates


# --- equal runs -----------------------------------------------------------------------------------


def test_a_run_that_is_read_late_equals_one_read_at_once(workdir, late, straight):
    """With Muon, dropout and micro-batches."""
    path = train_tiny(workdir, "late", *EXACT, *KEPT)
    assert_equal_runs(straight, path)
    assert RunDir.open(path).checkpoints.kept_steps() == [2, 4]


def test_a_branch_that_is_read_late_saves_its_first_step(workdir, late, straight, calls):
    assert exit_code(train.main, "--branch-from", straight, "--at=4", "--name=late-first") == 0
    assert calls[:4] == [("start_step", 4), ("log_step", 4), ("save", "last"), ("start_step", 5)]


@pytest.mark.parametrize("optimizer", quick_for(["muon"], ["adamw", "muon"]))
def test_skipped_steps_change_nothing_when_read_late(workdir, run_name, monkeypatch, optimizer):
    """Muon's training has AdamW for its vectors."""
    argv = ["--train.eval_interval=6", "--train.batch_size=6", "--train.steps=9",
            f"--optim.optimizer={optimizer}"]
    spoil(monkeypatch, 0, 3, 4, 8)
    at_once = train_tiny(workdir, f"{run_name}-at-once", *argv)
    monkeypatch.setattr(train, "build", build_late)
    path = train_tiny(workdir, run_name, *argv)
    assert_equal_runs(at_once, path)
    assert list(read_metric(path, "train/skipped").values()) == [1, 1, 1, 2, 3, 3, 3, 3, 4]


@pytest.mark.slow  # what is saved and when is seen above, and a stopped run goes on below
def test_a_killed_run_that_is_read_late_goes_on_exactly(workdir, late, straight):
    path = workdir / "runs" / "late-killed"
    kill_before("start_step", lambda setup, step: step == 5,
                *tiny_argv(workdir, *EXACT, *KEPT, "--name", path.name))
    assert exit_code(train.main, "--resume", path) == 0
    assert_equal_runs(straight, path)


def test_a_branch_that_is_read_late_goes_on_exactly(workdir, late, straight):
    path = workdir / "runs" / "late-branch"
    assert exit_code(train.main, "--branch-from", straight, "--at=4", "--name", path.name) == 0
    assert_equal_runs(straight, path)


def test_a_stop_saves_all_that_was_started(workdir, late, straight):
    """Asked in step 4: when the numbers of step 4 are read, step 5 has been started."""
    path = workdir / "runs" / "late-stopped"
    stop_at(4, *tiny_argv(workdir, *EXACT, "--name", path.name))
    assert RunDir.open(path).checkpoints.saved_step("last") == 5
    assert list(read_metric(path)) == [1, 2, 3, 4, 5]
    assert exit_code(train.main, "--resume", path) == 0
    assert_equal_runs(straight, path)


def test_three_skipped_steps_end_a_training_read_late(workdir, late, monkeypatch):
    spoil(monkeypatch, 6, 7, 8)
    assert exit_code(train.main, *tiny_argv(workdir, "--name=late-diverged")) == 2
    path = workdir / "runs" / "late-diverged"
    assert read_metric(path, "diverged") == {9: 1}
    assert RunDir.open(path).checkpoints.saved_step("last") == 5


def train_late_rank(stop_step, *argv):
    """A rank that reads late. Rank 1 alone has a loss that is not finite in the fourth step, and is
    asked to stop in step `stop_step`, counted from 1; 0: in no step."""
    start = gyre.step.start_step
    stop = StopSignal()

    def spoiled(setup, step):
        is_second = setup.world.rank == 1
        if is_second and step + 1 == stop_step:
            stop.number = signal.SIGTERM
        factor = math.nan if is_second and step == 3 else 1.0
        with setup.model.norm.register_forward_hook(lambda module, args, out: out * factor):
            return start(setup, step)

    gyre.step.start_step = spoiled
    train.build = build_late
    train.StopSignal = lambda: stop  # pyrefly: ignore[bad-assignment]
    train.main([*argv])


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["none", "full"])
def test_ranks_that_read_late_skip_and_stop_together(workdir, launch_ranks, monkeypatch, shard):
    """A loss of rank 1 that is not finite skips the step of both; a signal to it stops both."""
    options = [*MUON, "--train.micro_batch_size=14", "--train.eval_interval=6"]
    argv = tiny_argv(workdir, *options, "--train.shard", shard, "--name", f"ranks-{shard}")
    launch_ranks(2, train_late_rank, 8, *argv).join(128 + signal.SIGTERM)
    path = workdir / "runs" / f"ranks-{shard}"
    assert RunDir.open(path).checkpoints.saved_step("last") == 9
    launch_ranks(2, train_late_rank, 0, "--resume", str(path)).join()
    spoil(monkeypatch, 3)
    one = train_tiny(workdir, f"one-{shard}", *options)
    losses = read_metric(one)
    assert losses[4] is None
    assert read_metric(path) == {step: loss if loss is None else pytest.approx(loss, abs=1e-6)
                                 for step, loss in losses.items()}


# --- skipped on the device ------------------------------------------------------------------------


def list_state(setup):
    """Copies of all weights and optimizer states."""
    tensors = {**setup.model.state_dict(), **setup.optimizers.tensors()}
    return {name: tensor.clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize("extra", [[], MUON], ids=["adamw", "muon"])
@pytest.mark.parametrize("loss, gradient", [(math.nan, 1.0), (0.0, math.inf)])
def test_a_step_skipped_on_the_device_changes_no_state(workdir, extra, loss, gradient):
    setup = replace(build_setup(workdir, *extra, "--optim.grad_clip=0"), reads_late=True)
    train_step(setup, 0)
    before = list_state(setup)
    setup.model.norm.weight.register_hook(lambda grad: grad * gradient)
    broken = replace(setup, loss_function=lambda *args: summed_loss(*args) + loss)
    assert not train_step(broken, 1).finite
    torch.testing.assert_close(list_state(setup), before, rtol=0, atol=0)


def test_muon_that_is_skipped_first_begins_with_no_momentum():
    weight = torch.nn.Parameter(torch.ones(3, 5))
    weight.grad = torch.full((3, 5), math.nan)
    muon = Muon([weight], lr=0.1, weight_decay=0.3)
    muon.found_inf = torch.tensor(1.0)
    muon.step()
    assert torch.equal(weight, torch.ones(3, 5))
    assert torch.equal(muon.state[weight]["momentum_buffer"], torch.zeros(3, 5))


def test_a_result_says_whether_a_stop_was_asked_for(workdir):
    setup = build_setup(workdir)
    assert not train_step(setup, 0).is_asked_to_stop
    stopped = replace(setup, stop=SimpleNamespace(number=signal.SIGTERM))
    assert train_step(stopped, 1).is_asked_to_stop


@pytest.mark.cuda
@pytest.mark.parametrize("extra", [[], MUON], ids=["adamw", "muon"])
def test_a_step_on_a_gpu_waits_for_nothing(workdir, extra):
    setup = build_setup(workdir, "--train.device=cuda", "--model.dropout=0.2", *extra,
                        device=torch.device("cuda", 0))
    assert setup.reads_late
    assert setup.graphs is not None
    train_step(setup, 0)
    train_step(setup, 1)  # records the gradient, for which it waits
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        pending = start_step(setup, 2)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert pending.read().finite
