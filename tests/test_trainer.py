"""The loop: exact resumption, fair randomness, signals, processes, and what it reports."""

import math
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from conftest import CPU, ROOT, arguments, points, refusal, run, start, stop_at, trained
from matplotlib.image import imread
from tqdm import tqdm

import train
from errors import UserError
from gyre import device
from gyre import trainer as trainer_module
from gyre.checkpoint import Checkpoints
from gyre.device import resolve_device
from gyre.options import read_config
from gyre.parallel import World
from gyre.rundir import RunDir
from gyre.step import evaluate
from gyre.trainer import Stopped, StopSignal, Trainer
from model import kernels
from model.position import POSITIONS

# Dropout and the offsets of rows are drawn for the row, and so the same however rows are shared.
DRAWN = ["--model.dropout", "0.2", "--model.position", "sinusoidal", "--model.random_offset", "30"]
EXACT = ["--model.dropout", "0.2", "--train.micro_batch_size", "10", "--optim.optimizer", "muon",
         "--train.sample_prompt", "ab"]


def equal_runs(a: Path, b: Path) -> None:
    """Bitwise: every loss, the weights and the optimizers' state."""
    for key in ("train/loss", "train/grad_norm", "val/loss", "val/bpb"):
        assert points(a, key) == points(b, key)
    (weights_a, state_a), (weights_b, state_b) = (RunDir.open(p).load_training() for p in (a, b))
    torch.testing.assert_close(weights_a, weights_b, rtol=0, atol=0)
    flat = [torch.utils._pytree.tree_leaves(s["optimizers"]) for s in (state_a, state_b)]
    for x, y in zip(*flat, strict=True):
        assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y
    counts = [{**s["count"], "seconds": None} for s in (state_a, state_b)]
    assert counts[0] == counts[1]


def silent_trainer(world: Path, *extra: str) -> Trainer:
    """A trainer of rank 1, which writes nothing."""
    config, *_ = train.load(arguments(world, "--name", "silent", *extra))
    return Trainer(config, World(1, 1, CPU))


def not_resumed(capfd, path: Path) -> str:
    """What is said where a run does not go on."""
    return refusal(capfd, train.main, "--resume", path)[-1]


@pytest.fixture(scope="module")
def straight(world) -> Path:
    """The run that nothing ever interrupted."""
    return trained(world, "straight", *EXACT)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_run_with_bpe_dropout_counts_passes_over_the_text_and_resumes(world, capfd):
    path = trained(world, "varied", "--data.bpe_dropout", "0.1")
    said = "".join(capfd.readouterr())
    assert " training tokens in 12 passes and " in said
    one_pass = RunDir.open(path).manifest["train"]["tokens"] / 12
    assert f"({12 * 27 * 20 / one_pass:.1f} epochs)" in said
    assert run(train.main, "--resume", path, "--train.steps", "13") == 0


@pytest.mark.slow
def test_killed_and_resumed_twice_equals_never_stopped(world, straight):
    """kill -9 in the middle of an evaluation interval, then a stop past the epoch's end."""
    path = world / "runs" / "killed"
    deadly = f"""
import os, signal, train
step = train.Trainer.step
def deadly(self, *args):
    if self.progress.step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *args)
train.Trainer.step = deadly
train.main({arguments(world, *EXACT, "--name", "killed")!r})
"""
    process = start(deadly)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors
    assert list(points(path)) == list(range(1, 8))  # two steps past the checkpoint
    stop_at(11, "--resume", path)
    assert run(train.main, "--resume", path) == 0
    equal_runs(straight, path)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_starts_again(world, straight, capfd):
    path = world / "runs" / "early"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "save", die)
        with pytest.raises(Killed):
            train.main(arguments(world, *EXACT, "--name", "early"))
    assert points(path) and not (path / "last").exists()
    assert run(train.main, "--resume", path) == 0
    assert f"{path} has no checkpoint yet: starting at step 0" in capfd.readouterr().err
    equal_runs(straight, path)


@pytest.mark.slow
def test_ctrl_c_at_once_removes_a_run_only_where_it_is_new_and_nothing_was_saved(
    world, monkeypatch
):
    path, step = world / "runs" / "interrupted", Trainer.step
    new, resumed = arguments(world, "--name", path.name), ["--resume", str(path)]
    saving = [*new, "--train.eval_interval", "2"]
    for argv, last, left in ((new, 0, None), (new, 2, None), (saving, 3, [1, 2, 3]),
                             (resumed, 2, [1, 2])):
        def interrupted(self, *args, last=last):
            if self.progress.step == last:
                raise KeyboardInterrupt
            return step(self, *args)

        monkeypatch.setattr(Trainer, "step", interrupted)
        assert run(train.main, *argv) == 130
        assert (list(points(path)) if path.exists() else None) == left


class Killed(BaseException):
    """As by kill -9: nobody cleans up."""


def die(*args):
    raise Killed


@pytest.mark.slow
def test_no_sample_is_lost_by_a_kill_after_a_save(world, straight):
    path, save = world / "runs" / "unlucky", Trainer.save

    def save_and_die(self, name):
        save(self, name)
        if name == "last":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "save", save_and_die)
        assert run(train.main, *arguments(world, *EXACT, "--name", "unlucky")) == 130
    assert run(train.main, "--resume", path) == 0
    assert points(path, "sample") == points(straight, "sample")
    equal_runs(straight, path)


WSD = ["--optim.schedule", "wsd", "--optim.cooldown", "0.4", "--optim.warmup_steps", "2"]


@pytest.mark.slow
def test_a_branch_equals_the_run_that_had_its_steps_from_the_start(world, capfd):
    """With wsd, runs of all lengths are one run up to the cooldown of the shortest: step 6."""
    short = trained(world, "short", *EXACT, *WSD, "--train.steps", "10")
    long = trained(world, "long", *EXACT, *WSD, "--train.steps", "20", "--train.keep", "[3, 6]")
    assert RunDir.open(long).kept_steps() == [3, 6]
    for at in ("3", "6"):
        path = world / "runs" / f"branch-{at}"
        argv = ["--branch-from", long, "--at", at, "--train.steps", "10", "--name", path.name,
                "--train.eval_interval", "5"]
        with pytest.MonkeyPatch.context() as patch:  # killed before it has saved: still a branch
            patch.setattr(Trainer, "run", die)
            with pytest.raises(Killed):
                train.main(list(map(str, argv)))
        # Losses before it left are those of weights that it has not.
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
    _, state = RunDir.open(path).load_training()
    assert state["count"]["step"] == max(points(path)) >= 1


def test_a_signal_that_is_ignored_stays_ignored_and_one_at_once_acts_at_once():
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
    with pytest.raises(Stopped, match="143"), StopSignal(at_once=True):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
def test_a_run_stopped_while_it_compiles_says_one_line_and_leaves_no_folder(world, tmp_path):
    """To the whole group, as a terminal does: the compiler's processes too. A resumed run stays."""
    new = arguments(world, "--log.runs", str(tmp_path / "runs"), "--log.wandb", "offline")
    old = ["--resume", str(trained(world, "kept")), "--train.steps", "13"]
    for argv, number, code in ((new, signal.SIGINT, 130), (old, signal.SIGTERM, 143)):
        process = start(ROOT / "train.py", *argv, "--train.compile", "true", new_session=True,
                        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"), WANDB_MODE="offline")
        said = ""
        while " 0/12" not in said and " 12/13" not in said and process.poll() is None:
            said += process.stderr.read(1)
        os.killpg(process.pid, number)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == code, errors
        assert errors.endswith("\ninterrupted; what was saved before is kept\n")
        assert "Traceback" not in errors and len(errors.splitlines()) < 8, errors
    assert {path.name for path in (tmp_path / "runs").iterdir()} <= {"wandb"}
    assert not [*tmp_path.glob("runs/wandb/*run-*")]
    assert list(points(world / "runs" / "kept")) == list(range(1, 13))


def test_the_bar_lives_while_it_compiles(monkeypatch, capsys):
    done, shown = threading.Event(), []

    def wait(seconds):
        shown.append(capsys.readouterr().err)
        return len(shown) == 3

    monkeypatch.setattr(done, "wait", wait)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with tqdm(total=1, file=sys.stderr) as bar:
        trainer_module.keep_alive(bar, done)
    assert ["compiling" in text for text in shown] == [False, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("extra", [["--train.eval_interval", "2"], ["--train.sample_tokens", "0"]])
def test_what_one_looks_at_does_not_change_what_one_trains(world, straight, extra):
    """Neither how often a run evaluates, nor whether it samples, nor what it samples."""
    assert points(trained(world, f"looks{extra[1]}", *EXACT, *extra)) == points(straight)


@pytest.mark.slow
def test_encodings_of_one_seed_see_the_same_weights_and_batches(world):
    trainers = {p: silent_trainer(world, "--model.position", p) for p in POSITIONS}
    weights = {p: t.module.state_dict() for p, t in trainers.items()}
    for position, trainer in trainers.items():
        for name, weight in weights["none"].items():
            assert torch.equal(weights[position][name], weight)
        for step in (0, 5, 11):
            batch, expected = (t.train_data.batch(step) for t in (trainer, trainers["none"]))
            torch.testing.assert_close(batch, expected, rtol=0, atol=0)


@pytest.mark.slow
def test_accumulation_is_exact_under_unequal_splits(world):
    """27 rows as 27, as 10 + 10 + 7 and as 27 x 1 give the same gradient."""
    whole, *others = (
        trained(world, f"micro-{n}", "--train.micro_batch_size", n, "--train.steps", "3", *DRAWN)
        for n in ("27", "10", "1")
    )
    losses = [points(trained(world, f"without-{i}", "--train.steps", "3", *DRAWN[i : i + 4]))
              for i in (0, 2)]  # no offsets, no dropout
    assert all(loss != pytest.approx(points(whole), abs=1e-3) for loss in losses)
    for other in others:
        assert points(other) == pytest.approx(points(whole), abs=1e-6)
        norms, expected = (points(path, "train/grad_norm") for path in (other, whole))
        assert norms == pytest.approx(expected, rel=1e-5)


def test_validation_has_no_more_rows_at_a_time_than_training(world, monkeypatch):
    trainer, rows = silent_trainer(world, "--train.micro_batch_size", "5"), []
    monkeypatch.setattr(train.Trainer.__module__ + ".evaluate",
                        lambda model, data, size, *_: (rows.append(size), (1.0, 1))[1])
    trainer.validate()
    assert rows == [5] and silent_trainer(world).rows == 27


def test_a_sample_ends_where_the_text_does(world, monkeypatch):
    """Every process draws as many tokens as were asked for, and shows those before the end."""
    trainer, told = silent_trainer(world), []
    trainer.world, trainer.say = World(0, 1, CPU), told.append
    eos = trainer.data.tokenizer.eos_id
    ids = trainer.data.tokenizer.encode("abc")
    monkeypatch.setattr(train.Trainer.__module__ + ".continued",
                        lambda *_, eos_ids, **__: [[*ids, eos, *ids]] if eos_ids == () else [[]])
    trainer.sample()
    assert told[0].count("abc") == 1


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
def test_every_encoding_learns(world, position):
    losses = points(trained(world, f"learns-{position}", "--model.position", position,
                            "--optim.lr", "1e-2", "--train.steps", "30"))
    assert losses[30] < losses[1] - 1.5


@pytest.mark.slow
def test_losses_that_are_not_numbers_are_skipped_counted_and_finally_stop(
    world, capfd, monkeypatch
):
    def poisoned(steps: set[int], step=Trainer.step):
        def poisoned_step(self, *args):
            if self.progress.step not in steps:
                return step(self, *args)
            with self.module.norm.register_forward_hook(lambda m, i, out: out * math.nan):
                return step(self, *args)

        return poisoned_step

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", poisoned({2, 3, 6}))
        hiccup = trained(world, "hiccup")
    assert [step for step, loss in points(hiccup).items() if loss is None] == [3, 4, 7]
    assert points(hiccup, "train/skipped")[12] == 3
    weights = RunDir.open(hiccup).load_weights("last")
    assert all(w.isfinite().all() for w in weights.values())

    monkeypatch.setattr(Trainer, "step", poisoned({6, 7, 8}))
    assert run(train.main, *arguments(world, "--name", "diverged")) == 2
    assert "not finite 3 steps in a row, up to step 9" in capfd.readouterr().err
    weights, state = RunDir.open(world / "runs" / "diverged").load_training()
    assert state["count"]["step"] == 5
    assert all(w.isfinite().all() for w in weights.values())


@pytest.mark.slow
def test_best_is_the_lowest_validation(world, straight):
    trainer = silent_trainer(world, *EXACT)
    trainer.module.load_state_dict(RunDir.open(straight).load_weights("best"))
    val_data = trainer.data.dataset("val", seq_len=20)
    nats, tokens = evaluate(trainer.module, val_data, 27, CPU, torch.float32)
    assert nats / tokens == pytest.approx(min(points(straight, "val/loss").values()), abs=1e-6)


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


def test_data_that_was_made_again_is_told_from_another_text(world):
    trainer = silent_trainer(world)
    trainer.config.data.bpe_dropout = 0.1
    run = SimpleNamespace(path="a", manifest=trainer.data.manifest | {"files": {}})
    with pytest.raises(UserError, match="was prepared again .*as data.bpe_dropout does every time"):
        trainer._refuse_other_text(run)
    run.manifest["text"] = {"sha256": ""}
    with pytest.raises(UserError, match="the text of a has changed"):
        trainer._refuse_other_text(run)


@pytest.mark.parametrize("words, kind", [
    ("[tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1", RuntimeError),
    ("Missing key(s) in state_dict", UserError),
])
def test_a_lost_process_is_not_told_as_a_bad_checkpoint(world, monkeypatch, words, kind):
    trainer = silent_trainer(world)
    trainer.world = World(1, 2, CPU, shards=2)
    monkeypatch.setattr(trainer, "_load_parts", Mock(side_effect=RuntimeError(words)))
    with pytest.raises(kind, match=re.escape(words)):
        trainer._load(Mock(load_training=lambda *_: ({}, {})), None)


@pytest.mark.parametrize("choice", [True, False])
def test_all_processes_multiply_as_the_first_does(world, monkeypatch, choice):
    class Second(World):
        def sum(self, *values: float) -> list[float]:
            return [value + choice for value in values]

    trainer = silent_trainer(world)
    trainer.world = Second(1, 2, CPU)
    monkeypatch.setattr(kernels, "onednn_is_faster", not choice)
    trainer._choose_arithmetic()
    assert kernels.onednn_is_faster == choice


def test_a_divergence_says_whether_there_is_a_checkpoint(world, tmp_path):
    trainer = silent_trainer(world)
    trainer.checkpoints = Checkpoints(tmp_path)
    for words in ("There was no checkpoint yet", "The last good checkpoint is kept"):
        trainer.progress.skipped_in_a_row = trainer_module.MAX_SKIPPED_IN_A_ROW - 1
        with pytest.raises(UserError, match=words):
            trainer._count_skipped(False, math.nan)
        trainer.checkpoints.last.mkdir(exist_ok=True)  # of a branch, which has no best yet


@pytest.mark.slow
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
    monkeypatch.setattr(trainer_module, "product_rates", lambda *_, **__: [1e9, 9e9])
    path = trained(world, "auto", "--train.device", "auto", "--train.dtype", "auto")
    chosen = read_config(path / "config.yaml").train
    device = resolve_device("auto").type
    assert (chosen.device, chosen.dtype, chosen.compile) == (device, "bfloat16", False)
    monkeypatch.setattr(trainer_module, "product_rates", lambda *_, **__: [9e9, 1e9])
    capfd.readouterr()
    assert run(train.main, "--resume", path, "--train.steps", "13") == 0
    assert f"{device}; bfloat16, as configured; eager, as configured" in capfd.readouterr().err
    again = ["--resume", path, "--train.steps", "14", "--train.dtype", "auto"]
    assert run(train.main, *again) == 0
    assert f"{device}; float32: its products run at 9 GFLOP/s" in capfd.readouterr().err
