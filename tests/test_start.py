"""What a command line asks for: what it takes from a run, and what it refuses."""

from dataclasses import replace

import pytest
from conftest import arguments, run, trained, training

import train
from data.tokenizer import open_tokenizer
from errors import UserError
from gyre.options import read_config
from gyre.rundir import RunDir
from gyre.start import Start, resolve

SCALING = ["--model.rope_scaling.type", "yarn", "--model.rope_scaling.factor", "2.5"]


def start(*argv: object) -> Start:
    return resolve([*map(str, argv)], "")


@pytest.fixture(scope="module")
def finished(world):
    return trained(world, "finished", "--train.steps", "3", *SCALING)


FIXED = " of .* cannot change on --resume"


@pytest.mark.parametrize("change, words", [
    ("--seed=2", "seed" + FIXED), ("--model.dim=96", "model" + FIXED),
    ("--optim.lr=1", "optim" + FIXED), ("--data.seq_len=21", "data" + FIXED),
    ("--train.batch_size=3", "train.batch_size" + FIXED),
    ("--branch-from=x", "leave one of them out"), ("--name=x", "name" + FIXED),
    ("--config=small", "leave out --init-from and --config"),
    ("--at=3", "--at 3 has no effect without --branch-from")])
def test_resuming_keeps_what_decides_the_numbers(finished, change, words):
    with pytest.raises(UserError, match=words):
        start("--resume", finished, change)


def test_a_resumed_run_has_the_configuration_it_was_started_with(finished, monkeypatch):
    """Also where torchrun starts the command again, of which a new run would be another one."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    for option in ("--branch-from", "--init-from", "--config"):
        with pytest.raises(UserError, match="say --resume auto"):
            start(option, finished)
    saved = read_config(finished / "config.yaml")
    asked = start("--train.steps", "4", "--resume", finished)
    assert asked.resumed.path == asked.source.path == finished
    assert asked.config.train.steps == 4 and saved.train.steps == 3
    asked.config.train.steps = 3
    assert asked.config == saved


def test_a_run_can_start_from_the_model_and_the_tokenizer_of_another(world, finished):
    """Over those of the file, and under the command line, which cannot change what the weights pin
    down."""
    argv = ["--config", "small.yaml", *training(world)]
    config = start(*argv, "--init-from", finished, "--model.dropout", "0.25").config
    saved = read_config(finished / "config.yaml").model
    assert config.model.dropout == 0.25 and config.model.rope_scaling == saved.rope_scaling
    config.model.dropout = 0.0
    assert config.model == saved
    other = start(*argv, "--init-from", finished, "--model.rope_scaling.type", "linear").config
    assert other.model.rope_scaling == replace(saved.rope_scaling, type="linear")
    assert config.init_from == config.data.tokenizer == str(finished)
    assert config.data.vocab_size == open_tokenizer(finished).vocab_size == 300
    for option in ("--model.dim", "--data.vocab_size", "--data.tokenizer"):
        with pytest.raises(UserError, match=f"^{option} cannot be given with --init-from"):
            start("--init-from", finished, option, "24")


def test_a_scaling_of_another_runs_weights_knows_how_long_its_rows_were(world):
    """Rows of 20, and now of 40."""
    plain = trained(world, "plain", "--train.steps", "3")
    argv = [*training(world), "--init-from", plain, "--data.seq_len", "40"]
    scaled = start(*argv, *SCALING).config.model.rope_scaling
    assert (scaled.type, scaled.factor, scaled.original_positions) == ("yarn", 2.5, 20)
    own = ["--model.rope_scaling.original_positions", "7"]
    assert start(*argv, *SCALING, *own).config.model.rope_scaling.original_positions == 7
    assert start(*argv).config.model.rope_scaling is None


def test_a_branch_has_a_name_kept_steps_and_a_cooldown_of_its_own(world):
    trunk = trained(world, "trunk", "--train.steps", "4", "--train.keep", "[2, 3]",
                    "--optim.schedule", "wsd", "--optim.cooldown", "0.5")
    argv = ["--branch-from", trunk, "--at", "2", "--train.steps", "3"]
    asked = start(*argv, "--optim.schedule", "linear")
    assert (asked.step, asked.source.path, asked.resumed) == (2, trunk, None)
    assert (asked.config.name, asked.stem, asked.config.train.keep) == (None, "trunk-branch", [])
    assert asked.config.optim.cooldown is None and not asked.repeatable
    with pytest.raises(UserError, match="optim.optimizer of .* cannot change on --branch-from"):
        start(*argv, "--optim.optimizer", "muon")
    for same in ((), ("--optim.schedule", "wsd")):
        assert start(*argv, *same).config.optim.cooldown == 0.5


def test_resume_auto_takes_what_the_run_has_of_the_command_that_started_it(world, finished):
    """Its copy of the tokenizer, and what `auto` stood for."""
    argv = [*arguments(world, "--name", "again", "--train.steps", "3"), "--resume", "auto",
            "--data.tokenizer", str(finished)]
    assert start(*argv).resumed is None and start(*argv).repeatable
    assert run(train.main, *argv) == 0
    again = start("--config", "small.yaml", *argv, "--train.dtype", "auto")
    assert again.resumed.path == world / "runs" / "again" and again.repeatable
    assert again.config.train.dtype == "float32"
    with pytest.raises(UserError, match="seed of .* cannot change"):
        start(*argv, "--seed", "2")
    with pytest.raises(UserError, match="needs a --name"):
        start(*training(world), "--resume", "auto")


def test_an_unset_name_says_what_the_run_is(world, finished, tmp_path):
    argv = [*arguments(world), "--model.position", "alibi"]
    asked = start("--config", "small.yaml", *argv)
    assert asked.config.name is None and asked.stem == "small-alibi-s1" and not asked.repeatable
    assert start(*arguments(world)).stem == "gyre-rope-s1"
    with pytest.raises(UserError, match="--config small.yaml"):
        start()  # without any option
    (file := tmp_path / "-my config.yaml").write_text("{seed: 3, name: null}", encoding="utf-8")
    assert start("--config", file, *argv).stem == "my-config-alibi-s3"
    second, runs = tmp_path / "second.yaml", finished.parent
    second.write_text(f"{{seed: 4, name: finished, log: {{runs: '{runs}'}}}}", encoding="utf-8")
    both = ["--config", file, "--config", second]
    assert (start(*both).config.seed, start(*both).config.name) == (4, "finished")
    assert start(*both[2:], "--resume", "auto").resumed.path == finished  # by the file's name


def test_an_imported_run_is_not_resumed(finished, monkeypatch):
    monkeypatch.setattr(RunDir, "manifest", {"imported": {}})
    for argv in (["--resume", finished], ["--branch-from", finished],
                 training(finished.parent.parent, "--resume", "auto", "--name", finished.name)):
        with pytest.raises(UserError, match="was imported.* start from it with --init-from"):
            start(*argv)


def test_a_fine_tuning_holds_out_the_text_that_its_base_has_not_seen(world):
    base = trained(world, "base", "--train.steps", "3", "--data.val_fraction", "0.2")
    saved = read_config(base / "config.yaml").data
    config = start("--init-from", base).config
    assert config.data.files == saved.files and config.data.source == "files"
    assert (config.data.val_fraction, config.data.seq_len) == (0.2, 20)


def test_a_fine_tuning_on_another_text_keeps_the_other_data_settings_of_its_base(world):
    base = trained(world, "base-2", "--train.steps", "3", "--data.val_fraction", "0.2")
    asked = start("--init-from", base, "--data.files", "book.txt")
    assert asked.config.data.files == ["book.txt"] and asked.config.data.val_fraction == 0.2
    assert asked.draft.fitted == {"data.seq_len", "train.steps", "optim.warmup_steps",
                                  "train.eval_interval"}
    assert asked.draft.limits.data.seq_len == 20
    library = start("--init-from", base, "--data.source", "stdlib").config.data
    assert (library.source, library.files) == ("stdlib", None)


def test_a_file_of_options_goes_over_the_data_settings_of_a_base(world, tmp_path):
    base = trained(world, "base-3", "--train.steps", "3")
    file = tmp_path / "tune.yaml"
    file.write_text("{data: {val_fraction: 0.3}, train: {steps: 7}}", encoding="utf-8")
    config = start("--config", file, "--init-from", base).config
    assert (config.data.val_fraction, config.train.steps, config.data.seq_len) == (0.3, 7, 20)
