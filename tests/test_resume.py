"""A run that was killed, stopped, branched off or resumed equals one that nothing interrupted."""

import io
import shlex
import shutil
import signal
from contextlib import nullcontext, redirect_stderr
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from builders import (
    error_lines,
    exit_code,
    quick_for,
    read_metric,
    stop_at,
    tiny_argv,
    train_tiny,
    training_argv,
)
from random_runs import random_run
from resumption import EXACT, always, assert_equal_runs, kill_before, resume_refusal

import gyre.step
import train
from ablation.jobs import resumable_step
from errors import UserError, find_script
from files import json_sha256, read_json, write_json
from gyre import rundir
from gyre.build import check_resumed
from gyre.code import KIND
from gyre.options import make_config
from gyre.parallel import ALONE
from gyre.rundir import METRICS, RunDir
from gyre.signals import StopSignal
from gyre.step import Progress
from gyre.yaml_files import read_config


def set_aside(path):
    """Move the folder of a run, for each test to have a copy of its own by `put_back`."""
    return path.rename(path.with_name(f"{path.name}.aside"))


def put_back(aside):
    """The folder of the run as it was."""
    path = aside.with_suffix("")
    shutil.rmtree(path, ignore_errors=True)
    return shutil.copytree(aside, path)


@pytest.fixture(scope="module")
def straight(workdir):
    """The run of 7 steps that nothing ever interrupted. It validates after 3, 6 and 7."""
    return train_tiny(workdir, "straight", *EXACT)


# --- killed and resumed ---------------------------------------------------------------------------


def at_step(number):
    """For `start_step`, which counts from 0: whether it is called for the step of this number, from
    1."""
    return lambda setup, step: step == number - 1


def with_steps(number):
    """For what is called after a step: whether it is the step of this number, from 1."""
    return lambda setup, *_: setup.progress.step == number


@pytest.mark.parametrize("name, when", [
    pytest.param("draw_sample", with_steps(6), id="sample-6"),
    pytest.param("validate_and_sample", with_steps(7), id="validate-7"),
    # Slow: the cases above and the next test show the same. There are checkpoints after three and
    # six steps. So before step 6 the last one is two steps old, and before step 7 it is new.
    pytest.param("save", always, id="save", marks=pytest.mark.slow),
    pytest.param("start_step", at_step(6), id="step-6", marks=pytest.mark.slow),
    pytest.param("validate_and_sample", with_steps(6), id="validate-6", marks=pytest.mark.slow),
    pytest.param("start_step", at_step(7), id="step-7", marks=pytest.mark.slow)])
def test_a_killed_and_resumed_run_equals_one_never_stopped(workdir, straight, run_name, name, when):
    path = workdir / "runs" / run_name
    kill_before(name, when, *tiny_argv(workdir, *EXACT, "--name", run_name))
    assert exit_code(train.main, "--resume", path) == 0
    assert_equal_runs(straight, path)


def test_a_run_that_is_killed_again_and_again_equals_one_never_stopped(workdir, straight):
    path = workdir / "runs" / "killed-often"
    kill_before("start_step", at_step(6), *tiny_argv(workdir, *EXACT, "--name", path.name))
    kill_before("start_step", at_step(5), "--resume", path)
    stop_at(4, "--resume", path)
    kill_before("save", always, "--resume", path)
    assert exit_code(train.main, "--resume", path) == 0
    assert_equal_runs(straight, path)


def stop_in_validation(validation: int, *argv: str | Path) -> int:
    """train.py, told to stop when its validation of this number begins, from 1. Its exit code."""
    token_losses = train.token_losses
    stop = StopSignal()
    count = 0

    def signalled(*options: Any) -> Any:
        nonlocal count
        count += 1
        if count == validation:
            stop.number = signal.SIGINT
        yield from token_losses(*options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "StopSignal", lambda: stop)
        patch.setattr(train, "token_losses", signalled)
        return exit_code(train.main, *argv)


PLAIN_ADVANCE = Progress.advance  # itself: a test puts `count_ten_minutes` in its place


def count_ten_minutes(self, result, tokens):
    """`Progress.advance`, but the step is said to have taken ten minutes."""
    return PLAIN_ADVANCE(self, result._replace(seconds=600.0), tokens)


@pytest.fixture(scope="module")
def saved_ended(workdir):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "advance", count_ten_minutes)
        assert stop_in_validation(1, *tiny_argv(workdir, *EXACT, "--name=ended")) == 130
    return set_aside(workdir / "runs" / "ended")


@pytest.fixture
def ended(saved_ended):
    """Stopped by Ctrl-C in its first validation, after step 3. Each step counts ten minutes."""
    return put_back(saved_ended)


@pytest.mark.parametrize("number, step, validated", [
    # Slow: the next test shows the same.
    pytest.param(1, 3, [], marks=pytest.mark.slow), (2, 6, [3])])
def test_a_validation_that_is_ended_is_done_again(workdir, straight, number, step, validated):
    path = workdir / "runs" / f"ended-in-{step}"
    argv = tiny_argv(workdir, *EXACT, "--name", path.name)
    assert stop_in_validation(number, *argv) == 128 + signal.SIGINT
    assert list(read_metric(path, "val/loss")) == validated
    assert resumable_step(path) == step
    assert exit_code(train.main, "--resume", path) == 0
    assert_equal_runs(straight, path)


def test_a_validation_that_is_done_again_is_done_to_its_end(ended, straight):
    """A stop during it is obeyed after the next step."""
    assert list(read_metric(ended, "val/loss")) == []
    assert resumable_step(ended) == 3
    assert stop_in_validation(1, "--resume", ended) == 128 + signal.SIGINT
    assert list(read_metric(ended, "val/loss")) == [3]
    assert exit_code(train.main, "--resume", ended) == 0
    assert_equal_runs(straight, ended)


def test_signals_are_heard_until_the_run_in_wandb_is_closed(ended, monkeypatch):
    """Also where the run was opened before the first step, to validate its checkpoint."""
    handlers = []
    monkeypatch.setattr(RunDir, "finish", lambda run, exit_code=0: handlers.append(
        signal.getsignal(signal.SIGTERM)))
    assert exit_code(train.main, "--resume", ended) == 0
    assert [getattr(handler, "__func__", None) for handler in handlers] == [StopSignal._remember]


def test_the_estimate_counts_a_validation_that_is_done_again(ended, monkeypatch, capfd):
    """7 steps of 180 tokens take 7000 s, so the 4 that are left take 4000 s. Three validations of
    281 tokens are left, after the steps 3, 6 and 7. A token of theirs takes a third of the time of
    one that is trained on: 7000 s * 3 * 281 / 1260 / 3."""
    resolve_auto = train.resolve_auto

    def resolve_with_estimate(*args: Any) -> Any:
        return replace(resolve_auto(*args), expected_seconds=7000.0)

    monkeypatch.setattr(train, "resolve_auto", resolve_with_estimate)
    kill_before("validate_checkpoint", always, "--resume", ended)
    words = "about 67 minutes from here, and about 26 minutes for validation"
    assert words in capfd.readouterr().err


def test_a_damaged_line_is_warned_of_once_where_a_validation_may_be_missing(ended, capfd):
    metrics = ended / "metrics.jsonl"
    metrics.write_text("{\n" + metrics.read_text(encoding="utf-8"), encoding="utf-8")
    kill_before("validate_checkpoint", always, "--resume", ended)
    assert capfd.readouterr().err.count("leaving out line 1") == 1


def saves_last(setup, run, name):
    """For `save`: whether it is called for `last`."""
    return name == "last"


@pytest.mark.parametrize("name, when", [("save", saves_last), ("draw_sample", with_steps(3))])
def test_a_validation_that_is_done_again_may_be_killed(ended, straight, name, when):
    """Killed between `best` and `last`, or before the sample: loss and sample are logged in the
    end."""
    kill_before(name, when, "--resume", ended)
    assert exit_code(train.main, "--resume", ended) == 0
    assert_equal_runs(straight, ended)


@pytest.mark.parametrize("name, when", [("save", saves_last), ("draw_sample", with_steps(3))])
def test_the_step_of_a_validation_that_is_killed_can_be_the_best(ended, monkeypatch, name, when):
    """The validation is done a third time. The first time is in the fixture."""
    losses = {3: 5.0, 6: 9.0, 7: 7.0}
    steps = []

    def measure(setup, *options):
        steps.append(setup.progress.step)
        return {"val/loss": losses[setup.progress.step]}

    monkeypatch.setattr(train, "measure_validation", measure)
    kill_before(name, when, "--resume", ended)
    assert exit_code(train.main, "--resume", ended) == 0
    assert steps == [3, 3, 6, 7]
    assert read_metric(ended, "val/loss") == losses
    assert RunDir.open(ended).checkpoints.saved_step("best") == 3


def test_the_last_validation_is_done_to_its_end(workdir, straight):
    path = workdir / "runs" / "stopped-at-the-end"
    argv = tiny_argv(workdir, *EXACT, "--name", path.name)
    assert stop_in_validation(3, *argv) == 0
    assert_equal_runs(straight, path)


def test_the_time_of_a_resumed_run_is_that_of_all_its_steps(ended, capfd, monkeypatch):
    """7 steps that are said to take ten minutes each."""
    monkeypatch.setattr(Progress, "advance", count_ten_minutes)
    assert exit_code(train.main, "--resume", ended) == 0
    assert "\ndone    1:10:00 of training steps since step 0; " in capfd.readouterr().err


def interrupt_after(taken, *argv):
    """train.py, ended by a second Ctrl-C after so many steps: before the next one is logged."""
    log_step = train.log_step

    def interrupted(setup, *of_step):
        if setup.progress.step == taken + 1:
            raise KeyboardInterrupt
        log_step(setup, *of_step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "log_step", interrupted)
        assert exit_code(train.main, *argv) == 130


@pytest.mark.parametrize("taken, words", [(4, "Saved was step 3"), (2, "Nothing was saved yet")])
def test_ctrl_c_at_once_says_which_step_was_saved(workdir, capfd, taken, words):
    path = workdir / "runs" / f"at-once-after-{taken}"
    interrupt_after(taken, *tiny_argv(workdir, *EXACT, "--name", path.name))
    err = capfd.readouterr().err
    assert f"ended at once. {words}. To go on:" in err
    assert f"--resume {path}\n" in err


def test_a_kept_step_is_not_lost_in_silence(workdir, capfd):
    """It was saved before the first validation, so --resume begins at step 0."""
    path = workdir / "runs" / "kept-at-once"
    interrupt_after(2, *tiny_argv(workdir, *EXACT, "--name", path.name, "--train.keep=[1, 2]"))
    again = f"python {find_script('train.py')} --branch-from {path} --at 2\n"
    err = capfd.readouterr().err
    assert ("ended at once. Only step 2 was saved, by train.keep. To go on:\n"
            f"    {again}") in err
    kill_before("take_first_step", always, "--resume", path)
    assert (f"{path} has no checkpoint yet: starting at step 0. This removes what train.keep has "
            "kept of steps 1, 2. To go on from there instead: stop this training now, and give "
            f"{again}") in capfd.readouterr().err
    assert RunDir.open(path).checkpoints.kept_steps() == [1, 2]
    assert exit_code(train.main, *shlex.split(again)[2:], "--name=from-kept") == 0
    assert list(read_metric(workdir / "runs" / "from-kept")) == [1, 2, 3, 4, 5, 6, 7]


def test_a_run_killed_before_its_first_checkpoint_has_its_losses(workdir):
    path = workdir / "runs" / "early"
    argv = tiny_argv(workdir, "--train.eval_interval=5", "--name", path.name)
    kill_before("save", always, *argv)
    assert list(read_metric(path)) == [1, 2, 3, 4, 5]
    assert not (path / "last").exists()


def test_a_killed_fine_tuning_begins_again_from_its_base_in_another_folder(
    workdir, tmp_path, monkeypatch
):
    base = train_tiny(workdir, "base", "--train.steps=2", "--optim.warmup_steps=0")
    monkeypatch.chdir(workdir)
    path = workdir / "runs" / "tuned-early"
    kill_before("save", always, *training_argv(
        workdir, "--init-from", f"runs/{base.name}", "--name", path.name, "--train.steps=2",
        "--optim.warmup_steps=0"))
    losses = read_metric(path)
    assert list(losses) == [1]
    # Another run of that name lies in the folder from which it goes on.
    other = train_tiny(workdir, "other", "--seed=9", "--train.steps=2", "--optim.warmup_steps=0")
    (tmp_path / "runs").mkdir()
    shutil.copytree(other, tmp_path / "runs" / base.name)
    monkeypatch.chdir(tmp_path)
    assert exit_code(train.main, "--resume", path) == 0
    assert read_metric(path)[1] == losses[1]


@pytest.fixture
def killed_tuning(workdir, run_name):
    """A fine-tuning that was killed before its first checkpoint, and its base."""
    base = train_tiny(workdir, f"{run_name}-base", "--train.steps=2", "--optim.warmup_steps=0")
    path = workdir / "runs" / f"{run_name}-tuned"
    kill_before("save", always, *training_argv(
        workdir, "--init-from", base, "--name", path.name, "--train.steps=2",
        "--optim.warmup_steps=0"))
    return path, base


def test_a_killed_fine_tuning_does_not_begin_again_from_other_weights(killed_tuning, capfd):
    path, base = killed_tuning
    assert exit_code(train.main, "--resume", base, "--train.steps=4") == 0
    error = error_lines(capfd, train.main, "--resume", path)[-1]
    assert error == (f"error: {path} has no checkpoint yet, and {base}, from which it would begin "
                     "again, has other weights by now: remove it, and start another one")


def test_a_killed_fine_tuning_without_its_base_names_both(killed_tuning, capfd):
    path, base = killed_tuning
    shutil.rmtree(base)
    error = error_lines(capfd, train.main, "--resume", path)[-1]
    said = f"error: {path} has no checkpoint yet, so it begins again, from {base}: "
    assert error.startswith(said)


def test_a_fine_tuning_that_begins_again_saves_after_its_first_step(killed_tuning):
    path, _ = killed_tuning
    kill_before("start_step", at_step(2), "--resume", path)
    assert resumable_step(path) == 1


def test_a_fine_tuning_of_an_older_version_begins_again(killed_tuning):
    """Its run.json has no hash of the weights."""
    path, _ = killed_tuning
    record = read_json(path / "run.json")
    del record["base_sha256"], record["seal"]
    write_json(path / "run.json", record | {"seal": json_sha256(record)})
    assert exit_code(train.main, "--resume", path) == 0


def test_a_fine_tuning_that_begins_again_measures_its_base_if_that_was_not_done(killed_tuning):
    path, _ = killed_tuning
    measured = read_metric(path, "val/loss")[0]
    (path / METRICS).unlink()  # killed before that was logged
    assert exit_code(train.main, "--resume", path) == 0
    assert read_metric(path, "val/loss")[0] == measured


def test_a_fine_tuning_has_a_checkpoint_after_its_first_step(workdir, straight):
    path = workdir / "runs" / "tuned-saved"
    kill_before("start_step", at_step(2), *training_argv(
        workdir, "--init-from", straight, "--name", path.name, "--train.steps=6"))
    assert resumable_step(path) == 1


def test_a_run_without_a_checkpoint_lacks_no_validation():
    """It begins again, and nothing is validated before the first step."""
    setup: Any = SimpleNamespace(progress=Progress(), config=make_config(), world=ALONE)
    start: Any = SimpleNamespace(resumed=SimpleNamespace(metrics=lambda warns: []))
    assert not train.lacks_validation(start, setup)


def test_a_training_that_cannot_take_its_first_step_leaves_no_run(workdir, monkeypatch, capfd):
    def interrupt(setup, step):
        raise KeyboardInterrupt

    monkeypatch.setattr(gyre.step, "start_step", interrupt)
    assert exit_code(train.main, *tiny_argv(workdir, "--name", "interrupted")) == 130
    assert "\nended in step 1, which is not saved\n" in capfd.readouterr().err
    assert not (workdir / "runs" / "interrupted").exists()


@pytest.fixture(scope="module")
def often(workdir):
    """The same run, but it validates after every second step and draws no samples."""
    return train_tiny(workdir, "often", *EXACT, "--train.eval_interval=2",
                      "--train.sample_tokens=0")


def test_validations_and_samples_do_not_change_what_is_trained(straight, often):
    assert read_metric(straight) == read_metric(often)


def test_the_interval_says_when_a_run_validates(often):
    assert list(read_metric(often, "val/loss")) == [2, 4, 6, 7]


def test_a_run_without_sample_tokens_logs_no_sample(often):
    assert read_metric(often, "sample") == {}


# --- checkpoints of steps that are taken again ----------------------------------------------------


@pytest.fixture(scope="module")
def saved_killed_at_8(workdir):
    argv = tiny_argv(workdir, "--name=killed-at-8", "--train.eval_interval=4",
                     "--train.keep=[4, 7]")
    kill_before("draw_sample", with_steps(8), *argv)
    return set_aside(workdir / "runs" / "killed-at-8")


@pytest.fixture
def killed_at_8(saved_killed_at_8):
    """Killed between `best` of step 8 and `last`: a resumed run goes on from step 4."""
    return put_back(saved_killed_at_8)


def test_the_last_of_another_model_is_not_resumed(killed_at_8, tmp_path, capfd):
    other = random_run(tmp_path / "runs", "other")
    shutil.rmtree(killed_at_8 / "last")
    shutil.copytree(other.path / "last", killed_at_8 / "last")
    error = error_lines(capfd, train.main, "--resume", killed_at_8)[-1]
    assert f"the weights in {killed_at_8}/last are not those of the model (" in error


SHORTER = ["--train.steps=6", "--train.keep=[]", "--train.eval_interval=1"]
# `token_losses` yields losses with their targets. This one is no separator.
SOME_TARGET = torch.tensor([5])


def test_a_run_killed_between_best_and_last_has_both_steps(killed_at_8):
    checkpoints = RunDir.open(killed_at_8).checkpoints
    assert checkpoints.saved_step("best") == 8
    assert checkpoints.saved_step("last") == 4
    assert checkpoints.kept_steps() == [4, 7]


def test_a_resume_forgets_kept_checkpoints_of_later_steps(killed_at_8):
    assert exit_code(train.main, "--resume", killed_at_8, *SHORTER) == 0
    assert RunDir.open(killed_at_8).checkpoints.kept_steps() == [4]


@pytest.mark.parametrize("best_is_gone", [False, True])
def test_a_resume_forgets_the_best_of_a_later_step(killed_at_8, best_is_gone, monkeypatch):
    """The `best` of step 8 has replaced that of step 4, which is lost. So step 5 is the best, even
    if its loss is higher than that of step 4 was."""
    if best_is_gone:  # another resume has removed it, and was killed before it saved
        shutil.rmtree(killed_at_8 / "best")
    checkpoints = RunDir.open(killed_at_8).checkpoints
    losses = iter([9e8, 9e9])
    best_steps = []

    def worse(*args):
        best_steps.append(checkpoints.saved_step("best"))
        return [(torch.tensor([next(losses)]), SOME_TARGET)]

    monkeypatch.setattr(train, "token_losses", worse)
    assert exit_code(train.main, "--resume", killed_at_8, *SHORTER) == 0
    # Before the validations of steps 5 and 6; 0 is that of no checkpoint.
    assert best_steps == [0, 5]
    assert checkpoints.saved_step("best") == 5


def test_a_resume_keeps_the_best_of_the_step_that_it_goes_on_from(workdir, monkeypatch):
    path = train_tiny(workdir, "best-is-last", "--train.steps=1", "--optim.warmup_steps=0")
    monkeypatch.setattr(train, "token_losses",
                        lambda *args: [(torch.tensor([9e9]), SOME_TARGET)])
    assert exit_code(train.main, "--resume", path, "--train.steps=2") == 0
    assert RunDir.open(path).checkpoints.saved_step("best") == 1


# --- branches -------------------------------------------------------------------------------------

# With the schedule wsd, runs of all lengths are the same for their first five steps, up to the
# cooldown of the shortest run. The second epoch begins within the fifth step: after the branch at
# step 3, and before the branch at step 5.
WSD = ["--train.batch_size=27", "--train.eval_interval=4", "--optim.schedule=wsd",
       "--optim.cooldown=0.4", "--optim.warmup_steps=2"]


@pytest.fixture(scope="module")
def trunk(workdir):
    """12 steps with checkpoints of two to branch off from."""
    return train_tiny(workdir, "trunk", *WSD, "--train.steps=12", "--train.keep=[3, 5]")


@pytest.fixture(scope="module")
def short(workdir):
    """What the branches should be: a run of 8 steps from the start."""
    return train_tiny(workdir, "short", *WSD, "--train.steps=8")


def test_the_steps_to_keep_have_checkpoints(trunk):
    assert RunDir.open(trunk).checkpoints.kept_steps() == [3, 5]


@pytest.mark.parametrize("at", [3, 5])
def test_a_branch_equals_the_run_of_its_length(workdir, trunk, short, at):
    path = workdir / "runs" / f"branch-{at}"
    assert exit_code(train.main, "--branch-from", trunk, "--train.steps=8", "--at", str(at),
                     "--name", path.name) == 0
    assert_equal_runs(short, path)


def test_a_branch_from_another_folder_keeps_the_prepared_text_of_its_trunk(
    workdir, tmp_path, monkeypatch
):
    shutil.copy(workdir / "text.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    # null forgets the file that tiny_argv names.
    stop_at(1, *tiny_argv(tmp_path, "--train.steps", "2", "--optim.warmup_steps=0",
                          "--data.files=null", "--data.files=text.txt", "--data.prepared=prep"))
    (tmp_path / "text.txt").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = tmp_path / "runs" / "branch"
    assert exit_code(train.main, "--branch-from", tmp_path / "runs" / "gyre-text-rope-s1",
                     "--name=branch") == 0
    assert read_config(path / "config.yaml").data.prepared == f"{tmp_path}/prep"
    assert exit_code(train.main, "--resume", path, "--train.steps=3") == 0


@pytest.mark.parametrize("has_metrics", [True, False])
def test_a_branch_killed_before_its_first_checkpoint_is_refused(
    workdir, trunk, has_metrics, capfd
):
    """It would begin at step 0, as a new model. The metrics of its trunk may be gone."""
    copy = workdir / "runs" / f"trunk-{has_metrics}"
    shutil.copytree(trunk, copy)
    if not has_metrics:
        (copy / METRICS).unlink()
    path = workdir / "runs" / f"killed-at-once-{has_metrics}"
    kill_before("save", always, "--branch-from", copy, "--train.steps=8", "--name", path.name,
                "--at=5")
    error = resume_refusal(capfd, path)
    assert (f"{path} is a branch that was killed before its first checkpoint: remove it, and "
            "branch again") in error


def test_a_kept_step_of_a_branch_is_not_lost_in_silence(workdir, trunk, capfd, monkeypatch):
    """It was saved before the first validation, so there is nothing to resume."""
    path = workdir / "runs" / "branch-kept-at-once"
    monkeypatch.setattr(train, "validate_and_sample", Mock(side_effect=KeyboardInterrupt))
    assert exit_code(train.main, "--branch-from", trunk, "--at=3", "--train.steps=8",
                     "--train.keep=[4]", "--train.eval_interval=1", f"--name={path.name}") == 130
    assert f"by train.keep. To go on:\n    python {find_script('train.py')} --branch-from {path} " \
           "--at 4\n" in capfd.readouterr().err
    assert resume_refusal(capfd, path).endswith(f": go on by --branch-from {path} --at 4")


def test_before_the_first_checkpoint_of_a_branch_ctrl_c_at_once_says_to_branch_again(
        workdir, trunk, capfd, monkeypatch):
    def interrupt(*options):
        raise KeyboardInterrupt

    path = workdir / "runs" / "branch-at-once"
    monkeypatch.setattr(train, "log_step", interrupt)
    branch = ["--branch-from", str(trunk), "--train.steps=8", "--name", path.name]
    assert exit_code(train.main, *branch, "--at=3") == 130
    err = capfd.readouterr().err
    assert (f"ended at once, before the first checkpoint of {path}: remove it, and branch again\n"
            in err)
    assert "--resume" not in err


@pytest.mark.parametrize("at", quick_for([5], [3, 5]))
def test_a_branch_saves_its_first_step_and_can_be_resumed(workdir, trunk, short, at):
    path = workdir / "runs" / f"killed-branch-{at}"
    kill_before("start_step", at_step(at + 2), "--branch-from", trunk, "--train.steps=8",
                "--at", str(at), "--name", path.name)
    assert RunDir.open(path).checkpoints.saved_step("last") == at + 1
    assert exit_code(train.main, "--resume", path) == 0
    assert_equal_runs(short, path)


@pytest.mark.parametrize("at, steps, words", [
    ("5", "5", "give a larger number, or an earlier"), ("0", "8", "step 0")])
def test_a_branch_without_steps_or_checkpoint_is_refused(trunk, capfd, at, steps, words):
    lines = error_lines(capfd, train.main, "--branch-from", trunk, "--at", at, "--train.steps",
                        steps)
    assert words in lines[-1]


# --- longer runs ----------------------------------------------------------------------------------


def test_a_finished_run_asks_for_more_steps(straight, capfd):
    assert "has taken 7 steps: give --train.steps" in resume_refusal(capfd, straight)


@pytest.fixture(scope="module")
def saved_longer(workdir):
    path = workdir / "runs" / "longer"
    stop_at(2, *tiny_argv(workdir, "--name=longer", "--train.steps=4"))
    argv = ["--resume", str(path), "--train.steps", "6", "--train.sample_prompt", 'é "b']
    said = io.StringIO()
    with redirect_stderr(said):
        stop_at(5, *argv)
    return set_aside(path), argv, said.getvalue()


@pytest.fixture
def longer(saved_longer):
    """A run of 4 steps, stopped after 2, resumed for 6, stopped again after 5.

    Gives its folder, the words of the second command and what that said.
    """
    aside, argv, said = saved_longer
    return put_back(aside), argv, said


def test_a_longer_run_says_how_long_it_is(longer):
    """Its 1,080 tokens are 0.44 of 2,476."""
    _, _, said = longer
    assert ": 2,476 training tokens and 281 for validation" in said
    assert "6 steps of 9 rows of 20 tokens (0.44 epochs, going on after step 2)" in said


def test_the_bar_of_a_longer_run_counts_all_its_steps(longer):
    _, _, said = longer
    assert " 5/6 " in said


def test_a_stopped_run_says_the_command_to_go_on(longer):
    _, argv, said = longer
    assert f"To go on:\n    python {find_script('train.py')} {shlex.join(argv)}\n" in said


def test_a_longer_run_is_not_resumed_at_its_old_length(longer, capfd):
    path, _, _ = longer
    said = resume_refusal(capfd, path, "--log.wandb=disabled")  # an option, but no steps
    assert "last resumed with --train.steps 6" in said


NO_STEP_LEFT = "give --train.steps a larger number"
WHICH_STEPS = "was last resumed with --train.steps"


# The run was started with 6 steps.
@pytest.mark.parametrize("given, when_saved, step, error, error_with_auto", [
    (8, 6, 6, None, None),
    (8, 6, 8, NO_STEP_LEFT, None),
    (None, 6, 5, None, None),
    (None, 6, 6, NO_STEP_LEFT, None),
    (None, 8, 5, WHICH_STEPS, WHICH_STEPS),
    (None, 8, 7, WHICH_STEPS, WHICH_STEPS),
    (None, 8, 8, NO_STEP_LEFT, None),
    (None, 4, 3, WHICH_STEPS, WHICH_STEPS),
    (None, 4, 4, NO_STEP_LEFT, WHICH_STEPS)])
def test_a_command_without_steps_changes_none(given, when_saved, step, error, error_with_auto):
    steps = 6 if given is None else given
    options = {} if given is None else {"train.steps": given}
    run: Any = SimpleNamespace(path="runs/a")
    for resumes_auto, expected in ((False, error), (True, error_with_auto)):
        start: Any = SimpleNamespace(config=make_config({"train.steps": steps,
                                                         "optim.warmup_steps": 1}),
                                     given=options, resumes_auto=resumes_auto)
        raises = pytest.raises(UserError, match=expected) if expected else nullcontext()
        with raises:
            check_resumed(run, start, step, when_saved)


def test_a_longer_run_has_each_step_once(longer):
    path, argv, _ = longer
    assert exit_code(train.main, *argv) == 0
    assert list(read_metric(path)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("final_lr, words", [
    ("0.5", "step 4 was 0.0005. With 8 steps it goes on at 0.00069 and ends at 0.0005. To start "
            "low instead: end this training by two Ctrl-C before it saves again, and give python "
            "{script} --branch-from {path} --train.steps 8 --optim.lr 0.0005\n"),
    ("0", "step 4 was 0. With 8 steps it goes on at 0.00038 and ends at 0.\n")])
def test_a_longer_run_says_what_becomes_of_its_learning_rate(workdir, capfd, final_lr, words):
    """The rate falls from 0.001 to `final_lr` times as much, along a line. In step 5 of 8 it is
    0.001 * (1 - 5/8 * 0.5) = 0.00069, or 0.001 * (1 - 5/8) = 0.00038."""
    path = train_tiny(workdir, f"rate-{final_lr}", "--optim.lr=1e-3", "--optim.schedule=linear",
                      f"--optim.final_lr={final_lr}", "--optim.warmup_steps=0", "--train.steps=4")
    capfd.readouterr()
    kill_before("start_step", always, "--resume", path, "--train.steps", "8")
    words = words.format(path=path, script=find_script("train.py"))
    assert f"the learning rate of {words}" in capfd.readouterr().err


def test_the_advice_to_start_low_can_be_followed_later(workdir, capfd):
    runs = workdir / "my runs"
    argv = tiny_argv(workdir, "--log.runs", str(runs), "--name=kept", "--train.keep=[4]",
                     "--optim.optimizer=muon", "--optim.lr=1e-3", "--optim.muon_lr=2e-2",
                     "--optim.schedule=linear", "--optim.final_lr=0.5", "--train.steps=4")
    assert exit_code(train.main, *argv) == 0
    assert exit_code(train.main, "--resume", runs / "kept", "--train.steps", "8") == 0
    advice = capfd.readouterr().err.partition("To start low instead: ")[2].splitlines()[0]
    assert advice == (f"python {find_script('train.py')} --branch-from '{runs}/kept' --at 4 "
                      "--train.steps 8 --optim.lr 0.0005 --optim.muon_lr 0.01")
    assert exit_code(train.main, *shlex.split(advice)[2:]) == 0


def test_a_longer_run_is_not_told_to_start_low_in_its_warm_up(workdir, capfd):
    """Its rates rise as they would have. A branch at the rate of step 2 would be far below them."""
    path = workdir / "runs" / "warming-up"
    stop_at(2, *tiny_argv(workdir, "--name", path.name, "--train.steps=6", "--optim.lr=1e-3",
                          "--optim.warmup_steps=4"))
    capfd.readouterr()
    kill_before("start_step", always, "--resume", path, "--train.steps=12")
    assert ("the learning rate of step 2 was 0.0005. With 12 steps it goes on at 0.00075 and ends "
            "at 0.0001.\n") in capfd.readouterr().err


def test_the_rate_of_muon_is_named_if_nothing_else_is_trained(workdir, capfd):
    path = train_tiny(workdir, "only-muon", "--optim.optimizer=muon", "--optim.lr=0",
                      "--optim.muon_lr=2e-2", "--optim.schedule=linear", "--optim.final_lr=0.5",
                      "--optim.warmup_steps=0", "--train.steps=4")
    capfd.readouterr()
    kill_before("start_step", always, "--resume", path, "--train.steps=8")
    err = capfd.readouterr().err
    assert ("note: Muon's learning rate of step 4 was 0.01. With 8 steps it goes on at 0.014 and "
            "ends at 0.01. To start low") in err
    assert f"--branch-from {path} --train.steps 8 --optim.muon_lr 0.01\n" in err


# --- the same command -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved_auto(workdir, straight):
    origin = shutil.copytree(straight, workdir / "origin")
    argv = ["--init-from", str(origin), *training_argv(workdir), "--name=auto", "--resume=auto",
            "--train.steps=6"]
    stop_at(4, *argv)
    return set_aside(origin), set_aside(workdir / "runs" / "auto"), argv


@pytest.fixture
def auto(saved_auto):
    """A run with --resume auto, from weights in a folder, stopped after 4 of 6 steps.

    Gives that folder, the folder of the run and the words of the command.
    """
    origin, run, argv = saved_auto
    return put_back(origin), put_back(run), argv


def test_the_best_weights_are_what_a_run_starts_from(auto):
    """The others cannot be read."""
    origin, path, argv = auto
    shutil.rmtree(path)
    for name in ("last", "previous"):
        (origin / name / "model.safetensors").unlink()
    assert exit_code(train.main, *argv) == 0


def test_saved_steps_of_a_stopped_run_are_counted(auto):
    _, path, _ = auto
    assert resumable_step(path) == 4


def test_the_same_command_goes_on_without_the_first_weights(auto):
    origin, path, argv = auto
    shutil.rmtree(origin)
    assert exit_code(train.main, *argv) == 0
    assert list(read_metric(path)) == [1, 2, 3, 4, 5, 6]


def test_the_same_command_of_a_finished_run_is_no_error(auto):
    _, path, argv = auto
    assert exit_code(train.main, *argv) == 0
    assert exit_code(train.main, *argv) == 0
    assert list(read_metric(path)) == [1, 2, 3, 4, 5, 6]


def test_of_a_finished_run_only_its_end_is_said(auto, capfd):
    _, _, argv = auto
    assert exit_code(train.main, *argv) == 0
    capfd.readouterr()
    assert exit_code(train.main, *argv) == 0
    lines = capfd.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["nothing", "next"]


def test_a_configuration_file_that_has_no_effect_is_said(auto, capfd):
    _, path, argv = auto
    assert exit_code(train.main, *argv, "--config=small.yaml") == 0
    assert (f"{path} goes on with the configuration that it has saved: --config is ignored\n"
            in capfd.readouterr().err)


def test_without_a_configuration_file_none_is_said_to_be_ignored(auto, capfd):
    _, _, argv = auto
    assert exit_code(train.main, *argv) == 0
    assert "ignored" not in capfd.readouterr().err


def test_the_same_command_of_a_run_that_was_extended_is_no_error(auto):
    """This command names no steps. The configuration of the run has 6, as before."""
    _, path, _ = auto
    assert exit_code(train.main, "--resume", path, "--train.steps=7") == 0
    assert exit_code(train.main, "--name=auto", "--resume=auto", f"--log.runs={path.parent}") == 0
    assert list(read_metric(path)) == [1, 2, 3, 4, 5, 6, 7]


def test_the_same_command_of_a_run_that_was_shortened_is_refused(auto, capfd):
    """It names no steps, and the configuration of the run has 6: it would train on to these."""
    _, path, _ = auto
    assert exit_code(train.main, "--resume", path, "--train.steps=5") == 0
    argv = ["--name=auto", "--resume=auto", f"--log.runs={path.parent}"]
    error = error_lines(capfd, train.main, *argv)[-1]
    assert f"{path} was last resumed with --train.steps 5" in error
    assert list(read_metric(path)) == [1, 2, 3, 4, 5]


def test_a_run_does_not_start_from_weights_that_are_gone(auto, capfd):
    origin, path, argv = auto
    shutil.rmtree(path)
    shutil.rmtree(origin)
    assert f"no run folder at {origin}" in error_lines(capfd, train.main, *argv)[-1]


# --- the text has changed -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved_stopped(workdir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopped")
    shutil.copy(workdir / "text.txt", folder)
    stop_at(2, *tiny_argv(folder, "--train.steps", "4"))
    return set_aside(folder)


@pytest.fixture
def stopped(saved_stopped):
    """A run of 4 steps in a folder of its own, stopped after 2; gives the folder of the run."""
    return put_back(saved_stopped) / "runs" / "gyre-text-rope-s1"


NOTE = "has changed since then, or is gone"


def test_a_run_whose_text_is_the_same_says_nothing(stopped, capfd):
    assert exit_code(train.main, "--resume", stopped) == 0
    assert NOTE not in capfd.readouterr().err


def test_a_run_whose_encoding_was_edited_says_so_and_goes_on(stopped, capfd, monkeypatch):
    monkeypatch.setattr(rundir, "hash_encoding", lambda position: f"{KIND}:other")
    assert exit_code(train.main, "--resume", stopped) == 0
    said = capfd.readouterr().err
    assert f"the code of model.position rope has changed since {stopped} was made: the tra" in said


def test_a_run_goes_on_in_another_folder_with_its_own_text(workdir, tmp_path, monkeypatch):
    shutil.copy(workdir / "text.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    # null forgets the file that tiny_argv names.
    stop_at(1, *tiny_argv(tmp_path, "--train.steps", "2", "--optim.warmup_steps=0",
                          "--data.files=null", "--data.files=text.txt", "--data.prepared=prep"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert exit_code(train.main, "--resume", tmp_path / "runs" / "gyre-text-rope-s1") == 0
    assert list(Path().iterdir()) == []


def test_a_run_whose_text_has_changed_says_so_and_goes_on(stopped, capfd):
    with (stopped.parents[1] / "text.txt").open("a", encoding="utf-8") as file:
        file.write("more\n")
    assert exit_code(train.main, "--resume", stopped) == 0
    said = capfd.readouterr().err
    file = stopped.parents[1] / "text.txt"
    assert f"the text of {stopped} {NOTE} (changed after the run was started: {file}): the" in said


def test_a_copied_run_says_what_changed_before_it_was_copied(stopped, capfd):
    with (stopped.parents[1] / "text.txt").open("a", encoding="utf-8") as file:
        file.write("more\n")
    copy = stopped.with_name("copied")
    shutil.copytree(stopped, copy, copy_function=shutil.copyfile)  # with times of its own
    assert exit_code(train.main, "--resume", copy) == 0
    assert "(changed after the run was started: " in capfd.readouterr().err


def test_a_run_without_its_text_takes_what_was_prepared(stopped, capfd):
    folder = stopped.parents[1]
    (folder / "text.txt").unlink()
    assert exit_code(train.main, "--resume", stopped) == 0
    reason = f"(--data.files {folder / 'text.txt'} matches no file): the training goes on"
    assert f"{NOTE} {reason}" in capfd.readouterr().err
    assert len(list((folder / "prepared").glob("text-*"))) == 1


def test_a_link_to_nothing_among_the_texts_stops_no_resume(stopped):
    folder = stopped.parents[1]
    (folder / "text.txt").unlink()
    (folder / "text.txt").symlink_to(folder / "gone.txt")
    assert exit_code(train.main, "--resume", stopped) == 0


def test_a_run_without_its_text_and_what_was_prepared_is_named(stopped, capfd):
    folder = stopped.parents[1]
    (folder / "text.txt").unlink()
    shutil.rmtree(folder / "prepared")
    assert error_lines(capfd, train.main, "--resume", stopped)[-1] == (
        f"error: {stopped} needs its text, because {folder / 'prepared'} has nothing of it: "
        f"--data.files {folder / 'text.txt'} matches no file")


@pytest.mark.parametrize("argv", [
    ["--resume", "{path}"], ["--branch-from", "{path}", "--at=2", "--train.steps=9"]])
def test_a_text_that_changed_is_refused_if_what_was_prepared_is_gone(stopped, capfd, argv):
    """It is prepared again, and compared. Even if the tokenizer is the same, one word of the
    validation split is enough."""
    folder = stopped.parents[1]
    text = folder / "text.txt"
    original = text.read_text(encoding="utf-8")
    text.write_text(original[:-10] + "a b c d e\n", encoding="utf-8")
    shutil.rmtree(folder / "prepared")
    words = [word.format(path=stopped) for word in argv]
    assert "has changed since it was started" in error_lines(capfd, train.main, *words)[-1]


# --- one process at a time ------------------------------------------------------------------------


def test_a_run_is_trained_by_one_process_at_a_time(workdir, capfd, monkeypatch):
    """From its start, and when it is resumed."""
    path = workdir / "runs" / "gyre-text-rope-s1"
    start_step = gyre.step.start_step
    errors = []

    def resume_beside(setup, step):
        if step in (2, 4):
            assert exit_code(train.main, "--resume", path) == 2
            errors.append(capfd.readouterr().err)
        return start_step(setup, step)

    monkeypatch.setattr(gyre.step, "start_step", resume_beside)
    stop_at(3, *tiny_argv(workdir, "--train.steps", "5"))
    assert exit_code(train.main, "--resume", path) == 0
    assert len(errors) == 2
    assert "is being trained by another process" in errors[0]
    assert "is being trained by another process" in errors[1]
