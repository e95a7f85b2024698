"""The command: what it takes from a run, what it refuses, and that bad input leaves nothing."""

import socket
from unittest.mock import ANY

import pytest
from conftest import ROOT, arguments, load, points, refusal, run, start, trained, training

import train
from data.tokenizer import open_tokenizer
from errors import UserError
from gyre.options import read_config
from gyre.rundir import RunDir

SCALING = "{type: yarn, factor: 2.5}"


@pytest.fixture(scope="module")
def finished(world):
    return trained(world, "finished", "--train.steps", "3", "--model.rope_scaling", SCALING)


@pytest.mark.slow
def test_resuming_keeps_what_decides_the_numbers(world, finished, capfd):
    for change, words in (
        (["--seed", "2"], f"seed of {finished} cannot change on --resume"),
        (["--model.dim", "96"], f"model of {finished} cannot change on --resume"),
        (["--optim.lr", "1"], f"optim of {finished} cannot change on --resume"),
        (["--train.batch_size", "3"], f"train.batch_size of {finished} cannot change on --resume"),
        (["--init-from", "x"], "leave out --init-from and --config"),
        (["--config", "small"], "leave out --init-from and --config"),
        (["--branch-from", "x"], "leave one of them out"),
        (["--at", "3"], "--at 3 has no effect without --branch-from"),
        (["--resume", f"{world}/nowhere"], "no run folder"),  # the last --resume counts
    ):
        assert words in refusal(capfd, train.main, "--resume", finished, *change)[-1]
    assert "--resume: expected one argument" in refusal(capfd, train.main, "--resume")[-1]


@pytest.mark.slow
def test_a_resumed_run_has_the_configuration_it_was_started_with(finished, monkeypatch):
    """Also where torchrun starts the command again, of which a new run would be another one."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    for option in ("--branch-from", "--init-from", "--config"):
        with pytest.raises(UserError, match="say --resume auto"):
            train.load([option, str(finished)])
    saved = read_config(finished / "config.yaml")
    config, _, origin, *_ = train.load(["--train.steps", "4", "--resume", str(finished)])
    assert origin["resumed"].path == finished
    assert config.train.steps == 4 and saved.train.steps == 3
    config.train.steps = 3
    assert config == saved


@pytest.mark.slow
def test_a_run_can_start_from_the_model_and_the_tokenizer_of_another(world, finished):
    """Over those of the file, and under the command line."""
    argv = ["--config", "small.yaml", *training(world)]
    config, *_ = train.load([*argv, "--init-from", str(finished), "--model.dropout", "0.25"])
    saved = read_config(finished / "config.yaml").model
    assert config.model.dropout == 0.25 and config.model.rope_scaling == saved.rope_scaling
    config.model.dropout = 0.0
    assert config.model == saved
    assert config.init_from == config.data.tokenizer == str(finished)
    assert config.data.vocab_size == open_tokenizer(finished).vocab_size == 300


@pytest.mark.slow
def test_a_scaling_of_another_runs_weights_knows_how_long_its_rows_were(world):
    plain = trained(world, "plain", "--train.steps", "3")
    seq_len = read_config(plain / "config.yaml").data.seq_len
    scaling = ["--model.rope_scaling.type", "yarn", "--model.rope_scaling.factor", "4"]
    argv = [*training(world), "--init-from", str(plain), "--data.seq_len", str(2 * seq_len)]
    found = train.load([*argv, *scaling]).config.model.rope_scaling
    assert (found.type, found.factor, found.original_positions) == ("yarn", 4, seq_len)
    own = ["--model.rope_scaling.original_positions", "7"]
    found = train.load([*argv, *scaling, *own]).config.model.rope_scaling
    assert found.original_positions == 7
    assert train.load(argv).config.model.rope_scaling is None


@pytest.mark.slow
@pytest.mark.parametrize("option", [
    "--model", "--data", "--model.dim", "--model.n_layers", "--model.position", "--data.vocab_size",
    "--data.tokenizer",
])
@pytest.mark.parametrize("form", ["{} 24", "{}=24"])
def test_what_the_weights_pin_down_cannot_change(finished, option, form):
    with pytest.raises(UserError, match=f"^{option} cannot be given with --init-from"):
        train.load(["--init-from", str(finished), *form.format(option).split()])


def test_init_from_in_a_configuration_is_no_way_round(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("init_from: runs/x\n", encoding="utf-8")
    with pytest.raises(UserError, match="say --init-from runs/x"):
        train.load(["--config", str(file)])


def test_without_an_option_it_says_what_to_do(capfd):
    assert "--config small.yaml" in refusal(capfd, train.main)[-1]


@pytest.mark.slow
def test_one_process_divides_nothing_and_says_so(world, capfd):
    trained(world, "alone", "--train.shard", "full")
    assert "one process, so train.shard full has no effect" in capfd.readouterr().err


def test_ctrl_c_before_the_loop_ends_without_a_traceback(world, monkeypatch, capfd):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gyre.trainer.prepare", interrupted)
    assert run(train.main, *arguments(world, "--name", "interrupted")) == 130
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_an_unset_name_says_what_the_run_is(world, tmp_path):
    argv = [*arguments(world), "--model.position", "alibi"]
    assert train.load(["--config", "small.yaml", *argv])[:2] == (ANY, "small-alibi-s1")
    assert train.load(arguments(world))[1] == "gyre-rope-s1"
    file = tmp_path / "-my config.yaml"
    file.write_text("seed: 3\n", encoding="utf-8")
    config, stem, *_ = train.load(["--config", str(file), *argv])
    assert config.name is None and stem == "my-config-alibi-s3"


@pytest.mark.slow
def test_two_that_start_at_once_are_two_runs_and_none_is_trained_twice(world, capfd):
    """Without names; then two that resume one run, of which the second says who has it."""
    argv = [*arguments(world), "--seed", "7", "--train.steps", "300"]
    both = [start(ROOT / "train.py", *argv) for _ in range(2)]
    runs = [world / "runs" / name for name in ("gyre-rope-s7", "gyre-rope-s7-2")]
    for process in both:
        assert "Traceback" not in process.communicate(timeout=300)[1] and process.returncode == 0
    for path in runs:
        assert list(points(path)) == list(range(1, 301))
    first = start(ROOT / "train.py", "--resume", runs[0], "--train.steps", "100000",
                  "--train.eval_interval", "100000")
    while "train" not in first.stderr.readline():
        pass
    refused = refusal(capfd, train.main, "--resume", runs[0], "--train.steps", "301")[-1]
    assert f"{runs[0]} is being trained by another process" in refused
    assert f"process {first.pid} on " in refused
    first.kill()
    first.communicate()
    assert run(train.main, "--resume", runs[0], "--train.steps", "301") == 0


@pytest.mark.slow
@pytest.mark.parametrize("extra, words", [
    (["--train.batch_size", "1", "--train.sample_prompt", "ab " * 99], "train.sample_prompt has"),
    (["--data.seq_len", "5000"], "seq_len"),
    (["--model.head_dim", "7"], "model.head_dim must be even"),
    (["--data.prepared", "/proc/nowhere"], "--data.prepared"),
    (["--data.files", "nowhere.txt"], "nowhere.txt"),
    (["--train.dtype", "float16"], "float16 needs a CUDA device"),
    (["--train.device", "cuda:7"], "cuda:7"),
    (["--data.vocab_size", "50000"], "50000"),
    (["--model.n_layers", str(10**30)], "this model takes"),
    (["--model.dim", "1200000000"], "this model takes"),
    (["--model.max_positions", str(10**22)], "choose a smaller model.dim"),
    (["--train.batch_size", str(10**15)], f"a batch of {10**15}x20 tokens takes 2.4e+19 bytes"),
    (["--name", "finished"], "finished already exists"),
    (["--name", "a/b"], "run name 'a/b' must be letters"),
])
def test_bad_input_is_one_line_and_leaves_no_run(world, finished, capfd, extra, words):
    before = sorted(finished.parent.rglob("*"))
    assert words in refusal(capfd, train.main, *arguments(world, "--name", "bad", *extra))[-1]
    assert sorted(finished.parent.rglob("*")) == before


@pytest.mark.parametrize("environment, words", [
    ({"WORLD_SIZE": "0"}, "WORLD_SIZE must be a whole number from 1 to"),
    ({"WORLD_SIZE": "-2"}, "not '-2'"),
    ({"WORLD_SIZE": "two"}, "not 'two'"),
    ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2 and RANK is not set"),
    ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK must be a whole number from 0 to 1, not '2'"),
    ({"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "x"}, "LOCAL_RANK must be"),
])
def test_a_wrong_environment_is_said(world, monkeypatch, capfd, environment, words):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert words in refusal(capfd, train.main, *arguments(world))[-1]


@pytest.mark.slow
def test_a_master_that_does_not_answer_is_named(world):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = start(
        f"import train; train.main({arguments(world, '--train.timeout', '2')!r})",
        WORLD_SIZE="2", RANK="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )
    error = process.communicate(timeout=120)[1].splitlines()[-1]
    assert process.returncode == 2
    assert f"error: process 1 of 2 cannot connect to the others at 127.0.0.1:{port}: " in error


@pytest.mark.slow
def test_an_imported_run_is_not_resumed(finished, monkeypatch):
    monkeypatch.setattr(RunDir, "manifest", {"imported": {}})
    with pytest.raises(UserError, match="was imported.* start from it with --init-from"):
        train.load(["--resume", str(finished)])
    with pytest.raises(UserError, match="was imported.* start from it with --init-from"):
        train.load(training(finished.parent.parent, "--resume", "auto", "--name", finished.name))


def test_no_run_is_taken_for_the_one_of_a_source_that_is_gone(tmp_path):
    """Without the source, the name that the run had by default is not known."""
    (tmp_path / "runs" / "gyre-rope-s1").mkdir(parents=True)
    with pytest.raises(UserError, match="no run folder at .*nowhere"):
        train.load(["--resume", "auto", "--init-from", "nowhere", "--log.runs",
                    str(tmp_path / "runs")])


def test_a_run_that_goes_on_says_what_is_asked_for_in_vain():
    kept, asked = load(), load("--seed", "2", "--optim.lr", "0.5")
    assert train.what_differs(ROOT, kept, kept) == ""
    asked.init_from = "runs/other"
    assert "goes on with its own seed, init_from, optim.lr, not" in train.what_differs(
        ROOT, asked, kept)
