"""Training in float16: the loss is scaled, and a step whose gradient overflows is skipped."""

import math
from dataclasses import replace

import pytest
import torch
from builders import build_setup, exit_code, quick_for, read_metric, tiny_argv, train_tiny
from resumption import EXACT, assert_equal_runs, kill_before, last_checkpoint

import gyre.step
import train
from gyre.auto import resolve_auto
from gyre.build import build
from gyre.parallel import ALONE
from gyre.signals import StopSignal
from gyre.start import resolve
from gyre.step import Progress, StepResult, train_step

SMALL = ["--train.batch_size=6"]
FLOAT16 = [*SMALL, "--train.dtype=float16"]
LATE = [False, True]


def overflow(steps, rank=0):
    """A `start_step` that makes the gradients of these steps, counted from 0, infinite in one
    process of a training."""
    start = gyre.step.start_step

    def overflowing(setup, step):
        is_inf = step in steps and setup.world.rank == rank
        factor = math.inf if is_inf else 1.0

        def multiply_gradient(module, args, out):
            out.register_hook(lambda gradient: gradient * factor)

        with setup.model.norm.register_forward_hook(multiply_gradient):
            return start(setup, step)

    return overflowing


def train_half(workdir, name, steps, *extra, late=False, **scaler):
    """Train in float16 with gradients of some steps that are infinite; returns the exit code and
    the folder. Steps are counted from 0 here, and from 1 in metrics. `scaler` is what GradScaler is
    made with."""
    def build_scaled(*args):
        setup = build(*args)
        if scaler:
            setup = replace(setup, scaler=torch.amp.GradScaler("cpu", **scaler))
        return replace(setup, reads_late=late)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "build", build_scaled)
        patch.setattr(gyre.step, "start_step", overflow(steps))
        argv = tiny_argv(workdir, *FLOAT16, "--name", name, *extra)
        return exit_code(train.main, *argv), workdir / "runs" / name


@pytest.fixture
def trained(workdir, run_name):
    """`train_half`, which names the run after the test."""
    def trained(steps, *extra, name=run_name, **options):
        return train_half(workdir, name, steps, *extra, **options)

    return trained


@pytest.fixture(scope="module", params=quick_for([True], LATE))
def overflowed(workdir, request):
    """A run of nine steps, of which the third, the sixth and the seventh overflow."""
    name = f"overflowed-{request.param}"
    _, path = train_half(workdir, name, [2, 5, 6], "--train.steps=9", late=request.param)
    return path


# --- the scale ------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_gradients_in_float16_are_those_of_float32(workdir, optimizer):
    """Also their norm, which is clipped: it is not that of the scaled loss."""
    option = f"--optim.optimizer={optimizer}"
    half = train_step(build_setup(workdir, *FLOAT16, option), 0)
    single = train_step(build_setup(workdir, *SMALL, option), 0)
    assert half.loss_scale == 65536
    assert half.loss == pytest.approx(single.loss, rel=1e-3)
    assert half.grad_norm == pytest.approx(single.grad_norm, rel=1e-3)


def test_a_loss_is_scaled_in_float16_only(workdir):
    assert train_step(build_setup(workdir), 0).loss_scale == 1
    assert train_step(build_setup(workdir, "--train.dtype=bfloat16"), 0).loss_scale == 1


def test_muon_computes_in_float32_beside_float16(workdir):
    muon, _ = build_setup(workdir, *FLOAT16, "--optim.optimizer=muon").optimizers.optimizers
    assert muon.dtype == torch.float32


def test_an_overflow_halves_the_scale(overflowed):
    assert list(read_metric(overflowed, "train/loss_scale").values()) == [
        65536, 65536, 65536, 32768, 32768, 32768, 16384, 8192, 8192]


def test_an_overflow_is_counted_as_skipped(overflowed):
    assert list(read_metric(overflowed, "train/skipped").values()) == [0, 0, 1, 1, 1, 2, 3, 3, 3]
    norms = read_metric(overflowed, "train/grad_norm")
    assert [step for step, norm in norms.items() if norm is None] == [3, 6, 7]
    assert None not in read_metric(overflowed).values()


def test_a_scale_that_is_too_large_falls_until_gradients_fit(workdir):
    """It starts at 2**25, so gradients leave float16, which ends at 65504, for several steps."""
    setup = build_setup(workdir, *FLOAT16)
    setup.scaler.load_state_dict({**setup.scaler.state_dict(), "scale": 2.0**25})
    results = [train_step(setup, step) for step in range(9)]
    finite = [result.finite for result in results]
    first = finite.index(True)
    assert first > 5  # it was halved several times
    assert finite == [False] * first + [True] * (9 - first)
    assert results[first].loss_scale == 2.0 ** (25 - first)


def test_steps_without_overflow_double_the_scale(trained):
    _, path = trained([3], "--train.steps=8", init_scale=16.0, growth_interval=2)
    assert list(read_metric(path, "train/loss_scale").values()) == [
        16, 16, 32, 32, 16, 16, 32, 32]


# --- the end of a training ------------------------------------------------------------------------


@pytest.mark.parametrize("late", quick_for([True], LATE))
def test_overflows_in_a_row_do_not_end_a_training(trained, late):
    """Three losses that are not finite would."""
    code, path = trained(range(1, 6), "--train.steps=6", late=late)
    assert code == 0
    assert list(read_metric(path, "train/skipped").values())[-1] == 5


def test_three_overflows_at_scales_of_1_and_below_end_a_training(trained):
    """The first one is at a scale of 2, and does not count. Those at 1, 0.5 and 0.25 do."""
    code, path = trained(range(12), init_scale=2.0)
    assert code == 2
    assert read_metric(path, "diverged") == {4: 1}


SPOILED = StepResult(loss=math.nan, grad_norm=1.0, lr=0.1, finite=False, is_asked_to_stop=False,
                     seconds=1.0, finished_at=1.0, loss_scale=2.0)
OVERFLOWED = SPOILED._replace(loss=3.0, grad_norm=math.inf)


def test_all_steps_that_change_no_weight_are_counted():
    progress = Progress()
    counts = []
    for result in [SPOILED, OVERFLOWED, SPOILED, SPOILED._replace(finite=True), OVERFLOWED]:
        progress.advance(result, 9)
        counts.append(progress.steps_unchanged)
    assert counts == [1, 2, 3, 0, 1]


def test_an_overflow_between_losses_that_are_nan_does_not_reset_their_count():
    progress = Progress()
    steps = [SPOILED, OVERFLOWED, SPOILED, OVERFLOWED, SPOILED]
    can_go_on = [progress.advance(step, 9) for step in steps]
    assert can_go_on == [True, True, True, True, False]


def test_three_losses_that_are_not_finite_end_a_training_in_float16(workdir, monkeypatch):
    """A smaller scale would not mend them."""
    start = gyre.step.start_step

    def spoiled(setup, step):
        return start(replace(setup, loss_function=lambda logits, y: logits.sum() * math.nan), step)

    monkeypatch.setattr(gyre.step, "start_step", spoiled)
    assert exit_code(train.main, *tiny_argv(workdir, *FLOAT16, "--name=spoiled")) == 2
    assert read_metric(workdir / "runs" / "spoiled", "diverged") == {3: 1}


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_has_the_state_of_the_scaler(overflowed):
    _, training = last_checkpoint(overflowed)
    assert training["scaler"] == {"scale": 8192.0, "growth_factor": 2.0, "backoff_factor": 0.5,
                                  "growth_interval": 2000, "_growth_tracker": 2}


def test_a_checkpoint_of_float32_has_no_scaler(workdir):
    _, training = last_checkpoint(train_tiny(workdir, "float32", "--train.steps=4"))
    assert set(training) == {"progress", "steps"}


def test_a_resumed_run_in_float16_goes_on_with_its_scale(overflowed):
    start = resolve(["--resume", str(overflowed), "--train.steps=10"], "")
    setup = build(resolve_auto(start, ALONE), ALONE, StopSignal())
    assert setup.scaler.state_dict()["scale"] == 8192.0


@pytest.mark.slow
def test_a_killed_run_in_float16_goes_on_exactly(workdir, trained, monkeypatch):
    """Killed after five steps, it resumes after the third, where the scale is already halved. The
    fifth overflows again."""
    _, straight = trained([2, 4], *EXACT, name="half-straight")
    path = workdir / "runs" / "half-killed"
    monkeypatch.setattr(gyre.step, "start_step", overflow([2, 4]))
    kill_before("start_step", lambda setup, step: step == 5,
                *tiny_argv(workdir, *FLOAT16, *EXACT, "--name", path.name))
    assert exit_code(train.main, "--resume", path) == 0
    assert_equal_runs(straight, path)
    assert read_metric(straight, "train/loss_scale") == read_metric(path, "train/loss_scale")


@pytest.mark.slow
def test_a_run_in_float16_that_is_read_late_equals_one_read_at_once(trained):
    _, at_once = trained([2, 4], *EXACT, name="half-at-once")
    _, late = trained([2, 4], *EXACT, late=True, name="half-late")
    assert_equal_runs(at_once, late)


def test_a_branch_in_float16_begins_with_a_scale_of_its_own(workdir):
    trunk = train_tiny(workdir, "single", *SMALL, "--train.steps=4", "--train.keep=[3]")
    assert exit_code(train.main, "--branch-from", trunk, "--at=3", "--name=half", *FLOAT16) == 0
    assert read_metric(workdir / "runs" / "half", "train/loss_scale") == {4: 65536}


# --- several processes ----------------------------------------------------------------------------


def train_half_rank(late, *argv):
    """A rank of a training in float16. The gradient of rank 1 alone overflows in step 3."""
    def build_late(*args):
        return replace(build(*args), reads_late=late)

    gyre.step.start_step = overflow([2], rank=1)
    train.build = build_late
    train.main([*argv])


@pytest.mark.slow
@pytest.mark.parametrize("shard, late", [("none", False), ("full", False), ("full", True)])
def test_an_overflow_in_one_rank_skips_the_step_of_all(
        workdir, launch_ranks, trained, run_name, shard, late):
    options = ["--optim.optimizer=muon", "--train.micro_batch_size=2"]
    argv = tiny_argv(workdir, *FLOAT16, *options, "--train.shard", shard, "--name", run_name)
    launch_ranks(2, train_half_rank, late, *argv).join()
    _, one = trained([2], *options, name=f"{run_name}-one")
    path = workdir / "runs" / run_name
    for key in ("train/skipped", "train/loss_scale"):
        assert read_metric(path, key) == read_metric(one, key)
    assert read_metric(path) == pytest.approx(read_metric(one), rel=1e-3)
