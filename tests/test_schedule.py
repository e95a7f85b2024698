"""Which jobs a study has to do next, and with which options its runs are trained."""

import pytest
from builders import parse_config
from tiny_study import N_WORDS, make_plan, study_arguments, tiny_tier  # noqa: F401  N_WORDS: `workdir`

from ablation.jobs import RecordJob, TuningJob, to_argv
from ablation.options import resolve
from ablation.plan import Steps, Tuned
from ablation.schedule import count_steps, name_length, next_jobs, plan_run
from files import write_sealed


@pytest.fixture(scope="module", autouse=True)
def tiny():
    with tiny_tier():
        yield


@pytest.fixture
def command(workdir, tmp_path):
    """A study of nope and sin in a folder of its own."""
    return resolve(study_arguments(workdir, "--arms", "nope,sin", "--log.runs", str(tmp_path)))


TUNED = {"grid": [2e-3, 4e-3], "tuning_seeds": [1000, 1001], "second_val": True}


def test_jobs_come_seed_by_seed(command):
    jobs = next_jobs(command, make_plan(seeds=[0, 1]))
    assert [job.name for job in jobs] == ["nope-s0", "sin-s0", "nope-s1", "sin-s1"]


def test_a_run_with_a_record_is_not_done_again(command):
    write_sealed(command.path / "results" / "sin-s1.json", {})
    jobs = next_jobs(command, make_plan(seeds=[0, 1]))
    assert [job.name for job in jobs] == ["nope-s0", "sin-s0", "nope-s1"]


def test_a_run_that_diverged_is_not_done_again(command):
    jobs = next_jobs(command, make_plan(seeds=[0, 1], diverged=["nope-s0"]))
    assert [job.name for job in jobs] == ["sin-s0", "nope-s1", "sin-s1"]


def test_shorter_runs_branch_off_where_their_cooldown_begins(command):
    steps = Steps(horizons=[10, 50, 100], tuning=9)
    job = next_jobs(command, make_plan(steps=steps))[0]
    assert isinstance(job, RecordJob)
    trunk, *branches = job.trainings
    assert (trunk.trunk, trunk.at) == (None, None)
    assert [(branch.trunk, branch.at) for branch in branches] == [
        (trunk.folder, 40), (trunk.folder, 8)]


def test_the_longest_run_keeps_the_checkpoint_of_its_cooldown(command):
    job = next_jobs(command, make_plan())[0]
    assert job.trainings[0].options["train.keep"][-1] == 80


def test_runs_are_named_after_their_tokens(command):
    job = next_jobs(command, make_plan())[0]
    assert [training.options["name"] for training in job.trainings] == [
        "nope-s0-25k", "nope-s0-2.5k"]


@pytest.mark.parametrize("steps, name", [(1, "256"), (10, "2.5k"), (4096, "1M")])
def test_a_length_is_named_in_powers_of_two(steps, name):
    assert name_length(make_plan(), steps) == name


def test_a_branch_takes_its_model_and_text_from_its_trunk(command):
    job = next_jobs(command, make_plan())[0]
    branch = job.trainings[1]
    sections = {name.partition(".")[0] for name in branch.options}
    assert sections == {"train", "log", "name"}


@pytest.mark.parametrize("tuning", [{}, TUNED])
def test_all_runs_are_to_have_the_text_of_the_plan(command, tuning):
    jobs = next_jobs(command, make_plan(text_sha256="of the text", **tuning))
    hashes = {training.text_sha256 for job in jobs for training in job.trainings}
    assert hashes == {"of the text"}


def test_the_options_of_a_run_give_its_configuration(workdir):
    command = resolve(study_arguments(workdir, "--arm", "big=model.n_layers=3,optim.lr=5e-3"))
    training = plan_run(command, make_plan(), "x", 9, command.overlays["big"])
    config = parse_config(*to_argv(training))
    assert (config.name, config.train.steps, config.train.onednn) == ("x", 9, True)
    assert (config.model.n_layers, config.model.n_heads, config.optim.lr) == (3, 2, 5e-3)


def test_tuning_comes_before_the_runs_that_are_reported(command):
    jobs = next_jobs(command, make_plan(**TUNED))
    assert [job.name for job in jobs if isinstance(job, TuningJob)] == [
        "tune-2.25k-nope-lr0.002-s1000", "tune-2.25k-nope-lr0.002-s1001",
        "tune-2.25k-nope-lr0.004-s1000", "tune-2.25k-nope-lr0.004-s1001",
        "tune-2.25k-sin-lr0.002-s1000", "tune-2.25k-sin-lr0.002-s1001",
        "tune-2.25k-sin-lr0.004-s1000", "tune-2.25k-sin-lr0.004-s1001"]
    assert len(jobs) == 8


def test_a_tuning_run_has_its_rate_its_seed_and_another_text(command):
    job = next_jobs(command, make_plan(**TUNED))[3]
    (training,) = job.trainings
    assert (training.options["optim.lr"], training.options["seed"]) == (4e-3, 1001)
    assert training.options["data.second_val"] is True
    assert training.steps == 9


def test_the_rate_of_an_arm_that_says_its_own_is_not_tuned(workdir):
    argv = study_arguments(workdir, "--arms", "sin", "--arm", "fast=optim.lr=5e-3")
    jobs = next_jobs(resolve(argv), make_plan(**TUNED))
    assert {job.arm for job in jobs if isinstance(job, TuningJob)} == {"sin"}


def test_runs_that_are_reported_have_the_best_rate_of_their_arm(command):
    by_seed = {"1000": 2.0, "1001": 2.0}
    worse = {"1000": 3.0, "1001": 3.0}
    tuned = Tuned(arms={
        "nope": {"0.002": worse, "0.004": by_seed, "0.008": worse},
        "sin": {"0.001": by_seed, "0.002": worse, "0.004": worse, "0.0005": worse}})
    jobs = next_jobs(command, make_plan(tuned=tuned, **TUNED))
    rates = {job.name: job.trainings[0].options["optim.lr"] for job in jobs}
    assert rates == {"nope-s0": 4e-3, "sin-s0": 1e-3}


def test_runs_that_are_reported_have_the_first_validation_text(command):
    for job in next_jobs(command, make_plan(second_val=True)):
        assert "data.second_val" not in job.trainings[0].options


def test_steps_are_those_of_tuning_the_longest_run_and_cooldowns(command):
    """Of two seeds 100 steps and 2 of the cooldown of the shorter run, and 4 times 9 of tuning."""
    plan = make_plan(seeds=[0, 1], **TUNED)
    assert count_steps(command, plan, "sin") == 240


def test_steps_of_what_is_recorded_or_tuned_are_not_counted(command):
    """Left are 100 steps and 2 of one of three seeds, and one of four times 9 of tuning."""
    write_sealed(command.path / "results" / "sin-s0.json", {})
    tuned = Tuned(arms={"sin": {"0.002": {"1000": 2.0, "1001": 2.0}, "0.004": {"1000": 2.0}}})
    plan = make_plan(seeds=[0, 1, 2], diverged=["sin-s1"], tuned=tuned, **TUNED)
    assert count_steps(command, plan, "sin") == 111
