"""The loop: exact resumption, signals, what it reports, and that bad input leaves nothing."""

import itertools
import json
import math
import os
import runpy
import shlex
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest
import torch
from conftest import (
    arguments,
    points,
    random_text,
    refusal,
    run,
    setup_of,
    stop_at,
    target_losses,
    trained,
    training,
    wait_for,
)
from safetensors.torch import load_file

import gyre.build
import train
from ablation.jobs import count_saved_steps
from data.dataset import find_prepared
from evaluate import list_runs
from gyre import measure, signals
from gyre.compute import resolve_device
from gyre.options import make_config, read_config
from gyre.parallel import ALONE, World
from gyre.rundir import RunDir
from gyre.start import resolve
from model import kernels

EXACT = ["--model.dropout=0.2", "--train.micro_batch_size=14", "--optim.optimizer=muon",
         "--train.sample_prompt=ab"]


def checkpoint(path):
    """Weights and optimizer states of the last checkpoint, and its training.pt."""
    checkpoints = RunDir.open(path).checkpoints
    with checkpoints.open("last") as folder:
        files = [load_file(folder / f"{name}.safetensors") for name in ("model", "optimizer")]
        return files[0] | files[1], checkpoints.load_training(folder)


def equal_runs(a, b):
    """Bitwise: every loss, the weights and the optimizers' state."""
    for key in ("train/loss", "train/grad_norm", "train/lr", "val/loss", "val/bpb", "sample"):
        assert points(a, key) == points(b, key)
    (tensors, training), (same_tensors, same_training) = checkpoint(a), checkpoint(b)
    torch.testing.assert_close(tensors, same_tensors, rtol=0, atol=0)
    training["progress"]["seconds"] = same_training["progress"]["seconds"]
    assert training == same_training


def load_data(path):
    """The prepared data of a run."""
    data = find_prepared(read_config(path / "config.yaml").data)
    assert data is not None
    return data


def not_resumed(capfd, path, *options):
    """What is said where a run does not go on."""
    return refusal(capfd, train.main, "--resume", path, *options)[-1]


class Killed(BaseException):
    """As by kill -9: nobody cleans up."""


def kill(name, when, *argv):
    """train.py, which is gone before it calls its function `name` with such arguments."""
    function = getattr(train, name)

    def deadly(*args):
        if when(*args):
            raise Killed
        return function(*args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(train, name, deadly)
        train.main([*map(str, argv)])


@pytest.fixture(scope="module")
def straight(world):
    """The run that nothing ever interrupted."""
    return trained(world, "straight", *EXACT)


def test_a_run_leaves_what_the_readme_says(world, straight):
    files = "best config.yaml last manifest.json metrics.jsonl previous run.json tokenizer.model"
    assert sorted(p.name for p in straight.iterdir()) == files.split()
    files = "manifest.json model.safetensors training.pt"
    assert sorted(p.name for p in (straight / "best").iterdir()) == files.split()
    losses, validated = points(straight), points(straight, "val/loss")
    assert list(losses) == list(range(1, 13)) and losses[12] < losses[1] - 0.1
    assert list(validated) == list(points(straight, "sample")) == [5, 10, 12]
    assert all(p["tokens"] == p["step"] * 27 * 20 for p in RunDir.open(straight).metrics())
    seconds = sum(27 * 20 / rate for rate in points(straight, "train/tokens_per_second").values())
    progress = {"step": 12, "tokens": 12 * 27 * 20, "seconds": pytest.approx(seconds),
                "skipped": 0, "skipped_in_a_row": 0, "best": min(validated.values())}
    assert checkpoint(straight)[1]["progress"] == progress
    first = train.train_step(setup_of(world, *EXACT), 0)
    assert first[:3] == tuple(points(straight, f"train/{name}")[1] for name in first._fields[:3])
    assert RunDir.open(straight).record["command"].endswith(f"straight {shlex.join(EXACT)}")
    count = RunDir.open(straight).manifest["val"]
    bits = (count["tokens"] - 1) / math.log(2) / count["bytes"]
    assert points(straight, "val/bpb")[12] == pytest.approx(validated[12] * bits, rel=1e-9)
    assert validated[RunDir.open(straight).checkpoints.saved_step("best")] == progress["best"]


@pytest.fixture(scope="module")
def of_documents(world):
    """A run on 44 documents, of which several are held out."""
    texts = random_text(seed=3).splitlines()
    lines = (json.dumps({"text": "\n".join(texts[i : i + 5])}) for i in range(0, 220, 5))
    (world / "documents.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return trained(world, "documents", f"--data.files={world / 'documents.jsonl'}",
                   "--data.val_fraction=0.3")


def test_validation_leaves_ends_of_documents_out_of_bits_per_byte(of_documents):
    opened = RunDir.open(of_documents)
    best = opened.checkpoints.saved_step("best")
    ids = load_data(of_documents).dataset("val", seq_len=1).read(slice(None))
    nats = target_losses(of_documents)
    of_text = [loss for loss, target in zip(nats.tolist(), ids[1:], strict=True) if target != 2]
    assert len(of_text) == len(nats) - (opened.manifest["val"]["documents"] - 1) < len(nats)
    bits = math.fsum(of_text) / math.log(2) / opened.manifest["val"]["bytes"]
    assert points(of_documents, "val/bpb")[best] == pytest.approx(bits, rel=1e-5)
    share = 1 - math.fsum(of_text) / nats.sum().item()
    assert points(of_documents, "val/eos_share")[best] == pytest.approx(share, rel=1e-4)
    assert points(of_documents, "val/loss")[best] == pytest.approx(nats.mean().item(), rel=1e-5)


def test_a_measurement_has_the_bits_per_byte_of_the_training(of_documents):
    opened = RunDir.open(of_documents)
    best = opened.checkpoints.saved_step("best")
    measured = measure.measure(opened, device="cpu")
    for key in ("loss", "bpb", "eos_share"):
        logged = points(of_documents, f"val/{key}")[best]
        assert measured[key] == pytest.approx(logged, rel=1e-5)


def test_killed_anywhere_and_resumed_equals_never_stopped(world, straight):
    path = world / "runs" / "killed"
    resumed = ["--resume", path]
    kill("save", lambda *_: True, *arguments(world, *EXACT, "--name", path.name))
    assert points(path) and not (path / "last").exists()
    kill("train_step", lambda setup, step: step == 7, *resumed)
    assert list(points(path)) == list(range(1, 8))  # two steps past the checkpoint
    kill("sample", lambda setup, run: setup.progress.step == 10, *resumed)
    kill("train_step", lambda setup, step: step == 10, *resumed)  # what was saved has its sample
    stop_at(11, *resumed)
    kill("validate", lambda setup, run: setup.progress.step == 12, *resumed)
    assert run(train.main, *resumed) == 0
    equal_runs(straight, path)


def test_what_one_looks_at_does_not_change_what_one_trains(world, straight):
    """Neither how often a run evaluates, nor whether it samples."""
    path = trained(world, "a", *EXACT, "--train.eval_interval", "2", "--train.sample_tokens", "0")
    assert points(path) == points(straight) and not points(path, "sample")
    assert list(points(path, "val/loss")) == [2, 4, 6, 8, 10, 12]


def test_a_training_that_cannot_take_its_first_step_leaves_no_run(world, monkeypatch):
    monkeypatch.setattr(train, "train_step", Mock(side_effect=KeyboardInterrupt))
    assert run(train.main, *arguments(world, "--name", "interrupted")) == 130
    assert not (world / "runs" / "interrupted").exists()


def test_a_branch_equals_the_run_that_had_its_steps_from_the_start(world, capfd):
    """With wsd, runs of all lengths are one run up to the cooldown of the shortest: step 5."""
    wsd = ["--optim.schedule=wsd", "--optim.cooldown=0.4", "--optim.warmup_steps=2",
           "--train.eval_interval=4"]
    short = trained(world, "short", *wsd, "--train.steps", "8")
    long = trained(world, "long", *wsd, "--train.steps", "12", "--train.keep", "[3, 5]")
    assert RunDir.open(long).checkpoints.kept_steps() == [3, 5]
    branch = ["--branch-from", long, "--train.steps", "8"]
    for at in (3, 5):
        path = world / "runs" / f"branch-{at}"
        argv = [*branch, "--at", at, "--name", path.name]
        kill("train_step", lambda setup, step, at=at: step == at + 1, *argv)  # its first is saved
        assert list(points(path, "val/loss")) == [4]
        assert run(train.main, "--resume", path) == 0
        equal_runs(short, path)
    for at, steps, words in ((5, 5, "give a larger number, or an earlier"), (0, 8, "step 0")):
        assert words in refusal(capfd, train.main, *branch, "--at", at, "--train.steps", steps)[-1]
    kill("save", lambda *_: True, *branch, "--at", "5", "--name", "twig")
    assert "branch again" in not_resumed(capfd, world / "runs" / "twig")


def test_a_branch_has_a_best_of_its_own_even_if_it_gets_worse(world, monkeypatch):
    """That is what the list of runs shows, too. wandb gets the points that it inherits."""
    trunk, worse = trained(world, "trunk", "--train.keep", "[10]"), world / "runs" / "worse"
    monkeypatch.setitem(sys.modules, "wandb", wandb := MagicMock())
    assert run(train.main, "--branch-from", trunk, "--at=10", "--name=worse", "--optim.lr=30",
               "--log.wandb=offline") == 0
    assert min(call.kwargs["step"] for call in wandb.init.return_value.log.call_args_list) == 540
    loss = points(worse, "val/loss")[12]
    assert loss > min(points(trunk, "val/loss").values())
    assert f" {loss:.4f} " in list_runs([RunDir.open(worse)])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", 0)])
def test_a_signal_finishes_the_step_saves_and_says_how_to_resume(world, launch, number):
    path = world / "runs" / f"signal-{int(number)}"
    process = launch(1, train.main, arguments(world, "--name", path.name, "--train.steps", "9999"))
    wait_for(lambda: (path / "metrics.jsonl").exists() and len(points(path)) > 1)
    os.kill(process.processes[0].pid, number)
    errors = process.join(128 + number)
    assert f"python train.py --resume {path}" in errors and "Traceback" not in errors
    assert checkpoint(path)[1]["progress"]["step"] == max(points(path)) >= 2


def test_a_signal_in_the_last_step_stops_nothing(world, monkeypatch):
    """And wandb, which can continue the run of this id, hears of no error."""
    monkeypatch.setitem(sys.modules, "wandb", wandb := MagicMock())
    stop = signals.StopSignal()
    stop.number = signal.SIGTERM
    monkeypatch.setattr(train, "StopSignal", lambda: stop)
    path = trained(world, "one", "--train.steps=1", "--optim.warmup_steps=0", "--log.wandb=offline")
    options = wandb.init.call_args.kwargs
    assert (options["id"], options["resume"]) == (RunDir.open(path).record["wandb_id"], "allow")
    mirror = wandb.init.return_value
    assert {call.kwargs["step"] for call in mirror.log.call_args_list} == {27 * 20}  # its tokens
    mirror.finish.assert_called_once_with(exit_code=0)
    mirror.log.reset_mock()  # a resumed run shows wandb all points again
    assert run(train.main, "--resume", path, "--train.steps=2") == 0
    assert {call.kwargs["step"] for call in mirror.log.call_args_list} == {27 * 20, 54 * 20}


def test_a_signal_to_another_process_ends_this_one_as_a_signal(world, monkeypatch):
    monkeypatch.setattr(World, "sum", lambda self, *values: [value or 1.0 for value in values])
    assert run(train.main, *arguments(world, "--name", "other")) == 128 + signal.SIGTERM


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_a_signal_that_is_ignored_stays_ignored_and_a_second_ctrl_c_acts_at_once():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handlers = [signal.getsignal(number) for number in signals.SIGNALS]
    with signals.StopSignal() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert stop.number == 0
    assert [signal.getsignal(number) for number in signals.SIGNALS] == handlers
    signal.signal(signal.SIGHUP, before)
    for first in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with signals.StopSignal() as stop:
            signal.raise_signal(first)
            signal.raise_signal(signal.SIGTERM)  # a scheduler sends it, and torchrun once more
            assert stop.number == first
            with pytest.raises(KeyboardInterrupt):  # "Ctrl-C once more to stop at once"
                signal.raise_signal(signal.SIGINT)


def test_a_system_without_sighup_has_the_other_signals(monkeypatch):
    """As Windows."""
    monkeypatch.delattr(signal, "SIGHUP", raising=False)
    assert runpy.run_path(signals.__file__)["SIGNALS"] == [signal.SIGINT, signal.SIGTERM]


def test_a_sample_is_the_same_every_time_and_ends_where_the_text_does(world, monkeypatch, capfd):
    """Every rank draws as many tokens as were asked for, and shows those before the end. A prompt
    that is too long loses its start."""
    setup = setup_of(world, "--train.sample_prompt", "c " * 99 + "ab")
    eos, ids = setup.data.tokenizer.eos_id, setup.data.tokenizer.encode("abc")
    monkeypatch.setattr(train, "generate", generate := Mock(return_value=[[*ids, eos, *ids]]))
    setup.progress.step = 7
    train.sample(setup, RunDir(world, {}, is_main=False))
    (_, (prompt,), _), options = generate.call_args
    assert options == {"max_new_tokens": 4, "seed": 1}
    assert len(prompt) == 80 - 4 and setup.data.tokenizer.decode(prompt).endswith("ab")
    assert capfd.readouterr().err.count("ababc") == 1


@pytest.mark.parametrize("gone", [False, True])
def test_a_resume_forgets_the_checkpoints_of_steps_that_it_takes_again(world, gone, monkeypatch):
    """Killed between `best` of step 8 and `last`: the run goes on from step 4, and is shorter."""
    argv = arguments(world, "--train.eval_interval", "4", "--train.keep", "[4, 7]")
    path = world / "runs" / f"forgets-{gone}"
    kill("sample", lambda setup, run: setup.progress.step == 8, *argv, "--name", path.name)
    checkpoints = RunDir.open(path).checkpoints
    assert (checkpoints.saved_step("best"), checkpoints.kept_steps()) == (8, [4, 7])
    if gone:  # another resume has removed it, and was killed before it saved
        shutil.rmtree(path / "best")
    # Worse than step 4, whose weights in `best` those of step 8 have replaced; then worse still.
    losses, bests = iter([9e8, 9e9]), []

    def worse(*arguments):
        bests.append(checkpoints.saved_step("best"))
        return [(torch.tensor([next(losses)]), torch.tensor([5]))]

    monkeypatch.setattr(train, "token_losses", worse)
    assert run(train.main, "--resume", path, "--train.steps", "6", "--train.keep", "[]",
               "--train.eval_interval", "1") == 0
    assert bests == [0, 5] and checkpoints.kept_steps() == [4]


def test_losses_that_are_not_numbers_are_skipped_and_finally_stop(world, capfd, monkeypatch):
    def poisoned_step(setup, step, train_step=train.train_step):
        factor = math.nan if step in (1, 2, 5, 8, 9, 10) else 1.0
        with setup.model.norm.register_forward_hook(lambda m, i, out: out * factor):
            return train_step(setup, step)

    monkeypatch.setattr(train, "train_step", poisoned_step)
    path = world / "runs" / "diverged"
    assert "up to step 11" in refusal(capfd, train.main, *arguments(world, "--name", path.name))[-1]
    assert [step for step, loss in points(path).items() if loss is None] == [2, 3, 6, 9, 10, 11]
    assert points(path, "train/skipped")[11] == 6 and points(path, "diverged") == {11: 1}
    seconds = sum(27 * 20 / rate for rate in points(path, "train/tokens_per_second").values())
    *_, last = RunDir.open(path).metrics()  # skipped steps count too
    assert (last["tokens"], last["seconds"]) == (11 * 27 * 20, pytest.approx(seconds))
    assert RunDir.open(path).checkpoints.saved_step("last") == 10


@pytest.mark.parametrize(("last", "words"), [
    (6, "a weight is not finite after step 7, in float32"),  # of --train.keep
    (9, "the validation loss is not finite after step 10, in float32")])
def test_only_finite_weights_are_saved(last, words, world, capfd, monkeypatch):
    """Those of a step from which on they are not are in no checkpoint."""
    def breaking_step(setup, step, train_step=train.train_step):
        result = train_step(setup, step)
        if step == last:
            setup.model.norm.weight.data[3] = math.inf
        return result

    monkeypatch.setattr(train, "train_step", breaking_step)
    monkeypatch.setattr(RunDir, "finish", finish := Mock(return_value=None))
    path = world / "runs" / f"broken-{last}"
    *_, said = refusal(capfd, train.main, *arguments(world, "--train.keep=7", "--name", path.name))
    assert f"{words}: try" in said and said.endswith(f"{path} has a checkpoint of step 5")
    checkpoints = RunDir.open(path).checkpoints
    assert [checkpoints.saved_step(name) for name in ("last", "best")] == [5, 5]
    assert checkpoints.kept_steps() == ([7] if last == 9 else [])
    assert points(path, "diverged") == {last + 1: 1}
    finish.assert_called_once_with(exit_code=1)


def test_a_text_that_changed_is_not_resumed_on(world, tmp_path, capfd):
    """Also where the tokenizer is the same: one word of the validation part is enough. But what
    was prepared before is taken wherever it still is, also without the text."""
    text, prepared = Path(shutil.copy(world / "text.txt", tmp_path)), tmp_path / "prepared"
    path, original = tmp_path / "runs" / "gyre-rope-s1", text.read_text(encoding="utf-8")
    stop_at(2, *arguments(tmp_path, "--train.steps", "3"))
    text.unlink()
    assert run(train.main, "--resume", path) == 0
    assert len([*prepared.iterdir()]) == len([*prepared.glob("text-*")]) == 1
    shutil.rmtree(prepared)
    text.write_text(original[:-10] + "a b c d e\n", encoding="utf-8")
    for argv in (["--resume", path], ["--branch-from", path, "--at=3", "--train.steps=9"]):
        assert "has changed since it was started" in refusal(capfd, train.main, *argv)[-1]


@pytest.mark.parametrize("choice", [True, False])
def test_all_processes_decide_alike(world, monkeypatch, choice):
    """Products as the first one takes them, the dtype by the rates of all, and what is compiled."""
    class Second(World):
        def sum(self, *values: float) -> list[float]:
            return [values[0] + choice] if len(values) == 1 else [1.0, 9.0]

    monkeypatch.setattr(kernels, "onednn_gain", lambda: 0.0 if choice else 9.0)
    monkeypatch.setattr(gyre.build, "matmul_rates", lambda *_, **__: [9.0, 1.0])
    monkeypatch.setattr(gyre.build, "resolve_compile", compiling := Mock(return_value=(choice, "")))
    config = resolve(arguments(world, "--train.dtype", "auto"), "").config
    compute = gyre.build.choose_compute(config, Second(1, 2, ALONE.device, is_main=False))
    assert compiling.call_args.args[3] == 6 * config.model.matrix_parameters * 12 * 27 * 20
    assert compute.onednn == compute.compiled == choice
    assert compute.dtype == torch.bfloat16
    decided = gyre.build.record_compute(config, compute).train
    assert (decided.dtype, decided.onednn, decided.compile) == ("bfloat16", choice, choice)


def test_a_longer_run_says_how_it_goes_on(world, straight, capfd):
    assert "has taken 12 steps: give --train.steps" in not_resumed(capfd, straight)
    path = world / "runs" / "longer"
    stop_at(2, *arguments(world, "--name", "longer", "--train.steps", "4"))
    again = ["--resume", str(path), "--train.steps", "6", "--train.sample_prompt", 'é "b']
    capfd.readouterr()
    stop_at(5, *again)  # past the 4 steps of its configuration
    said, tokens = capfd.readouterr().err, RunDir.open(path).manifest["train"]["tokens"]
    assert f"{tokens:,} training tokens and" in said and " 5/6 " in said  # of the bar
    assert f"6 steps of 27x20 tokens ({6 * 27 * 20 / tokens:.1f} epochs)" in said
    assert f"To go on:\n    python train.py {shlex.join(again)}\n" in said
    assert "last resumed with --train.steps 6" in not_resumed(capfd, path, "--log.wandb=disabled")
    assert run(train.main, *again) == 0 and list(points(path)) == list(range(1, 7))


def test_the_same_command_starts_a_run_and_goes_on_with_it(world, straight, tmp_path, capfd):
    """Without the weights that it started from; and once it has finished, without an error."""
    origin = shutil.copytree(straight, tmp_path / "origin")
    argv = ["--init-from", origin, *training(world), "--name", "again", "--resume", "auto",
            "--train.steps", "6"]
    for other in ("last", "previous"):
        shutil.rmtree(origin / other)  # `best` is what counts
    stop_at(4, *argv)
    assert count_saved_steps(world / "runs" / "again") == 4
    shutil.rmtree(origin)
    for _ in range(2):
        assert run(train.main, *argv) == 0
    assert list(points(world / "runs" / "again")) == list(range(1, 7))
    shutil.rmtree(world / "runs" / "again")
    assert f"no run folder at {origin}" in refusal(capfd, train.main, *argv)[-1]


def test_what_auto_chose_is_written_into_the_run_and_kept_on_resume(world, monkeypatch, capfd):
    """Also where the machine that resumes it would choose otherwise, of which the two forms of a
    product round differently."""
    monkeypatch.setattr(gyre.build, "matmul_rates", lambda *_, **__: [1e9, 9e9])
    auto = ["--train.device", "auto", "--train.dtype", "auto", "--train.steps", "3"]
    path = trained(world, "auto", *auto)
    chosen, name = read_config(path / "config.yaml").train, resolve_device("auto").type
    assert (chosen.device, chosen.dtype, chosen.compile) == (name, "bfloat16", False)
    was = kernels.prefers_onednn()
    assert chosen.onednn == was
    monkeypatch.setattr(kernels, "onednn_gain", lambda: 0.0 if was else 9.0)
    monkeypatch.setattr(gyre.build, "matmul_rates", lambda *_, **__: [9e9, 1e9])
    for extra, dtype in (["4"], "bfloat16"), (["5", "--train.dtype", "auto"], "float32"):
        assert run(train.main, "--resume", path, "--train.steps", *extra) == 0
        assert f"{name}; {dtype}" in capfd.readouterr().err
        assert read_config(path / "config.yaml").train.onednn == was


def test_a_fine_tuning_measures_the_base_on_its_own_text_first(world, straight, tmp_path, capfd):
    (tmp_path / "other.txt").write_text("def f(x):\n    return x\n" * 200, encoding="utf-8")
    path = tmp_path / "runs" / "tuned"
    assert run(train.main, "--init-from", straight, "--name", path.name, "--train.steps=3",
               "--data.files", tmp_path / "other.txt", "--log.runs", path.parent,
               "--data.prepared", tmp_path / "prepared", "--log.wandb=disabled") == 0
    losses = points(path, "val/loss")
    assert list(losses) == [0, 1, 2, 3] and losses[3] < losses[0]
    assert f"step 0: val loss {losses[0]:.4f} nats/token" in capfd.readouterr().err
    assert RunDir.open(path).checkpoints.saved_step("best") == 3


def test_a_killed_fine_tuning_keeps_one_loss_of_its_base(world, straight):
    path = world / "runs" / "tuned-killed"
    kill("save", lambda *_: True, *training(world, "--init-from", straight, "--name", path.name))
    assert run(train.main, "--resume", path) == 0
    assert list(points(path, "val/loss")) == [0, 5, 10, 12]


def test_minutes_become_steps_of_which_the_run_is_an_exact_one(world):
    """The steps that were timed have left no trace."""
    fitted = ["--train.steps=auto", "--optim.warmup_steps=auto", "--train.eval_interval=auto"]
    path = trained(world, "minutes", *EXACT, *fitted, "--train.minutes=0.01")
    config = read_config(path / "config.yaml")
    assert config.train.minutes is None and config.train.steps == max(points(path))
    again = trained(world, "as-many-steps", *EXACT, f"--train.steps={config.train.steps}",
                    f"--optim.warmup_steps={config.optim.warmup_steps}",
                    f"--train.eval_interval={config.train.eval_interval}")
    equal_runs(path, again)


def test_the_steps_fill_the_minutes_at_the_rate_of_the_first_steps(world, monkeypatch, capfd):
    """A clock that ticks a quarter of a second at every reading: at the start, and after a step."""
    clock = itertools.count(0, 0.25)
    monkeypatch.setattr(gyre.build.time, "perf_counter", lambda: next(clock))
    argv = ["--train.steps=auto", "--optim.warmup_steps=auto", "--train.minutes=0.5"]
    config = setup_of(world, *argv).config
    assert (config.train.steps, config.optim.warmup_steps) == (120, 12)
    assert "auto    train.steps 120, optim.warmup_steps 12" in capfd.readouterr().err


@pytest.mark.parametrize("dtype, measured", [("auto", 2), ("float32", 1)])
def test_a_long_training_says_about_how_long_before_its_first_step(
        world, monkeypatch, capfd, dtype, measured):
    rates = []

    def rate(*_, training, dtypes):
        rates.extend(dtypes)
        return [1e9 for _ in dtypes]

    monkeypatch.setattr(gyre.build, "matmul_rates", rate)
    setup_of(world, f"--train.dtype={dtype}", "--train.steps=9000", "--train.compile=false")
    assert "epochs, about 2.3 hours)" in capfd.readouterr().err
    assert len(rates) == measured
    setup_of(world, "--train.steps=9")
    assert "epochs)" in capfd.readouterr().err and len(rates) == measured


def test_only_a_new_run_chooses_its_steps_by_minutes(straight, capfd):
    said = not_resumed(capfd, straight, "--train.minutes", "1")
    assert "train.minutes is for a new run: with --resume give --train.steps" in said


@pytest.mark.parametrize("final_lr, words", [
    ("0.5", "step 4 was 0.0005. With 8 steps it goes on at 0.00069 and ends at 0.0005. To start "
            "low instead: --branch-from {path} --train.steps 8 --optim.lr 0.0005"),
    ("0", "step 4 was 0. With 8 steps it goes on at 0.00038 and ends at 0.\n")])
def test_a_longer_run_says_what_becomes_of_its_learning_rate(world, capfd, final_lr, words):
    path = trained(world, f"rate-{final_lr}", "--optim.lr=1e-3", "--optim.schedule=linear",
                   f"--optim.final_lr={final_lr}", "--optim.warmup_steps=0", "--train.steps=4")
    capfd.readouterr()
    assert run(train.main, "--resume", path, "--train.steps", "8") == 0
    assert f"the learning rate of {words.format(path=path)}" in capfd.readouterr().err


def test_a_run_whose_text_has_changed_says_so_and_goes_on_with_what_was_prepared(
        world, tmp_path, capfd):
    text = Path(shutil.copy(world / "text.txt", tmp_path))
    stop_at(2, *arguments(tmp_path, "--train.steps", "4"))
    path = tmp_path / "runs" / "gyre-rope-s1"
    note = f"the text of {path} has changed since then, or is gone"
    capfd.readouterr()
    stop_at(3, "--resume", path)
    assert note not in capfd.readouterr().err
    text.write_text(text.read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    assert run(train.main, "--resume", path) == 0
    assert note in capfd.readouterr().err


def test_a_run_is_trained_by_one_process_at_a_time(world, capfd, monkeypatch):
    """From its start, and when it is resumed."""
    path, train_step, refused = world / "runs" / "gyre-rope-s1", train.train_step, []

    def asking(setup, step):
        if step in (2, 4):
            assert run(train.main, "--resume", path) == 2
            refused.append("is being trained by another process" in capfd.readouterr().err)
        return train_step(setup, step)

    monkeypatch.setattr(train, "train_step", asking)
    stop_at(3, *arguments(world, "--train.steps", "5"))
    assert run(train.main, "--resume", path) == 0 and refused == [True, True]


@pytest.mark.parametrize("extra, words", [
    ("--data.seq_len=5000", "seq_len"),
    (f"--train.batch_size={10**12} --train.micro_batch_size={10**11}",
     "this model with 100000000000 rows of 20 tokens takes 2.4e+15 bytes")])
def test_bad_input_is_one_line_and_leaves_no_run(world, straight, capfd, extra, words):
    before = sorted(straight.parent.rglob("*"))
    assert words in refusal(capfd, train.main, *arguments(world, "--name=bad", *extra.split()))[-1]
    assert sorted(straight.parent.rglob("*")) == before


@pytest.mark.parametrize("text, words", [
    ("Once upon a time there was a king who had three sons.", "Once upon a time there was a"),
    ("\n\n  ***\n\tdef read_file(path):\n", "def read_file(path):"),
    ("Moby-Dick; or, \nThe Whale", "Moby-Dick; or,"),
    ("\0\x1b[1m no line of text\nbut this", "but this"),
    ("\u4e00" * 99, "\u4e00" * 30), ("12 34\n", ""), ("", "")])
def test_the_first_words_of_a_text_are_cut_at_a_word(text, words):
    assert train.first_words(text) == words


@pytest.mark.parametrize("sample_prompt, prompt", [
    (" def read_file( ", " def read_file( "), ("", "ab c d"), (" ", "ab c d")])
def test_the_prompt_is_the_configured_one_or_else_of_the_text(sample_prompt, prompt):
    tokenizer = SimpleNamespace(decode=lambda ids: "ab c d\n" if ids == [5, 6] else "?")
    setup = SimpleNamespace(
        config=make_config({"train.sample_prompt": sample_prompt}),
        data=SimpleNamespace(tokenizer=tokenizer),
        train_data=SimpleNamespace(read=lambda index: torch.tensor([5, 6])))
    assert train.choose_prompt(setup) == prompt


def test_a_training_ends_with_a_command_that_continues_its_text(world, capfd):
    text = world / "my poem.txt"
    text.write_text("It's a poem, of one line.\n" * 400, encoding="utf-8")
    path = trained(world, "poem", "--data.files=null", f"--data.files={text}",
                   "--data.vocab_size=277", "--train.steps=3")
    last = capfd.readouterr().err.splitlines()[-1]
    _, *words = shlex.split(last)
    assert points(path, "sample")[3].startswith("It's a poem, of one line.")
    assert words == ["python", "generate.py", "--run", str(path), "--prompt",
                     "It's a poem, of one line."]
