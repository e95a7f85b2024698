"""A whole study, smallest size: stopped, continued, one worker killed, measured, reported."""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, load, points, refusal, run, start

import ablate
import train
from ablation import plan, report
from ablation import runner as runner_module
from ablation.report import left_out
from ablation.runner import Runner, carry_out, has_diverged, steps_saved, train_run
from ablation.study import Study
from errors import UserError
from files import locked, read_json, write_json
from gyre.rundir import RunDir

N_WORDS = 9000  # of `world`: enough for rows of eight times the training length
# So short that tests are short, and tuned all the same.
TINY = replace(plan.TIERS["smoke"], grid=(2e-3,), tuning_tokens=9 * 256, horizons=(2560, 25600))


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


def begin(world: Path, *extra: str) -> subprocess.Popen:
    """A study of TINY in a process of its own."""
    code = "from test_runner import *\nplan.TIERS['smoke'] = TINY\n"
    code += f"if __name__ == '__main__':\n    ablate.main({arguments(world, *extra)!r})"
    file = world / "study.py"
    file.write_text(code, encoding="utf-8")
    return start(file, cwd=world, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")


def wait_for(process: subprocess.Popen, metrics: Path, size: int = 3000) -> None:
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > size):
        time.sleep(0.02)


@pytest.fixture(scope="module")
def stopped(world) -> tuple[Path, subprocess.CompletedProcess]:
    """A study that got Ctrl-C while its first long run trained."""
    study = world / "runs" / "ablation-smoke"
    process = begin(world, "--jobs", "1")
    wait_for(process, study / "rope-s0-25k" / "metrics.jsonl")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return study, subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.slow
def test_ctrl_c_stops_the_runs_which_save_and_says_how_to_go_on(world, stopped):
    study, process = stopped
    assert process.returncode == 130, process.stderr
    assert process.stdout == "" and "watched at http://" in process.stderr
    again = " ".join(["python ablate.py", *arguments(world, "--jobs", "1")])
    assert f"To go on: {again}" in process.stderr
    assert 0 < steps_saved(study / "rope-s0-25k") < 100
    stored = read_json(study / "plan.json")
    assert stored["steps"] == {"horizons": [10, 100], "tuning": 9}
    assert stored["minutes"] > 0


@pytest.fixture(scope="module")
def finished(world, stopped) -> Path:
    """The same command again, with another number of workers, which is no other plan."""
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


def measured(path: Path) -> dict:
    """A record without what another machine, time or place changes."""
    record = read_json(path)
    for name in ("sha256", "config", "machine", "trained_by", "run"):
        record.pop(name, None)
    return record


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_nothing(world, finished, tmp_path):
    """Its training goes on with another worker, and the records are those of a quiet study."""
    process = begin(world, "--jobs", "2", "--log.runs", str(tmp_path))
    study = tmp_path / "ablation-smoke"
    wait_for(process, study / "rope-s0-25k" / "metrics.jsonl", 9000)
    # The lock holds "process N on HOST, since ...".
    owner = (study / ".rope-s0-25k.lock").read_text(encoding="utf-8")
    holder = owner.split()[1]
    os.kill(int(holder), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    log = (study / "logs" / "rope-s0.log").read_text(encoding="utf-8")
    assert log.count("$ python train.py") > 2  # the long run twice
    for arm in ("rope", "sin"):
        name = f"{arm}-s0.json"
        assert measured(study / "results" / name) == measured(finished / "results" / name)


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
    monkeypatch.setattr(Runner, "run_jobs", lambda self, client, jobs, what: not jobs)
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
    monkeypatch.setattr(Runner, "run_jobs", lambda self, client, jobs, what: not jobs)
    assert run(ablate.main, *arguments(world, "--log.runs", str(tmp_path))) == 0
    assert (there / "RESULTS.md").read_text(encoding="utf-8").count("\n") > 50


@pytest.mark.slow
def test_what_a_folder_refuses(world, finished, capsys):
    """Another plan, two of us at a time, and a study where there is something else."""
    said = refusal(capsys, ablate.main, *arguments(world, "--model.n_layers", "1"))[-1]
    assert "another plan (config)" in said and "--name" in said and str(finished) in said
    said = refusal(capsys, ablate.main, *arguments(world, "--tokens", "5k"))[-1]
    assert "another plan (steps)" in said
    with locked(finished, "busy", wait=False):
        said = refusal(capsys, ablate.main, *arguments(world))[-1]
    assert "another ablate.py is working on" in said
    plan_file = finished / "plan.json"
    content = plan_file.read_text(encoding="utf-8")
    plan_file.write_text(content.replace('"smoke"', '"quick"'), encoding="utf-8")
    said = refusal(capsys, ablate.main, *arguments(world))[-1]
    assert "plan.json is not what was written" in said
    plan_file.write_text(content, encoding="utf-8")
    (world / "runs" / "mine").mkdir(parents=True)
    (world / "runs" / "mine" / "notes.txt").write_text("x", encoding="utf-8")
    said = refusal(capsys, ablate.main, *arguments(world, "--name", "mine"))[-1]
    assert "is not a study" in said
    assert [p.name for p in (world / "runs" / "mine").iterdir()] == ["notes.txt"]


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
    (["--arm", "b=model.theta=5", "--arm", "b=model.theta=6"], "an arm of this name already"),
    (["--optim.optimizer", "muon", "--optim.muon_lr", "1e-2"], "optim.muon_lr 0.01 would not be"),
    (["--optim.lr", "3e-3"], "optim.lr 0.003 has no effect"),
    (["--jobs", "0"], "--jobs must be at least 1"),
    (["--seeds", "0"], "--seeds must be at least 1"),
    (["--tokens", "4M,1M"], "--tokens 4M,1M must be lengths in ascending order"),
    (["--tokens", "4e6"], "--tokens 4e6 must be"),
    (["--tokens", "1k,8k"], "choose more --tokens"),
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
    monkeypatch.setattr(runner_module, "open_client", lambda *a: pytest.fail("started workers"))
    *_, said = refusal(capsys, ablate.main, *arguments(world, "--name", "short", *extra))
    assert words in said and not (world / "runs" / "short").exists()


def test_the_tier_gives_way_to_the_command_line_and_that_to_the_arms(world):
    """In our own configurations, and in the commands of runs, where what comes last wins."""
    argv = arguments(world, "--model.dim", "64", "--arm", "big=model.n_layers=3,optim.lr=5e-3")
    runner = Runner(argv)
    runner.plan = {"git": None, "dtype": "float32"}
    training = runner.training("x", 9, dict(runner.arms["big"]))
    for config in (runner.config_of["big"], load(*training["argv"])):
        assert (config.model.dim, config.model.n_layers, config.model.n_heads) == (64, 3, 2)
        assert config.optim.lr == 5e-3
    assert runner.baseline == "sin"
    runner = Runner([*argv, "--seeds", "3", "--tokens", "5k,1M"])
    assert runner.tier.seeds == 3 and runner.tier.horizons == (5120, 2**20)


def test_a_study_without_tuning_runs_every_arm_at_one_rate(world, monkeypatch):
    argv = arguments(world, "--no-tuning", "--optim.lr", "3e-3")
    runner = Runner(argv)
    assert runner.tier.grid == () and runner.tuning_jobs.__self__.tier.tuning_tokens == 0
    assert {config.optim.lr for config in runner.config_of.values()} == {3e-3}
    monkeypatch.setitem(plan.TIERS, "smoke", replace(TINY, grid=()))
    with pytest.raises(UserError, match="--no-tuning has no effect: the smoke tier tunes nothing"):
        Runner(argv)


def test_an_arm_that_diverges_at_every_rate_is_not_trained(world):
    runner = Runner(arguments(world, "--name", "lost"))
    lost = {"2e-3": {"1000": None}, "4e-3": {"1000": None}, "1e-3": {"1000": None}}
    runner.plan = {"grid": [2e-3], "tuning_seeds": [1000], "tuned": {"arms": {"rope": lost}}}
    with pytest.raises(UserError, match="rope diverged at every learning rate from 0.001 to 0.004"):
        runner.settle_rate("rope")


def test_the_first_three_arms_and_the_probes_are_finished_before_other_arms(world, monkeypatch):
    groups = []
    monkeypatch.setattr(Runner, "run_jobs", lambda self, client, jobs, what: groups.append(
        [job["name"] for job in jobs]) or True)
    monkeypatch.setattr(Runner, "tuning_jobs", lambda *a: [])
    runner = Runner(arguments(world, "--name", "order", "--arms", "nope,rope,sin,alibi"))
    runner.step_tokens = 256
    runner.plan = {"seeds": [0], "steps": {"horizons": [10, 100]}, "grid": [], "git": None,
                   "dtype": "float32", "tuned": {"arms": {}},
                   "probes": {"P1": {"arms": ["sin"], "seeds": [0], "steps": 1}}}
    assert runner.run_all(None)
    assert groups == [["nope-s0", "rope-s0", "sin-s0", "P1-sin-s0"], ["alibi-s0"]]


@pytest.mark.slow
def test_a_run_that_diverges_is_told_from_one_that_fails(world, capfd):
    base = [*arguments(world)[2:], "--train.sample_tokens", "0", "--model.dim", "32"]
    argv = [*base, "--name", "diverged", "--optim.lr", "1e30", "--optim.warmup_steps", "1"]
    assert "not finite several steps in a row" in refusal(capfd, train.main, *argv)[-1]
    diverged, fine = (world / "runs" / name for name in ("diverged", "fine"))
    assert has_diverged(diverged)
    argv = [*base, "--name", "fine", "--train.steps", "3", "--optim.warmup_steps", "1"]
    assert train_run({"run": str(fine), "steps": 3, "argv": argv})
    assert not has_diverged(fine)
    assert not train_run({"run": str(diverged), "steps": 1000, "argv": []})  # it would again
    with pytest.raises(UserError, match="bad failed"):
        train_run({"run": str(world / "runs" / "bad"), "steps": 3,
                   "argv": [*base, "--name", "bad", "--model.dim", "33"]})


@pytest.mark.slow
def test_a_seed_that_diverges_is_noted_and_does_not_hold_up_the_others(world, finished, tmp_path):
    runner = Runner(arguments(world))
    runner.plan, runner.plan_file = read_json(finished / "plan.json"), tmp_path / "plan.json"
    runner.plan["seeds"], runner.step_tokens = [0, 1], 256
    jobs = {job["name"]: job for job in runner.pair_jobs(["rope", "sin"])}
    assert list(jobs) == ["rope-s1", "sin-s1"]
    trunk = shutil.copytree(finished / "rope-s0-25k", finished / "rope-s1-25k")
    for name in ("last", "previous"):
        shutil.rmtree(trunk / name, ignore_errors=True)
    run_dir = RunDir.open(trunk)
    for step in (51, 52):
        assert not has_diverged(trunk)  # one step that is skipped is no divergence
        run_dir.log({"step": step, "tokens": 256 * step, "seconds": 9.0, "train/loss": None,
                     "train/grad_norm": 1.0})
    result = carry_out({**jobs["rope-s1"], "logs": str(tmp_path)})
    assert result is None
    runner.keep(jobs["rope-s1"], result)
    assert [job["name"] for job in runner.pair_jobs(["rope", "sin"])] == ["sin-s1"]
    stored = Study(finished, runner.plan, {}, {})
    assert "Diverged, and left out: rope-s1." in left_out(stored)
    shutil.rmtree(trunk)


@pytest.mark.slow
def test_a_run_whose_checkpoints_are_gone_is_not_measured_again_in_silence(
    world, finished, tmp_path
):
    runner = Runner(arguments(world))
    runner.plan, runner.step_tokens = read_json(finished / "plan.json"), 256
    (finished / "results" / "rope-s0.json").rename(tmp_path / "kept.json")
    try:
        (job,) = runner.pair_jobs(["rope"])
        with pytest.raises(UserError, match="no checkpoints along the way any more: remove"):
            carry_out({**job, "logs": str(tmp_path)})
    finally:
        (tmp_path / "kept.json").rename(finished / "results" / "rope-s0.json")
