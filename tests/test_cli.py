"""Defaults <- YAML <- run <- command line, strictly typed, and every mistake in one sentence."""

from argparse import SUPPRESS

import pytest
import yaml
from conftest import load, run

import ablate
import bench
import train
from errors import UserError
from gyre.options import (
    CONFIGS,
    Parser,
    RunOptions,
    config_parser,
    find_config,
    load_config,
    load_file,
)
from model.sampling import Sampling


@pytest.fixture
def write(tmp_path):
    """Writes a configuration file; returns its path."""
    def write(text: str, name: str = "my.yaml") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def test_command_line_over_run_over_yaml_over_defaults(write):
    file = write("model: {dim: 96, n_heads: 6}\noptim: {lr: 3e-4}\nseed: 3\nname: file\n")
    argv = ["--model.n_heads", "2", "--config", file, "--model.position", "sinusoidal"]
    config = load(*argv, base={"model": {"n_heads": 4, "n_layers": 5}, "name": "1e3"})
    assert (config.model.dim, config.model.n_heads, config.model.n_layers) == (96, 2, 5)
    assert config.model.position == "sinusoidal" and config.model.head_dim == 48
    assert (config.seed, config.name, config.train.steps) == (3, "1e3", 1000)
    second = write("{seed: 4, model: {dim: 72}}", "second.yaml")
    both = load("--config", file, f"--config={second}")
    assert (both.seed, both.model.dim, both.model.n_heads) == (4, 72, 6)


def test_numbers_with_an_exponent_are_numbers(write):
    """PyYAML alone reads 3e-4 as text."""
    assert yaml.safe_load("lr: 3e-4") == {"lr": "3e-4"}
    file = write("optim: {lr: 3e-4, weight_decay: 1e-4}\nmodel: {theta: 5e5}")
    config = load("--config", file, "--optim.final_lr", "1e-2")
    assert (config.optim.lr, config.optim.weight_decay) == (3e-4, 1e-4)
    assert (config.model.theta, config.optim.final_lr) == (5e5, 1e-2)
    assert all(type(v) is float for v in (config.optim.lr, config.model.theta))


@pytest.mark.parametrize("text, words", [
    ("resume: runs/a", "resume is no option of a file: say --resume on the command line"),
    ("init-from: runs/a", "init-from is no option of a file: say --init-from on the command line"),
    ("config: small.yaml", "config is no option of a file"),
    ("modle: {}", r"there is no option modle \(did you mean model\?\)"),
    ("data: null", "data must be a table of its fields, not None"),
    ("data: 3", "data must be a table of its fields, not 3"),
    ("data: {seq_len: null}", "data.seq_len must not be null: leave it out for its default"),
    ("data.seq_len: null", "data.seq_len must not be null"),
    ("optim: {schedule: null}", "optim.schedule must not be null"),
    ("train: {compile: null, keep: null}", "train.compile must not be null"),
    ("data: {hub_split: null}", "data.hub_split must not be null"),
    ("seed: null", "seed must not be null"),
    ("[seed, 3]", "it holds no table of options"),
    ("", "it holds no table of options"),
    ("seed: [", "it cannot be read as YAML"),
    ("{a: b}: 3", "it cannot be read as YAML"),
    ("[" * 5000, "it cannot be read as YAML"),
])
def test_a_file_that_says_what_it_cannot_is_refused(write, text, words):
    file = write(text)
    with pytest.raises(UserError, match=f"^{file}: {words}") as caught:
        train.load(["--config", file])
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\0\xff")
    with pytest.raises(UserError, match=f"^{file}: it cannot be read as YAML: .*utf-8"):
        load("--config", str(file))


def test_values_keep_their_types():
    assert load("--train.compile", "false").train.compile is False
    assert load("--train.compile", "auto").train.compile == "auto"
    assert type(load("--optim.lr", "1").optim.lr) is float
    assert load("--train.sample_prompt", "a = b = c").train.sample_prompt == "a = b = c"
    assert load("--data.files", "a.txt").data.files == ["a.txt"]
    assert load("--data.files", "[a.txt, 'b c.md']").data.files == ["a.txt", "b c.md"]
    assert load("--name", "3").name == "3"


@pytest.mark.parametrize("words, files", [
    ("[*.md, book.txt]", ["*.md", "book.txt"]),  # an alias in YAML
    ("[notes/*.md, '*.txt']", ["notes/*.md", "*.txt"]),
    ("[2024, a.txt]", ["2024", "a.txt"]),
    ("[a b.txt, c#d.txt, e: f.txt]", ["a b.txt", "c#d.txt", "e: f.txt"]),
    ("[chapter[0-9].txt, b[1,2].txt]", ["chapter[0-9].txt", "b[1,2].txt"]),
    ("[a-c]*[0-9]", ["[a-c]*[0-9]"]),  # a glob
    ("*.txt", ["*.txt"]),
])
def test_a_list_of_files_is_one_whatever_yaml_makes_of_its_entries(words, files):
    assert load("--data.files", words).data.files == files


@pytest.mark.slow
@pytest.mark.parametrize("from_file", [True, False])
def test_rope_scaling_is_one_option_with_options_of_its_own(write, from_file):
    text = "model: {rope_scaling: {type: yarn, factor: 4, beta_fast: 8}}" if from_file else "{}"
    words = ["--model.rope_scaling.type=yarn", "--model.rope_scaling.beta_fast", "8"]
    config = load("--config", write(text), "--data.seq_len", "50",
                  "--model.rope_scaling.factor", "6.5", *([] if from_file else words))
    scaling = config.model.rope_scaling
    assert (scaling.type, scaling.factor, scaling.beta_fast) == ("yarn", 6.5, 8)
    assert scaling.original_positions == 50 and config.model.max_positions == 325
    file = write(config.to_yaml())
    assert load_file(file) == config
    assert load("--config", file, "--model.rope_scaling", "null").model.rope_scaling is None


@pytest.mark.parametrize("text", ["a\x7fb", "\xff\x9f", "1e3", "null", "é: #\n\t😀", "{a: b}"])
def test_a_run_gives_its_texts_back_as_they_are(text):
    """The layer of --resume and --init-from is read as YAML is."""
    assert load(base={"train": {"sample_prompt": text}}).train.sample_prompt == text


def test_our_configs_are_found_from_any_directory(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config("small.yaml") == find_config("small") == CONFIGS / "small.yaml"
    write("seed: 9\n", "small.yaml")
    assert load("--config", "small.yaml").seed == 9  # a file that is really there comes first
    with pytest.raises(UserError, match=r"no config 'smal.yaml'.*: ablation.yaml, .*small.yaml"):
        load("--config=smal.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("argv, words", [
    (["--model.positon", "rope"], r"^there is no option --model.positon \(did you mean "
                                  r"--model.position\?\)$"),
    (["--modle.dim", "64"], r"did you mean --model.dim\?"),
    (["--stesp=64"], r"no option --stesp \(did you mean --train.steps\?"),
    (["--train.step", "64"], r"did you mean --train.steps\?"),  # no abbreviations
    (["--xyzzy"], "^there is no option --xyzzy$"),
    (["--dry", "3"], r"did you mean --dry-run\?"),
    (["-repeats", "3"], r"^there is no option -repeats \(did you mean --repeats\?\)$"),
    (["--repeats", "x"], "^--repeats must be a whole number, not x$"),
    (["--config"], "^--config: expected one argument \\("),
    (["--optim.lr", "fast"], "^--optim.lr must be a number, not fast$"),
    (["--model.dim", "1.5"], "^--model.dim must be a whole number, not 1.5$"),
    (["--model.dim"], "^--model.dim: expected one argument \\("),
    (["--optim.muon_lr", "x"], "^--optim.muon_lr must be a number, not x$"),  # may be unset
    (["--model.position", "rop"], "model.position.*rope.*sinusoidal"),
    (["--train.dtype", "half"], "^--train.dtype must be 'auto', .* or 'float16', not half$"),
    (["--train.compile", "maybe"], "^--train.compile must be true or false or 'auto', not maybe$"),
    (["--seed", "x"], "^--seed must be a whole number, not x$"),
    (["--init-from", "x"], "^there is no option --init-from$"),
    (["--log.tags", "a"], "^--log.tags must be a list, not a$"),
    (["--model", "x"], "^--model: Unable to load config 'x'$"),
    (["--model.rope_scaling.type", "ntk"], "^--model.rope_scaling: .* required: factor$"),
    (["--model.rope_scaling.fator", "2"], r"^there is no option --model.rope_scaling.fator "
                                          r"\(did you mean --model.rope_scaling.factor\?\)$"),
    (["--model.rope_scaling", "yarn"],
     "^--model.rope_scaling must be a table of its fields, not yarn$"),
    (["--model.rope_scaling", "{type: yam, factor: 2}"],
     "^--model.rope_scaling.type must be 'linear', .* or 'llama3', not yam$"),
    (["--model.rope_scaling", "{type: ntk, factor: 0.5}"],
     "^model.rope_scaling.factor must be at least 1, not 0.5$"),
    (["surprise"], "^unexpected argument 'surprise'$"),
    (["--data.files", "caf\udce9"], r"^'caf\\udce9' is not UTF-8"),  # the byte E9
])
def test_mistakes_are_refused_in_a_sentence(argv, words):
    parser = config_parser()
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--repeats", type=int)
    with pytest.raises(UserError, match=words) as caught:
        load_config(parser, argv)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text, words", [
    ("model: {positon: rope}", r"no option model.positon \(did you mean model.position\?"),
    ("modle: {position: rope}", r"modle.*did you mean model.position\?"),
    ("optim: {lr: fast}", "optim.lr must be a number, not fast"),
    ("model: {position: rop}", "model.position must be one of rope, sinusoidal"),
    ("model: {rope_scaling: {type: ntk, fator: 2}}", "rope_scaling.fator .did you mean .*factor"),
    ("model: [", "it cannot be read as YAML"),
    ("just words", "it holds no table of options"),
])
def test_mistakes_in_a_file_are_told_with_its_name(write, text, words):
    with pytest.raises(UserError, match=rf"bad\.yaml: .*{words}"):
        load("--config", write(text, "bad.yaml"), "--optim.lr", "1")


def test_a_command_has_options_of_its_own():
    parser = config_parser()
    parser.add_argument("--tier", default="cpu")
    parser.add_argument("--jobs", type=int)
    argv = ["--jobs=3", "--model.dim", "72", "--config", "tiny", "--seed", "5"]
    options, words = parser.split(argv)
    assert vars(options) == {"tier": "cpu", "jobs": 3, "config": ["tiny"]}
    assert words == ["--model.dim", "72", "--seed", "5"]
    config, again = load_config(parser, argv)
    assert again == options and (config.seed, config.data.seq_len) == (5, 128)


def test_the_fields_of_a_dataclass_are_options_of_a_plain_command(capsys):
    parser = Parser("What it does.\n\n    an example\n\nMore.")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_fields(RunOptions)
    parser.add_fields(Sampling, heading="the choice of each token")
    options = parser.parse_args(["a", "b", "--top-k", "3", "--checkpoint", "last"])
    assert (options.runs, options.top_k, options.checkpoint) == (["a", "b"], 3, "last")
    assert (options.temperature, options.device) == (Sampling.temperature, "auto")
    for argv, words in (
        (["a", "--topk", "3"], r"no option --topk \(did you mean --top-k\?"),
        (["a", "--top-k", "x"], "^--top-k must be a whole number, not x$"),
        (["a", "--checkpoint", "first"], "^--checkpoint must be 'best' or 'last', not first$"),
    ):
        with pytest.raises(UserError, match=words):
            parser.parse_args(argv)
    parser.add_argument("--to-where", required=True)
    with pytest.raises(UserError, match="^the following arguments are required: RUN, --to-where$"):
        parser.parse_args([])
    help = parser.format_help()
    assert "What it does.\n\n    an example\n\nMore.\n" in help  # as it is laid out
    own = " ".join(help.split()).partition(" the choice of each token: ")[2]
    assert "Keep the k likeliest tokens. Unset: all. (type: int | null) --top-p" in own
    assert "type: float, default: 0.8)" in own and "--device" not in own


@pytest.mark.parametrize("columns", [80, 200])
def test_help_explains_every_option_within_the_terminal(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(train.main, "--help") == 0
    help = capsys.readouterr().out
    usage, text = help.partition("\n\n")[0], " ".join(help.split())
    assert " [--config FILE] " in usage and len(usage.splitlines()) <= 3
    assert " ".join(train.__doc__.split()) in text and "--init-from RUN" in text
    examples = [line for line in train.__doc__.splitlines() if line.startswith("    ")]
    assert all(line in help.splitlines() for line in examples)
    assert max(len(line) for line in help.splitlines() if line not in examples) <= columns
    assert "Optimizer" not in usage and "UserError" not in text and "ModelConfig" not in text
    for hidden in ("--model CONFIG", "--init_from"):
        assert hidden not in text
    for action in config_parser().full()._actions:
        assert action.help, action.dest  # the docstring of the field
        words = " ".join(action.help.split())[:40].lower()
        if action.help != SUPPRESS:
            assert action.option_strings[-1] in text and words in text.lower()


@pytest.mark.parametrize("command, argv, dim", [
    (train, [], 256), (train, ["--config", "tiny.yaml", "--model.n_heads", "2"], 96),
    (bench, [], 288), (ablate, [], 128), (ablate, ["--tier", "smoke"], 48),
])
def test_help_shows_the_values_of_the_files(capsys, command, argv, dim):
    assert run(command.main, *argv, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Width C of the residual stream. (type: int, default: {dim})" in text


def test_help_shows_tables_and_lists_of_a_file(write, capsys):
    file = write("model: {rope_scaling: {type: yarn, factor: 4}}\ntrain: {keep: [3, 5]}\n")
    assert run(train.main, "--config", file, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "default: {'type': 'yarn', 'factor': 4.0" in text and "default: [3, 5])" in text
