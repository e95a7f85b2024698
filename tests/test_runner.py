"""A whole study of the smallest size: stopped, continued, a worker killed, measured, reported."""

import math
import os
import shutil
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from conftest import ROOT, load, points, refusal, run, start, wait_for

import ablate
from ablation import jobs, plan, report, runner
from ablation.jobs import count_saved_steps, do_job, has_diverged, train_run
from ablation.options import resolve
from ablation.runner import keep_result, name_length, plan_training
from ablation.study import Study
from errors import UserError
from files import locked, read_json, write_sealed
from gyre.rundir import RunDir

N_WORDS = 9000  # of `world`: enough for rows of eight times the training length
# So short that tests are short, and tuned all the same.
TINY = replace(plan.TIERS["smoke"], arms=("sin", "rope"), grid=(2e-3,), tuning_tokens=9 * 256,
               horizons=(2560, 25600))


@pytest.fixture(scope="module", autouse=True)
def tiny_tier():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plan.TIERS, "smoke", TINY)
        yield


def arguments(world: Path, *extra: str) -> list[str]:
    return ["--tier", "smoke", f"--data.files={world / 'text.txt'}", f"--log.runs={world / 'runs'}",
            f"--data.prepared={world / 'prepared'}", "--data.vocab_size=300", "--train.device=cpu",
            "--data.val_fraction=0.1", "--log.wandb=disabled", *extra]


def run_serially(command, plan, client, jobs) -> bool:
    """`run_jobs` without Dask."""
    for job in jobs:
        keep_result(command, plan, job, do_job(str(command.path), job))
    return True


def in_process(argv: list[str]) -> None:
    """A study without Dask that draws nothing: the report has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "open_client", lambda *options: None)
        patch.setattr(runner, "run_jobs", run_serially)
        patch.setattr(report.plots, "draw", lambda study: {})
        ablate.main(argv)


@pytest.fixture(scope="module")
def finished(world) -> Path:
    assert run(in_process, *arguments(world)) == 0
    return world / "runs" / "ablation-smoke"


@pytest.mark.slow
def test_a_killed_worker_and_ctrl_c_cost_nothing(world, finished, tmp_path):
    """Another worker resumes the training, Ctrl-C lets it save, and the same command goes on to the
    records of a quiet study."""
    study, extra = tmp_path / "ablation-smoke", ("--jobs", "2", "--log.runs", str(tmp_path))
    argv = arguments(world, *extra)
    process = start(f"from test_runner import *\nplan.TIERS['smoke'] = TINY\nablate.main({argv})",
                    new_session=True, PYTHONPATH=str(ROOT / "tests"))
    log = study / "logs" / "rope-s0.log"
    wait_for((study / "rope-s0-25k" / "last").exists)
    for worker in psutil.Process(process.pid).children(recursive=True):
        if str(log) in [file.path for file in worker.open_files()]:
            worker.kill()
    wait_for(lambda: "--resume" in log.read_text(encoding="utf-8"))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = process.communicate(timeout=200)
    again = subprocess.list2cmdline(["python", "ablate.py", *argv])
    assert process.returncode == 130 and not out and f"To go on: {again}" in err, err
    assert run(in_process, *argv) == 0
    for name in ("results/rope-s0.json", "results/sin-s0.json"):
        resumed, straight = read_json(study / name), read_json(finished / name)
        for key in straight.keys() - {"sha256", "config", "machine", "trained_by", "run"}:
            assert resumed[key] == straight[key], key


@pytest.mark.slow
def test_a_stopped_study_does_not_stop_the_next_one_of_a_scheduler(world, tmp_path, capsys):
    """The workers of a scheduler live on, and nothing in them remembers."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://",
                      host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        study, scheduler = tmp_path / "ablation-smoke", cluster.scheduler_address
        argv = arguments(world, "--scheduler", scheduler, "--log.runs", str(tmp_path))

        def interrupt() -> None:
            wait_for((study / "sin-s0-25k" / "last").exists)
            os.kill(os.getpid(), signal.SIGINT)

        nowhere = ["nowhere" if word == scheduler else word for word in argv]
        assert "missing port" in refusal(capsys, ablate.main, *nowhere)[-1]
        threading.Thread(target=interrupt).start()
        assert run(ablate.main, *argv) == 130
        assert 0 < count_saved_steps(study / "sin-s0-25k") < 100
        assert not (study / "rope-s0-25k").exists()  # its job waited, and was cancelled
        assert run(ablate.main, *argv) == 0


def test_a_finished_study_writes_its_report_again_and_no_more(world, finished, capsys, monkeypatch):
    assert not [*finished.glob("*/kept"), *finished.glob("tune*/last")]  # free to go
    monkeypatch.setattr(runner, "open_client", lambda *options: pytest.fail("started workers"))
    (finished / "RESULTS.md").unlink()
    assert run(ablate.main, *arguments(world)) == 0
    assert capsys.readouterr().out == f"{finished / 'RESULTS.md'}\n"
    assert (finished / "RESULTS.md").exists() and len([*finished.glob("fig_*.png")]) == 3


def test_wandb_gets_a_report_once(world, tmp_path, monkeypatch):
    """The same command writes it again, and wandb has it already. Interrupted, it writes none."""
    study, sent = tmp_path / "ablation-smoke", Mock()
    monkeypatch.setattr(report, "write_report", lambda path: (path / "RESULTS.md").touch())
    monkeypatch.setattr(report, "mirror_in_wandb", sent)
    monkeypatch.setattr(runner, "run_missing", lambda command, plan: True)
    for _ in range(2):
        argv = arguments(world, "--log.runs", str(tmp_path), "--log.wandb", "offline")
        assert run(ablate.main, *argv) == 0
        sent.assert_called_once()
    assert sent.call_args.args[0] == study
    monkeypatch.setattr(runner, "run_missing", lambda command, plan: False)
    (study / "RESULTS.md").unlink()
    assert run(ablate.main, *argv) == 130 and not (study / "RESULTS.md").exists()


def test_records_are_of_every_length(finished):
    decided = read_json(finished / "plan.json")["onednn"]  # measured once
    for arm in ("rope", "sin"):
        record = read_json(finished / "results" / f"{arm}-s0.json")
        group, onednn = record["config"]["log"]["group"], record["config"]["train"]["onednn"]
        assert (group, onednn, record["lr"]) == (f"ablation-smoke/25k/{arm}", decided, 2e-3)
        assert [end["tokens"] for end in record["horizons"]] == [2560, 25600]
        for end, name in zip(record["horizons"], ("2.5k", "25k"), strict=True):
            validated = points(finished / f"{arm}-s0-{name}", "val/loss")
            assert end["loss"] == pytest.approx(validated[max(validated)], rel=1e-5)
            assert (finished / f"{arm}-s0-{name}" / "last").exists()
            assert 0 < end["se"] < 1 and (arm == "sin" or abs(end["shift"]) < 1e-4)
        steps = plan.kept_steps([8, 80], 4)
        assert [point["tokens"] for point in record["trajectory"]] == [s * 256 for s in steps]
        assert record["trajectory"][0]["loss"] > record["trajectory"][-1]["loss"]
    short, long = (points(finished / f"rope-s0-{name}", "train/lr") for name in ("2.5k", "25k"))
    assert (short[8], short[10]) == (long[80], long[100]) == (2e-3, 0)  # the cooldown is between


def test_a_new_arm_beside_the_records_of_a_study(world, finished, tmp_path, capsys):
    """It alone is trained, where a committed run that is trained again ends as it did."""
    arm = ("--beside", str(finished), "--arm", "b=model.theta=50,optim.lr=4e-3")
    argv = arguments(world, *arm, "--log.runs", str(tmp_path))[2:]  # without the tier
    assert run(in_process, *argv) == 0
    study = Study.load(tmp_path / f"beside-{finished.name}")
    assert {name.name for name in study.path.iterdir() if name.is_dir()} == {
        "logs", "results", "calibration-sin-s0", "b-s0-2.5k", "b-s0-25k"}
    assert study.plan["calibration"]["here"] == pytest.approx(
        study.plan["calibration"]["committed"], rel=1e-6)
    assert Study.load(finished).records.items() <= study.records.items()
    assert Study.load(finished).plan["tuned"] == study.plan["tuned"] and study.plan["second_val"]
    assert (study.baseline, study.plan["tier"]) == ("sin", "smoke")
    page = (study.path / "RESULTS.md").read_text(encoding="utf-8")
    assert "| rope, committed | 0.002 |" in page and "| b, measured here | 0.004 |" in page
    for extra, words in (
        (["--train.batch_size", "9"], "--train.batch_size=9 has no place beside"),
        (["--tokens", "4k"], "--tokens=4k has no"), (["--tier", "full"], "--tier=full has no"),
        (["--no-tuning"], "--no_tuning=true"), (["--data.val_fraction", "0.2"], "tokens differ")):
        assert words in refusal(capsys, ablate.main, *argv, "--name", "other", *extra)[-1]
    shutil.copytree(finished / "results", (far := tmp_path / "far") / "results")
    (far / "results" / "sin-s0.json").unlink()
    write_sealed(far / "plan.json", plan.read_plan(finished) | {"diverged": ["sin-s0"]})
    record = Study.load(far).runs("rope")[0]
    record["horizons"][0]["loss"] += 0.011
    write_sealed(far / "results" / "rope-s0.json", record)
    argv = (*argv, "--beside", str(far))
    assert resolve([*argv, "--baseline=rope"]).baseline == "rope"
    assert "records of the two do not compare" in refusal(capsys, in_process, *argv)[-1]
    assert plan.read_plan(tmp_path / "beside-far")["diverged"] == ["sin-s0"]


def test_folders_that_are_refused_stay_as_they_are(world, finished, capsys):
    """Those of another plan, of another ablate.py, and of something else."""
    error = refusal(capsys, ablate.main, *arguments(world, "--model.n_layers", "1"))[-1]
    assert "another plan (these differ: config)" in error and str(finished) in error
    with locked(finished, "busy", wait=False):
        error = refusal(capsys, ablate.main, *arguments(world))[-1]
    assert "another ablate.py is working on" in error
    (mine := world / "runs" / "mine").mkdir(parents=True)
    (mine / "notes.txt").touch()
    error = refusal(capsys, ablate.main, *arguments(world, "--name", "mine"))[-1]
    assert "is not a study" in error and [*mine.iterdir()] == [mine / "notes.txt"]


@pytest.mark.parametrize("extra, words", [
    *((["--" + word], f"--{word.split('=')[0]} has no effect") for word in (
        "train.steps=300", "seed=3", "train.keep=[4]", "train.onednn=true", "optim.lr=5e-3",
        "data.second_val=true")),
    (["--train.dtype", "auto"], "train.dtype auto could be another for each run"),
    (["--optim.schedule", "cosine"], "optim.schedule must be wsd, not cosine"),
    (["--arm", "b=modle.theta=5"], "there is no option --modle.theta"),
    *((["--arm", "b=" + word], f"--arm b: {word.split('=')[0]} must be the same") for word in (
        "data.vocab_size=301", "optim.cooldown=0.5", "train.batch_size=9", "name=x")),
    (["--arm", "b=optim.warmup_steps=99"], "of cooldown after 99 of warm-up"),
    (["--optim.optimizer", "muon", "--optim.muon_lr", "1e-2"], "--optim.muon_lr has no effect"),
    (["--jobs", "0"], "error: jobs must be at least 1"), (["--seeds", "0"], "error: seeds must"),
    *((["--tokens", text], "choose more --tokens") for text in ("1k,8k", "1")),
    (["--name", "a/b"], "run name 'a/b' must be"), (["--data.seq_len", "31"], "seq_len 31 is odd"),
    *((["--tokens", text], "lengths in ascending") for text in ("8k,4k", "8k,8k", "0,8k", "8k,1m")),
])
def test_bad_input_is_one_line_before_any_work(world, capsys, monkeypatch, extra, words):
    monkeypatch.setattr(runner, "open_client", lambda *options: pytest.fail("started workers"))
    *_, error = refusal(capsys, ablate.main, *arguments(world, "--name", "bad", *extra))
    assert words in error and not (world / "runs" / "bad").exists()


def planned(**changes) -> dict:
    return {"tier": "smoke", "seeds": [0], "steps": {"horizons": [10, 100], "tuning": 9},
            "grid": [], "onednn": True, "tuned": {"arms": {}}, "step_tokens": 256, **changes}


def test_the_tier_gives_way_to_the_command_line_and_that_to_the_arms(world):
    """In our own configurations, and in the commands of runs, where what comes last wins."""
    argv = arguments(world, "--model.dim", "64", "--arm", "big=model.n_layers=3,optim.lr=5e-3")
    command = resolve(argv)
    training = plan_training(command, planned(), "x", 9, command.arms["big"])
    assert load(*training["argv"]).train.onednn is True
    for config in (command.arm_configs["big"], load(*training["argv"])):
        assert (config.model.dim, config.model.n_layers, config.model.n_heads) == (64, 3, 2)
        assert config.optim.lr == 5e-3
    tier = resolve([*argv, "--seeds", "3", "--tokens", "5k,1M"]).tier
    assert tier.seeds == 3 and tier.horizons == (5120, 2**20) and tier.grid
    command = resolve(arguments(world, "--no-tuning", "--optim.lr", "3e-3"))
    assert command.tier.grid == () and command.tier.tuning_tokens == 0
    assert {config.optim.lr for config in command.arm_configs.values()} == {3e-3}


def test_rates_are_tuned_no_longer_than_the_longest_run(world, capsys, monkeypatch):
    monkeypatch.setattr(runner, "ngram_losses", counted := Mock())
    for tokens, length in (("2k", "2k"), ("2k,4k,4100", "2.25k")):
        argv = arguments(world, "--tokens", tokens, "--name", "new", "--dry-run")
        assert run(ablate.main, *argv) == 0
        err, (train, held_out, size) = capsys.readouterr().err, counted.call_args.args
        assert f"optim.lr [0.002], {length} tokens" in err and len(train) > 8 * len(held_out)
        assert f"for {tokens[:5].replace(',', ', ')} tokens" in err and size == 300


def test_a_dry_run_says_how_long_the_study_trains(world, capsys, monkeypatch):
    """Two arms of one seed: 100 steps of the longest run, 2 of the cooldown of the shorter one, and
    9 of tuning."""
    monkeypatch.setattr(runner, "matmul_rates", lambda *_, training, dtypes: [1e6])
    monkeypatch.setattr(runner, "estimate_seconds", lambda model, tokens, rate: tokens)
    assert run(ablate.main, *arguments(world, "--name", "dry", "--dry-run")) == 0
    assert 2 * 256 * (100 + 2 + 9) == 56832
    assert "time    about 16 hours of training, if this machine" in capsys.readouterr().err


def test_a_plan_is_the_same_wherever_its_files_are_and_whatever_does_the_work(world):
    def decisive(*extra: str) -> dict:
        return runner.select_decisive(resolve(arguments(world, *extra)).config)

    for extra in ("data.prepared=x", "train.device=auto", "name=x", "log.runs=x", "log.wandb=auto"):
        assert decisive(f"--{extra}") == decisive(), extra
    for extra in ("data.vocab_size=301", "train.compile=true", "optim.beta2=0.9", "model.dim=24"):
        assert decisive(f"--{extra}") != decisive(), extra


def test_a_plan_from_before_the_separator_still_fits(world):
    def data(*extra):
        return runner.select_decisive(resolve(arguments(world, *extra)).config)["data"]

    assert "separator" not in data() and data("--data.separator=x")["separator"] == "x"


def test_jobs_come_seed_by_seed_and_without_what_is_done(world, tmp_path):
    command = resolve(arguments(world, "--arms", "nope,sin", "--log.runs", str(tmp_path)))
    lengths = {"horizons": [10, 50, 100], "tuning": 9}
    stored = planned(seeds=[0, 1, 2], diverged=["sin-s2"], steps=lengths)
    write_sealed(command.path / "results" / "sin-s1.json", {})
    jobs = runner.next_jobs(command, stored)
    assert [job["name"] for job in jobs] == ["nope-s0", "sin-s0", "nope-s1", "nope-s2"]
    trunk, *branches = jobs[2]["trainings"]
    for branch, at in zip(branches, ("40", "8"), strict=True):
        assert branch["argv"][:4] == ["--branch-from", trunk["run"], "--at", at]
    config = load(*trunk["argv"])
    assert (config.seed, config.train.steps, config.train.keep[-1]) == (1, 100, 80)
    stored = planned(grid=[2e-3, 4e-3], tuning_seeds=[1000, 1001], second_val=True)
    best = {"none": 4e-3, "sinusoidal": 1e-3}
    while (jobs := runner.next_jobs(command, stored))[0]["kind"] == "tuning":
        for job in jobs:
            config = load(*job["trainings"][0]["argv"])
            assert (config.seed, config.train.steps) == (job["seed"], 9) and config.data.second_val
            keep_result(command, stored, job, abs(config.optim.lr - best[config.model.position]))
    assert read_json(command.path / "plan.json")["tuned"] == stored["tuned"]  # on the disk at once
    configs = [load(*job["trainings"][0]["argv"]) for job in jobs]  # at the rates that were best
    assert {c.model.position: c.optim.lr for c in configs if not c.data.second_val} == best
    assert [name_length(stored, steps) for steps in (1, 10, 4096)] == ["256", "2.5k", "1M"]


def test_a_job_that_fails_is_an_error_and_no_interruption(monkeypatch):
    monkeypatch.setattr("distributed.wait", lambda pending, *_: (pending, set()))
    client = Mock(**{"submit.return_value.exception.return_value": OSError("disk\nfull")})
    with pytest.raises(UserError, match="^disk$"):
        runner.run_jobs(Mock(), {}, client, [{"name": "a"}])


@pytest.mark.slow
def test_a_run_that_diverged_is_told_from_one_that_failed_or_was_stopped(world, tmp_path):
    def training(name: str, *extra: str) -> dict:
        argv = [*arguments(world)[2:], "--train.sample_tokens", "0", "--optim.warmup_steps", "1",
                "--name", name, "--train.steps", "30", "--model.dim", "32", *extra]
        return {"run": str(world / "runs" / name), "steps": 30, "argv": argv}

    lost, fine = training("lost-s0-1k", "--optim.lr", "1e30"), training("fine")
    job = {"kind": "results", "name": "lost-s0", "trainings": [lost]}
    assert do_job(str(tmp_path), job) is None
    lost["argv"] = []  # it would diverge again, and is not begun
    assert do_job(str(tmp_path), job) is None
    command, stored = resolve(arguments(world, "--log.runs", str(tmp_path))), planned()
    keep_result(command, stored, job, None)
    assert plan.read_plan(command.path)["diverged"] == stored["diverged"] == ["lost-s0"]
    assert train_run(fine)
    for step in (31, 32):  # two steps that were skipped, and then Ctrl-C
        RunDir.open(fine["run"]).log({"step": step, "train/grad_norm": math.nan})
    assert not has_diverged(Path(fine["run"]))
    with pytest.raises(UserError, match="bad failed"):
        train_run(training("bad", "--model.dim", "33"))
    with pytest.raises(UserError, match="has lost the checkpoints that it kept: remove"):
        jobs.measure_runs({}, RunDir.open(fine["run"]))


def test_a_rate_is_judged_by_the_loss_at_the_end(new_run, monkeypatch, tmp_path):
    run = new_run("tuned")
    for step, loss in ((1, 3.0), (2, 2.0)):
        run.log({"step": step, "val/loss": loss})
    monkeypatch.setattr(jobs, "train_run", lambda training: True)
    job = {"kind": "tuning", "name": "tune", "trainings": [{"run": str(run.path)}]}
    assert do_job(str(tmp_path), job) == 2.0


def test_a_training_begins_goes_on_or_is_left_as_it_is(new_run, monkeypatch):
    """It goes on from its last checkpoint, and begins anew without one."""
    run, called = new_run("live"), []
    monkeypatch.setattr(jobs.runpy, "run_path", lambda file: {"main": called.append})
    training = {"run": str(run.path), "steps": 3, "argv": ["--name", "live"]}
    assert train_run(training) and not run.path.exists()
    for step, diverged in ((2, False), (3, False), (2, True)):
        run = new_run("live")
        run.checkpoints.save("last", lambda folder: None, {"progress": {"step": step}})
        if diverged:
            run.log({"step": step, "diverged": 1})
        assert train_run(training) is not diverged
        shutil.rmtree(run.path)
    assert called == [training["argv"], ["--resume", str(run.path)]]


@pytest.mark.slow
def test_a_run_that_another_process_trains_is_not_removed(new_run, monkeypatch):
    """It has no checkpoint yet, and the scheduler has lost its worker."""
    live = new_run("live").path
    monkeypatch.setattr(jobs.runpy, "run_path", lambda file: {"main": lambda argv: None})
    waiting = threading.Thread(target=train_run, args=[{"run": str(live), "steps": 3, "argv": []}])
    with locked(live, "busy", wait=False):
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive() and live.exists()
    waiting.join()
    assert not live.exists()  # nobody trains it now, and it starts anew
