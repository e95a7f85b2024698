"""What is said where a run cannot go on, or goes on to something worse."""

import pytest
from conftest import refusal, run, trained, training

import train


@pytest.fixture(scope="module")
def finished(world):
    """A run of 4 steps, which is then taken to 6."""
    path = trained(world, "finished", "--train.steps=4")
    assert run(train.main, "--resume", path, "--train.steps=6") == 0
    return path


def test_a_run_that_was_taken_further_is_finished(finished, capfd):
    said = refusal(capfd, train.main, "--resume", finished)[-1]
    assert "has taken 6 steps: give --train.steps a larger number" in said


def test_steps_within_the_warm_up_are_refused_in_words(finished, capfd):
    said = refusal(capfd, train.main, "--resume", finished, "--train.steps=2")[-1]
    assert f"--train.steps 2 would end in the warm-up of {finished}, 3 steps" in said


def test_a_fine_tuning_that_made_it_worse_says_so(world, finished, capfd):
    worse = training(world, "--init-from", finished, "--train.steps=3", "--optim.lr=3")
    assert run(train.main, *worse) == 0
    assert f"note    {finished} is still the better model of this text" in capfd.readouterr().err


def test_a_fine_tuning_that_made_it_better_is_silent(world, finished, capfd):
    better = training(world, "--init-from", finished, "--train.steps=3")
    assert run(train.main, *better) == 0
    assert "still the better model" not in capfd.readouterr().err
