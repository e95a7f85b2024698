"""A whole study, smallest size: stopped, continued, measured, reported; and its processes."""

import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, load, points, refusal, run, start

import ablate
import train
from ablation import plan, report
from ablation.plan import ARMS
from ablation.report import left_out
from ablation.runner import (
    Job,
    Pool,
    Runner,
    has_diverged,
    measure_run,
    python,
    steps_saved,
    tokens_trained,
)
from ablation.study import Study
from data.prepare import prepare
from errors import UserError
from files import read_json, write_json
from gyre.rundir import RunDir, locked_run

N_WORDS = 9000  # of `world`: enough for rows of eight times the training length
# So short that tests are short, and tuned all the same.
TINY = replace(plan.TIERS["smoke"], grid=(2e-3,), tuning_tokens=9 * 256,
               horizons=(2560, 25600), treatments=("sin", "sin_vaswani"),
               treatment_tokens=8 * 256)


@pytest.fixture(scope="module", autouse=True)
def tiny_tier():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plan.TIERS, "smoke", TINY)
        yield


def arguments(world: Path, *extra: str) -> list[str]:
    return [
        "--tier", "smoke", "--data.files", str(world / "text.txt"), "--data.vocab_size", "300",
        "--data.prepared", str(world / "prepared"), "--data.val_fraction", "0.1",
        "--train.device", "cpu",
        "--log.runs", str(world / "runs"), "--log.wandb", "disabled", *extra,
    ]


@pytest.fixture(scope="module")
def stopped(world) -> tuple[Path, subprocess.CompletedProcess]:
    """A study that got Ctrl-C while its first long run trained."""
    study = world / "runs" / "ablation-smoke"
    argv = arguments(world, "--jobs", "1")
    code = f"from test_runner import *\nplan.TIERS['smoke'] = TINY\nablate.main({argv!r})"
    process = start(code, cwd=world, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")
    metrics = study / "rope-s0-25k" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > 3000):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return study, subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.slow
def test_ctrl_c_stops_the_runs_which_save_and_says_how_to_go_on(world, stopped):
    study, process = stopped
    assert process.returncode == 130, process.stderr
    assert process.stdout == ""
    again = " ".join(["python ablate.py", *arguments(world, "--jobs", "1")])
    assert f"To go on: {again}" in process.stderr
    assert 0 < steps_saved(study / "rope-s0-25k") < 100
    stored = read_json(study / "plan.json")
    assert stored["steps"] == {"horizons": [10, 100], "tuning": 9, "treatments": 8}
    assert stored["minutes"] > 0


@pytest.fixture(scope="module")
def finished(world, stopped) -> Path:
    """The same command again, with another number of processes, which is no other plan."""
    study, _ = stopped
    assert run(ablate.main, *arguments(world, "--jobs", "2")) == 0
    return study


@pytest.mark.slow
def test_a_stopped_study_goes_on_where_it_was(finished):
    log = (finished / "logs" / "rope-s0.log").read_text(encoding="utf-8")
    assert "--resume" in log
    for name, steps in (("rope-s0-25k", 100), ("sin-s0-25k", 100), ("sin-s0-2.5k", 10)):
        assert list(points(finished / name)) == list(range(1, steps + 1))
        assert not (finished / name / "kept").exists()  # measured, and so free to go
    assert {p.name for p in (finished / "results").iterdir()} == {"rope-s0.json", "sin-s0.json"}
    assert len(list((finished / "probes").iterdir())) == 4
    assert (finished / "report.html").stat().st_size and (finished / "RESULTS.md").stat().st_size


@pytest.mark.slow
def test_every_arm_has_the_rate_that_was_best_and_the_sinusoid_the_best_treatment(finished):
    """The grid has one rate here; how rates are chosen is in test_plan.py."""
    stored = read_json(finished / "plan.json")
    best = {arm: min(of["1000"] for of in rates.values())
            for arm, rates in stored["tuned"]["treatments"].items()}
    assert stored["treatment"] == min(best, key=best.__getitem__)
    for arm in ("rope", "sin"):
        record = read_json(finished / "results" / f"{arm}-s0.json")
        assert record["lr"] == 2e-3 and list(stored["tuned"]["arms"][arm]["0.002"]) == ["1000"]
    overlay = ARMS[stored["treatment"]]
    assert record["config"]["model"]["sinusoid"] == overlay.get("model.sinusoid", "matched")


@pytest.mark.slow
def test_records_are_of_the_same_start_and_of_every_length(finished):
    rope, sin = (read_json(finished / "results" / f"{arm}-s0.json") for arm in ("rope", "sin"))
    for key in ("batches_sha256", "data_sha256", "tokenizer_sha256"):
        assert rope[key] == sin[key], key
    assert rope["rope_scaling"] and sin["rope_scaling"] is None
    assert rope["config"]["log"]["group"] == "ablation-smoke/25k/rope"
    for arm, record in (("rope", rope), ("sin", sin)):
        assert [end["tokens"] for end in record["horizons"]] == [2560, 25600]
        for end, name in zip(record["horizons"], ("2.5k", "25k"), strict=True):
            validated = points(finished / f"{arm}-s0-{name}", "val/loss")
            assert end["loss"] == pytest.approx(validated[max(validated)], rel=1e-5)
            assert 0 < end["se"] < 1
        steps = plan.kept_steps([10, 100], 0.2, 4)
        assert [point["tokens"] for point in record["trajectory"]] == [s * 256 for s in steps]
        assert record["trajectory"][0]["loss"] > record["trajectory"][-1]["loss"]
        assert len(record["trajectory"][0]["previous"]) == 2  # layers
    assert all(abs(point["shift"]) < 1e-4 for point in rope["trajectory"])


@pytest.mark.slow
def test_a_finished_study_is_not_repeated_and_prints_its_report(
    world, finished, capsys, monkeypatch
):
    monkeypatch.setattr(Pool, "_start", lambda *a: pytest.fail("started a process"))
    mirrored = []
    monkeypatch.setattr(report, "mirror_in_wandb", lambda *a: mirrored.append(a) or True)
    for _ in range(2):
        capsys.readouterr()
        assert run(ablate.main, *arguments(world)) == 0
        assert capsys.readouterr().out == f"{finished / 'report.html'}\n"
    assert len(mirrored) == 1


@pytest.mark.slow
def test_the_records_alone_are_enough_to_go_on(world, finished, tmp_path, monkeypatch):
    """In another folder, without the runs that were measured."""
    there = tmp_path / "ablation-smoke"
    for name in ("results", "probes"):
        shutil.copytree(finished / name, there / name)
    write_json(there / "plan.json", read_json(finished / "plan.json"))
    monkeypatch.setattr(Pool, "_start", lambda *a: pytest.fail("started a process"))
    assert run(ablate.main, *arguments(world, "--log.runs", str(tmp_path))) == 0
    assert (there / "RESULTS.md").read_text(encoding="utf-8").count("\n") > 50


@pytest.mark.slow
def test_what_a_folder_refuses(world, finished, capsys):
    """Another plan, two of us at a time, and a study where there is something else."""
    (said,) = refusal(capsys, ablate.main, *arguments(world, "--model.n_layers", "1"))
    assert "another plan (config)" in said and "--name" in said and str(finished) in said
    (said,) = refusal(capsys, ablate.main, *arguments(world, "--tokens", "5k"))
    assert "another plan (lengths)" in said
    with Runner(arguments(world)).locked():
        (said,) = refusal(capsys, ablate.main, *arguments(world))
    assert "another ablate.py is working on" in said
    plan_file = finished / "plan.json"
    content = plan_file.read_text(encoding="utf-8")
    for damaged in (content[:99], content.replace('"smoke"', "7")):
        plan_file.write_text(damaged, encoding="utf-8")
        *_, said = refusal(capsys, ablate.main, *arguments(world))
        assert "plan.json is damaged" in said and "start another study with --name" in said
    plan_file.write_text(content, encoding="utf-8")
    (world / "runs" / "mine").mkdir(parents=True)
    (world / "runs" / "mine" / "notes.txt").write_text("x", encoding="utf-8")
    (said,) = refusal(capsys, ablate.main, *arguments(world, "--name", "mine"))
    assert "is not a study" in said
    assert [p.name for p in (world / "runs" / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("extra, words", [
    (["--arms", "rope,alibbi"], "did you mean alibi?"),
    (["--tier", "quik"], "did you mean quick?"),
    (["--seed", "3"], "seed 3 has no effect"),
    (["--train.steps", "300"], "train.steps 300 has no effect"),
    (["--optim.schedule", "cosine"], "optim.schedule must be wsd, not cosine"),
    (["--arm", "b=model.theta=1"], "model.theta must be above 1"),
    (["--arm", "b=modle.theta=5"], "did you mean --model.theta?"),
    (["--arm", "b=train.batch_size=4"], "--arm b: train.batch_size is the same in all arms"),
    (["--arm", "b=data.vocab_size=301"], "--arm b: data.vocab_size is the same in all arms"),
    (["--arm", "b=model.dim=33"], "arm b: "),
    (["--arm", "b=model.theta=5", "--arm", "b=model.theta=6"], "--arm: two arms have one name"),
    (["--optim.optimizer", "muon", "--optim.muon_lr", "1e-2"], "optim.muon_lr 0.01 would not be"),
    (["--optim.lr", "3e-3"], "optim.lr 0.003 has no effect"),
    (["--jobs", "0"], "--jobs must be at least 1"),
    (["--seeds", "0"], "--seeds must be at least 1"),
    (["--tokens", "4M,1M"], "--tokens 4M,1M must be lengths in ascending order"),
    (["--tokens", "4e6"], "--tokens 4e6 must be"),
    (["--budget-minutes", "nan"], "--budget-minutes must be above 0"),
    (["--modle.dim", "64"], "did you mean --model.dim?"),
    (["--name", "a/b"], "run name 'a/b' must be"),
])
def test_bad_input_is_one_line_before_any_work(world, capsys, extra, words):
    (said,) = refusal(capsys, ablate.main, *arguments(world, *extra))
    assert words in said


@pytest.mark.parametrize("extra, words", [
    (["--data.seq_len", "30"], "data.seq_len 30 is not divisible by 4"),
    (["--data.val_fraction", "0.005"], "the validation split has"),
])
def test_what_could_not_be_measured_is_not_trained(world, capsys, monkeypatch, extra, words):
    monkeypatch.setattr(Pool, "_start", lambda *a: pytest.fail("started a process"))
    *_, said = refusal(capsys, ablate.main, *arguments(world, "--name", "short", *extra))
    assert words in said and not (world / "runs" / "short").exists()


@pytest.mark.slow
def test_the_tier_gives_way_to_the_command_line_and_that_to_the_arms(world):
    """In our own configurations, and in the commands of runs, where what comes last wins."""
    argv = arguments(world, "--model.dim", "64", "--arm", "big=model.n_layers=3,optim.lr=5e-3")
    runner = Runner(argv)
    (command,) = runner._train({**runner.arms["big"], "name": "x"})
    for config in (runner.config_of["big"], load(*command[2:])):
        assert (config.model.dim, config.model.n_layers, config.model.n_heads) == (64, 3, 2)
        assert config.optim.lr == 5e-3
    assert runner.baseline == "sin" and runner.treatments == []
    runner = Runner([*argv, "--seeds", "3", "--tokens", "5k,1M"])
    assert runner.tier.seeds == 3 and runner.tier.horizons == (5120, 2**20)
    assert (runner.tier.treatments, runner.tier.treatment_tokens) == ((), 0)  # not in its plan


def test_a_study_without_tuning_runs_every_arm_at_one_rate(world, monkeypatch):
    argv = arguments(world, "--no-tuning", "--optim.lr", "3e-3")
    runner = Runner(argv)
    assert (runner.tier.grid, runner.tier.treatments, runner.treatments) == ((), (), [])
    assert {config.optim.lr for config in runner.config_of.values()} == {3e-3}
    runner = Runner([*argv, "--optim.optimizer", "muon", "--optim.muon_lr", "1e-2"])
    assert {config.optim.muon_lr for config in runner.config_of.values()} == {1e-2}
    monkeypatch.setitem(plan.TIERS, "smoke", replace(TINY, grid=()))
    with pytest.raises(UserError, match="--no-tuning has no effect: the smoke tier tunes nothing"):
        Runner(argv)


def test_lengths_that_are_asked_for_are_not_cut_to_a_budget_that_is_not(world):
    quick = ["--tier", "quick", *arguments(world)[2:]]
    assert Runner(quick).budget == 45
    assert Runner([*quick, "--tokens", "8M"]).budget is None
    assert Runner([*quick, "--tokens", "8M", "--budget-minutes", "30"]).budget == 30


def test_an_arm_that_diverges_at_every_rate_is_not_trained(world):
    runner = Runner(arguments(world, "--name", "lost"))
    lost = {"2e-3": {"1000": None}, "4e-3": {"1000": None}, "1e-3": {"1000": None}}
    runner.plan = {"grid": [2e-3], "tuning_seeds": [1000], "tuned": {"arms": {"rope": lost}}}
    pool = Pool(1, runner.path / "logs", 1)
    runner._tuning_jobs = lambda *a: []
    with pytest.raises(UserError, match="rope diverged at every learning rate from 0.001 to 0.004"):
        runner._tune(pool, "arms", ["rope"])


def test_a_record_frees_the_disk_of_what_was_measured(world):
    """Also where the process was killed between the two."""
    runner = Runner(arguments(world, "--name", "freed"))
    runner.plan = {"seeds": [0], "steps": {"horizons": [10, 100]}}
    for name in ("results", "rope-s0-25k/kept/3", "rope-s0-2.5k/previous", "rope-s0-25k/last"):
        (runner.path / name).mkdir(parents=True)
    (runner.path / "results" / "rope-s0.json").touch()
    assert runner._run_jobs(["rope"]) == []
    assert {path.name for path in runner.path.glob("rope*/*")} == {"last"}


# --- processes ------------------------------------------------------------------------------------


def job(name: str, code: str) -> Job:
    return Job(name, 1, [[sys.executable, "-c", code]])


def finish(logs: Path, *jobs: Job, at_once: int = 1) -> bool:
    return Pool(at_once, logs, 1).run([*jobs])


def test_a_failure_stops_the_others_and_shows_its_last_lines(tmp_path):
    mark = tmp_path / "stopped"
    patient = (
        "import signal, sys, time, pathlib\n"
        f"def end(*a): pathlib.Path({str(mark)!r}).touch(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('ready', flush=True); time.sleep(60)"
    )
    log = tmp_path / "patient.log"
    bad = (
        "import pathlib, sys, time\n"
        f"while 'ready\\n' not in pathlib.Path({str(log)!r}).read_text(): time.sleep(0.02)\n"
        "sys.exit('the disk is full')"
    )
    never = job("never", f"open({str(tmp_path / 'never')!r}, 'w')")
    with pytest.raises(UserError, match=r"bad failed \(exit 1\)[\s\S]*the disk is full"):
        finish(tmp_path, job("patient", patient), job("bad", bad), never, at_once=2)
    assert mark.exists() and not (tmp_path / "never").exists()


@pytest.mark.slow
def test_jobs_run_in_order_and_as_many_at_a_time_as_asked(tmp_path):
    events = tmp_path / "events"
    code = (
        "import os, time\n"
        f"def note(x): os.write(os.open({str(events)!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY),"
        " x.encode())\n"
        "note('+'); time.sleep(0.2); note('-')"
    )
    order = []

    def commands(name: str):
        yield [sys.executable, "-c", code]
        order.append(name)

    assert finish(tmp_path, *(Job(name, 1, commands(name)) for name in "0123"))
    assert order == ["0", "1", "2", "3"] and events.read_text(encoding="utf-8") == "+-" * 4


def test_a_process_has_one_thread_and_our_modules_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "errors.py").write_text("raise SystemExit(9)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = python(measure_run, "x")
    command[3] = "import errors, os; print(os.environ['OMP_NUM_THREADS'], errors.__file__)"
    assert finish(tmp_path, Job("a", 1, [command]))
    log = (tmp_path / "a.log").read_text(encoding="utf-8")
    assert f"1 {ROOT / 'errors.py'}" in log


@pytest.mark.slow
def test_the_speed_is_measured_with_the_real_parallelism(world, monkeypatch):
    started = []
    monkeypatch.setattr(Pool, "run", lambda self, jobs: started.extend(jobs) or False)
    runner = Runner(arguments(world, "--jobs", "3"))
    with pytest.raises(UserError, match="nothing was kept"):
        runner._measure_speed("bfloat16")
    assert len(started) == 3
    for job in started:
        (command,) = job.commands
        assert "--train.dtype bfloat16" in shlex.join(command)


def test_the_first_three_arms_and_the_probes_are_finished_before_other_arms(world, monkeypatch):
    groups = []
    monkeypatch.setattr(
        Pool, "run", lambda self, jobs, what: groups.append([job.name for job in jobs]) or True)
    for name in ("_tune", "_refuse_other_rates"):
        monkeypatch.setattr(Runner, name, lambda *a: True)
    runner = Runner(arguments(world, "--name", "order", "--arms", "nope,rope,sin,alibi"))
    runner.data = prepare(runner.config.data)
    runner.plan = {"seeds": [0], "steps": {"horizons": [10, 100]},
                   "probes": {"P1": {"arms": ["sin"], "seeds": [0], "steps": 1}}}
    assert runner._run_all()
    assert groups == [["nope-s0", "rope-s0", "sin-s0", "P1-sin-s0"], ["alibi-s0"]]


def test_the_bar_knows_how_far_a_run_is(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    job = Job("x", 100, [], tmp_path)
    assert tokens_trained(job) == 0
    metrics.write_text('{"tokens": 30}\n{"tokens": 4', encoding="utf-8")
    assert tokens_trained(job) == 0 + 30
    metrics.write_text('{"tokens": 30}\n{"tokens": 4000}\n', encoding="utf-8")
    assert tokens_trained(job) == 100


@pytest.mark.slow
def test_a_run_that_diverges_is_told_from_one_that_fails(world, tmp_path, capfd):
    base = [*arguments(world)[2:], "--train.sample_tokens", "0", "--model.dim", "32"]
    argv = [*base, "--name", "diverged", "--optim.lr", "1e30", "--optim.warmup_steps", "1"]
    assert "not finite 3 steps in a row" in refusal(capfd, train.main, *argv)[-1]
    assert has_diverged(world / "runs" / "diverged")
    assert run(train.main, *base, "--name", "fine", "--train.steps", "3",
               "--optim.warmup_steps", "1") == 0
    assert not has_diverged(world / "runs" / "fine")
    bad = job("bad", "raise SystemExit(2)")
    fine, diverged = (world / "runs" / name for name in ("fine", "diverged"))
    assert finish(tmp_path, replace(bad, run=fine, fragile=[fine, diverged]))  # a branch of it
    for run_of_it, fragile in ((fine, [fine]), (diverged, [])):
        with pytest.raises(UserError, match="bad failed"):
            finish(tmp_path, replace(bad, run=run_of_it, fragile=fragile))


@pytest.mark.slow
def test_a_seed_that_diverges_is_noted_and_does_not_hold_up_the_others(world, finished, tmp_path):
    runner = Runner(arguments(world))
    runner.data = prepare(runner.config.data)
    runner.plan, runner.plan_file = read_json(finished / "plan.json"), tmp_path / "plan.json"
    runner.plan["seeds"] = [0, 1]
    assert [job.name for job in runner._run_jobs(["rope", "sin"])] == ["rope-s1", "sin-s1"]
    trunk = shutil.copytree(finished / "rope-s0-25k", finished / "rope-s1-25k")
    shutil.rmtree(trunk / "last")
    shutil.rmtree(trunk / "previous", ignore_errors=True)
    opened = RunDir.open(trunk)
    for step in (51, 52):
        assert not has_diverged(trunk)  # one step that is skipped is no divergence
        opened.log({"step": step, "tokens": 256 * step, "seconds": 9.0, "train/loss": None,
                    "train/grad_norm": 1.0})
    (job,) = (job for job in runner._run_jobs(["rope"]) if job.name == "rope-s1")
    assert trunk in job.fragile and list(job.commands) == []
    assert [job.name for job in runner._run_jobs(["rope", "sin"])] == ["sin-s1"]
    stored = Study(finished, runner.plan, {}, {})
    assert "Diverged, and left out: rope-s1." in left_out(stored)
    shutil.rmtree(trunk)


@pytest.mark.slow
def test_a_run_that_is_still_trained_is_not_removed(world, finished):
    """By a process that has outlived an ablate.py which was killed."""
    runner = Runner(arguments(world))
    folder = shutil.copytree(finished / "rope-s0-25k", runner.path / "young")
    shutil.rmtree(folder / "last")
    runner.plan = read_json(finished / "plan.json")
    values = {"name": "young", "train.steps": 100}
    with locked_run(folder), pytest.raises(UserError, match="is being trained by another process"):
        runner._train_missing(values)
    assert folder.exists()
    assert len(runner._train_missing(values)) == 1 and not folder.exists()


@pytest.mark.slow
def test_a_run_whose_checkpoints_are_gone_is_not_measured_again_in_silence(world, finished, capfd):
    runs = [str(finished / f"rope-s0-{length}") for length in ("2.5k", "25k")]
    with pytest.raises(SystemExit):
        measure_run(runs, "rope", False, 4, "cpu", str(world / "x.json"))
    assert "no checkpoints along the way any more: remove" in capfd.readouterr().err
