"""What is said where a run cannot go on, or goes on to something worse."""

from unittest.mock import Mock

import pytest
from builders import error_lines, exit_code, train_tiny, training_argv

import gyre.build
import train
from gyre.step import Progress


@pytest.fixture(scope="module")
def finished(workdir):
    """A run of 4 steps, which is then taken to 6."""
    path = train_tiny(workdir, "finished", "--train.steps=4")
    assert exit_code(train.main, "--resume", path, "--train.steps=6") == 0
    return path


def test_a_run_that_was_taken_further_is_finished(finished, capfd):
    said = error_lines(capfd, train.main, "--resume", finished)[-1]
    assert "has taken 6 steps: give --train.steps a larger number" in said


def test_steps_within_the_warm_up_are_refused_in_words(finished, capfd):
    said = error_lines(capfd, train.main, "--resume", finished, "--train.steps=2")[-1]
    assert f"--train.steps 2 would end in the warm-up of {finished} (optim.warmup_steps 3)" in said


def test_a_branch_within_the_warm_up_is_refused_in_words(finished, capfd):
    said = error_lines(capfd, train.main, "--branch-from", finished, "--train.steps=2")[-1]
    assert f"--train.steps 2 would end in the warm-up of {finished} (optim.warmup_steps 3)" in said


def test_a_step_to_keep_that_is_past_is_refused(finished, capfd):
    argv = ["--resume", finished, "--train.steps=8", "--train.keep=[7, 5]"]
    said = error_lines(capfd, train.main, *argv)[-1]
    assert f"train.keep names step 5, and {finished} has taken 6 steps: leave it out" in said


def test_a_branch_refuses_a_step_to_keep_before_its_first(finished, capfd):
    argv = ["--branch-from", finished, "--train.steps=8", "--train.keep=6"]
    said = error_lines(capfd, train.main, *argv)[-1]
    assert (f"train.keep names step 6, and the branch starts after step 6 of {finished}: leave it "
            "out") in said


def test_a_warm_up_that_the_command_gives_is_not_blamed_on_the_run(finished, capfd):
    argv = ["--branch-from", finished, "--train.steps=8", "--optim.warmup_steps=9"]
    said = error_lines(capfd, train.main, *argv)[-1]
    assert "optim.warmup_steps must be in [0, 8], not 9" in said


@pytest.mark.parametrize("option", ["--train.steps", "--optim.warmup_steps"])
def test_a_resumed_run_chooses_no_number_again(finished, option, capfd):
    said = error_lines(capfd, train.main, "--resume", finished, option, "auto")[-1]
    assert f"{option[2:]} auto is for a new run of train.py: give a number" in said


@pytest.mark.parametrize("option", ["--resume", "--init-from", "--branch-from"])
def test_an_empty_name_is_no_new_run(option, capfd):
    said = error_lines(capfd, train.main, option, "", "--train.steps=2")[-1]
    assert "--resume, --init-from and --branch-from take a run, and no empty name" in said


def test_a_fine_tuning_that_made_it_worse_says_so(workdir, finished, capfd):
    worse = training_argv(workdir, "--init-from", finished, "--train.steps=3", "--optim.lr=3")
    assert exit_code(train.main, *worse) == 0
    assert f"note    {finished} is still the better model of this text" in capfd.readouterr().err


def test_a_resumed_fine_tuning_that_made_it_worse_says_so(workdir, finished, capfd):
    worse = training_argv(workdir, "--init-from", finished, "--name=worse", "--train.steps=3",
                          "--optim.lr=3")
    assert exit_code(train.main, *worse) == 0
    capfd.readouterr()
    assert exit_code(train.main, "--resume", workdir / "runs" / "worse", "--train.steps=4") == 0
    assert f"note    {finished} is still the better model of this text" in capfd.readouterr().err


def test_a_fine_tuning_that_made_it_better_is_silent(workdir, finished, capfd):
    better = training_argv(workdir, "--init-from", finished, "--train.steps=3")
    assert exit_code(train.main, *better) == 0
    assert "still the better model" not in capfd.readouterr().err


def test_a_fine_tuning_that_changed_nothing_is_not_called_worse(workdir, finished, capfd):
    same = training_argv(workdir, "--init-from", finished, "--train.steps=3", "--optim.lr=1e-30")
    assert exit_code(train.main, *same) == 0
    assert "still the better model" not in capfd.readouterr().err


def test_a_branch_counts_skipped_steps_anew(monkeypatch):
    """They were steps of other rates."""
    progress = Progress(step=3, skipped_in_a_row=2)
    monkeypatch.setattr(gyre.build, "load_checkpoint", lambda *_: (progress, 5))
    start = Mock(given={})
    start.config.train.steps = 9
    start.config.train.keep = ()
    restored = gyre.build.restore(start, Mock(), Mock(), Mock(), Mock())
    assert restored.skipped_in_a_row == 0


def test_a_fine_tuning_says_what_it_ignores_of_a_file(workdir, finished, tmp_path, capfd):
    file = tmp_path / "other.yaml"
    file.write_text("model: {dim: 96, n_layers: 7}", encoding="utf-8")
    argv = training_argv(workdir, "--init-from", finished, "--config", file, "--train.steps=3")
    assert exit_code(train.main, *argv) == 0
    assert (f"note: the model is that of {finished}, whatever the configuration file says of "
            "model.dim, model.n_layers\n") in capfd.readouterr().err


@pytest.mark.parametrize("names_text", [True, False])
def test_a_fine_tuning_on_the_same_text_says_so_unless_it_is_named(
    workdir, finished, capfd, names_text
):
    argv = training_argv(workdir, "--init-from", finished, "--train.steps=3")
    if not names_text:
        argv = [arg for arg in argv if not str(arg).startswith("--data.files")]
    assert exit_code(train.main, *argv) == 0
    note = (f"note: this is the text that {finished} was trained on: to take another one, say "
            "--data.files FILE")
    assert (note in capfd.readouterr().err) is not names_text
