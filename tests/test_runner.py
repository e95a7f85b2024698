"""A whole study of the smallest size: stopped, continued, extended, measured, reported."""

import copy
import io
import os
import shutil
import signal
import subprocess
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from builders import ROOT, error_lines, exit_code, read_metric, start_python, wait_for
from made_up_study import change, make_pair
from tiny_study import (  # noqa: F401  the fixture `workdir` reads N_WORDS of this module
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
from ablation.schedule import next_jobs, plan_run
from ablation.study import Study
from errors import UserError, find_script
from files import locked, read_json, read_sealed, write_sealed
from gyre.code import KIND, hash_encoding
from gyre.rundir import RunDir
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


@dataclass(frozen=True)
class Interrupted:
    """A study whose command was interrupted."""

    path: Path
    argv: list[str]
    """Of the command, without the name of the program."""
    code: int
    """Its exit code."""
    out: str
    err: str


@pytest.fixture(scope="module")
def longer(workdir) -> list[str]:
    """The command line of a study that takes so long that there is time to interrupt it."""
    return study_arguments(workdir, "--tokens", "2560,25600", "--model.n_layers", "2")


@pytest.fixture(scope="module")
def interrupted(longer, tmp_path_factory) -> Interrupted:
    """A study of two workers. One was killed, another one resumed its training, and then Ctrl-C
    stopped the command."""
    study = tmp_path_factory.mktemp("interrupted") / "ablation-smoke"
    argv = [*longer, "--jobs", "2", "--log.runs", str(study.parent)]
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
    return Interrupted(study, argv, process.returncode, out, err)


@pytest.mark.slow
def test_after_ctrl_c_a_study_prints_how_to_go_on(interrupted):
    again = subprocess.list2cmdline(["python", find_script("ablate.py"), *interrupted.argv])
    assert f"To go on: {again}" in interrupted.err
    assert (interrupted.code, interrupted.out) == (130, ""), interrupted.err


@pytest.mark.slow
def test_a_killed_worker_and_ctrl_c_change_no_record(longer, interrupted, tmp_path):
    """The same command goes on."""
    straight = tmp_path / "ablation-smoke"
    assert exit_code(ablate_in_process, *longer, "--log.runs", str(straight.parent)) == 0
    assert exit_code(ablate_in_process, *interrupted.argv) == 0
    for name in ("results/rope-s0.json", "results/sin-s0.json"):
        resumed = read_json(interrupted.path / name)
        expected = read_json(straight / name)
        for key in expected.keys() - {"sha256", "config", "machine", "trained_by", "run"}:
            assert resumed[key] == expected[key], key


@pytest.mark.slow
def test_sigterm_to_all_processes_of_a_study_lets_its_trainings_save(longer, tmp_path):
    """As batch systems send it, to the workers too."""
    study = tmp_path / "ablation-smoke"
    argv = [*longer, "--jobs", "2", "--log.runs", str(tmp_path)]
    program = f"from tiny_study import *\nplan.TIERS['smoke'] = TINY\nablate.main({argv})"
    process = start_python(program, new_session=True, PYTHONPATH=str(ROOT / "tests"))
    run = study / "rope-s0-25k"
    metrics = run / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text(encoding="utf-8").count("\n") > 5)
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=200)
    assert "stopped, and what was training has saved" in err
    steps = max(read_metric(run))
    assert RunDir.open(run).checkpoints.saved_step("last") == steps


@dataclass(frozen=True)
class Repeated:
    """A finished study whose report was removed, and whose command was given again."""

    path: Path
    printed: str
    """What the command printed to stdout."""
    open_client: Mock
    """In place of what starts workers."""
    format_estimate: Mock
    """In place of what writes how long the study trains."""


@pytest.fixture(scope="module")
def repeated(workdir, finished, tmp_path_factory) -> Repeated:
    """A copy of the finished study, so that the other tests keep theirs as it is."""
    study = tmp_path_factory.mktemp("repeated") / "ablation-smoke"
    shutil.copytree(finished, study)
    (study / "RESULTS.md").unlink()
    open_client = Mock()
    format_estimate = Mock(return_value="an hour")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(runner, "open_client", open_client)
        patch.setattr(runner, "format_estimate", format_estimate)
        argv = study_arguments(workdir, "--log.runs", str(study.parent))
        assert exit_code(ablate.main, *argv) == 0
    return Repeated(study, printed.getvalue(), open_client, format_estimate)


def test_a_finished_study_starts_no_workers(repeated):
    repeated.open_client.assert_not_called()


def test_a_finished_study_has_no_estimate_of_time(repeated):
    repeated.format_estimate.assert_not_called()


def test_a_finished_study_prints_the_path_of_its_report(repeated):
    assert repeated.printed == f"{repeated.path / 'RESULTS.md'}\n"


def test_a_finished_study_writes_its_report_again(repeated):
    assert (repeated.path / "RESULTS.md").exists()


def test_a_report_has_three_figures(repeated):
    assert len([*repeated.path.glob("fig_*.png")]) == 3


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

# A record has an `End` for each number of tokens at which the arms are compared, in `horizons`.


@pytest.mark.parametrize("arm", ["rope", "sin"])
def test_a_record_has_an_end_for_every_length(finished, arm):
    record = Study.load(finished).records_of(arm)[0]
    assert [end.tokens for end in record.horizons] == [2560, 5120]


@pytest.mark.parametrize("arm", ["rope", "sin"])
@pytest.mark.parametrize("index, name", [(0, "2.5k"), (1, "5k")])
def test_an_ends_loss_is_the_last_of_its_run(finished, arm, index, name):
    end = Study.load(finished).records_of(arm)[0].horizons[index]
    validated = read_metric(finished / f"{arm}-s0-{name}", "val/loss")
    assert end.loss == pytest.approx(validated[max(validated)], rel=1e-5)


@pytest.mark.parametrize("arm", ["rope", "sin"])
def test_the_loss_of_an_end_has_a_standard_error(finished, arm):
    shorter, longer = Study.load(finished).records_of(arm)[0].horizons
    assert 0 < shorter.se < 1
    assert 0 < longer.se < 1


def test_a_shift_costs_nothing_with_rope(finished):
    shorter, longer = Study.load(finished).records_of("rope")[0].horizons
    assert abs(shorter.shift) < 1e-4
    assert abs(longer.shift) < 1e-4


def test_a_record_follows_the_longest_run(finished):
    """From the first cooldown, at step 8, to the last, at step 16: four points to an octave."""
    trajectory = Study.load(finished).records_of("rope")[0].trajectory
    steps = [8, 10, 11, 13, 16]
    assert [point.tokens for point in trajectory] == [step * 256 for step in steps]


def test_the_loss_of_the_longest_run_falls(finished):
    trajectory = Study.load(finished).records_of("rope")[0].trajectory
    assert trajectory[0].loss > trajectory[-1].loss


def test_a_record_has_the_group_of_its_run(finished):
    config = read_json(finished / "results" / "rope-s0.json")["config"]
    assert config["log"]["group"] == "ablation-smoke/5k/rope"


def test_a_record_has_the_rate_of_its_run(finished):
    config = read_json(finished / "results" / "rope-s0.json")["config"]
    assert config["optim"]["lr"] == 2e-3


@pytest.mark.parametrize("onednn", [True, False])
def test_every_run_has_the_onednn_of_the_plan(workdir, tmp_path, onednn):
    """It is decided once. Each of two jobs trains a run of each of two lengths."""
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path)))
    decided = []
    for job in next_jobs(command, make_plan(onednn=onednn)):
        decided += [training.options["train.onednn"] for training in job.trainings]
    assert decided == [onednn] * 4


def test_a_cooldown_goes_from_the_full_rate_to_nothing(finished):
    short = read_metric(finished / "rope-s0-2.5k", "train/lr")
    long = read_metric(finished / "rope-s0-5k", "train/lr")
    assert (short[8], short[10]) == (2e-3, 0)
    assert (long[16], long[20]) == (2e-3, 0)


def test_only_the_last_checkpoints_of_reported_runs_stay(finished):
    assert [*finished.glob("*/previous")] == []
    assert [*finished.glob("*/best")] == []
    assert [*finished.glob("*/kept")] == []
    assert [*finished.glob("tune*/last")] == []
    assert len([*finished.glob("*-s0-*k/last")]) == 4


@pytest.fixture
def tuning(workdir, tmp_path):
    """A command, its plan, and a job that tunes sin at 0.001."""
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path)))
    training = Training(str(tmp_path / "tune"), options={"optim.lr": 1e-3, "seed": 1000})
    job = TuningJob(name="tune", trainings=[training], arm="sin")
    return command, make_plan(), job


def test_the_loss_of_a_rate_is_on_the_disk_at_once(tuning):
    command, stored, job = tuning
    runner.keep_result(command, stored, job, 2.5)
    assert read_json(command.path / "plan.json")["tuned"] == {
        "arms": {"sin": {"0.001": {"1000": 2.5}}}}


def test_a_rate_keeps_all_its_digits_in_the_plan(tuning):
    command, stored, job = tuning
    training = Training(job.trainings[0].folder, options={"optim.lr": 0.00123456789, "seed": 1000})
    runner.keep_result(command, stored, TuningJob(name="x", trainings=[training], arm="sin"), 2.5)
    assert plan.tuning_losses(stored) == {"sin": {0.00123456789: {1000: 2.5}}}


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
        job = RecordJob(name=name, trainings=[], arm="rope", max_spans=4, device="cpu")
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


def test_beside_a_study_the_recorded_arms_are_marked(workdir, finished, tmp_path, capsys):
    assert exit_code(ablate.main, *beside_arguments(workdir, finished, tmp_path, "--dry-run")) == 0
    arms = [line for line in capsys.readouterr().err.splitlines() if line.startswith("arm ")]
    marked = {line.split()[1]: "(recorded, not trained again)" in line for line in arms}
    assert marked == {"sin": True, "rope": True, "b": False}


@pytest.mark.parametrize("study", ["five", "qk-long"])
def test_a_recorded_arm_is_shown_as_its_runs_were(study, tmp_path, monkeypatch, capsys):
    """The plan of five has matched sinusoids, and tuning runs chose others."""
    monkeypatch.setattr(runner, "estimate_training", Mock(return_value=0.0))
    command = resolve(["--beside", str(ROOT / "studies" / study), "--arm=b=model.theta=500",
                       f"--log.runs={tmp_path}"])
    runner.print_plan(command, make_plan())
    arms = [line for line in capsys.readouterr().err.splitlines() if line.startswith("arm ")]
    shown = {line.split()[1]: [word for word in line.split() if word.startswith("--")]
             for line in arms}
    assert shown["sin"] == ["--model.position=sinusoidal", "--model.sinusoid=vaswani"]
    assert shown["rope"] == ["--model.position=rope"]


def test_beside_a_study_its_records_are_taken_over(finished, extended):
    assert Study.load(finished).records.items() <= extended.records.items()


def test_beside_a_study_its_arms_are_committed(extended):
    assert extended.plan.committed == ["sin", "rope"]


def test_beside_a_study_its_tuned_rates_are_taken_over(extended):
    rates = {arm: [*losses] for arm, losses in extended.plan.tuned.arms.items()}
    assert rates == {"sin": ["0.002"], "rope": ["0.002"]}


def test_beside_a_study_its_baseline_is_taken_over(extended):
    assert extended.baseline == "sin"


def test_beside_a_study_its_tier_is_taken_over(extended):
    assert extended.plan.tier == "smoke"


def test_beside_a_study_its_second_validation_text_is_taken_over(extended):
    assert extended.plan.second_val is True


def test_the_report_tells_committed_arms_from_new_ones(extended):
    page = (extended.path / "RESULTS.md").read_text(encoding="utf-8")
    assert "| rope, committed | 0.002 |" in page
    assert "| b, measured here | 0.004 |" in page


@pytest.mark.parametrize("extra, option, advice", [
    (["--model.dim", "64"], "--model.dim=64", ", or say it for a new arm, --arm NAME=OPTION=VALUE"),
    (["--train.batch_size", "9"], "--train.batch_size=9", ""),  # all arms have the same batches
    (["--tokens", "4k"], "--tokens", ""),
    (["--tier", "full"], "--tier", ""),
    (["--tier", "quick"], "--tier", ""),
    (["--config", "small.yaml"], "--config", ""),
    (["--no-tuning"], "--no-tuning", "")])
def test_beside_a_study_what_it_settles_is_refused(workdir, finished, tmp_path, capsys, extra,
                                                   option, advice):
    """With advice where there is some that can be followed."""
    argv = beside_arguments(workdir, finished, tmp_path, *extra)
    assert error_lines(capsys, ablate.main, *argv)[-1].endswith(
        f"{option} has no place beside {finished}, which settles it: leave it out{advice}")


def test_beside_a_study_other_tokens_are_refused(workdir, finished, tmp_path, capsys):
    argv = beside_arguments(workdir, finished, tmp_path, "--data.val_fraction", "0.2")
    assert "tokens differ" in error_lines(capsys, ablate.main, *argv)[-1]


@pytest.fixture
def copied_study(finished, tmp_path) -> Path:
    """The plan and the records of the finished study, for a test to change."""
    folder = tmp_path / "copied"
    shutil.copytree(finished / "results", folder / "results")
    shutil.copy(finished / "plan.json", folder)
    return folder


@pytest.fixture
def worse_study(copied_study) -> Path:
    """A study in which the loss of sin's shortest run is 0.011 higher, which is more than
    CALIBRATION_TOLERANCE."""
    record = read_sealed(copied_study / "results" / "sin-s0.json", "")
    record["horizons"][0]["loss"] += 0.011
    write_sealed(copied_study / "results" / "sin-s0.json", record)
    return copied_study


@pytest.fixture
def diverged_study(copied_study) -> Path:
    """A study in which sin diverged."""
    (copied_study / "results" / "sin-s0.json").unlink()
    stored = read_sealed(copied_study / "plan.json", "")
    write_sealed(copied_study / "plan.json", stored | {"diverged": ["sin-s0"]})
    return copied_study


def test_records_that_training_does_not_repeat_are_refused(workdir, worse_study, tmp_path, capsys):
    argv = beside_arguments(workdir, worse_study, tmp_path)
    error = error_lines(capsys, ablate_in_process, *argv)[-1]
    assert "records of the two do not compare" in error


def test_a_calibration_that_failed_is_not_in_the_plan(workdir, tmp_path):
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path)))
    stored = make_plan()
    job = CalibrationJob(name="calibration-rope-s0", trainings=[], committed=2.5)
    with pytest.raises(UserError, match=r"ends at 2\.6 here and at 2\.5 in"):
        runner.keep_result(command, stored, job, 2.6)
    assert stored.calibration is None


def test_a_calibration_that_diverged_is_said_to_have(workdir, tmp_path):
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path)))
    job = CalibrationJob(name="calibration-rope-s0", trainings=[], committed=2.5)
    with pytest.raises(UserError, match="-s0 diverged here, and ended at 2.5 in .*do not compare"):
        runner.keep_result(command, make_plan(), job, None)


def test_beside_a_study_its_diverged_runs_are_taken_over(
    workdir, diverged_study, tmp_path, monkeypatch
):
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    assert exit_code(ablate.main, *beside_arguments(workdir, diverged_study, tmp_path)) == 130
    assert plan.read_plan(tmp_path / "beside-copied").diverged == ["sin-s0"]


def test_a_study_beside_a_folder_that_is_no_name_has_one(
    workdir, copied_study, tmp_path, monkeypatch
):
    spaced = copied_study.rename(copied_study.with_name("my study"))
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    assert exit_code(ablate.main, *beside_arguments(workdir, spaced, tmp_path)) == 130
    assert (tmp_path / "beside-my-study").is_dir()


def test_beside_a_study_diverged_runs_of_other_seeds_are_left_out(
    workdir, diverged_study, tmp_path, monkeypatch
):
    stored = read_sealed(diverged_study / "plan.json", "")
    changes = {"seeds": [0, 1], "diverged": ["sin-s0", "sin-s1"]}
    write_sealed(diverged_study / "plan.json", stored | changes)
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    argv = beside_arguments(workdir, diverged_study, tmp_path, "--seeds", "1")  # one seed, 0
    assert exit_code(ablate.main, *argv) == 130
    assert plan.read_plan(tmp_path / "beside-copied").diverged == ["sin-s0"]


def test_beside_a_study_without_records_nothing_is_begun(workdir, copied_study, tmp_path, capsys):
    shutil.rmtree(copied_study / "results")
    argv = beside_arguments(workdir, copied_study, tmp_path)
    error = error_lines(capsys, ablate.main, *argv)[-1]
    assert f"{copied_study} has no record of the seeds [0] yet: finish that study first" in error
    assert not (tmp_path / "beside-copied").exists()


def test_beside_a_study_with_records_of_other_seeds_only_nothing_is_begun(
    workdir, diverged_study, tmp_path, capsys
):
    """The study has seeds 0 and 7, and one record, of seed 7."""
    record = diverged_study / "results" / "rope-s0.json"
    write_sealed(record.with_name("rope-s7.json"), read_sealed(record, "") | {"seed": 7})
    record.unlink()
    stored = read_sealed(diverged_study / "plan.json", "")
    write_sealed(diverged_study / "plan.json", stored | {"seeds": [0, 7]})
    argv = beside_arguments(workdir, diverged_study, tmp_path, "--seeds", "1")  # one seed, 0
    error = error_lines(capsys, ablate.main, *argv)[-1]
    assert f"{diverged_study} has no record of the seeds [0] yet: finish that study first" in error
    assert not (tmp_path / "beside-copied").exists()


def test_beside_a_study_without_second_validation_text_there_is_none(
    workdir, copied_study, tmp_path, monkeypatch
):
    stored = read_sealed(copied_study / "plan.json", "")
    write_sealed(copied_study / "plan.json", stored | {"second_val": False})
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    assert exit_code(ablate.main, *beside_arguments(workdir, copied_study, tmp_path)) == 130
    assert plan.read_plan(tmp_path / "beside-copied").second_val is False


def test_beside_a_study_another_baseline_can_be_given(workdir, copied_study, tmp_path):
    command = resolve(beside_arguments(workdir, copied_study, tmp_path, "--baseline", "rope"))
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
    workdir, diverged_study, tmp_path, monkeypatch
):
    stored = read_sealed(diverged_study / "plan.json", "")
    changes = {"seeds": [0, 1], "diverged": ["sin-s0", "sin-s1"]}
    write_sealed(diverged_study / "plan.json", stored | changes)
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    for seeds in ("1", "2"):
        argv = beside_arguments(workdir, diverged_study, tmp_path, "--seeds", seeds)
        assert exit_code(ablate.main, *argv) == 130
    assert plan.read_plan(tmp_path / "beside-copied").diverged == ["sin-s0", "sin-s1"]


def test_beside_a_study_later_diverged_runs_are_taken_over(
    workdir, copied_study, tmp_path, monkeypatch
):
    """But for a run of seed 9, which is not of this comparison. And not twice."""
    monkeypatch.setattr(runner, "run_missing", lambda train, command, plan: False)
    argv = beside_arguments(workdir, copied_study, tmp_path)
    assert exit_code(ablate.main, *argv) == 130
    for _ in range(2):
        stored = read_sealed(copied_study / "plan.json", "")
        write_sealed(copied_study / "plan.json", stored | {"diverged": ["rope-s0", "rope-s9"]})
        assert exit_code(ablate.main, *argv) == 130
        assert plan.read_plan(tmp_path / "beside-copied").diverged == ["rope-s0"]


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
    """The finished study, with a plan from before two options: `data.separator` and `model.theta`.
    """
    file = finished / "plan.json"
    stored = read_sealed(file, "")
    config = copy.deepcopy(stored["config"])
    for values in config.values():
        del values["data"]["separator"]
        del values["model"]["theta"]
    write_sealed(file, stored | {"config": config})
    yield finished
    write_sealed(file, stored)


def test_a_plan_of_an_older_version_gets_the_hash_of_its_text(workdir, finished):
    file = finished / "plan.json"
    stored = read_sealed(file, "")
    write_sealed(file, {name: value for name, value in stored.items() if name != "text_sha256"})
    opened = runner.open_plan(resolve(study_arguments(workdir)))
    write_sealed(file, stored)
    assert opened.text_sha256 == stored["text_sha256"]


def test_the_runs_of_a_new_plan_are_to_have_the_text_that_was_prepared(workdir, finished):
    command = resolve(study_arguments(workdir))
    training = plan_run(command, plan.read_plan(finished), "x", 9, {})
    run = RunDir.open(finished / "rope-s0-2.5k")
    assert training.text_sha256 == run.manifest["text"]["sha256"]


def test_a_study_goes_on_where_options_are_new(workdir, older):
    """The plan is from before two options."""
    assert exit_code(ablate_in_process, *study_arguments(workdir)) == 0


@pytest.mark.parametrize("option, value", [("data.separator", "##"), ("model.theta", "500")])
def test_a_new_option_that_is_set_makes_another_plan(workdir, older, option, value, capsys):
    error = error_lines(capsys, ablate.main, *study_arguments(workdir, f"--{option}={value}"))[-1]
    assert f"another plan (these differ: {option})" in error


def test_an_option_that_is_gone_is_named():
    planned = {"a": {"model": {"dim": 8, "gone": 1}}}
    wanted = {"a": {"model": {"dim": 8}}}
    assert runner.name_changed_options(planned, wanted) == ["model.gone"]


def test_no_option_of_an_arm_that_only_one_plan_has_is_named():
    planned = {"a": {"model": {"dim": 8}}, "b": {"model": {"dim": 9}}}
    wanted = {"a": {"model": {"dim": 8}}, "c": {"model": {"theta": 2}}}
    assert runner.name_changed_options(planned, wanted) == []


def test_a_study_that_another_process_works_on_is_refused(workdir, finished, capsys):
    with locked(finished, "busy", wait=False):
        error = error_lines(capsys, ablate.main, *study_arguments(workdir))[-1]
    assert "another ablate.py is working on" in error


def test_a_study_that_another_process_works_on_can_be_planned(workdir, finished, capsys):
    with locked(finished, "busy", wait=False):
        assert exit_code(ablate.main, *study_arguments(workdir, "--dry-run")) == 0
    assert "plan.json: going on" in capsys.readouterr().err


def test_a_dry_run_takes_no_lock(workdir, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "ngram_losses", lambda *ids: [3.0, 2.0, 1.0])
    monkeypatch.setattr(runner, "locked", lambda *_, **options: pytest.fail("took a lock"))
    argv = study_arguments(workdir, "--log.runs", str(tmp_path / "runs"), "--dry-run")
    assert exit_code(ablate.main, *argv) == 0


def test_a_dry_run_makes_no_folder(workdir, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "ngram_losses", lambda *ids: [3.0, 2.0, 1.0])
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
    """TINY in tiny_study.py tunes on 9 * 256 tokens, which are 2.25k."""
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


@pytest.fixture
def ngrams(monkeypatch) -> Mock:
    """The mock for what counts n-grams: of the ids for training, those held out, and the size of
    the vocabulary."""
    ngrams = Mock(return_value=[3.0, 2.0, 1.0])
    monkeypatch.setattr(runner, "ngram_losses", ngrams)
    return ngrams


def test_ngrams_are_counted_on_the_text_for_training(workdir, ngrams):
    """It has nine times as much text as the tenth that is held out, and so about nine times as many
    tokens."""
    assert exit_code(ablate.main, *study_arguments(workdir, "--name", "new", "--dry-run")) == 0
    train, held_out, _ = ngrams.call_args.args
    assert 8 < len(train) / len(held_out) < 10


def test_ngrams_are_counted_with_the_size_of_the_vocabulary(workdir, ngrams):
    assert exit_code(ablate.main, *study_arguments(workdir, "--name", "new", "--dry-run")) == 0
    assert ngrams.call_args.args[2] == 300


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
    used = []

    def matmul_rates(device, model, n_tokens, training, dtypes):
        used.append(kernels.uses_onednn())
        return [1e9]

    monkeypatch.setattr(runner, "matmul_rates", matmul_rates)
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path)))
    runner.estimate_training(command, make_plan(onednn=onednn))
    assert used == [onednn, onednn]  # for each of two arms


def test_a_card_of_another_machine_has_no_estimate(workdir, tmp_path, monkeypatch):
    estimate_training = Mock(return_value=3600.0)
    monkeypatch.setattr(runner, "estimate_training", estimate_training)
    command = resolve(study_arguments(workdir, "--log.runs", str(tmp_path), "--train.device=cuda",
                                      "--scheduler=tcp://far:8786"))
    runner.print_plan(command, make_plan())
    estimate_training.assert_not_called()


def test_beside_a_study_that_was_grown_the_plan_says_so(workdir, grown, tmp_path):
    command = resolve(beside_arguments(workdir, grown, tmp_path), "")
    assert runner.open_plan(command).committed_grown_from == [1]


def test_arms_are_added_beside_a_study(workdir, finished, capsys):
    argv = [*study_arguments(workdir), "--arms", "rope,sin,alibi"]
    error = error_lines(capsys, ablate.main, *argv)[-1]
    assert (f"to compare alibi with its records, train them beside it, in a study of their own: "
            f"python {find_script('ablate.py')} --beside {finished} --arms alibi") in error


def test_an_arm_of_ones_own_is_added_beside_a_study(workdir, finished, capsys):
    argv = [*study_arguments(workdir), "--arms", "rope,sin", "--arm", "far=model.theta=500"]
    error = error_lines(capsys, ablate.main, *argv)[-1]
    assert f"--beside {finished} --arm far=model.theta=500" in error


def make_grown(path: Path, to: int) -> plan.Plan:
    """A study of one seed that was grown, without further records."""
    return plan.add_seeds(plan.read_plan(make_pair(path)), range(to), "python ablate.py")


def test_seeds_without_a_result_can_be_withdrawn(tmp_path):
    grown = make_grown(tmp_path / "grown", to=60)
    command = Mock(path=tmp_path / "grown", line="python ablate.py --seeds 1")
    withdrawn = runner.grow_plan(command, grown, [0])
    assert (withdrawn.seeds, withdrawn.grown_from) == ([0], None)


def test_withdrawn_seeds_leave_nothing_in_the_file(tmp_path):
    grown = make_grown(tmp_path / "grown", to=60)
    plan.write_plan(tmp_path / "grown", grown)
    command = Mock(path=tmp_path / "grown", line="python ablate.py --seeds 1")
    plan.write_plan(tmp_path / "grown", runner.grow_plan(command, grown, [0]))
    assert plan.read_plan(tmp_path / "grown").grown_from is None


def test_withdrawn_seeds_leave_no_diverged_run(tmp_path):
    """They were taken over from the study of --beside, and the report would go on listing them."""
    grown = make_grown(tmp_path / "grown", to=2)
    grown.diverged = ["rope-s0", "rope-s1"]
    assert plan.withdraw_seeds(grown, 1, "python ablate.py --seeds 1").diverged == ["rope-s0"]


def test_a_study_can_go_back_to_fewer_seeds_than_it_was_grown_to(tmp_path):
    grown = make_grown(tmp_path / "grown", to=60)
    command = Mock(path=tmp_path / "grown", line="python ablate.py --seeds 3")
    withdrawn = runner.grow_plan(command, grown, [0, 1, 2])
    assert (withdrawn.seeds, withdrawn.grown_from) == ([0, 1, 2], [1])


def test_a_seed_with_a_record_is_not_withdrawn(tmp_path):
    grown = make_grown(tmp_path / "grown", to=2)
    results = tmp_path / "grown" / "results"
    shutil.copy(results / "sin-s0.json", results / "sin-s1.json")
    assert not runner.can_withdraw(tmp_path / "grown", grown, [0])


def test_a_seed_that_diverged_is_not_withdrawn(tmp_path):
    grown = make_grown(tmp_path / "grown", to=2)
    grown.diverged = ["rope-s1"]
    assert not runner.can_withdraw(tmp_path / "grown", grown, [0])


def test_the_seeds_of_the_first_plan_are_not_withdrawn(tmp_path):
    planned = plan.read_plan(make_pair(tmp_path / "planned", seeds=2))
    assert not runner.can_withdraw(tmp_path / "planned", planned, [0])


def test_a_study_that_ignores_ctrl_c_goes_on():
    """As one that a script has started in the background."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with runner.holding_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, handler)


def test_committed_arms_may_have_another_encoding(made_up, capsys):
    change(made_up, "rope-s0", encoding_sha256=f"{KIND}:other")
    study = Study.load(made_up)
    study.plan.committed = ["rope"]
    runner.note_changed_encodings(study, seeds=[0, 1])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_wait_for_the_end_of_a_start(number):
    reached_the_end = False
    with pytest.raises(KeyboardInterrupt), runner.holding_interrupts():
        os.kill(os.getpid(), number)
        reached_the_end = True
    assert reached_the_end


def test_sigterm_stops_a_study_as_ctrl_c_does(workdir, tmp_path, monkeypatch, capsys):
    """The second one, which a scheduler may send, does nothing."""
    def run_jobs(*arguments):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGTERM)
        return False

    monkeypatch.setattr(runner, "open_client", Mock())
    monkeypatch.setattr(runner, "run_jobs", run_jobs)
    handler = signal.getsignal(signal.SIGTERM)
    assert exit_code(ablate.main, *study_arguments(workdir, "--log.runs", str(tmp_path))) == 130
    assert "stopped, and what was training has saved. To go on: python" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_study_that_is_interrupted_at_its_start_says_how_to_go_on(workdir, monkeypatch, capsys):
    monkeypatch.setattr(runner, "open_client", Mock(side_effect=KeyboardInterrupt))
    argv = study_arguments(workdir, "--name", "interrupted")
    assert exit_code(ablate.main, *argv) == 130
    assert "stopped, and what was training has saved. To go on: python " in capsys.readouterr().err


def test_a_study_that_goes_on_with_another_encoding_says_so(made_up, capsys):
    change(made_up, "rope-s0", encoding_sha256=f"{KIND}:other")
    runner.note_changed_encodings(Study.load(made_up), seeds=[0, 1])
    assert capsys.readouterr().err == (
        "note: the code of model.position rope is not that of the first seeds of rope, so that "
        "further ones are of another encoding: undo the change, or give the new one another name\n")


def test_a_study_that_goes_on_with_its_encodings_is_silent(made_up, capsys):
    change(made_up, "rope-s0", encoding_sha256=hash_encoding("rope"))
    runner.note_changed_encodings(Study.load(made_up), seeds=[0, 1])
    assert capsys.readouterr().err == ""


def test_a_finished_arm_may_have_another_encoding(made_up, capsys):
    change(made_up, "rope-s0", encoding_sha256=f"{KIND}:other")
    runner.note_changed_encodings(Study.load(made_up), seeds=[0])
    assert capsys.readouterr().err == ""
