"""Defaults <- YAML <- command line, each value of its type, and every mistake in one sentence."""

import dataclasses
import glob
import re
import shlex
from pathlib import Path
from typing import get_type_hints

import pytest
from builders import error_lines, exit_code, parse_config
from hypothesis import given, settings
from hypothesis import strategies as st

import ablate
import bench
import evaluate
import export
import generate
import train
from errors import Range, UserError
from gyre import options, start
from gyre.load import WeightOptions
from gyre.options import OPTIONS, SECTIONS, Config, make_config, show_type
from gyre.parser import Parser
from gyre.suggest import COMMAND_OPTIONS, HABITS
from gyre.yaml_files import CONFIGS, read_config
from model.config import RopeScaling
from model.encodings import POSITIONS
from model.sampling import Sampling


def write(folder, text, name="my.yaml"):
    """Write a configuration file; returns its path."""
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_a_file_is_over_the_defaults(tmp_path):
    file = write(tmp_path, "model: {dim: 96}\noptim: {lr: 3e-4}\nseed: 3\n")
    config = parse_config("--config", file)
    assert (config.model.dim, config.optim.lr, config.seed, config.train.steps) == (
        96, 0.0003, 3, 1000)


def test_a_tokenizer_may_be_given_by_the_name_of_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/first", "runs/both", "both"):
        (tmp_path / folder).mkdir(parents=True)
    given = {name: parse_config("--data.tokenizer", name).data.tokenizer
             for name in ("first", "both", "neither")}
    assert given == {"first": str(Path("runs/first")), "both": "both", "neither": "neither"}


def test_a_tilde_in_a_file_is_the_home_folder(tmp_path, monkeypatch):
    """As in a shell, which expands it at the beginning of a word only."""
    monkeypatch.setenv("HOME", "/home/me")
    file = write(tmp_path, "{data: {prepared: ~/texts, tokenizer: ~/run}, log: {runs: ~/runs}}")
    config = parse_config("--config", file)
    assert (config.data.prepared, config.data.tokenizer) == ("/home/me/texts", "/home/me/run")
    assert config.log.runs == "/home/me/runs"


def test_a_later_file_is_over_an_earlier_one(tmp_path):
    first = write(tmp_path, "{seed: 3, model: {dim: 96, n_heads: 6}}", "first.yaml")
    second = write(tmp_path, "{seed: 4, model: {dim: 72}}", "second.yaml")
    config = parse_config("--config", first, f"--config={second}")
    assert (config.seed, config.model.dim, config.model.n_heads) == (4, 72, 6)


def test_the_command_line_is_over_all_else(tmp_path):
    file = write(tmp_path, "model: {dim: 96, n_heads: 6}")
    argv = ["--model.n_heads", "2", "--config", file, "--model.position", "sinusoidal"]
    model = parse_config(*argv).model
    assert (model.dim, model.n_heads, model.head_dim) == (96, 2, 48)
    assert model.position == "sinusoidal"


@pytest.mark.parametrize("option, text, value", [
    ("optim.lr", "3e-4", 3e-4), ("optim.lr", "1", 1.0), ("data.files", "a/*.md", ["a/*.md"]),
    ("train.compile", "false", False), ("train.compile", "True", True),
    ("train.compile", "auto", "auto"), ("train.shard", "full", "full"), ("train.shard", "2", 2),
    ("train.sample_prompt", "a = b = c", "a = b = c"), ("name", "3", "3"), ("name", "null", None),
    ("train.keep", "[3, 5]", [3, 5]), ("train.keep", "7", [7]),
    ("data.files", "[a/*.md, 'b c.txt', '*.md', 2024]", ["a/*.md", "b c.txt", "*.md", "2024"])])
def test_a_value_has_its_type_however_it_is_given(tmp_path, option, text, value):
    section, _, name = option.rpartition(".")
    file = write(tmp_path, f"{section}: {{{name}: {text}}}" if section else f"{name}: {text}")
    for config in (parse_config(f"--{option}", text), parse_config("--config", file)):
        converted = getattr(getattr(config, section) if section else config, name)
        assert converted == value and type(converted) is type(value)


@pytest.mark.parametrize("name", ["[draft] notes.txt", "[2024]", "[a, b].txt"])
def test_a_file_whose_name_begins_as_a_list_is_a_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "x", name)
    config = write(tmp_path, f"data: {{files: '{name}'}}", "own.yaml")
    assert parse_config("--data.files", name).data.files == [name]
    assert parse_config("--config", config).data.files == [name]


@pytest.mark.parametrize("argv, files", [
    (["--data.files", "a", "--data.files", "b"], ["a", "b"]),
    (["--data.files=[a, 'b c']", "--data.files", "d"], ["a", "b c", "d"]),
    (["--data.files", "a", "--data.files", "a"], ["a", "a"]), (["--data.files", "a/"], ["a/"]),
    (["--data.files", "a", "--data.files", "null", "--data.files", "b"], ["b"])])
def test_files_that_are_given_several_times_add_up(argv, files):
    assert parse_config(*argv).data.files == files


def test_steps_to_keep_that_are_given_several_times_add_up():
    config = parse_config("--train.keep", "5", "--train.keep", "[7, 9]")
    assert config.train.keep == [5, 7, 9]


def test_files_on_the_command_line_replace_those_of_a_config(tmp_path):
    file = write(tmp_path, "data: {files: [a, b]}")
    assert parse_config("--config", file, "--data.files", "c", "--data.files",
                        "d").data.files == ["c", "d"]


@settings(max_examples=12, deadline=None)
@given(text=st.text(max_size=9), lr=st.floats(0, 1e6), seed=st.integers(0, 2**63 - 1),
       keep=st.lists(st.integers(1, 1000)), shard=st.sampled_from(["full", 3]))
def test_a_configuration_that_is_written_is_read_back_equal(workdir, text, lr, seed, keep, shard):
    texts = [text, "null", "~", "", "1e3", "1:30", "010", "\x85"]
    config = make_config({
        "model": {"rope_scaling": {"type": "yarn", "factor": 2.5}}, "optim": {"lr": lr},
        "data": {"files": texts}, "log": {"tags": texts}, "seed": seed, "name": text,
        "train": {"shard": shard, "keep": keep, "sample_prompt": text, "compile": False}})
    write(workdir, config.to_yaml())
    assert read_config(workdir / "my.yaml") == make_config(dataclasses.asdict(config)) == config


def test_a_saved_option_that_is_not_known_is_not_dropped(tmp_path):
    write(tmp_path, parse_config().to_yaml().replace("  seq_len:", "  row_len:"))
    with pytest.raises(UserError, match="this version of gyre has no option data.row_len"):
        read_config(tmp_path / "my.yaml")


def test_unset_sizes_of_heads_follow_from_those_given():
    model = parse_config("--model.dim", "256", "--model.n_heads=4").model
    assert (model.head_dim, model.n_kv_heads) == (64, 4)


def test_an_unset_width_is_a_multiple_of_32():
    assert parse_config("--model.dim", "256").model.hidden_dim == 704  # 682.7, in 32s


def test_the_unset_vocabulary_is_that_of_the_data():
    assert parse_config("--data.vocab_size", "1000").model.vocab_size == 1000


@pytest.mark.parametrize("argv, positions", [
    (["--data.seq_len=50"], 200), (["--data.seq_len=80", "--model.position=learned"], 80)])
def test_the_unset_context_is_what_the_encoding_extrapolates_to(argv, positions):
    assert parse_config(*argv).model.max_positions == positions


@pytest.mark.parametrize("factor, positions", [("6.51", 326), ("2", 200)])
def test_the_unset_context_reaches_as_far_as_a_scaling(factor, positions):
    model = parse_config("--data.seq_len=50", "--model.rope_scaling.type=yarn",
                         "--model.rope_scaling.factor", factor).model
    assert model.rope_scaling.original_positions == 50
    assert model.max_positions == positions


@pytest.fixture
def scaled(tmp_path):
    """A file that scales RoPE."""
    return write(tmp_path, "model: {rope_scaling: {type: yarn, factor: 4, beta_fast: 8}}",
                 "scaled.yaml")


def test_a_field_of_a_table_is_an_option(scaled):
    scaling = parse_config("--config", scaled, "--model.rope_scaling.factor",
                           "6.51").model.rope_scaling
    assert (scaling.type, scaling.factor, scaling.beta_fast) == ("yarn", 6.51, 8)


def test_a_table_can_be_null_on_the_command_line(scaled):
    assert parse_config("--config", scaled, "--model.rope_scaling",
                        "null").model.rope_scaling is None


def test_a_null_table_of_a_file_can_be_filled_in(tmp_path):
    file = write(tmp_path, "model: {rope_scaling: null}")
    argv = ["--model.rope_scaling.factor", "2", "--model.rope_scaling.type", "ntk"]
    assert parse_config("--config", file, *argv).model.rope_scaling.factor == 2


@pytest.mark.slow
@pytest.mark.parametrize("text", [
    "seed: 1\nmodel:", "seed: 1\nmodel: null", "seed: 1\nmodel: {}", "model: {rope_scaling: }",
    "model: {rope_scaling: null}", "name:", "train: {micro_batch_size: }"])
def test_nothing_is_null_in_a_file(tmp_path, text):
    config = parse_config("--config", write(tmp_path, text))
    assert dataclasses.replace(config, seed=0) == parse_config("--seed", "0")


@pytest.mark.parametrize("text", ["model: 5", "model: {dim: }", "nothing:"])
def test_nothing_is_no_number_and_no_other_option(tmp_path, text):
    with pytest.raises(UserError, match="my.yaml: "):
        parse_config("--config", write(tmp_path, text))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_config_of_ours_fits_every_encoding(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for position in POSITIONS:
        assert parse_config("--config", path.stem, "--model.position",
                            position).model.position == position


def test_a_file_that_is_there_comes_before_one_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "seed: 9\n", "small.yaml")
    assert parse_config("--config", "small.yaml").seed == 9
    assert parse_config("--config", "small").seed == 1


@pytest.mark.parametrize("text, words", [
    ("init_from: runs/a", "init_from is no option of a file: .* train.py's .*, --init-from$"),
    ("resume: runs/a", "resume is no option of a file: .* train.py's .*, --resume$"),
    ("pretrained: a", "pretrained is no option of a file: .* train.py's .*, --init-from$"),
    ("model: {positon: rope}", r"no option model.positon \(did you mean model.position\?\)"),
    ("data: {seq_len: null}", "data.seq_len must be a whole number or auto, not 'null'"),
    # It is 8 in YAML 1.1.
    ("train: {steps: 010}", "train.steps must be a whole number or auto, not '010'"),
    ("train: {steps: 7, steps: 8}", "steps is there twice"),
    ("model:\n  dim: [8\nseed: 1", "line 3: expected ',' or ']', but got ':', "
     "while parsing a flow sequence that begins in line 2$"),
    ("train:\n\tsteps: 8", "line 2: YAML takes spaces here, and no tab$"),
    ("train:\n steps: 8\n  keep: 3", "line 3: mapping values are not allowed here$"),
    ("# all commented out\n", "it sets no option$"),
    ("train.steps: 7\ntrain: {steps: 8}", "train.steps is there twice"),
    # Aliases of aliases, which make two to the 99th values of a hundred lines.
    ("data: {files: [&a0 [x], " + ", ".join(
        f"&a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 100)) + "]}", "data.files must be"),
    ("train: &a {steps: *a}", "recursi"), ('name: "a\\0b"', "name must be text"),
    ("data: 3", "there is no option data"), ("[seed, 3]", "it holds no table of options")])
def test_a_mistake_in_a_file_is_told_with_its_name(tmp_path, text, words):
    file = write(tmp_path, text)
    with pytest.raises(UserError, match=f"^{re.escape(file)}: .*{words}") as caught:
        parse_config("--config", file)
    assert "\n" not in str(caught.value)


def test_a_file_names_one_text(tmp_path):
    file = write(tmp_path, "{data: {hub: a/b, url: http://c}}")
    with pytest.raises(UserError, match="data.url and data.hub are different texts"):
        parse_config("--config", file)


def test_a_later_layer_replaces_the_text_of_an_earlier_one(tmp_path):
    file = write(tmp_path, "{data: {hub: a/b}}")
    assert parse_config("--config", file, "--data.files", "c").data.files == ["c"]


@pytest.mark.parametrize("argv, words", [
    # No abbreviations.
    (["--auto"], "^there is no option --auto$"),
    (["--train.minutes", "x"], "^train.minutes must be a number, not 'x'$"),
    (["--float32"], r"^there is no option --float32 \(did you mean --train.dtype float32\?\)$"),
    (["--train.step", "64"], r"^there is no option --train.step \(did you mean --train.steps\?\)$"),
    (["--data.files", "[*.md, a]"], "quote its globs"), (["--data.files", 400 * "["], "must be"),
    # The byte E9 is not UTF-8.
    (["--name", "caf\udce9"], "^name must be text in UTF-8, not .*: if a file is called"),
    (["--model.max_positions", "9" * 18], r"max_positions must be in \[1, 2147483648\), not 999"),
    (["--model.rope_scaling.factor", "2"],
     "^model.rope_scaling needs a type: give model.rope_scaling.type$"),
    (["--model.rope_scaling", "yarn"], "not 'yarn': its fields are options, such as model.rope_s"),
    (["--data.seq_len", "32", "--model.max_positions", "16"], "16 is shorter than data.seq_len 32"),
    (["--model.vocab_size", "99"], "model.vocab_size must be at least 4096, not 99"),
    (["--data.seq_len", "99", "--model.max_positions", "98"], "98 is shorter than data.seq_len 99"),
    (["--model.position", "learned", "--model.max_positions", "999"], "would never be trained"),
    (["--model.position", "learned", "--data.seq_len", "32", "--model.max_positions", "64"],
     "64 is longer than data.seq_len 32: .* would never be trained"),
    (["--optim.warmup_steps", "2000"], r"warmup_steps must be in \[0, 1000\], not 2000"),
    (["--train.sample_tokens", "1024"], r"sample_tokens must be in \[0, 1024\), not 1024"),
    (["--train.keep", "[5, 1001]"], "does not have"),
    (["--train.keep", "[5, 0]"], r"^train.keep \[5, 0\] names step 0, and steps begin with 1"),
    (["--train.keep", "[0]", "--train.minutes", "2"], r"^train.keep \[0\] names step 0, and steps"),
    (["--train.shard", "0"], "at least 1, not 0"), (["--seed=-1"], r"\[0, 2\^63\), not -1"),
    (["--data.vocab_size=259"], "data.vocab_size must"),
    (["--optim.lr=a"], "optim.lr must be a number, not 'a'$"),
    (["--optim.lr=0,1"], "optim.lr must be a number, not '0,1': write 0.1$"),
    (["--optim.lr=0,001"], "optim.lr must be a number, not '0,001': write 0.001$"),
    (["--model.theta=10,000"], "model.theta must be a number, not '10,000'$"),
    (["--seed=0,1"], "seed must be a whole number, not '0,1'$"),
    (["--train.keep=null"], r"train.keep must be \[int, ...\], not \['null'\]$"),
    (["--optim.lr=1e40"], r"^optim.lr must be in \[0, 1e6\], not 1e\+40$"),
    (["--optim.optimizer=muon", "--optim.muon_lr=1e40"], r"muon_lr must be in \[0, 1e6\], not 1e"),
    (["--optim.weight_decay=1e40"], r"weight_decay must be in \[0, 1e6\], not 1e\+40$"),
    (["--optim.muon_lr", "0.1"], "optim.muon_lr has no effect with optim.optimizer adamw"),
    (["--optim.cooldown", "0.5"], "optim.cooldown has no effect with optim.schedule cosine"),
    (["--optim.beta2", "1.0"], r"optim.beta2 must be in \[0, 1\), not 1.0"),
    (["--data.source", "url"], "--data.url"), (["--data.files", "[]"], "--data.files"),
    (["--train.steps", "auto"], "train.steps auto is for a new run of train.py: give a number"),
    (["--train.steps", "Auto"], "train.steps must be a whole number or auto, not 'Auto'"),
    (["--train.minutes", "0"], "train.minutes must be in"),
    (["--data.source", "mine"], "of stdlib, .*, not mine"), (["--data.val_fraction", "1"], "must"),
    (["--data.sha256", "0", "--data.files", "a"], "sha256 has no effect with data.source files"),
    (["--data.sha256", "abc", "--data.url", "http://b"],
     "^data.sha256 must be 64 hexadecimal digits, not 'abc'$"),
    (["--data.files", "a", "--data.url", "http://b"],
     "^data.files and data.url are different texts: leave one of them out$"),
    (["--data.url", "http://a", "--data.hub", "b/c"], "^data.url and data.hub are different texts"),
    (["--data.hub", "b/c", "--data.files", "a"], "^data.files and data.hub are different texts"),
    (["--data.source", "stdlib", "--data.files", "a"],
     "^data.source stdlib and data.files are different texts: leave one of them out$"),
    (["--data.source", "stdlib", "--data.url", "http://a"], "^data.source stdlib and data.url are"),
    (["--data.source", "hub", "--data.files", "a"], "^data.source hub and data.files are")])
def test_a_mistake_in_an_argument_is_told_in_a_sentence(argv, words):
    with pytest.raises(UserError, match=words) as caught:
        parse_config(*argv)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("earlier, later, source", [
    ({"data.files": ["a.txt"]}, {"data.url": "http://b"}, "url"),
    ({"data.files": ["a.txt"]}, {"data.hub": "b/c"}, "hub"),
    ({"data.files": ["a.txt"], "data.separator": "##"}, {"data.source": "stdlib"}, "stdlib"),
    ({"data.source": "files", "data.files": ["a.txt"]}, {"data.url": "http://b"}, "url"),
    ({"data.url": "http://b", "data.sha256": "0"}, {"data.hub": "b/c"}, "hub"),
    ({"data.hub": "b/c", "data.hub_revision": "1"}, {"data.url": "http://b"}, "url"),
    ({"data.url": "http://b"}, {"data.files": ["a.txt"]}, "files")], ids=str)
def test_a_later_text_replaces_an_earlier_one(earlier, later, source):
    data = make_config(earlier, later).data
    assert data.source == source
    named = {name for name in ("files", "url", "hub") if getattr(data, name) is not None}
    assert named == {source} - {"stdlib"}


def test_what_belongs_to_a_text_stays_where_it_is_named_again():
    earlier = {"data.hub": "b/c", "data.hub_revision": "1", "data.column": "words"}
    assert make_config(earlier, {"data.hub": "b/c"}) == make_config(earlier)


def test_the_checkpoint_of_the_last_step_can_be_kept():
    assert parse_config("--train.steps=300", "--train.keep=[5, 300]").train.keep == [5, 300]


@pytest.fixture
def mixed():
    """A parser with options of its own, and those of the configuration."""
    parser = Parser("What it does.\n\n    an example\n", WeightOptions, Sampling, config=True)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    return parser


def test_a_command_has_options_beside_those_of_the_configuration(mixed):
    options = mixed.parse_args(["a", "b", "--top-k", "3", "--checkpoint", "last", "--seed", "1"])
    assert (options.runs, options.top_k, options.checkpoint) == (["a", "b"], 3, "last")
    assert options.given == {"seed": 1}  # also where it is the default


def test_an_option_that_is_not_given_has_its_default(mixed):
    options = mixed.parse_args(["a"])
    assert (options.temperature, options.device, options.given) == (0.8, "auto", {})


@pytest.mark.parametrize("argv, words", [
    ([], "required: RUN$"), (["a", "--topk=3"], r"no option --topk \(did you mean --top-k\?"),
    (["a", "--checkpoint", "first"], r"^checkpoint must be best\|last, not 'first'$")])
def test_a_mistake_in_an_option_of_a_command_is_told(mixed, argv, words):
    with pytest.raises(UserError, match=words):
        mixed.parse_args(argv)


def test_a_command_refuses_a_number_outside_its_range():
    parser = Parser("What it does.", WeightOptions, Sampling)
    with pytest.raises(UserError, match=r"^top_p must be in \(0, 1\], not 1.5$"):
        parser.parse_args(["--top-p", "1.5"])


# --- the words of a command line ------------------------------------------------------------------


@dataclasses.dataclass
class Words:
    """Options of a command that has no configuration."""

    prompt: list[str]
    """A text."""
    run: str | None = None
    """A run."""
    max_new_tokens: int = 9
    """A number."""
    compile: bool = False
    """A flag."""


def words(*argv):
    """The options of Words in a command line, but for those of the configuration."""
    options = vars(Parser(None, Words).parse_args([*argv]))
    return {name: value for name, value in options.items() if name != "given"}


def mistake(*argv, parser=None):
    """What is wrong with a command line."""
    with pytest.raises(UserError) as caught:
        (parser or Parser(None, Words)).parse_args([*argv])
    return str(caught.value)


@pytest.mark.parametrize("option", [
    "--train.batch_size", "--train.batch-size", "--train.micro-batch-size",
    "--train.micro-batch_size"])
def test_dashes_and_underscores_of_dotted_options_are_the_same(option):
    given = Parser(config=True).parse_args([option, "7"]).given
    assert given == {option[2:].replace("-", "_"): 7}


@pytest.mark.parametrize("argv", [
    ["--max-new-tokens", "3"], ["--max_new_tokens", "3"], ["--max_new_tokens=3"]])
def test_dashes_and_underscores_of_other_options_are_the_same(argv):
    assert words(*argv) == {"prompt": [], "run": None, "max_new_tokens": 3, "compile": False}


def test_underscores_in_front_make_no_option():
    assert mistake("__run") == "__run is no option: did you mean --run __run or --prompt __run?"


def test_a_negative_value_of_a_misspelt_option_is_no_option():
    assert mistake("--prompt=a", "--", "b") == "b is no option: did you mean --run b?"
    assert mistake("--rum", "-1") == "there is no option --rum (did you mean --run?)"


def test_words_after_a_run_may_be_a_prompt():
    assert mistake("--run", "r", "def x") == "def x is no option: did you mean --prompt 'def x'?"


def test_a_second_word_of_a_prompt_is_to_be_quoted():
    assert mistake("--prompt", "def", "x").endswith("quote it, as in --prompt 'def x'")


def test_a_value_keeps_its_dashes_and_underscores():
    options = words("--run", "--max_new", "--prompt=--top_k")
    assert (options["run"], options["prompt"]) == ("--max_new", ["--top_k"])


def test_keys_of_a_file_may_have_dashes(tmp_path):
    file = write(tmp_path, "{train: {batch-size: 7}, model.n-layers: 2}")
    config = parse_config("--config", file)
    assert (config.train.batch_size, config.model.n_layers) == (7, 2)


def test_a_key_in_both_spellings_is_there_twice(tmp_path):
    file = write(tmp_path, "train: {batch-size: 7, batch_size: 8}")
    with pytest.raises(UserError, match="train.batch_size is there twice"):
        parse_config("--config", file)


def test_help_shows_one_spelling():
    shown = Parser(None, Words, config=True).format_help()
    assert "--max-new-tokens int" in shown and "--train.batch_size int" in shown
    assert "--max_new_tokens" not in shown and "--train.batch-size" not in shown
    assert "\nIn the name of an option, - and _ are the same.\n" in shown


@pytest.mark.parametrize("text", ["--x", "-x", "- item", "-1", "---", "--no-such=3", ""])
def test_a_text_may_begin_with_dashes(text):
    assert words("--prompt", text, "--run", "a") == words(f"--prompt={text}", "--run=a")
    assert words("--prompt", text)["prompt"] == [text]


def test_an_option_as_a_text_needs_an_equals_sign():
    assert mistake("--prompt", "--run", "a") == (
        "--prompt needs a value (if --run is meant to be it: --prompt=--run)")
    assert words("--prompt=--run")["prompt"] == ["--run"]


def test_an_option_at_the_end_without_its_value_is_named():
    assert mistake("--compile", "--prompt") == "--prompt needs a value"


def test_a_flag_with_a_value_is_named():
    assert mistake("--compile=False") == (
        "--compile takes no value, and was given 'False': say it alone, or leave it out")
    assert mistake("--compile", "False") == (
        "--compile takes no value, and False follows it: leave it out")


def test_arguments_without_an_option_may_stand_apart():
    parser = Parser(None, Words)
    parser.add_argument("runs", nargs="*")
    assert parser.parse_args(["a", "--run", "b", "c", "--compile", "d"]).runs == ["a", "c", "d"]


def test_what_follows_two_dashes_is_no_option():
    parser = Parser(None, Words)
    parser.add_argument("runs", nargs="*")
    options = parser.parse_args(["--run", "a", "--", "--max_new_tokens", "b"])
    assert (options.run, options.runs) == ("a", ["--max_new_tokens", "b"])


def test_a_glob_that_the_shell_expanded_is_to_be_quoted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    write(tmp_path / "notes", "a text", "a.md")
    parser = Parser(config=True)
    assert mistake("--data.files", "notes/a.md", "notes/b.md", "notes/c.md", parser=parser) == (
        "--data.files takes one value, and notes/b.md follows it: quote a glob, as in --data.files "
        "'notes/*.md', or give a list, as in --data.files '[notes/a.md, notes/b.md, ...]'")


@pytest.mark.parametrize("folder, pattern", [("notes/", "notes/**/*.md"), ("", "**/*.md")])
def test_a_glob_over_folders_is_to_be_quoted_whole(tmp_path, monkeypatch, folder, pattern):
    monkeypatch.chdir(tmp_path)
    names = [f"{folder}home/a.md", f"{folder}work/b.md", f"{folder}work/c.md"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path, "a text", name)
    advice = mistake("--data.files", *names, parser=Parser(config=True))
    assert f"quote a glob, as in --data.files '{pattern}', or" in advice
    assert sorted(glob.glob(pattern, recursive=True)) == names


def test_files_with_little_in_common_are_to_be_a_list(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for names in (["../a.md", "b.md"], [f"{tmp_path}/a.md", f"{tmp_path}/here/b.md"]):
        for name in names:
            write(tmp_path / "here", "a text", name)
        advice = mistake("--data.files", *names, parser=Parser(config=True))
        assert "follows it: give a list, as in" in advice


@pytest.mark.parametrize("names", [["it's/a.txt", "it's/b.txt"], ["x, y.txt", "text.txt"],
                                   ["n [1]/a.txt", "n [1]/b.txt"],
                                   ["*.txt", 'the "end".txt']])
def test_the_advice_on_odd_names_can_be_followed(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it's").mkdir()
    (tmp_path / "n [1]").mkdir()
    for name in names:
        write(tmp_path, "a text", name)
    advice = mistake("--data.files", *names, parser=Parser(config=True))
    _, _, as_list = advice.partition("give a list, as in ")
    assert Parser(config=True).parse_args(shlex.split(as_list)).given["data.files"] == names
    _, _, as_glob = advice.partition("quote a glob, as in ")
    if as_glob.startswith("--data.files"):
        command, _, _ = as_glob.partition(", or give a list")
        assert glob.glob(shlex.split(command)[1]) != []


def test_a_name_with_spaces_is_to_be_quoted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a text", "my own text.txt")
    parser = Parser(config=True)
    assert mistake("--data.files", "my", "own", "text.txt", parser=parser) == (
        "--data.files takes one value, and own follows it: quote a name with spaces, as in "
        "--data.files 'my own text.txt'")


def test_numbers_side_by_side_are_to_be_a_list():
    assert mistake("--train.keep", "3", "5", parser=Parser(config=True)) == (
        "--train.keep takes one value, and 5 follows it: give a list, as in --train.keep '[3, 5]'")


def test_columns_side_by_side_are_to_have_commas():
    assert mistake("--data.column", "title", "body", parser=Parser(config=True)) == (
        "--data.column takes one value, and body follows it: put commas between columns, as in "
        "--data.column title,body, or quote a name with spaces, as in --data.column 'title body'")


def test_a_glob_in_a_folder_with_a_space_is_to_be_quoted(tmp_path):
    (tmp_path / "my texts").mkdir()
    (tmp_path / "my texts" / "a.txt").touch()
    said = mistake("--data.files", f"{tmp_path}/my", "texts/*.txt", parser=Parser(config=True))
    assert said.endswith("quote a name with spaces, as in --data.files "
                         f"'{tmp_path}/my texts/*.txt'")


def test_a_text_of_several_words_is_to_be_quoted():
    assert mistake("--prompt", "def", "read", "it's") == (
        "--prompt takes one value, and read follows it: quote it, as in "
        """--prompt 'def read it'"'"'s'""")


def test_a_second_number_is_to_be_left_out():
    assert mistake("--max-new-tokens", "3", "4") == (
        "--max-new-tokens takes one value, and 4 follows it: leave it out")


@pytest.mark.parametrize("config, message", [
    (True, "tiny.yaml is no option: did you mean --config tiny.yaml?"),
    (False, "tiny.yaml is no option: did you mean --run tiny.yaml or --prompt tiny.yaml?")])
def test_a_word_without_an_option_is_given_one(config, message):
    parser = Parser(config=True) if config else Parser(None, Words)
    assert mistake("tiny.yaml", parser=parser) == message


def test_a_configuration_of_nanogpt_is_told_what_ours_are():
    assert mistake("config/train_gpt2.py", parser=Parser(config=True)) == (
        "config/train_gpt2.py is no option: a configuration is a YAML file, such as --config "
        "shakespeare.yaml")


@pytest.mark.parametrize("argv, options", [
    ("poem.txt", "--data.files poem.txt"), ("notes", "--data.files notes"),
    ("notes/*.md", "--data.files 'notes/*.md'"), ("elsewhere.csv", "--data.files elsewhere.csv"),
    ("--config tiny.yaml poem.txt", "--data.files poem.txt"),
    ("--config tiny.yaml notes", "--data.files notes"), ("--seed 3 notes", "--data.files notes"),
    ("--name a poem.txt", "--data.files poem.txt"), ("notes --seed 3", "--data.files notes"),
    ("x" * 300 + ".txt", "--data.files " + "x" * 300 + ".txt"),
    ("poem.txt notes", "--data.files poem.txt --data.files notes"),
    ("tiny.yaml poem.txt", "--config tiny.yaml --data.files poem.txt"),
    ("--config a.yaml b.yaml", "--config b.yaml"), ("mine.yml", "--config mine.yml")])
def test_a_text_without_an_option_is_given_data_files(tmp_path, monkeypatch, argv, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    for name in ("notes/a.md", "poem.txt", "mine.yml"):
        write(tmp_path, "a text", name)
    message = mistake(*argv.split(), parser=Parser(config=True))
    assert message.endswith(f" is no option: did you mean {options}?")


def test_two_dashes_that_the_user_has_tied_together_stay_so():
    """Pages do so with an invisible character, U+2060."""
    prompt = "git log -\u2060-oneline"
    assert words("--prompt", prompt)["prompt"] == [prompt]


@pytest.mark.parametrize("argv", [["--prompt", "--"], ["--prompt=--"]])
def test_a_value_may_be_two_dashes(argv):
    assert words(*argv)["prompt"] == ["--"]


def test_where_runs_are_named_without_an_option_it_is_said():
    parser = Parser()
    parser.add_argument("runs", nargs="*")
    assert mistake("--run", "a", parser=parser) == (
        "there is no option --run: name the run without one")


def test_a_folder_without_a_name_makes_no_glob():
    assert mistake("--data.files", ".", "src", parser=Parser(config=True)) == (
        "--data.files takes one value, and src follows it: give a list, as in --data.files "
        "'[., src]'")


def test_many_texts_without_an_option_are_to_be_quoted_as_a_glob(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt", "c.txt"):
        write(tmp_path, "a text", name)
    assert mistake("a.txt", "b.txt", "c.txt", parser=Parser(config=True)) == (
        "a.txt is no option: quote a glob, as in --data.files '*.txt', or give a list, as in "
        "--data.files '[a.txt, b.txt, ...]'")


def test_a_file_without_an_option_may_hold_a_prompt(tmp_path):
    parser = Parser(None, generate.ModelOptions, generate.TextOptions)
    file = write(tmp_path, "def", "start.txt")
    assert mistake(file, parser=parser) == (
        f"{file} is no option: did you mean --prompt-file {file}?")


@pytest.mark.parametrize("content", ["Twinkle, twinkle\nlittle star\n", "Title: Star\n"])
def test_a_text_as_a_configuration_is_given_data_files(tmp_path, content):
    file = write(tmp_path, content, "poem.txt")
    with pytest.raises(UserError, match=f"; to train on this text, say --data.files {file}$"):
        parse_config("--config", file)


def test_a_folder_as_a_configuration_is_given_data_files(tmp_path):
    with pytest.raises(UserError, match=rf"no config {tmp_path} \(did you mean --data.files "):
        parse_config("--config", str(tmp_path))


def test_a_word_too_many_is_to_be_left_out():
    parser = Parser()
    parser.add_argument("source")
    parser.add_argument("--to", choices=["hf", "run"])
    assert mistake("a", "b", parser=parser) == "b is no option: leave it out"
    assert mistake("a", "--to=hf", "b", parser=parser) == (
        "--to takes one value, and b follows it: leave it out")


@pytest.mark.parametrize("habit, ours", [
    ("learning_rate", "optim.lr"), ("lr", "optim.lr"), ("batch_size", "train.batch_size"),
    ("max_iters", "train.steps"), ("max-steps", "train.steps"), ("bf16", "train.dtype"),
    ("block_size", "data.seq_len"), ("n_embd", "model.dim"), ("n_layer", "model.n_layers"),
    ("n_head", "model.n_heads"), ("dropout", "model.dropout"), ("device", "train.device"),
    ("dtype", "train.dtype"), ("weight_decay", "optim.weight_decay"), ("out_dir", "name"),
    ("out", "name"), ("output_dir", "name"), ("context", "data.seq_len"),
    ("model.context", "data.seq_len"), ("model.context_length", "data.seq_len"),
    ("eval_interval", "train.eval_interval"), ("compile", "train.compile"),
    ("prompt", "train.sample_prompt"), ("max_new_tokens", "train.sample_tokens"),
    ("grad_clip", "optim.grad_clip"), ("warmup_iters", "optim.warmup_steps"),
    ("min_lr", "optim.final_lr"), ("beta2", "optim.beta2"), ("dataset", "data.files"),
    ("model.steps", "train.steps"), ("optim.learning_rate", "optim.lr"), ("stepps", "train.steps")])
def test_words_of_other_repositories_lead_to_our_options(habit, ours):
    message = mistake(f"--{habit}", "3", parser=Parser(config=True))
    assert message == f"there is no option --{habit} (did you mean --{ours}?)"


@pytest.mark.parametrize("habit, words", [
    ("num-train-epochs", "gyre counts steps: leave it out, and they are chosen for the text, or "
                         "say --train.steps"),
    ("gradient_accumulation_steps", "did you mean --train.micro_batch_size? It is the rows of a "
                                    "part, and not the number of parts"),
    ("model.size", "did you mean --model.dim and --model.n_layers? The number of parameters "
                   "follows from them"),
    ("no-wandb", "did you mean --log.wandb disabled?")])
def test_words_that_no_option_means_quite_are_explained(habit, words):
    message = mistake(f"--{habit}", "3", parser=Parser(config=True))
    assert message == f"there is no option --{habit} ({words})"


def test_a_file_of_python_is_no_configuration(tmp_path):
    with pytest.raises(UserError, match=r"no config x/a.py \(a configuration is a YAML file\), "):
        parse_config("--config", "x/a.py")


def test_an_option_that_is_missing_is_told_with_its_choices():
    with pytest.raises(UserError, match="^--to is missing: hf, gguf, web, run$"):
        export.parse(["runs/a", "OUT"])


@pytest.mark.parametrize("habit, ours", [
    ("max_tokens", "max-new-tokens"), ("n_predict", "max-new-tokens"), ("start", "prompt"),
    ("model", "run"), ("new-token", "max-new-tokens")])
def test_suggested_options_are_those_that_the_command_has(habit, ours):
    with pytest.raises(UserError) as caught:
        generate.parse([f"--{habit}=3"])
    assert str(caught.value) == f"there is no option --{habit} (did you mean --{ours}?)"


@pytest.mark.parametrize("option, hint", [
    ("num-samples", "--num-samples is an option of generate.py"),
    ("top_k", "--top-k is an option of generate.py"),
    ("stride", "--stride is an option of evaluate.py"),
    ("dry_run", "--dry-run is an option of ablate.py"),
    ("device", "did you mean --train.device?"), ("tokens", "--tokens is an option of ablate.py")])
def test_train_names_the_command_that_has_an_option(option, hint):
    with pytest.raises(UserError) as caught:
        start.resolve([f"--{option}", "3"], doc="")
    assert str(caught.value) == f"there is no option --{option} ({hint})"


@pytest.mark.parametrize("option, hint", [
    ("block_size", "--data.seq_len is an option of train.py"),
    ("learning-rate", "--optim.lr is an option of train.py"),
    ("model.theta", "--model.theta is an option of train.py"),
    ("resume", "--resume is an option of train.py"), ("lengths", "--lengths is an option of "
                                                      "evaluate.py")])
def test_generate_names_the_command_that_has_an_option(option, hint):
    with pytest.raises(UserError) as caught:
        generate.parse([f"--{option}", "3"])
    assert str(caught.value) == f"there is no option --{option} ({hint})"


@pytest.mark.parametrize("command", [train, generate, evaluate, ablate, bench, export])
def test_options_of_a_command_are_those_of_its_help(command, capsys):
    assert exit_code(command.main, "--help") == 0
    spellings = re.findall("^  --([a-z-]+)(?: |$)", capsys.readouterr().out, re.MULTILINE)
    of_config = {"name", "seed"}  # options of Config that have no section
    options = {spelling.replace("-", "_") for spelling in spellings} - of_config
    assert options == set(COMMAND_OPTIONS[f"{command.__name__}.py"].split())


def test_a_short_option_leads_to_config():
    assert mistake("-c", "tiny.yaml", parser=Parser(config=True)) == (
        "there is no option -c (did you mean --config?)")


def test_a_word_like_no_option_gets_no_suggestion():
    assert mistake("--zzz") == "there is no option --zzz"


def test_all_unknown_options_are_named_at_once():
    assert mistake("--learning_rate", "1e-3", "--max_iters=9", parser=Parser(config=True)) == (
        "there is no option --learning_rate (did you mean --optim.lr?), --max_iters (did you mean "
        "--train.steps?)")


def test_every_habit_leads_to_an_option_that_there_is():
    ours = set(HABITS)  # by our names
    of_commands = " ".join(COMMAND_OPTIONS.values()).split()  # compared with --help above
    known = {*OPTIONS, *of_commands}
    assert ours <= known


@pytest.mark.parametrize("key, ours", [
    ("lr", "optim.lr"), ("dim", "model.dim"), ("learning_rate", "optim.lr"),
    ("max_iters", "train.steps"), ("batch-size", "train.batch_size"),
    ("vocab_size", "data.vocab_size"), ("sampel_tokens", "train.sample_tokens")])
def test_a_key_without_its_section_is_told_where_it_belongs(tmp_path, key, ours):
    file = write(tmp_path, f"{key}: 3")
    option = key.replace("-", "_")
    with pytest.raises(UserError) as caught:
        parse_config("--config", file)
    assert str(caught.value) == f"{file}: there is no option {option} (did you mean {ours}?)"


@pytest.mark.parametrize("name, ours", [
    ("small.yml", "small.yaml"), ("smal", "small.yaml"), ("shakespear.yaml", "shakespeare.yaml"),
    ("mine/my.yml", "mine/my.yaml")])
def test_the_nearest_configuration_is_suggested(tmp_path, monkeypatch, name, ours):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine", "seed: 9", "my.yaml")
    with pytest.raises(UserError) as caught:
        parse_config("--config", name)
    assert str(caught.value) == (
        f"no config {name} (did you mean {ours}?), neither as a path nor among ours: "
        "ablation.yaml, bench-gpu.yaml, bench.yaml, shakespeare.yaml, small.yaml, tiny.yaml, "
        "tinystories.yaml")


def test_every_option_has_a_help():
    assert [name for name, option in OPTIONS.items() if not option.help] == []


@pytest.mark.parametrize("name, ending", [
    ("train.steps", "has. (default: 1000)"), ("data.column", "one document. (default: text)"),
    ("data.second_val", "its learning rates."), ("train.sample_prompt", "words of the text."),
    ("data.files", "whatever its source is."),
    ("train.cuda_graphs", "micro-batches. (default: true)")])
def test_help_ends_with_the_default_if_there_is_one(name, ending):
    assert OPTIONS[name].help.endswith(ending)


# What may be too large or too small depends on other options.
WITHOUT_RANGE = {"train.sample_tokens", "model.rope_scaling.beta_slow",
                 "model.rope_scaling.low_freq_factor"}


def test_every_number_has_a_range_beside_it():
    with_range = set()
    classes = {"": Config, "model.rope_scaling.": RopeScaling}
    classes |= {f"{section}.": cls for section, cls in SECTIONS.items()}
    for prefix, cls in classes.items():
        for name, hint in get_type_hints(cls, include_extras=True).items():
            if any(isinstance(note, Range) for note in getattr(hint, "__metadata__", ())):
                with_range.add(f"{prefix}{name}")
    numbers = {name for name, option in OPTIONS.items()
               if re.search(r"\b(int|float)\b", show_type(option.hint))}
    # train.keep is a list.
    assert numbers - with_range - {"train.keep"} == WITHOUT_RANGE


def test_docstrings_are_read_for_help_only(monkeypatch, capsys):
    classes = []

    def read_docs(cls):
        classes.append(cls)
        return {}

    monkeypatch.setattr(options, "read_docs", read_docs)
    parser = Parser(None, WeightOptions)
    parser.parse_args([])
    assert classes == []
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    assert classes == [WeightOptions, WeightOptions]  # once for each option


def test_help_shows_every_option(capsys):
    assert exit_code(train.main, "--help") == 0
    help_text = capsys.readouterr().out
    assert train.__doc__.strip() in help_text
    for name in OPTIONS:
        assert name == "init_from" or f"--{name} " in help_text


def test_several_columns_are_one_value_with_commas():
    words = ["--data.column", "question", "--data.column=answer"]
    assert Parser(config=True).parse_args(words).given == {"data.column": "question,answer"}


def test_a_column_with_a_comma_that_is_given_again_is_one():
    words = ["--data.column", "review, full", "--data.column", "review, full"]
    assert Parser(config=True).parse_args(words).given == {"data.column": "review, full"}


def test_files_of_several_kinds_are_to_be_a_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    words = ["--data.files", "notes", "a.txt"]
    assert mistake(*words, parser=Parser(config=True)) == (
        "--data.files takes one value, and a.txt follows it: give a list, as in --data.files "
        "'[notes, a.txt]'")


def test_seq_len_0_is_refused_by_its_own_name():
    with pytest.raises(UserError, match="data.seq_len must be at least 1, not 0"):
        make_config({"data.seq_len": 0})


@pytest.mark.parametrize("command, argv, shown", [
    (train, ["--data.files", ""], "--data.files"), (train, ["--config", ""], "--config"),
    (train, ["--data.files", "a", "--data.files="], "--data.files"),
    (train, ["--config", "tiny.yaml", "--name", ""], "--name"),
    (train, ["--config", "tiny.yaml", "--log.runs", ""], "--log.runs"),
    (train, ["--config", "tiny.yaml", "--data.prepared", ""], "--data.prepared"),
    (train, ["--config", "tiny.yaml", "--data.tokenizer", ""], "--data.tokenizer"),
    (train, ["--data.url="], "--data.url"), (train, ["--data.hub="], "--data.hub"),
    (ablate, ["--beside", ""], "--beside"), (ablate, ["--baseline="], "--baseline"),
    (ablate, ["--scheduler", ""], "--scheduler"),
    (evaluate, ["run", "--plot="], "--plot"), (evaluate, ["run", "--json="], "--json"),
    (generate, ["--run", "", "--prompt", "a"], "--run"), (evaluate, [""], "RUN"),
    (export, ["", "OUT", "--to", "hf"], "FROM"), (export, ["run", "", "--to", "hf"], "OUT")])
def test_an_empty_name_is_refused(capsys, command, argv, shown):
    """Such as comes of a shell variable that is not set."""
    *_, error = error_lines(capsys, command.main, *argv)
    assert f"{shown} '' names nothing: give a name" in error
