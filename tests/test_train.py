"""What a training logs, prints and saves, and that bad input leaves nothing."""

import json
import math
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest
import torch
from builders import (
    build_setup,
    error_lines,
    exit_code,
    random_text,
    read_metric,
    run_python,
    target_losses,
    tiny_argv,
    train_tiny,
    training_argv,
)
from resumption import EXACT, always, kill_before, last_checkpoint

import generate
import gyre.step
import train
from data.dataset import find_or_prepare
from errors import UserError
from evaluate import list_runs, open_run
from gyre import measure
from gyre.options import make_config
from gyre.rundir import RunDir
from gyre.step import Progress, token_losses, train_step
from gyre.yaml_files import read_config


@pytest.fixture(scope="module")
def straight(workdir):
    """A run of 7 steps of 9 rows of 20 tokens."""
    return train_tiny(workdir, "straight", *EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_an_eager_training_imports_no_compiler(workdir, optimizer):
    """Its import takes a second, and that of sympy, which it needs, a third of one."""
    argv = tiny_argv(workdir, "--name", f"eager-{optimizer}", "--optim.optimizer", optimizer,
                     "--train.dtype", "auto", "--train.steps", "3")
    assert run_python(f"""
import sys
import train

try:
    train.main({argv})
except SystemExit as end:
    print(end.code, {{"torch._dynamo", "sympy"}} & {{*sys.modules}})
""").splitlines()[-1] == "0 set()"


# --- what a run holds -----------------------------------------------------------------------------


def test_a_run_leaves_the_files_of_the_readme(straight):
    assert sorted(file.name for file in straight.iterdir()) == [
        "best", "config.yaml", "last", "manifest.json", "metrics.jsonl", "previous", "run.json",
        "tokenizer.model"]


def test_best_has_weights_and_no_optimizer_state(straight):
    assert sorted(file.name for file in (straight / "best").iterdir()) == [
        "manifest.json", "model.safetensors", "training.pt"]


def test_every_step_is_logged_and_the_loss_falls(straight):
    losses = read_metric(straight)
    assert list(losses) == [1, 2, 3, 4, 5, 6, 7]
    assert losses[7] < losses[1] - 0.05


@pytest.mark.parametrize("key", ["val/loss", "sample"])
def test_validations_and_samples_are_at_intervals_and_the_end(straight, key):
    assert list(read_metric(straight, key)) == [3, 6, 7]


def test_every_point_says_how_many_tokens_were_seen(straight):
    tokens = {point["step"]: point["tokens"] for point in RunDir.open(straight).metrics()}
    assert tokens[1] == 180
    assert tokens[7] == 1260
    assert len(tokens) == 7


def test_the_first_point_is_that_of_the_first_step(workdir, straight):
    first = train_step(build_setup(workdir, *EXACT), 0)
    assert read_metric(straight, "train/loss")[1] == first.loss
    assert read_metric(straight, "train/grad_norm")[1] == first.grad_norm
    assert read_metric(straight, "train/lr")[1] == first.lr


def test_the_last_checkpoint_knows_how_far_the_training_is(straight):
    _, training = last_checkpoint(straight)
    rates = read_metric(straight, "train/tokens_per_second").values()
    assert training["progress"] == {
        "step": 7, "tokens": 1260, "skipped": 0, "skipped_in_a_row": 0,
        "steps_unchanged": 0,
        "seconds": pytest.approx(sum(180 / rate for rate in rates)),
        "best": min(read_metric(straight, "val/loss").values())}


def test_best_is_the_step_of_the_lowest_validation_loss(straight):
    losses = read_metric(straight, "val/loss")
    step = RunDir.open(straight).checkpoints.saved_step("best")
    assert losses[step] == min(losses.values())


def test_a_higher_validation_loss_does_not_become_best(workdir, monkeypatch):
    losses = iter([5.0, 9.0, 7.0])

    def token_losses(*args):
        return [(torch.tensor([next(losses)]), torch.tensor([5]))]

    monkeypatch.setattr(train, "token_losses", token_losses)
    path = train_tiny(workdir, "higher")
    assert RunDir.open(path).checkpoints.saved_step("best") == 5


def test_an_equal_validation_loss_does_not_become_best(workdir, monkeypatch):
    """It is 5.0 after steps 5, 10 and 12."""
    monkeypatch.setattr(train, "token_losses",
                        lambda *args: [(torch.tensor([5.0]), torch.tensor([5]))])
    path = train_tiny(workdir, "equal")
    assert RunDir.open(path).checkpoints.saved_step("best") == 5


def test_a_run_knows_its_command(straight):
    command = RunDir.open(straight).record["command"]
    assert command.startswith("python train.py ")
    assert command.endswith(f"--name straight {shlex.join(EXACT)}")


def test_without_separators_bits_per_byte_are_the_loss_converted(straight):
    split = RunDir.open(straight).manifest["val"]
    nats = read_metric(straight, "val/loss")[7] * (split["tokens"] - 1)
    bits = read_metric(straight, "val/bpb")[7] * split["bytes"]
    assert bits == pytest.approx(nats / 0.6931471805599453, rel=1e-9)


def test_a_run_whose_configuration_was_edited_meanwhile_ends_well(workdir, monkeypatch):
    path = workdir / "runs" / "edited"
    take_steps = train.take_steps

    def take_steps_and_edit(*args):
        take_steps(*args)
        with (path / "config.yaml").open("a", encoding="utf-8") as file:
            file.write("# a remark\n")

    monkeypatch.setattr(train, "take_steps", take_steps_and_edit)
    argv = tiny_argv(workdir, "--train.steps=1", "--optim.warmup_steps=0", "--name", path.name)
    assert exit_code(train.main, *argv) == 0


@pytest.mark.parametrize("file", ["config.yaml", "tokenizer.model", "run.json"])
def test_a_run_that_lost_a_file_ends_at_the_next_save(workdir, file, monkeypatch, capsys):
    path = workdir / "runs" / f"without-{file}"
    log_step = train.log_step

    def log_step_and_remove(*args):
        log_step(*args)
        (path / file).unlink()  # a second time, this fails

    monkeypatch.setattr(train, "log_step", log_step_and_remove)
    argv = tiny_argv(workdir, "--train.steps=2", "--train.eval_interval=1",
                     "--optim.warmup_steps=0", "--name", path.name)
    error = error_lines(capsys, train.main, *argv)[-1]
    assert error == f"error: {path / file} is missing: restore it, or choose another run"


# --- what is no text ------------------------------------------------------------------------------


def test_bits_per_byte_leave_out_all_that_stands_for_no_text(workdir, monkeypatch):
    """Here an id of the text: another tokenizer may begin every document with one of its own."""
    setup = build_setup(workdir)
    pairs = list(token_losses(setup.model, setup.val_data, 27, setup.compute))
    nats = torch.cat([nats for nats, _ in pairs])
    targets = torch.cat([targets for _, targets in pairs])
    prefix = targets[3].item()
    monkeypatch.setattr(type(setup.data), "separators", [setup.data.tokenizer.eos_id, prefix])
    left = nats[targets != prefix].sum().item()
    bits = train.measure_validation(setup)["val/bpb"] * setup.data.manifest["val"]["bytes"]
    assert bits == pytest.approx(left / 0.6931471805599453, rel=1e-6)


def test_a_loss_of_zero_has_no_share_of_ends(workdir, monkeypatch):
    """That of a text of one letter, once a model has learned it."""
    setup = build_setup(workdir)
    no_losses = [(torch.zeros(2, dtype=torch.float64), torch.tensor([5, 6]))]
    monkeypatch.setattr(train, "token_losses", lambda *_: no_losses)
    expected = {"val/loss": 0.0, "val/bpb": 0.0, "val/eos_share": 0.0}
    assert train.measure_validation(setup) == expected


@pytest.fixture(scope="module")
def of_documents(workdir):
    """A run on 44 documents, of which several are held out."""
    lines = random_text(seed=3).splitlines()
    documents = ["\n".join(lines[first : first + 5]) for first in range(0, 220, 5)]
    rows = [json.dumps({"text": document}) for document in documents]
    (workdir / "documents.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return train_tiny(workdir, "documents", f"--data.files={workdir / 'documents.jsonl'}",
                      "--data.val_fraction=0.3", "--train.steps=5")


@pytest.fixture(scope="module")
def losses(of_documents):
    """The losses of its best weights in nats: `text` of targets that are text, `ends` of EOS."""
    data = find_or_prepare(read_config(of_documents / "config.yaml").data)
    ids = data.dataset("val", seq_len=1).read(slice(None))
    nats = target_losses(of_documents)
    is_end = ids[1:] == 2
    return SimpleNamespace(text=nats[~is_end], ends=nats[is_end])


@pytest.fixture(scope="module")
def logged(of_documents):
    """What its validation of the best weights has logged."""
    step = RunDir.open(of_documents).checkpoints.saved_step("best")
    return {key: read_metric(of_documents, f"val/{key}")[step] for key in ("loss", "bpb",
                                                                           "eos_share")}


def test_an_end_stands_between_two_documents(of_documents, losses):
    documents = RunDir.open(of_documents).manifest["val"]["documents"]
    assert len(losses.ends) == documents - 1 > 0


def test_the_loss_is_the_mean_over_text_and_ends(losses, logged):
    mean = torch.cat([losses.text, losses.ends]).mean().item()
    assert logged["loss"] == pytest.approx(mean, rel=1e-5)


def test_bits_per_byte_leave_out_ends_of_documents(of_documents, losses, logged):
    n_bytes = RunDir.open(of_documents).manifest["val"]["bytes"]
    bits = losses.text.sum().item() / 0.6931471805599453
    assert logged["bpb"] == pytest.approx(bits / n_bytes, rel=1e-5)


def test_the_share_of_ends_is_that_of_the_nats(losses, logged):
    nats = losses.text.sum().item() + losses.ends.sum().item()
    assert logged["eos_share"] == pytest.approx(losses.ends.sum().item() / nats, rel=1e-4)


@pytest.mark.parametrize("key", ["loss", "bpb", "eos_share"])
def test_a_measurement_equals_what_the_training_logged(of_documents, logged, key):
    measured = measure.measure(RunDir.open(of_documents), device="cpu")
    assert measured[key] == pytest.approx(logged[key], rel=1e-5)


# --- a branch that gets worse ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def worse(workdir):
    """A branch of two steps at a rate at which its loss rises, and the run that it is from."""
    trunk = train_tiny(workdir, "trunk", "--train.keep", "[10]")
    assert exit_code(train.main, "--branch-from", trunk, "--at=10", "--name=worse",
                     "--optim.lr=30") == 0
    return workdir / "runs" / "worse", trunk


def test_a_branch_has_a_best_of_its_own(worse):
    path, trunk = worse
    assert read_metric(path, "val/loss")[12] > min(read_metric(trunk, "val/loss").values())
    assert RunDir.open(path).checkpoints.saved_step("best") == 12


def test_the_list_of_runs_shows_the_best_of_a_branch(worse):
    path, _ = worse
    loss = read_metric(path, "val/loss")[12]
    assert f" {loss:.4f} " in list_runs([open_run(Path(path))])


# --- wandb ----------------------------------------------------------------------------------------


@pytest.fixture
def wandb(monkeypatch):
    """A module that says what train.py has called of wandb."""
    mock = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", mock)
    return mock


ONE_STEP = ["--train.steps=1", "--optim.warmup_steps=0", "--log.wandb=offline"]


def logged_tokens(wandb):
    """The steps of wandb, which are tokens."""
    return {call.kwargs["step"] for call in wandb.init.return_value.log.call_args_list}


def test_wandb_can_continue_the_run_of_this_id(workdir, wandb):
    path = train_tiny(workdir, "wandb-id", *ONE_STEP)
    options = wandb.init.call_args.kwargs
    assert options["id"] == RunDir.open(path).record["wandb_id"]
    assert options["resume"] == "allow"


def test_wandb_hears_that_a_training_has_finished(workdir, wandb):
    train_tiny(workdir, "wandb-end", *ONE_STEP)
    wandb.init.return_value.finish.assert_called_once_with(exit_code=0)


def test_after_the_last_step_ctrl_c_ends_the_wait_for_wandb(workdir, capfd, monkeypatch):
    monkeypatch.setattr(RunDir, "finish", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    argv = tiny_argv(workdir, "--train.steps=1", "--optim.warmup_steps=0", "--name=waits")
    assert exit_code(train.main, *argv) == 130
    assert "stopping when" not in capfd.readouterr().err


def test_a_resumed_run_shows_wandb_all_points_again(workdir, wandb):
    path = train_tiny(workdir, "wandb-again", *ONE_STEP)
    assert logged_tokens(wandb) == {180}
    wandb.init.return_value.log.reset_mock()
    assert exit_code(train.main, "--resume", path, "--train.steps=2") == 0
    assert logged_tokens(wandb) == {180, 360}


def test_a_branch_shows_wandb_the_points_it_inherits(workdir, wandb):
    path = train_tiny(workdir, "wandb-trunk", "--train.steps=3", "--train.keep=[2]")
    assert exit_code(train.main, "--branch-from", path, "--at=2", "--name=wandb-branch",
                     "--log.wandb=offline") == 0
    assert logged_tokens(wandb) == {180, 360, 540}


# --- losses and weights that are not finite -------------------------------------------------------


@pytest.fixture(scope="module")
def diverged(workdir):
    """A run whose steps 2, 3, 6, 9, 10 and 11 have no finite loss. It stops after step 11."""
    start_step = gyre.step.start_step

    def poisoned_step(setup, step):
        factor = math.nan if step + 1 in (2, 3, 6, 9, 10, 11) else 1.0
        with setup.model.norm.register_forward_hook(lambda module, args, out: out * factor):
            return start_step(setup, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gyre.step, "start_step", poisoned_step)
        assert exit_code(train.main, *tiny_argv(workdir, "--name", "diverged")) == 2
    return workdir / "runs" / "diverged"


def test_three_skipped_steps_in_a_row_stop_a_training(diverged):
    assert read_metric(diverged, "diverged") == {11: 1}


def test_skipped_steps_are_logged_without_a_loss(diverged):
    skipped = [step for step, loss in read_metric(diverged).items() if loss is None]
    assert skipped == [2, 3, 6, 9, 10, 11]


def test_skipped_steps_are_counted(diverged):
    assert list(read_metric(diverged, "train/skipped").values()) == [0, 1, 2, 2, 2, 3, 3, 3, 4, 5,
                                                                     6]


def test_tokens_and_seconds_include_skipped_steps(diverged):
    *_, last = RunDir.open(diverged).metrics()
    rates = read_metric(diverged, "train/tokens_per_second").values()
    assert last["tokens"] == 11 * 180
    assert last["seconds"] == pytest.approx(sum(180 / rate for rate in rates))


def test_a_diverged_training_leaves_its_last_finite_checkpoint(diverged):
    assert RunDir.open(diverged).checkpoints.saved_step("last") == 10


@pytest.fixture
def broken(workdir, run_name, monkeypatch, capfd):
    """Calls train.py and breaks a weight after a step.

    Gives the folder of the run, the error, and the exit codes with which the run was finished.
    """
    def train_until_broken(step):
        start_step = gyre.step.start_step
        exit_codes = []

        def breaking_step(setup, at):
            result = start_step(setup, at)
            if at + 1 == step:
                setup.model.norm.weight.data[3] = math.inf
            return result

        def finish(self, exit_code):
            exit_codes.append(exit_code)

        monkeypatch.setattr(gyre.step, "start_step", breaking_step)
        monkeypatch.setattr(RunDir, "finish", finish)
        path = workdir / "runs" / run_name
        argv = tiny_argv(workdir, "--train.keep=7", "--name", run_name)
        error = error_lines(capfd, train.main, *argv)[-1]
        return path, error, exit_codes

    return train_until_broken


@pytest.mark.parametrize("step, words", [
    (7, "a weight is not finite after step 7, in float32: try"),  # of --train.keep
    (10, "the validation loss is not finite after step 10, in float32: try")])
def test_weights_that_are_not_finite_stop_the_training(broken, step, words):
    path, error, _ = broken(step)
    assert words in error
    assert error.endswith(f"{path} has a checkpoint of step 5")
    assert read_metric(path, "diverged") == {step: 1}


@pytest.mark.parametrize("step, kept", [(7, []), (10, [7])])
def test_only_finite_weights_are_saved(broken, step, kept):
    path, _, _ = broken(step)
    checkpoints = RunDir.open(path).checkpoints
    assert checkpoints.saved_step("last") == 5
    assert checkpoints.saved_step("best") == 5
    assert checkpoints.kept_steps() == kept


def test_a_diverged_run_is_finished_as_failed(broken):
    _, _, exit_codes = broken(7)
    assert exit_codes == [1]


# --- fine-tuning ----------------------------------------------------------------------------------


def test_a_fine_tuning_measures_the_base_on_its_own_text_first(workdir, straight, tmp_path, capfd):
    (tmp_path / "other.txt").write_text("def f(x):\n    return x\n" * 200, encoding="utf-8")
    path = tmp_path / "runs" / "tuned"
    assert exit_code(train.main, "--init-from", straight, "--name", path.name, "--train.steps=3",
                     "--data.files", tmp_path / "other.txt", "--log.runs", path.parent,
                     "--data.prepared", tmp_path / "prepared", "--log.wandb=disabled",
                     "--train.compile=false", "--train.dtype=float32",
                     "--train.sample_tokens=0") == 0
    losses = read_metric(path, "val/loss")
    assert list(losses) == [0, 1, 2, 3]
    assert losses[3] < losses[0]
    assert f"step 0: val loss {losses[0]:.4f} nats/token" in capfd.readouterr().err


@pytest.mark.parametrize("is_known", [True, False])
def test_a_text_that_the_tokenizer_hardly_knows_is_noted(
    workdir, straight, tmp_path, capfd, is_known
):
    text = "\u4f60\u597d\uff0c\u4e16\u754c\u3002\n" * 200
    if is_known:
        text = (workdir / "text.txt").read_text(encoding="utf-8")[:4000]
    (tmp_path / "other.txt").write_text(text, encoding="utf-8")
    assert exit_code(train.main, "--init-from", straight, "--name=tuned", "--train.steps=1",
                     "--data.files", tmp_path / "other.txt", "--log.runs", tmp_path / "runs",
                     "--data.prepared", tmp_path / "prepared", "--log.wandb=disabled",
                     "--train.compile=false", "--train.dtype=float32",
                     "--train.sample_tokens=0") == 0
    words = f"note: the tokenizer of {straight} makes "
    assert (words in capfd.readouterr().err) is not is_known


@pytest.mark.parametrize("steps", [["--train.steps=1"],
                                   ["--train.steps=auto", "--train.minutes=0.0001"]])
def test_a_fine_tuning_of_the_last_weights_says_so_once(workdir, straight, tmp_path, capfd, steps):
    """With train.minutes the weights are loaded twice: to time steps, and to train."""
    shutil.copytree(straight, tmp_path / "stopped")
    shutil.rmtree(tmp_path / "stopped" / "best")
    assert exit_code(train.main, *training_argv(workdir, "--init-from", tmp_path / "stopped",
                                                "--name", f"gone-on-{len(steps)}", *steps,
                                                "--optim.warmup_steps=0")) == 0
    note = f"note: {tmp_path / 'stopped'} has no best weights: its last ones are taken"
    assert capfd.readouterr().err.count(note) == 1


def test_the_best_of_a_fine_tuning_is_one_of_its_own(workdir, straight):
    path = workdir / "runs" / "tuned-worse"
    assert exit_code(train.main, *training_argv(workdir, "--init-from", straight, "--name",
                                                path.name,
                                                "--train.steps=2", "--optim.warmup_steps=0",
                                                "--optim.lr=30")) == 0
    assert read_metric(path, "val/loss")[2] > read_metric(path, "val/loss")[0]
    assert RunDir.open(path).checkpoints.saved_step("best") == 2


def test_a_killed_fine_tuning_keeps_one_loss_of_its_base(workdir, straight):
    path = workdir / "runs" / "tuned-killed"
    kill_before("save", always, *training_argv(workdir, "--init-from", straight, "--name",
                                               path.name, "--train.steps=6"))
    assert exit_code(train.main, "--resume", path) == 0
    assert list(read_metric(path, "val/loss")) == [0, 5, 6]


def test_a_branch_of_a_fine_tuning_does_not_measure_its_base_again(workdir, straight):
    argv = training_argv(workdir, "--init-from", straight, "--name=tuned-trunk", "--train.steps=1",
                         "--optim.warmup_steps=0")
    assert exit_code(train.main, *argv) == 0
    assert exit_code(train.main, "--branch-from", workdir / "runs" / "tuned-trunk",
                     "--name=tuned-branch", "--train.steps=2") == 0
    assert list(read_metric(workdir / "runs" / "tuned-branch", "val/loss")) == [0, 1, 2]


# --- samples and prompts --------------------------------------------------------------------------


@pytest.fixture
def sampled(workdir, monkeypatch, capfd):
    """What `draw_sample` gives `generate`, and what is printed of a model that draws "abc", EOS,
    "abc"."""
    setup = build_setup(workdir, "--train.sample_prompt", "c " * 99 + "ab")
    tokenizer = setup.data.tokenizer
    drawn = [*tokenizer.encode("abc"), tokenizer.eos_id, *tokenizer.encode("abc")]
    generate_drawn = Mock(return_value=[drawn])
    monkeypatch.setattr(train, "generate", generate_drawn)
    setup.progress.step = 7
    train.show_sample(setup, train.draw_sample(setup))
    (_, prompts, _), options = generate_drawn.call_args
    (prompt,) = prompts
    return SimpleNamespace(prompt=prompt, options=options, tokenizer=tokenizer,
                           printed=capfd.readouterr().err)


def test_a_sample_is_drawn_with_the_same_numbers_every_time(sampled):
    """And no id ends it early: every rank draws as many tokens."""
    assert sampled.options == {"max_new_tokens": 2, "seed": 1}


def test_a_sample_prompt_that_is_too_long_loses_its_start(sampled):
    assert len(sampled.prompt) == 80 - 2  # the context, of 4 rows of 20, less what is sampled
    assert sampled.tokenizer.decode(sampled.prompt).endswith("c c ab")


def test_a_sample_is_shown_up_to_its_end(sampled):
    assert sampled.printed.endswith("c c ababc\n---\n")


@pytest.mark.parametrize("sample_prompt, prompt", [
    (" def read_file( ", " def read_file( "), ("", "ab c d"), (" ", "ab c d")])
def test_the_prompt_is_configured_or_else_of_the_text(sample_prompt, prompt):
    tokenizer = SimpleNamespace(decode=lambda ids: "ab c d\n" if ids == [5, 6] else "?", eos_id=2,
                                encode_prompt=list)
    setup = SimpleNamespace(
        config=make_config({"train.sample_prompt": sample_prompt}),
        data=SimpleNamespace(tokenizer=tokenizer),
        train_data=SimpleNamespace(read=lambda index: torch.tensor([5, 6])))
    assert train.choose_prompt(setup) == prompt


@pytest.mark.parametrize("seq_len, prompt", [
    (60, "The youngest of the sisters"), (32, "The youngest of"), (24, "The youngest"), (8, "The")])
def test_the_prompt_leaves_half_of_a_row_for_what_follows(seq_len, prompt):
    """One character is one token here, as where a short text leaves nothing to merge."""
    text = "The youngest of the sisters lost the letter"
    tokenizer = SimpleNamespace(decode=lambda ids: text, eos_id=2, encode_prompt=list)
    setup = SimpleNamespace(
        config=make_config({"data.seq_len": seq_len, "train.sample_tokens": 0}),
        data=SimpleNamespace(tokenizer=tokenizer),
        train_data=SimpleNamespace(read=lambda index: torch.tensor([5, 6])))
    assert train.choose_prompt(setup) == prompt


def test_the_prompt_is_of_one_document():
    tokenizer = SimpleNamespace(decode=lambda ids: "".join(map(chr, ids)), eos_id=2,
                                encode_prompt=list)
    setup = SimpleNamespace(
        config=make_config({"train.sample_prompt": ""}),
        data=SimpleNamespace(tokenizer=tokenizer),
        train_data=SimpleNamespace(read=lambda index: torch.tensor([52, 51, 2, 97, 98, 2, 99])))
    assert train.choose_prompt(setup) == "ab"  # "43" has no letter


@pytest.mark.parametrize("sample_prompt, n_notes", [("ROMEO:\\n", 1), ("ROMEO:\n", 0)])
def test_a_backslash_and_an_n_in_a_sample_prompt_are_noted(workdir, capfd, sample_prompt, n_notes):
    build_setup(workdir, "--train.sample_prompt", sample_prompt)
    assert capfd.readouterr().err.count("a backslash and an n") == n_notes


def test_a_training_that_got_worse_says_whose_weights_are_best(workdir, capfd):
    train_tiny(workdir, "overshot", "--model.n_layers=2", "--train.steps=4",
               "--train.eval_interval=1", "--optim.lr=0.5", "--optim.warmup_steps=0")
    words = ("best    the weights of step [123], with .* nats/token. generate.py takes them, "
             "because .*; with --checkpoint last, it takes those of the last step")
    assert re.search(words, capfd.readouterr().err)


def test_a_training_whose_last_weights_are_best_does_not_say_so(workdir, capfd):
    train_tiny(workdir, "better", "--train.steps=2", "--optim.warmup_steps=0",
               "--train.sample_tokens=0")
    shown = capfd.readouterr().err
    assert "done    " in shown
    assert "best    " not in shown


def test_a_training_ends_with_a_command_that_continues_its_text(workdir, capfd):
    text = workdir / "my poem.txt"
    text.write_text("It's a poem, of one line.\n" * 400, encoding="utf-8")
    path = train_tiny(workdir, "poem", "--data.files=null", f"--data.files={text}",
                      "--data.vocab_size=277", "--data.seq_len=48", "--train.steps=3")
    last = capfd.readouterr().err.splitlines()[-1]
    assert shlex.split(last)[:7] == ["next", "python", "generate.py", "--run", str(path),
                                     "--prompt", "It's a poem, of one line"]
    assert read_metric(path, "sample")[3].startswith("It's a poem, of one line")


@pytest.mark.parametrize("seq_len, options", [
    (60, ["--max-new-tokens", "57"]), (203, []), (202, ["--max-new-tokens", "199"])])
def test_the_command_that_continues_a_text_keeps_to_the_rows(seq_len, options):
    """By default 200 tokens follow the 3 of the prompt, for which rows of 203 just have room."""
    setup = SimpleNamespace(
        config=make_config({"train.sample_prompt": "abc", "data.seq_len": seq_len}),
        data=SimpleNamespace(tokenizer=SimpleNamespace(encode_prompt=list)))
    words = train.options_for_generate(setup, RunDir(Path("a"), {}))
    assert words == ["--run", "a", "--prompt", "abc", *options]


def test_the_command_that_continues_a_text_keeps_to_the_reach_of_a_scaling():
    setup = SimpleNamespace(
        config=make_config({
            "train.sample_prompt": "abc", "data.seq_len": 60, "model.max_positions": 240,
            "model.rope_scaling.type": "linear", "model.rope_scaling.factor": 2.0,
            "model.rope_scaling.original_positions": 60}),
        data=SimpleNamespace(tokenizer=SimpleNamespace(encode_prompt=list)))
    words = train.options_for_generate(setup, RunDir(Path("a"), {}))
    assert words == ["--run", "a", "--prompt", "abc", "--max-new-tokens", "117"]


def test_the_command_that_continues_a_text_begins_its_prompt_as_the_sample_does():
    setup = SimpleNamespace(
        config=make_config({"train.sample_prompt": "    return x\n", "data.seq_len": 300}),
        data=SimpleNamespace(tokenizer=SimpleNamespace(encode_prompt=list)))
    words = train.options_for_generate(setup, RunDir(Path("a"), {}))
    assert words == ["--run", "a", "--prompt", "    return x"]


def test_a_prompt_that_fills_a_row_is_continued_past_it():
    setup = SimpleNamespace(
        config=make_config({"train.sample_prompt": "abc" * 20, "data.seq_len": 60}),
        data=SimpleNamespace(tokenizer=SimpleNamespace(encode_prompt=list)))
    words = train.options_for_generate(setup, RunDir(Path("a"), {}))
    assert words == ["--run", "a", "--prompt", "abc" * 20]


def test_a_prompt_that_fills_the_context_is_not_continued():
    setup = SimpleNamespace(
        config=make_config({"train.sample_prompt": "abc", "train.sample_tokens": 0,
                            "data.seq_len": 3, "model.max_positions": 3}),
        data=SimpleNamespace(tokenizer=SimpleNamespace(encode_prompt=list)))
    words = train.options_for_generate(setup, RunDir(Path("a"), {}))
    assert words == ["--run", "a", "--prompt", ""]


def test_the_command_that_continues_a_text_has_no_prompt_that_fills_the_context(workdir, capfd):
    path = train_tiny(workdir, "long-prompt", "--train.steps=1", "--optim.warmup_steps=0",
                      "--data.seq_len=4", f"--train.sample_prompt={'long ' * 20}")
    assert f"--run {path} --prompt '' --max-new-tokens 3\n" in capfd.readouterr().err


@pytest.mark.parametrize("prompt", ["--help", "-h", "--", "-x y"])
def test_generate_reads_the_prompt_of_the_command_that_continues_a_text(prompt):
    setup = SimpleNamespace(
        config=make_config({"train.sample_prompt": prompt}),
        data=SimpleNamespace(tokenizer=SimpleNamespace(encode_prompt=list)))
    argv = train.options_for_generate(setup, RunDir(Path("a"), {}))
    assert generate.parse(argv).prompt == [prompt]


# --- bad input ------------------------------------------------------------------------------------


def test_runs_that_cannot_be_made_are_refused_before_the_first_step(workdir, capfd, monkeypatch):
    monkeypatch.setattr(gyre.step, "start_step", None)
    argv = tiny_argv(workdir, f"--log.runs={workdir / 'text.txt'}")
    assert "text.txt is no folder: choose another" in error_lines(capfd, train.main, *argv)[-1]


@pytest.mark.parametrize("extra, words", [
    ("--data.seq_len=5000", "seq_len"),
    (f"--train.batch_size={10**12}",
     "reading 1000000000000 rows of 20 tokens for each step takes 672,000.0 GB")])
def test_bad_input_is_one_line_and_leaves_no_run(workdir, straight, capfd, extra, words):
    before = sorted(straight.parent.rglob("*"))
    assert words in error_lines(capfd, train.main, *tiny_argv(workdir, "--name=bad",
                                                              *extra.split()))[-1]
    assert sorted(straight.parent.rglob("*")) == before


@pytest.mark.parametrize("step, advice", [
    (3, "no step has changed a weight yet, so the cause is not optim.lr: look in the model, such "
     "as its position encoding, for values that are not finite"),
    (4, "try a smaller optim.lr (now 0.001)")])
def test_a_rate_is_blamed_only_if_it_moved_a_weight(step, advice):
    setup = Mock(progress=Progress(step=step, skipped=3), config=make_config())
    run = Mock(path="runs/x")
    run.checkpoints.saved_step.return_value = 0
    run.checkpoints.kept_steps.return_value = []
    with pytest.raises(UserError) as caught:
        train.give_up("the loss is not finite", setup, run)
    assert str(caught.value) == (
        f"the loss is not finite, in auto: {advice}. runs/x has no good checkpoint: "
        "remove the run, or give the next one another --name")


@pytest.mark.parametrize("options, advice", [
    ({"optim.lr": 0.0, "optim.muon_lr": 9.0}, "optim.muon_lr (now 9)"),
    ({"optim.lr": 0.5, "optim.muon_lr": 9.0}, "optim.lr (now 0.5) or optim.muon_lr (now 9)")])
def test_rates_that_may_be_too_high_are_all_named(options, advice):
    setup = Mock(progress=Progress(step=4, skipped=3),
                 config=make_config({"optim.optimizer": "muon", **options}))
    run = Mock(path="runs/x")
    run.checkpoints.saved_step.return_value = 3
    run.checkpoints.kept_steps.return_value = []
    with pytest.raises(UserError, match=re.escape(f"in auto: try a smaller {advice}. runs/x has")):
        train.give_up("the loss is not finite", setup, run)


def test_a_diverged_training_names_the_step_that_it_kept():
    setup = Mock(progress=Progress(step=4), config=make_config())
    run = Mock(path="my runs/x")
    run.checkpoints.saved_step.return_value = 0
    run.checkpoints.kept_steps.return_value = [2, 3]
    with pytest.raises(UserError, match="my runs/x has a checkpoint of step 3: branch from it with "
                                        "--branch-from 'my runs/x' --at 3$"):
        train.give_up("the loss is not finite", setup, run)


@pytest.mark.parametrize("skipped, saved, kept, offered", [
    (0, 9, [7, 9], "has a checkpoint of step 7: branch"),
    (2, 5, [7, 8], "has a checkpoint of step 5"),
    (2, 7, [6, 8], "has a checkpoint of step 6: branch"),
    (2, 8, [7], "has no good checkpoint: remove the run")])
def test_a_diverged_training_names_no_checkpoint_of_the_weights_that_failed(
        skipped, saved, kept, offered):
    """They are those of step 9 minus the steps that were skipped."""
    setup = Mock(progress=Progress(step=9, steps_unchanged=skipped), config=make_config())
    run = Mock(path="runs/x")
    run.checkpoints.saved_step.return_value = saved
    run.checkpoints.kept_steps.return_value = kept
    with pytest.raises(UserError, match=offered):
        train.give_up("the loss is not finite", setup, run)
