"""Defaults <- YAML <- command line, each value of its type, and every mistake in one sentence."""

import dataclasses
import re

import pytest
from conftest import load, run
from hypothesis import given, settings
from hypothesis import strategies as st

import train
from errors import UserError
from gyre.options import CONFIGS, OPTIONS, Parser, RunOptions, make_config, read_config
from model.position import POSITIONS
from model.sampling import Sampling


def write(folder, text, name="my.yaml"):
    """Write a configuration file; returns its path."""
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_the_command_line_is_over_a_run_over_files_over_defaults(tmp_path):
    file = write(tmp_path, "model: {dim: 96, n_heads: 6}\noptim: {lr: 3e-4}\nseed: 3\nname: file\n")
    argv = ["--model.n_heads", "2", "--config", file, "--model.position", "sinusoidal"]
    config = load(*argv, base={"model": {"n_heads": 4, "n_layers": 5}, "name": "1e3"})
    assert (config.model.dim, config.model.n_heads, config.model.n_layers) == (96, 2, 5)
    assert config.model.position == "sinusoidal" and config.model.head_dim == 48
    assert (config.seed, config.name, config.train.steps) == (3, "1e3", 1000)
    second = write(tmp_path, "{seed: 4, model: {dim: 72}}", "second.yaml")
    both = load("--config", file, f"--config={second}")
    assert (both.seed, both.model.dim, both.model.n_heads) == (4, 72, 6)


@pytest.mark.parametrize("option, text, value", [
    ("optim.lr", "3e-4", 3e-4), ("optim.lr", "1", 1.0), ("data.files", "a/*.md", ["a/*.md"]),
    ("train.compile", "false", False), ("train.compile", "True", True),
    ("train.compile", "auto", "auto"), ("train.shard", "full", "full"), ("train.shard", "2", 2),
    ("train.sample_prompt", "a = b = c", "a = b = c"), ("name", "3", "3"), ("name", "null", None),
    ("train.keep", "[3, 5]", [3, 5]), ("train.keep", "7", [7]),
    ("data.files", "[a/*.md, 'b c.txt', '*.md', 2024]", ["a/*.md", "b c.txt", "*.md", "2024"])])
def test_a_value_has_its_type_in_a_file_and_as_an_argument(tmp_path, option, text, value):
    section, _, name = option.rpartition(".")
    file = write(tmp_path, f"{section}: {{{name}: {text}}}" if section else f"{name}: {text}")
    for config in (load(f"--{option}", text), load("--config", file)):
        converted = getattr(getattr(config, section) if section else config, name)
        assert converted == value and type(converted) is type(value)


@pytest.mark.parametrize("argv, files", [
    (["--data.files", "a", "--data.files", "b"], ["a", "b"]),
    (["--data.files=[a, 'b c']", "--data.files", "d"], ["a", "b c", "d"]),
    (["--data.files", "a", "--data.files", "a"], ["a", "a"]), (["--data.files", "a/"], ["a/"]),
    (["--data.files", "a", "--data.files", "null", "--data.files", "b"], ["b"])])
def test_files_that_are_given_several_times_add_up(argv, files):
    assert load(*argv).data.files == files


def test_files_on_the_command_line_replace_those_of_a_config(tmp_path):
    file = write(tmp_path, "data: {files: [a, b]}")
    assert load("--config", file, "--data.files", "c", "--data.files", "d").data.files == ["c", "d"]


@settings(max_examples=12, deadline=None)
@given(text=st.text(max_size=9), lr=st.floats(0, 1e300), seed=st.integers(0, 2**63 - 1),
       keep=st.lists(st.integers(1, 1000)), shard=st.sampled_from(["full", 3]))
def test_a_configuration_that_is_written_is_read_back_equal(world, text, lr, seed, keep, shard):
    texts = [text, "null", "~", "", "1e3", "1:30", "010", "\x85"]
    config = make_config({
        "model": {"rope_scaling": {"type": "yarn", "factor": 2.5}}, "optim": {"lr": lr},
        "data": {"files": texts}, "log": {"tags": texts}, "seed": seed, "name": text,
        "train": {"shard": shard, "keep": keep, "sample_prompt": text, "compile": False}})
    write(world, config.to_yaml())
    assert read_config(world / "my.yaml") == make_config(dataclasses.asdict(config)) == config


def test_a_saved_option_that_is_not_known_is_not_dropped(tmp_path):
    write(tmp_path, load().to_yaml().replace("  seq_len:", "  row_len:"))
    with pytest.raises(UserError, match="this version of gyre has no option data.row_len"):
        read_config(tmp_path / "my.yaml")


def test_what_is_unset_follows_from_what_was_given():
    config = load("--model.dim", "256", "--model.n_heads=4", "--data.seq_len=50", "--optim.lr=.5")
    assert config.model.head_dim == 64 and config.model.n_kv_heads == 4 and config.optim.lr == 0.5
    assert config.model.hidden_dim == 704 and config.model.max_positions == 200  # 682.7, in 32s
    assert load("--data.vocab_size", "1000").model.vocab_size == 1000
    assert load("--model.position", "learned").model.max_positions == 256


def test_rope_scaling_is_a_table_whose_fields_are_options(tmp_path):
    file = write(tmp_path, "model: {rope_scaling: {type: yarn, factor: 4, beta_fast: 8}}")
    argv = ["--config", file, "--data.seq_len", "50", "--model.rope_scaling.factor", "6.51"]
    config = load(*argv)
    scaling = config.model.rope_scaling
    assert (scaling.type, scaling.factor, scaling.beta_fast) == ("yarn", 6.51, 8)
    assert scaling.original_positions == 50 and config.model.max_positions == 326
    assert load(*argv, "--model.rope_scaling.factor", "2").model.max_positions == 4 * 50
    assert load(*argv, "--model.rope_scaling", "null").model.rope_scaling is None
    write(tmp_path, "model: {rope_scaling: null}")
    assert load(*argv, "--model.rope_scaling.type", "ntk").model.rope_scaling.factor == 6.51


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_config_of_ours_fits_every_encoding(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for position in POSITIONS:
        assert load("--config", path.stem, "--model.position", position).model.position == position


def test_a_file_that_is_there_comes_before_one_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "seed: 9\n", "small.yaml")
    assert load("--config", "small.yaml").seed == 9 and load("--config", "small").seed == 1
    with pytest.raises(UserError, match=r"no config smal.yaml.*: ablation.yaml, .*small.yaml"):
        load("--config=smal.yaml")


@pytest.mark.parametrize("text, words", [
    ("init_from: runs/a", "init_from .* say --init-from RUN instead"),
    ("model: {positon: rope}", r"no option model.positon \(did you mean model.position\?\)"),
    ("data: {seq_len: null}", r"data.seq_len must be int\|auto, not 'null'"),
    ("train: {steps: 010}", r"train.steps must be int\|auto, not '010'"),  # 8 in YAML 1.1
    ("train: {steps: 7, steps: 8}", "steps is there twice"), ("seed: [", "while parsing"),
    ("train.steps: 7\ntrain: {steps: 8}", "train.steps is there twice"),
    # Aliases of aliases, which make two to the 99th values of a hundred lines.
    ("data: {files: [&a0 [x], " + ", ".join(
        f"&a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 100)) + "]}", "data.files must be"),
    ("train: &a {steps: *a}", "recursi"), ('name: "a\\0b"', "name must be text"),
    ("data: 3", "there is no option data"), ("[seed, 3]", "it holds no table of options")])
def test_a_mistake_in_a_file_is_told_with_its_name(tmp_path, text, words):
    file = write(tmp_path, text)
    with pytest.raises(UserError, match=f"^{re.escape(file)}: .*{words}") as caught:
        load("--config", file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("argv, words", [
    # No abbreviations.
    (["tiny.yaml"], "^there is no option tiny.yaml"),
    (["--train.step", "64"], r"^there is no option --train.step \(did you mean --train.steps\?\)$"),
    (["--data.files", "[*.md, a]"], "quote its globs"), (["--data.files", 400 * "["], "must be"),
    (["--name", "caf\udce9"], "^name must be text"),  # the byte E9 is not UTF-8
    (["--model.max_positions", "9" * 18], r"max_positions must be in \[1, 2147483648\), not 999"),
    (["--model.rope_scaling.factor", "2"], "missing required field `type` .*rope_scaling"),
    (["--model.vocab_size", "99"], "model.vocab_size must be at least 4096, not 99"),
    (["--data.seq_len", "99", "--model.max_positions", "98"], "98 is shorter than data.seq_len 99"),
    (["--model.position", "learned", "--model.max_positions", "999"], "would never be trained"),
    (["--optim.warmup_steps", "2000"], r"warmup_steps must be in \[0, 1000\], not 2000"),
    (["--train.sample_tokens", "1024"], r"sample_tokens must be in \[0, 1024\), not 1024"),
    (["--train.keep", "[0]"], "does not have"), (["--train.keep", "[5, 1001]"], "does not have"),
    (["--train.shard", "0"], "at least 1, not 0"), (["--seed=-1"], r"\[0, 2\^63\), not -1"),
    (["--data.vocab_size=259"], "data.vocab_size must"), (["--optim.lr=a"], "float, not 'a'"),
    (["--optim.muon_lr", "0.1"], "optim.muon_lr has no effect with optim.optimizer adamw"),
    (["--optim.cooldown", "0.5"], "optim.cooldown has no effect with optim.schedule cosine"),
    (["--optim.beta2", "1.0"], r"optim.beta2 must be in \[0, 1\), not 1.0"),
    (["--data.source", "url"], "--data.url"), (["--data.files", "[]"], "--data.files"),
    (["--train.steps", "auto"], "train.steps auto is for a new run of train.py: give a number"),
    (["--train.steps", "Auto"], r"train.steps must be int\|auto, not 'Auto'"),
    (["--train.minutes", "0"], "train.minutes must be in"),
    (["--data.source", "mine"], "of stdlib, .*, not mine"), (["--data.val_fraction", "1"], "must"),
    (["--data.sha256", "0", "--data.files", "a"], "sha256 has no effect with data.source files")])
def test_a_mistake_on_the_command_line_is_told_in_a_sentence(argv, words):
    with pytest.raises(UserError, match=words) as caught:
        load(*argv)
    assert "\n" not in str(caught.value)


def test_a_command_tells_its_own_options_from_those_of_the_configuration():
    parser = Parser("What it does.\n\n    an example\n", RunOptions, Sampling, config=True)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    options = parser.parse_args(["a", "b", "--top-k", "3", "--checkpoint", "last", "--seed", "1"])
    assert (options.runs, options.top_k, options.checkpoint) == (["a", "b"], 3, "last")
    assert (options.temperature, options.device) == (Sampling.temperature, "auto")
    assert options.given == {"seed": 1}  # also where it is the default
    for argv, words in (
        ([], "required: RUN$"), (["a", "--topk=3"], r"no option --topk \(did you mean --top-k\?"),
        (["a", "--checkpoint", "first"], r"^checkpoint must be best\|last, not 'first'$")):
        with pytest.raises(UserError, match=words):
            parser.parse_args(argv)


def test_help_explains_every_option(capsys):
    assert run(train.main, "--help") == 0
    help_text = capsys.readouterr().out
    assert train.__doc__.strip() in help_text
    for name, option in OPTIONS.items():
        assert option["help"], name  # the docstring of the field
        assert name == "init_from" or f"--{name} " in help_text
