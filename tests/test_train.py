"""The loop: exact resumption, signals, what it reports, and that bad input leaves nothing."""

import math
import shlex
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from conftest import (
    CPU,
    ROOT,
    arguments,
    output,
    points,
    refusal,
    run,
    setup_of,
    start,
    stop_at,
    trained,
)
from matplotlib.image import imread

import gyre.build
import train
from gyre import device
from gyre.build import restore
from gyre.device import resolve_device
from gyre.options import read_config
from gyre.parallel import World
from gyre.replicated import Replicated
from gyre.rundir import RunDir
from gyre.signals import StopSignal
from gyre.start import resolve
from gyre.step import evaluate
from model import kernels

EXACT = ["--model.dropout", "0.2", "--train.micro_batch_size", "10", "--optim.optimizer", "muon",
         "--train.sample_prompt", "ab"]


def state(path: Path) -> dict[str, torch.Tensor]:
    """Weights and optimizer states of the last checkpoint."""
    from safetensors.torch import load_file

    with RunDir.open(path).checkpoints.open("last") as folder:
        files = [load_file(folder / f"{name}.safetensors") for name in ("model", "optimizer")]
    return files[0] | files[1]


def progress(path: Path) -> dict[str, float]:
    checkpoints = RunDir.open(path).checkpoints
    with checkpoints.open("last") as folder:
        return checkpoints.load_training(folder)["progress"]


def equal_runs(a: Path, b: Path) -> None:
    """Bitwise: every loss, the weights and the optimizers' state."""
    for key in ("train/loss", "train/grad_norm", "val/loss", "val/bpb", "sample"):
        assert points(a, key) == points(b, key)
    torch.testing.assert_close(state(a), state(b), rtol=0, atol=0)
    assert {**progress(a), "seconds": 0} == {**progress(b), "seconds": 0}


def not_resumed(capfd, path: Path) -> str:
    """What is said where a run does not go on."""
    return refusal(capfd, train.main, "--resume", path)[-1]


@pytest.fixture(scope="module")
def straight(world) -> Path:
    """The run that nothing ever interrupted."""
    return trained(world, "straight", *EXACT)


class Killed(BaseException):
    """As by kill -9: nobody cleans up."""


def die(*args):
    raise Killed


def test_a_run_leaves_what_the_readme_says(straight):
    assert sorted(p.name for p in straight.iterdir()) == [
        "best", "config.yaml", "last", "loss.png", "manifest.json", "metrics.jsonl", "previous",
        "run.json", "tokenizer.model",
    ]
    assert imread(straight / "loss.png").std() > 0.05  # lines on white
    assert list(points(straight)) == list(range(1, 13))
    assert list(points(straight, "val/loss")) == [5, 10, 12]
    assert list(points(straight, "sample")) == [5, 10, 12]
    assert points(straight)[12] < points(straight)[1] - 0.1
    assert all(p["tokens"] == p["step"] * 27 * 20 for p in RunDir.open(straight).metrics())
    count = RunDir.open(straight).manifest["val"]
    bpb = {step: loss * (count["tokens"] - 1) / math.log(2) / count["bytes"]
           for step, loss in points(straight, "val/loss").items()}
    assert points(straight, "val/bpb") == pytest.approx(bpb, rel=1e-9)


def test_best_is_the_lowest_validation(world, straight):
    setup = setup_of(world, *EXACT)
    setup.model.load_state_dict(RunDir.open(straight).checkpoints.load_weights("best"))
    nats, tokens = evaluate(setup.model, setup.val_data, 27, CPU, torch.float32)
    assert nats / tokens == pytest.approx(min(points(straight, "val/loss").values()), abs=1e-6)


@pytest.mark.slow
def test_killed_and_resumed_twice_equals_never_stopped(world, straight):
    """kill -9 in the middle of an evaluation interval, then a stop past the epoch's end."""
    path = world / "runs" / "killed"
    deadly = f"""
import os, signal, train
step = train.train_step
def deadly(setup, number):
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(setup, number)
train.train_step = deadly
train.main({arguments(world, *EXACT, "--name", "killed")!r})
"""
    process = start(deadly)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors
    assert list(points(path)) == list(range(1, 8))  # two steps past the checkpoint
    stop_at(11, "--resume", path)
    assert run(train.main, "--resume", path) == 0
    equal_runs(straight, path)


def test_a_resumed_run_multiplies_as_it_began(world, straight, monkeypatch):
    """Whatever is measured at its second start: the two forms round differently."""
    argv = arguments(world, *EXACT, "--name", "measured")
    was = kernels.onednn_is_faster
    stop_at(6, *argv)
    monkeypatch.setattr(device, "onednn_gain", lambda: 0.0 if was else 9.0)
    assert run(train.main, "--resume", world / "runs" / "measured") == 0
    assert kernels.onednn_is_faster == was
    equal_runs(straight, world / "runs" / "measured")
    assert run(train.main, *argv[:-1], "other") == 0  # which a new run does not know
    assert kernels.onednn_is_faster != was
    kernels.prefer_onednn(was)
    assert points(world / "runs" / "other") != points(straight)


def test_a_run_killed_before_its_first_checkpoint_starts_again(world, straight, capfd):
    path = world / "runs" / "early"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "save", die)
        with pytest.raises(Killed):
            train.main(arguments(world, *EXACT, "--name", "early"))
    assert points(path) and not (path / "last").exists()
    assert run(train.main, "--resume", path) == 0
    assert f"{path} has no checkpoint yet: starting at step 0" in capfd.readouterr().err
    equal_runs(straight, path)


def test_a_training_that_cannot_take_its_first_step_leaves_no_run(world, monkeypatch, capfd):
    path, step = world / "runs" / "interrupted", train.train_step

    def interrupted(setup, number, last=0):
        if number == last:
            raise KeyboardInterrupt
        return step(setup, number)

    monkeypatch.setattr(train, "train_step", interrupted)
    assert run(train.main, *arguments(world, "--name", path.name)) == 130
    assert not path.exists() and "Traceback" not in capfd.readouterr().err


def test_no_sample_is_lost_by_a_kill_after_a_save(world, straight):
    path, save = world / "runs" / "unlucky", train.save

    def save_and_die(setup, run_dir, name):
        save(setup, run_dir, name)
        if name == "last":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "save", save_and_die)
        assert run(train.main, *arguments(world, *EXACT, "--name", "unlucky")) == 130
    assert run(train.main, "--resume", path) == 0
    equal_runs(straight, path)


WSD = ["--optim.schedule", "wsd", "--optim.cooldown", "0.4", "--optim.warmup_steps", "2"]


@pytest.mark.slow
def test_a_branch_equals_the_run_that_had_its_steps_from_the_start(world, capfd):
    """With wsd, runs of all lengths are one run up to the cooldown of the shortest: step 6."""
    short = trained(world, "short", *EXACT, *WSD, "--train.steps", "10")
    long = trained(world, "long", *EXACT, *WSD, "--train.steps", "20", "--train.keep", "[3, 6]")
    assert RunDir.open(long).checkpoints.kept_steps() == [3, 6]
    for at in ("3", "6"):
        path = world / "runs" / f"branch-{at}"
        argv = ["--branch-from", long, "--at", at, "--train.steps", "10", "--name", path.name,
                "--train.eval_interval", "5"]
        stop_at(int(at) + 1, *argv)
        # Losses before it left are those of weights that it does not have.
        assert (at == "6") == bool(points(path, "val/loss"))
        assert RunDir.open(path).best_point() is None
        assert run(train.main, "--resume", path) == 0
        assert RunDir.open(path).best_point()["step"] in range(int(at) + 1, 11)
        equal_runs(short, path)
        assert len(points(path, "train/loss")) == 10
    assert run(train.main, "--resume", path, "--train.steps", "11") == 0
    decayed = ["--name", "decayed", "--optim.weight_decay", "5"]  # of the branch and not the run
    assert run(train.main, *argv[:6], *decayed) == 0
    assert points(world / "runs" / "decayed")[10] != points(short)[10]
    linear = ["--name", "linear", "--optim.schedule", "linear"]  # which has no cooldown
    assert run(train.main, *argv[:6], *linear) == 0
    refused = refusal(capfd, train.main, "--branch-from", long, "--at", "4")[-1]
    assert f"{long} kept no checkpoint of step 4; it has: 3, 6" in refused
    refused = refusal(capfd, train.main, "--branch-from", long, "--at", "6", "--train.steps", "6")
    assert "give a larger number, or an earlier step with --at" in refused[-1]


def test_a_branch_has_a_best_of_its_own_even_if_it_gets_worse(world):
    trunk = trained(world, "trunk", "--optim.lr", "1e-2", "--train.keep", "[10]")
    argv = ["--branch-from", trunk, "--at", "10", "--train.steps", "14", "--optim.lr", "30",
            "--optim.warmup_steps", "0"]
    assert run(train.main, *argv, "--name", "worse") == 0
    worse = RunDir.open(world / "runs" / "worse")
    assert worse.best_point()["val/loss"] > RunDir.open(trunk).best_point()["val/loss"]
    setup = setup_of(world)
    setup.model.load_state_dict(worse.checkpoints.load_weights("best"))
    nats, tokens = evaluate(setup.model, setup.val_data, 27, CPU, torch.float32)
    assert nats / tokens == pytest.approx(worse.best_point()["val/loss"], rel=1e-5)


def test_a_branch_killed_before_its_first_checkpoint_is_not_another_run(world, capfd):
    long = trained(world, "stem", "--train.keep", "[5]")
    path = world / "runs" / "twig"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "save", die)
        with pytest.raises(Killed):
            train.main(["--branch-from", str(long), "--at", "5", "--name", "twig"])
    assert "branch again" in not_resumed(capfd, path)


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143),
                                          (signal.SIGHUP, 129)])
def test_a_signal_finishes_the_step_saves_and_says_how_to_resume(world, number, code):
    path = world / "runs" / f"signal-{code}"
    extra = ["--name", path.name, "--train.steps", "2000", "--train.eval_interval", "1000"]
    process = start(ROOT / "train.py", *arguments(world, *EXACT, *extra))
    deadline = time.monotonic() + 60
    while not (path / "metrics.jsonl").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert f"python train.py --resume {path}" in errors and "Traceback" not in errors
    assert progress(path)["step"] == max(points(path)) >= 1


def test_a_signal_that_is_ignored_stays_ignored_and_a_second_ctrl_c_acts_at_once():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.number == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    with StopSignal() as stop:  # a scheduler sends it, and torchrun once more
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):  # "Ctrl-C once more to stop at once"
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), StopSignal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.number == signal.SIGINT
        signal.raise_signal(signal.SIGINT)


def test_a_system_without_sighup_has_the_other_signals():
    """As Windows."""
    code = "import signal; del signal.SIGHUP; from gyre.signals import SIGNALS; print(len(SIGNALS))"
    assert output(code) == "2\n"


@pytest.mark.slow
@pytest.mark.parametrize("extra", [["--train.eval_interval", "2"], ["--train.sample_tokens", "0"]])
def test_what_one_looks_at_does_not_change_what_one_trains(world, straight, extra):
    """Neither how often a run evaluates, nor whether it samples, nor what it samples."""
    assert points(trained(world, f"looks{extra[1]}", *EXACT, *extra)) == points(straight)


def test_a_sample_ends_where_the_text_does(world, monkeypatch, capfd):
    """Every rank draws as many tokens as were asked for, and shows those before the end."""
    setup = setup_of(world)
    eos, ids = setup.data.tokenizer.eos_id, setup.data.tokenizer.encode("abc")
    monkeypatch.setattr(train, "continued",
                        lambda *_, eos_ids, **__: [[*ids, eos, *ids]] if eos_ids == () else [[]])
    train.sample(setup, RunDir(world, {}, is_main=False))
    assert capfd.readouterr().err.count("abc") == 1


def test_a_sample_prompt_that_is_too_long_loses_its_start(world):
    path = trained(world, "long-prompt", "--train.sample_prompt", "ab " * 99, "--train.steps", "3")
    assert all(text.startswith("ab ab") or text[:2] in "b  a" for text in points(
        path, "sample").values())


@pytest.mark.slow
def test_losses_that_are_not_numbers_are_skipped_counted_and_finally_stop(
    world, capfd, monkeypatch
):
    def poisoned(steps: set[int], step=train.train_step):
        def poisoned_step(setup, number):
            if number not in steps:
                return step(setup, number)
            with setup.model.norm.register_forward_hook(lambda m, i, out: out * math.nan):
                return step(setup, number)

        return poisoned_step

    with monkeypatch.context() as patch:
        patch.setattr(train, "train_step", poisoned({2, 3, 6}))
        hiccup = trained(world, "hiccup")
    assert [step for step, loss in points(hiccup).items() if loss is None] == [3, 4, 7]
    assert points(hiccup, "train/skipped")[12] == 3
    weights = RunDir.open(hiccup).checkpoints.load_weights("last")
    assert all(w.isfinite().all() for w in weights.values())

    monkeypatch.setattr(train, "train_step", poisoned({6, 7, 8}))
    assert run(train.main, *arguments(world, "--name", "diverged")) == 2
    error = capfd.readouterr().err
    assert "not finite for three steps, up to step 9" in error
    assert "has a checkpoint of step 5" in error
    assert progress(world / "runs" / "diverged")["step"] == 5
    assert RunDir.open(world / "runs" / "diverged").metrics()[-1]["diverged"] == 1
    monkeypatch.setattr(train, "train_step", poisoned({0, 1, 2}))
    assert run(train.main, *arguments(world, "--name", "hopeless")) == 2
    assert "has no checkpoint" in capfd.readouterr().err


@pytest.mark.slow
def test_a_text_that_changed_is_not_resumed_on(world, tmp_path, capfd):
    """Also where the tokenizer is the same: one word of the validation part is enough. But what
    was prepared before is taken wherever it still is, also without the text."""
    text, path = tmp_path / "text.txt", tmp_path / "runs" / "changed"
    prepared = tmp_path / "prepared"
    original = (world / "text.txt").read_text(encoding="utf-8")
    text.write_text(original, encoding="utf-8")
    stop_at(6, *arguments(world, "--data.files", str(text), "--log.runs", str(path.parent),
                          "--name", path.name, "--data.prepared", str(prepared)))
    text.write_text(original[:-10] + "a b c d e\n", encoding="utf-8")
    before = prepared.rename(tmp_path / "before")
    assert "has changed since it was started" in not_resumed(capfd, path)
    shutil.rmtree(prepared)
    before.rename(prepared)
    text.unlink()
    assert run(train.main, "--resume", path) == 0
    assert len([*prepared.iterdir()]) == len([*prepared.glob("text-*")]) == 1


@pytest.mark.parametrize("words, lost", [
    ("[tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1", True),
    ("Missing key(s) in state_dict", False),
])
def test_a_lost_process_is_not_told_as_a_bad_checkpoint(world, straight, monkeypatch, words, lost):
    asked = resolve(["--resume", str(straight), "--train.steps", "20"], "")
    setup = setup_of(world, *EXACT)

    def fail(*_):
        raise RuntimeError(words)

    monkeypatch.setattr(setup.parallelism, "load", fail)
    object.__setattr__(setup, "world", World(0, 1, CPU))
    monkeypatch.setattr(World, "is_disconnect", lambda self, error: "closed by peer" in str(error))
    with pytest.raises(RuntimeError if lost else train.UserError, match="closed|does not fit"):
        restore(asked, setup)


@pytest.mark.parametrize("choice", [True, False])
def test_all_processes_multiply_as_the_first_does(world, monkeypatch, choice):
    class Second(World):
        def sum(self, *values: float) -> list[float]:
            return [value + choice for value in values]

    monkeypatch.setattr(kernels, "onednn_is_faster", not choice)
    config = resolve(arguments(world), "").config
    gyre.build.decide_arithmetic(config, Second(1, 2, CPU, is_main=False), 27)
    assert kernels.onednn_is_faster == choice


def test_a_longer_run_says_how_it_goes_on(world, straight, capfd):
    assert "has finished its 12 steps: give --train.steps" in not_resumed(capfd, straight)
    path = world / "runs" / "longer"
    stop_at(6, *arguments(world, "--name", "longer"))
    again = ["--resume", str(path), "--train.steps", "17", "--train.sample_prompt", 'é "b',
             "--log.tags", '["a"]']
    capfd.readouterr()
    stop_at(8, *again)
    command = capfd.readouterr().err.partition("To go on:\n")[2].splitlines()[0]
    assert shlex.split(command) == ["python", "train.py", *again]
    assert "was last resumed with --train.steps 17" in not_resumed(capfd, path)
    assert run(train.main, *again) == 0
    assert list(points(path)) == list(range(1, 18))


def test_what_auto_chose_is_written_into_the_run_and_kept_on_resume(world, monkeypatch, capfd):
    """Also where the machine that resumes it would choose otherwise."""
    monkeypatch.setattr(gyre.build, "product_rates", lambda *_, **__: [1e9, 9e9])
    path = trained(world, "auto", "--train.device", "auto", "--train.dtype", "auto")
    chosen = read_config(path / "config.yaml").train
    name = resolve_device("auto").type
    assert (chosen.device, chosen.dtype, chosen.compile) == (name, "bfloat16", False)
    monkeypatch.setattr(gyre.build, "product_rates", lambda *_, **__: [9e9, 1e9])
    capfd.readouterr()
    assert run(train.main, "--resume", path, "--train.steps", "13") == 0
    assert f"{name}; bfloat16, as configured; eager, as configured" in capfd.readouterr().err
    again = ["--resume", path, "--train.steps", "14", "--train.dtype", "auto"]
    assert run(train.main, *again) == 0
    assert f"{name}; float32: its products run at 9 GFLOP/s" in capfd.readouterr().err


@pytest.mark.slow
def test_two_that_start_at_once_are_two_runs_and_none_is_trained_twice(world, capfd):
    """Without names; then two that resume one run, of which the second says who has it."""
    argv = [*arguments(world), "--seed", "7", "--train.steps", "60"]
    both = [start(ROOT / "train.py", *argv) for _ in range(2)]
    runs = [world / "runs" / name for name in ("gyre-rope-s7", "gyre-rope-s7-2")]
    for process in both:
        assert "Traceback" not in process.communicate(timeout=300)[1] and process.returncode == 0
    for path in runs:
        assert list(points(path)) == list(range(1, 61))
    first = start(ROOT / "train.py", "--resume", runs[0], "--train.steps", "100000",
                  "--train.eval_interval", "100000")
    while "train" not in first.stderr.readline():
        pass
    refused = refusal(capfd, train.main, "--resume", runs[0], "--train.steps", "61")[-1]
    assert f"{runs[0]} is being trained by another process" in refused
    assert f"process {first.pid} on " in refused
    first.kill()
    first.communicate()
    assert run(train.main, "--resume", runs[0], "--train.steps", "61") == 0


@pytest.mark.slow
@pytest.mark.parametrize("extra, words", [
    (["--data.seq_len", "5000"], "seq_len"),
    (["--model.head_dim", "7"], "model.head_dim must be even"),
    (["--data.prepared", "/proc/nowhere"], "--data.prepared"),
    (["--data.files", "nowhere.txt"], "nowhere.txt"),
    (["--train.dtype", "float16"], "float16 needs a CUDA device"),
    (["--train.device", "cuda:7"], "cuda:7"),
    (["--data.vocab_size", "50000"], "50000"),
    (["--model.n_layers", str(10**30)], "this model with 27 rows of 20 tokens takes"),
    (["--train.batch_size", str(10**15)], "choose a smaller model, data.seq_len"),
    (["--name", "straight"], "straight already exists"),
    (["--name", "a/b"], "run name 'a/b' must be letters"),
])
def test_bad_input_is_one_line_and_leaves_no_run(world, straight, capfd, extra, words):
    before = sorted(straight.parent.rglob("*"))
    assert words in refusal(capfd, train.main, *arguments(world, "--name", "bad", *extra))[-1]
    assert sorted(straight.parent.rglob("*")) == before


@pytest.mark.parametrize("environment, words", [
    ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2 and RANK is None"),
    ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK is 2"),
])
def test_a_wrong_environment_is_said(world, monkeypatch, capfd, environment, words):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert words in refusal(capfd, train.main, *arguments(world))[-1]


def test_replicas_of_one_process_are_the_model_itself(world):
    setup = setup_of(world)
    assert isinstance(setup.parallelism, Replicated) and setup.module is setup.model
