"""A whole study of the smallest size: stopped, continued, extended, measured, reported."""

import copy
import os
import shutil
import signal
import subprocess
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from builders import ROOT, error_lines, exit_code, read_metric, start_python, wait_for
from made_up_study import change, make_pair
from tiny_study import (  # noqa: F401  N_WORDS is for `workdir`
    N_WORDS,
    ablate_in_process,
    make_plan,
    study_arguments,
    tiny_tier,
)

import ablate
from ablation import plan, report, runner
from ablation.jobs import CalibrationJob, RecordJob, Training, TuningJob
from ablation.options import resolve
from ablation.record import hash_encoding
from ablation.study import Study
from errors import UserError, find_script
from files import locked, read_json, read_sealed, write_sealed
from model import kernels


@pytest.fixture(scope="module", autouse=True)
def tiny():
    overrides = plan.TIERS["smoke"].overrides
    one_layer = {**overrides, "model": {**overrides["model"], "n_layers": 1}}
    with tiny_tier(horizons=(2560, 5120), overrides=one_layer):
        yield


@pytest.fixture(scope="module")
def finished(workdir) -> Path:
    """The folder of a finished study of sin and rope."""
    assert exit_code(ablate_in_process, *study_arguments(workdir)) == 0
    return workdir / "runs" / "ablation-smoke"


# --- stopped and continued ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_worker_and_ctrl_c_change_no_record(workdir, tmp_path):
    """Another worker resumes the training of the killed one, Ctrl-C lets it save, and the same
    command goes on."""
    # So that there is time to kill it.
    longer = study_arguments(workdir, "--tokens", "2560,25600", "--model.n_layers", "2")
    straight = tmp_path / "straight" / "ablation-smoke"
    assert exit_code(ablate_in_process, *longer, "--log.runs", straight.parent) == 0
    study = tmp_path / "ablation-smoke"
    argv = [*longer, "--jobs", "2", "--log.runs", str(tmp_path)]
    program = f"from tiny_study import *\nplan.TIERS['smoke'] = TINY\nablate.main({argv})"
    process = start_python(program, new_session=True, PYTHONPATH=str(ROOT / "tests"))
    log = study / "logs" / "rope-s0.log"
    wait_for((study / "rope-s0-25k" / "last").exists)
    for worker in psutil.Process(process.pid).children(recursive=True):
        if str(log) in [file.path for file in worker.open_files()]:
            worker.kill()
    wait_for(lambda: "--resume" in log.read_text(encoding="utf-8"))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = process.communicate(timeout=200)
    again = subprocess.list2cmdline(["python", find_script("ablate.py"), *argv])
    assert (process.returncode, out) == (130, ""), err
    assert f"To go on: {again}" in err
    assert exit_code(ablate_in_process, *argv) == 0
    for name in ("results/rope-s0.json", "results/sin-s0.json"):
        resumed = read_json(study / name)
        expected = read_json(straight / name)
        for key in expected.keys() - {"sha256", "config", "machine", "trained_by", "run"}:
            assert resumed[key] == expected[key], key


def test_a_finished_study_writes_its_report_again(workdir, finished, capsys, monkeypatch):
    monkeypatch.setattr(runner, "open_client", lambda *options: pytest.fail("started workers"))
    (finished / "RESULTS.md").unlink()
    assert exit_code(ablate.main, *study_arguments(workdir)) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{finished / 'RESULTS.md'}\n"
    assert "of training" not in printed.err  # no estimate of time: nothing is missing
    assert (finished / "RESULTS.md").exists()
    assert len([*finished.glob("fig_*.png")]) == 3


@pytest.fixture
def sent_to_wandb(monkeypatch) -> Mock:
    """Run nothing and write an empty report. Returns the mock for what sends it to wandb."""
    sent = Mock()
    monkeypatch.setattr(report, "write_report", lambda path: (path / "RESULTS.md").touch())
    monkeypatch.setattr(report, "mirror_in_wandb", sent)
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: True)
    return sent


def test_wandb_gets_a_report_once(workdir, tmp_path, sent_to_wandb):
    argv = study_arguments(workdir, "--log.runs", str(tmp_path), "--log.wandb", "offline")
    assert exit_code(ablate.main, *argv) == 0
    assert exit_code(ablate.main, *argv) == 0
    sent_to_wandb.assert_called_once()
    assert sent_to_wandb.call_args.args[0] == tmp_path / "ablation-smoke"


def test_wandb_gets_the_report_of_more_seeds(workdir, tmp_path, sent_to_wandb):
    argv = study_arguments(workdir, "--log.runs", str(tmp_path), "--log.wandb", "offline")
    for seeds in ("1", "2", "2", "3"):
        assert exit_code(ablate.main, *argv, "--seeds", seeds) == 0
    assert sent_to_wandb.call_count == 3


def test_wandb_gets_a_report_that_was_written_without_it(workdir, tmp_path, sent_to_wandb):
    argv = study_arguments(workdir, "--log.runs", str(tmp_path), "--log.wandb", "offline")
    assert exit_code(ablate.main, *argv, "--log.wandb", "disabled") == 0
    assert (tmp_path / "ablation-smoke" / "RESULTS.md").exists()
    sent_to_wandb.assert_not_called()
    assert exit_code(ablate.main, *argv) == 0
    sent_to_wandb.assert_called_once()


def test_a_report_is_sent_again_if_that_was_interrupted(workdir, tmp_path, sent_to_wandb):
    argv = study_arguments(workdir, "--log.runs", str(tmp_path), "--log.wandb", "offline")
    sent_to_wandb.side_effect = [KeyboardInterrupt, None]
    assert exit_code(ablate.main, *argv) == 130
    assert exit_code(ablate.main, *argv) == 0
    assert exit_code(ablate.main, *argv) == 0
    assert sent_to_wandb.call_count == 2


def test_a_study_that_was_stopped_has_no_report(workdir, tmp_path, sent_to_wandb, monkeypatch):
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    assert exit_code(ablate.main, *study_arguments(workdir, "--log.runs", str(tmp_path))) == 130
    assert not (tmp_path / "ablation-smoke" / "RESULTS.md").exists()


# --- what is recorded -----------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["rope", "sin"])
def test_a_record_has_an_end_for_every_length(finished, arm):
    record = Study.load(finished).runs(arm)[0]
    assert [end.tokens for end in record.horizons] == [2560, 5120]
    for end, name in zip(record.horizons, ("2.5k", "5k"), strict=True):
        validated = read_metric(finished / f"{arm}-s0-{name}", "val/loss")
        assert end.loss == pytest.approx(validated[max(validated)], rel=1e-5)
        assert 0 < end.se < 1


def test_a_shift_costs_nothing_with_rope(finished):
    for end in Study.load(finished).runs("rope")[0].horizons:
        assert abs(end.shift) < 1e-4


def test_a_record_follows_the_longest_run(finished):
    trajectory = Study.load(finished).runs("rope")[0].trajectory
    # Kept from the first cooldown, at step 8, to the last, at step 16: four to an octave.
    steps = [8, 10, 11, 13, 16]
    assert [point.tokens for point in trajectory] == [step * 256 for step in steps]
    assert trajectory[0].loss > trajectory[-1].loss


def test_a_record_says_how_its_run_was_trained(finished):
    config = read_json(finished / "results" / "rope-s0.json")["config"]
    assert config["log"]["group"] == "ablation-smoke/5k/rope"
    assert config["train"]["onednn"] == plan.read_plan(finished).onednn  # decided once
    assert config["optim"]["lr"] == 2e-3


def test_a_cooldown_goes_from_the_full_rate_to_nothing(finished):
    short = read_metric(finished / "rope-s0-2.5k", "train/lr")
    long = read_metric(finished / "rope-s0-5k", "train/lr")
    assert (short[8], short[10]) == (2e-3, 0)
    assert (long[16], long[20]) == (2e-3, 0)


def test_only_the_last_checkpoints_of_reported_runs_stay(finished):
    assert [*finished.glob("*/kept")] == []
    assert [*finished.glob("tune*/last")] == []
    assert len([*finished.glob("*-s0-*k/last")]) == 4


@pytest.fixture
def tuning(workdir, tmp_path):
    """A command, its plan, and a job that tunes sin at 0.001."""
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path)))
    training = Training(folder=str(tmp_path / "tune"), steps=9, options={})
    job = TuningJob(name="tune", trainings=[training], arm="sin", lr=1e-3, seed=1000)
    return command, make_plan(), job


def test_the_loss_of_a_rate_is_on_the_disk_at_once(tuning):
    command, stored, job = tuning
    runner.keep_result(command, stored, job, 2.5)
    assert read_json(command.path / "plan.json")["tuned"] == {
        "arms": {"sin": {"0.001": {"1000": 2.5}}}}


def test_a_result_that_cannot_be_written_costs_no_checkpoint(tuning, tmp_path, monkeypatch):
    """Without it, the same command would train the run again."""
    command, stored, job = tuning
    (tmp_path / "tune" / "last").mkdir(parents=True)
    monkeypatch.setattr(plan, "write_plan", Mock(side_effect=UserError("the disk is full")))
    with pytest.raises(UserError, match="the disk is full"):
        runner.keep_result(command, stored, job, 2.5)
    assert (tmp_path / "tune" / "last").exists()


def test_a_rate_that_diverged_is_null_in_the_plan(tuning):
    command, stored, job = tuning
    runner.keep_result(command, stored, job, None)
    assert read_json(command.path / "plan.json")["tuned"] == {
        "arms": {"sin": {"0.001": {"1000": None}}}}


def test_every_seed_that_diverged_is_named_in_the_plan(workdir, tmp_path):
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path)))
    stored = make_plan()
    for name in ("rope-s0", "rope-s1"):
        job = RecordJob(name=name, trainings=[], arm="rope", windows=4, device="cpu")
        runner.keep_result(command, stored, job, None)
    assert plan.read_plan(command.path).diverged == ["rope-s0", "rope-s1"]


# --- beside the records of another study ----------------------------------------------------------


def beside_arguments(workdir: Path, folder: Path, runs: Path, *extra: str) -> list[str]:
    """The command line of a study of a new arm beside the one in `folder`."""
    without_tier = study_arguments(workdir)[2:]
    return [*without_tier, "--beside", str(folder), "--arm", "b=model.theta=50,optim.lr=4e-3",
            "--log.runs", str(runs), *extra]


@pytest.fixture(scope="module")
def extended(workdir, finished, tmp_path_factory) -> Study:
    """A finished study of a new arm, b, beside `finished`."""
    runs = tmp_path_factory.mktemp("extended")
    assert exit_code(ablate_in_process, *beside_arguments(workdir, finished, runs)) == 0
    return Study.load(runs / "beside-ablation-smoke")


def test_beside_a_study_only_the_new_arm_is_trained(extended):
    folders = {path.name for path in extended.path.iterdir() if path.is_dir()}
    assert folders == {"logs", "results", "calibration-sin-s0", "b-s0-2.5k", "b-s0-5k"}


def test_the_calibration_run_repeats_the_other_studys_loss(extended):
    calibration = extended.plan.calibration
    assert calibration.name == "calibration-sin-s0"
    assert calibration.here == pytest.approx(calibration.committed, rel=1e-6)


def test_beside_a_study_its_records_are_taken_over(finished, extended):
    assert Study.load(finished).records.items() <= extended.records.items()
    assert extended.plan.committed == ["sin", "rope"]


def test_beside_a_study_its_plan_is_taken_over(finished, extended):
    assert extended.plan.tuned == Study.load(finished).plan.tuned
    assert (extended.baseline, extended.plan.tier) == ("sin", "smoke")
    assert extended.plan.second_val is True


def test_the_report_tells_committed_arms_from_new_ones(extended):
    page = (extended.path / "RESULTS.md").read_text(encoding="utf-8")
    assert "| rope, committed | 0.002 |" in page
    assert "| b, measured here | 0.004 |" in page


@pytest.mark.parametrize("extra, words", [
    (["--train.batch_size", "9"], "--train.batch_size=9 has no place beside"),
    (["--tokens", "4k"], "--tokens=4k has no place beside"),
    (["--tier", "full"], "--tier=full has no place beside"),
    (["--no-tuning"], "--no_tuning=true has no place beside"),
    (["--data.val_fraction", "0.2"], "tokens differ")])
def test_beside_a_study_what_it_settles_is_refused(workdir, finished, tmp_path, capsys, extra,
                                                   words):
    argv = beside_arguments(workdir, finished, tmp_path, *extra)
    assert words in error_lines(capsys, ablate.main, *argv)[-1]


@pytest.fixture
def changed_study(finished, tmp_path) -> Path:
    """A study in which the loss of rope's shortest run is 0.011 higher, which is more than
    CALIBRATED, and sin diverged."""
    folder = tmp_path / "changed"
    shutil.copytree(finished / "results", folder / "results")
    (folder / "results" / "sin-s0.json").unlink()
    stored = read_sealed(finished / "plan.json", "")
    write_sealed(folder / "plan.json", stored | {"diverged": ["sin-s0"]})
    record = read_sealed(folder / "results" / "rope-s0.json", "")
    record["horizons"][0]["loss"] += 0.011
    write_sealed(folder / "results" / "rope-s0.json", record)
    return folder


def test_records_that_training_does_not_repeat_are_refused(
    workdir, changed_study, tmp_path, capsys
):
    argv = beside_arguments(workdir, changed_study, tmp_path)
    error = error_lines(capsys, ablate_in_process, *argv)[-1]
    assert "records of the two do not compare" in error


def test_a_calibration_that_failed_is_not_in_the_plan(workdir, tmp_path):
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path)))
    stored = make_plan()
    job = CalibrationJob(name="calibration-rope-s0", trainings=[], committed=2.5)
    with pytest.raises(UserError, match=r"ends at 2\.6 here and at 2\.5 in"):
        runner.keep_result(command, stored, job, 2.6)
    assert stored.calibration is None


def test_beside_a_study_its_diverged_runs_are_taken_over(
    workdir, changed_study, tmp_path, monkeypatch
):
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    assert exit_code(ablate.main, *beside_arguments(workdir, changed_study, tmp_path)) == 130
    assert plan.read_plan(tmp_path / "beside-changed").diverged == ["sin-s0"]


def test_beside_a_study_no_run_of_another_seed_has_diverged(
    workdir, changed_study, tmp_path, monkeypatch
):
    stored = read_sealed(changed_study / "plan.json", "")
    changes = {"seeds": [0, 1], "diverged": ["sin-s0", "sin-s1"]}
    write_sealed(changed_study / "plan.json", stored | changes)
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    argv = beside_arguments(workdir, changed_study, tmp_path, "--seeds", "1")  # one seed, 0
    assert exit_code(ablate.main, *argv) == 130
    assert plan.read_plan(tmp_path / "beside-changed").diverged == ["sin-s0"]


@pytest.mark.parametrize("left", ["rope-s7.json", None])
def test_beside_a_study_without_records_nothing_is_begun(
    workdir, changed_study, tmp_path, capsys, left
):
    """Not even where there is a record of a seed that is not wanted."""
    record = changed_study / "results" / "rope-s0.json"
    if left is None:
        shutil.rmtree(record.parent)
    else:
        record.rename(record.with_name(left))
        stored = read_sealed(changed_study / "plan.json", "")
        write_sealed(changed_study / "plan.json", stored | {"seeds": [0, 7]})
    argv = beside_arguments(workdir, changed_study, tmp_path, "--seeds", "1")  # one seed, 0
    error = error_lines(capsys, ablate.main, *argv)[-1]
    assert f"{changed_study} has no record of the seeds [0] yet: finish that study first" in error
    assert not (tmp_path / "beside-changed").exists()


def test_beside_a_study_without_second_validation_text_there_is_none(
    workdir, changed_study, tmp_path, monkeypatch
):
    stored = read_sealed(changed_study / "plan.json", "")
    write_sealed(changed_study / "plan.json", stored | {"second_val": False})
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    assert exit_code(ablate.main, *beside_arguments(workdir, changed_study, tmp_path)) == 130
    assert plan.read_plan(tmp_path / "beside-changed").second_val is False


def test_beside_a_study_another_baseline_can_be_given(workdir, changed_study, tmp_path):
    command = resolve(beside_arguments(workdir, changed_study, tmp_path, "--baseline", "rope"))
    assert command.baseline == "rope"


# --- the plan -------------------------------------------------------------------------------------


@pytest.fixture
def made_up(tmp_path) -> Path:
    """A study of one seed of rope and sin."""
    return make_pair(tmp_path / "made-up")


def test_another_plan_in_the_folder_is_refused(workdir, finished, capsys):
    error = error_lines(capsys, ablate.main, *study_arguments(workdir, "--model.n_layers", "2"))[-1]
    assert "another plan (these differ: model.n_layers)" in error
    assert str(finished) in error


@pytest.fixture(scope="module")
def grown(workdir, finished, tmp_path_factory) -> Path:
    """A copy of the finished study, which had one seed and now has two."""
    study = tmp_path_factory.mktemp("grown") / "ablation-smoke"
    shutil.copytree(finished, study)
    argv = study_arguments(workdir, "--seeds", "2", "--log.runs", str(study.parent))
    assert exit_code(ablate_in_process, *argv) == 0
    return study


def test_more_seeds_are_added_to_a_finished_study(grown, finished):
    names = ["rope-s0.json", "rope-s1.json", "sin-s0.json", "sin-s1.json"]
    assert sorted(file.name for file in (grown / "results").iterdir()) == names
    for name in ("rope-s0.json", "sin-s0.json"):
        before = (finished / "results" / name).read_bytes()
        assert (grown / "results" / name).read_bytes() == before


def test_a_plan_keeps_how_many_seeds_it_had(grown):
    grown_plan = plan.read_plan(grown)
    assert grown_plan.seeds == [0, 1]
    assert grown_plan.grown_from == [1]
    assert "--seeds 2" in grown_plan.command


def test_without_the_option_a_study_keeps_its_seeds(workdir, grown, capsys):
    """The tier's number is one."""
    argv = study_arguments(workdir, "--log.runs", str(grown.parent), "--dry-run")
    assert exit_code(ablate.main, *argv) == 0
    assert "runs    seeds [0, 1] of each arm" in capsys.readouterr().err


def test_beside_a_study_diverged_runs_of_added_seeds_are_taken_over(
    workdir, changed_study, tmp_path, monkeypatch
):
    stored = read_sealed(changed_study / "plan.json", "")
    changes = {"seeds": [0, 1], "diverged": ["sin-s0", "sin-s1"]}
    write_sealed(changed_study / "plan.json", stored | changes)
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    for seeds in ("1", "2"):
        argv = beside_arguments(workdir, changed_study, tmp_path, "--seeds", seeds)
        assert exit_code(ablate.main, *argv) == 130
    assert plan.read_plan(tmp_path / "beside-changed").diverged == ["sin-s0", "sin-s1"]


def test_a_study_does_not_lose_seeds(workdir, grown, capsys):
    argv = study_arguments(workdir, "--seeds", "1", "--log.runs", str(grown.parent))
    error = error_lines(capsys, ablate.main, *argv)[-1]
    assert "another plan (these differ: seeds)" in error


def test_planning_more_seeds_adds_none(workdir, finished, capsys):
    before = (finished / "plan.json").read_bytes()
    assert exit_code(ablate.main, *study_arguments(workdir, "--seeds", "3", "--dry-run")) == 0
    assert "going on with more seeds, [1, 2]" in capsys.readouterr().err
    assert (finished / "plan.json").read_bytes() == before


@pytest.fixture
def older(finished):
    """The finished study, whose plan is from before `data.separator` and `model.theta`."""
    file = finished / "plan.json"
    stored = read_sealed(file, "")
    config = copy.deepcopy(stored["config"])
    for values in config.values():
        del values["data"]["separator"]
        del values["model"]["theta"]
    write_sealed(file, stored | {"config": config})
    yield finished
    write_sealed(file, stored)


def test_a_study_goes_on_where_options_are_new(workdir, older):
    """Such as one that the user has given to ModelConfig for an encoding."""
    assert exit_code(ablate_in_process, *study_arguments(workdir)) == 0


@pytest.mark.parametrize("option, value", [("data.separator", "##"), ("model.theta", "500")])
def test_a_new_option_that_is_set_makes_another_plan(workdir, older, option, value, capsys):
    error = error_lines(capsys, ablate.main, *study_arguments(workdir, f"--{option}={value}"))[-1]
    assert f"another plan (these differ: {option})" in error


def test_an_option_that_is_gone_is_named():
    planned = {"a": {"model": {"dim": 8, "gone": 1}}, "b": {}}
    wanted = {"a": {"model": {"dim": 8}}, "c": {}}
    assert runner.name_changed_options(planned, wanted) == ["model.gone"]


def test_a_study_that_another_process_works_on_is_refused(workdir, finished, capsys):
    with locked(finished, "busy", wait=False):
        error = error_lines(capsys, ablate.main, *study_arguments(workdir))[-1]
    assert "another ablate.py is working on" in error


def test_a_study_that_another_process_works_on_can_be_planned(workdir, finished, capsys):
    with locked(finished, "busy", wait=False):
        assert exit_code(ablate.main, *study_arguments(workdir, "--dry-run")) == 0
    assert "plan.json: going on" in capsys.readouterr().err


def test_a_dry_run_locks_nothing_and_makes_no_folder(workdir, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "locked", lambda *_, **options: pytest.fail("took a lock"))
    argv = study_arguments(workdir, "--log.runs", str(tmp_path / "runs"), "--dry-run")
    assert exit_code(ablate.main, *argv) == 0
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_something_else_is_refused_and_kept(workdir, capsys):
    mine = workdir / "runs" / "mine"
    mine.mkdir(parents=True)
    (mine / "notes.txt").touch()
    error = error_lines(capsys, ablate.main, *study_arguments(workdir, "--name", "mine"))[-1]
    assert "is not a study" in error
    assert [*mine.iterdir()] == [mine / "notes.txt"]


@pytest.mark.parametrize("tokens, tuned", [("2k", "2k"), ("2k,4k", "2.25k")])
def test_rates_are_tuned_no_longer_than_the_longest_run(
    workdir, capsys, monkeypatch, tokens, tuned
):
    monkeypatch.setattr(runner, "ngram_losses", lambda *ids: [3.0, 2.0, 1.0])
    argv = study_arguments(workdir, "--tokens", tokens, "--name", "new", "--dry-run")
    assert exit_code(ablate.main, *argv) == 0
    printed = capsys.readouterr().err
    assert f"tuning  optim.lr [0.002], {tuned} tokens, seeds [1000]" in printed


def test_lengths_of_equally_many_steps_are_one(workdir, capsys, monkeypatch):
    """4100 tokens are the 16 steps of 4k."""
    monkeypatch.setattr(runner, "ngram_losses", lambda *ids: [3.0, 2.0, 1.0])
    argv = study_arguments(workdir, "--tokens", "2k,4k,4100", "--name", "new", "--dry-run")
    assert exit_code(ablate.main, *argv) == 0
    printed = capsys.readouterr().err
    assert "runs    seeds [0] of each arm, for 2k, 4k tokens" in printed


def test_ngrams_are_counted_on_the_text_for_training(workdir, monkeypatch):
    counted = Mock(return_value=[3.0, 2.0, 1.0])
    monkeypatch.setattr(runner, "ngram_losses", counted)
    assert exit_code(ablate.main, *study_arguments(workdir, "--name", "new", "--dry-run")) == 0
    train, held_out, vocab_size = counted.call_args.args
    assert len(train) > 8 * len(held_out)
    assert vocab_size == 300


@pytest.mark.parametrize("seeds, words", [
    (1, "one seed shows no difference"),
    (6, "a true difference of 0.019 nats shows in four of five such studies"),
])
def test_a_plan_says_how_small_a_difference_shows(seeds, words):
    assert runner.describe_power(seeds).startswith(words)


def test_a_dry_run_says_how_long_the_study_trains(workdir, capsys, monkeypatch):
    """Two arms of one seed: 20 steps of the longest run, 2 of the cooldown of the shorter one, and
    9 of tuning. At a second a token, 15,872 tokens take 4.4 hours."""
    monkeypatch.setattr(runner, "matmul_rates", lambda *_, training, dtypes: [1e6])
    monkeypatch.setattr(runner, "estimate_seconds", lambda model, tokens, rate: tokens)
    assert exit_code(ablate.main, *study_arguments(workdir, "--name", "dry", "--dry-run")) == 0
    assert "time    about 4.4 hours of training, besides" in capsys.readouterr().err


@pytest.mark.parametrize("onednn", [True, False])
def test_the_time_is_measured_with_the_plans_onednn(workdir, tmp_path, monkeypatch, onednn):
    entered = []

    def products_by_onednn(used):
        entered.append(used)
        return nullcontext()

    monkeypatch.setattr(kernels, "products_by_onednn", products_by_onednn)
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path)))
    runner.estimate_training(command, make_plan(onednn=onednn))
    assert entered == [onednn, onednn]  # for each of two arms


def test_a_card_of_another_machine_has_no_estimate(workdir, tmp_path, capsys):
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path), "--train.device=cuda",
                                      "--scheduler=tcp://far:8786"))
    runner.print_plan(command, make_plan())
    assert "of training" not in capsys.readouterr().err


def test_beside_a_study_that_was_grown_the_plan_says_so(workdir, grown, tmp_path):
    command = resolve(beside_arguments(workdir, grown, tmp_path), "")
    assert runner.open_plan(command).committed_grown_from == [1]


def test_arms_are_added_beside_a_study(workdir, finished, capsys):
    argv = [*study_arguments(workdir), "--arms", "rope,sin,alibi"]
    error = error_lines(capsys, ablate.main, *argv)[-1]
    assert (f"to compare alibi with its records, train them beside it, in a study of their own: "
            f"python {find_script('ablate.py')} --beside {finished} --arms alibi") in error


def test_ctrl_c_waits_for_the_end_of_a_start():
    reached_the_end = False
    with pytest.raises(KeyboardInterrupt), runner.holding_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        reached_the_end = True
    assert reached_the_end


def test_a_study_that_is_interrupted_at_its_start_says_how_to_go_on(workdir, monkeypatch, capsys):
    monkeypatch.setattr(runner, "open_client", Mock(side_effect=KeyboardInterrupt))
    argv = study_arguments(workdir, "--name", "interrupted")
    assert exit_code(ablate.main, *argv) == 130
    assert "stopped, and what was running has saved. To go on: python " in capsys.readouterr().err


def test_a_study_that_goes_on_with_another_encoding_says_so(made_up, capsys):
    change(made_up, "rope-s0", encoding_sha256="of other code")
    runner.note_changed_encodings(Study.load(made_up))
    assert capsys.readouterr().err == (
        "note: the code of model.position rope is not that of the first seeds of rope, so that "
        "further ones are of another encoding: undo the change, or give the new one another name\n")


def test_a_study_that_goes_on_with_its_encodings_is_silent(made_up, capsys):
    change(made_up, "rope-s0", encoding_sha256=hash_encoding("rope"))
    runner.note_changed_encodings(Study.load(made_up))
    assert capsys.readouterr().err == ""
