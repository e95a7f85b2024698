"""Defaults <- YAML <- command line, strictly typed, and every mistake in one sentence."""

import ast
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from errors import UserError, exit_in_words
from gyre.cli import config_parser, load_file, parse
from gyre.config import CONFIGS, Config, find_config
from model.position import POSITIONS

ROOT = Path(__file__).parent.parent


def load(*argv: str) -> Config:
    return parse(config_parser(""), list(argv))[0]


def test_command_line_over_yaml_over_defaults(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text("model: {dim: 96, n_heads: 6}\noptim: {lr: 3e-4}\nseed: 3\n", encoding="utf-8")
    config = load("--config", str(file), "--model.n_heads", "2", "--model.position", "sinusoidal")
    assert config.model.dim == 96 and config.model.n_heads == 2 and config.model.head_dim == 48
    assert config.model.position == "sinusoidal" and config.seed == 3
    assert config.train.steps == 1000


def test_numbers_with_an_exponent_are_numbers(tmp_path):
    """PyYAML alone reads 3e-4 as text."""
    assert yaml.safe_load("lr: 3e-4") == {"lr": "3e-4"}
    file = tmp_path / "my.yaml"
    file.write_text("optim: {lr: 3e-4, weight_decay: 1e-4}\nmodel: {theta: 5e5}", encoding="utf-8")
    config = load("--config", str(file), "--optim.final_lr", "1e-2")
    assert (config.optim.lr, config.optim.weight_decay) == (3e-4, 1e-4)
    assert (config.model.theta, config.optim.final_lr) == (5e5, 1e-2)
    assert all(type(v) is float for v in (config.optim.lr, config.model.theta))


def test_values_keep_their_types():
    assert load("--train.compile", "false").train.compile is False
    assert load("--train.compile", "auto").train.compile == "auto"
    assert load("--optim.lr", "1").optim.lr == 1.0
    assert load("--train.sample_prompt", "a = b = c").train.sample_prompt == "a = b = c"
    assert load("--data.files", "a.txt").data.files == ["a.txt"]
    assert load("--data.files", "[a.txt, 'b c.md']").data.files == ["a.txt", "b c.md"]
    assert load("--name", "3").name == "3"


def test_derived_values_follow_what_was_given_and_not_the_defaults():
    config = load("--model.dim", "96", "--model.n_heads", "3", "--data.seq_len", "50")
    assert config.model.head_dim == 32 and config.model.n_kv_heads == 3
    assert config.model.hidden_dim == 256 and config.model.max_positions == 200
    assert load("--data.vocab_size", "1000").model.vocab_size == 1000
    assert load("--model.position", "learned").model.max_positions == 256


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.name)
def test_every_config_of_ours_loads_with_every_encoding_that_it_can(path, tmp_path):
    config = load("--config", path.name)
    file = tmp_path / "config.yaml"
    file.write_text(config.to_yaml(), encoding="utf-8")
    assert load_file(file) == config
    for position in POSITIONS:
        assert load("--config", path.name, "--model.position", position).model.position == position


def test_a_resolved_config_reloads_to_an_equal_object(tmp_path):
    config = load(
        "--model.position", "learned", "--optim.lr", "1e-7", "--data.files", "[a.txt, b/*.md]",
        "--train.sample_prompt", "é: \n 'x' # no\t🙂", "--log.tags", "[a, b]", "--name", "1e3",
    )  # fmt: skip
    file = tmp_path / "config.yaml"
    file.write_text(config.to_yaml(), encoding="utf-8")
    assert load_file(file) == config


@pytest.mark.parametrize("from_file", [True, False])
def test_rope_scaling_is_one_option_with_options_of_its_own(tmp_path, from_file):
    file = tmp_path / "my.yaml"
    text = "model: {rope_scaling: {type: yarn, factor: 4, beta_fast: 8}}" if from_file else "{}"
    file.write_text(text, encoding="utf-8")
    words = ["--model.rope_scaling.type=yarn", "--model.rope_scaling.beta_fast", "8"]
    config = load(
        "--config", str(file), "--data.seq_len", "50", "--model.rope_scaling.factor", "6.5",
        *([] if from_file else words),
    )  # fmt: skip
    scaling = config.model.rope_scaling
    assert (scaling.type, scaling.factor, scaling.beta_fast) == ("yarn", 6.5, 8)
    assert scaling.original_positions == 50 and config.model.max_positions == 325
    file.write_text(config.to_yaml(), encoding="utf-8")
    assert load_file(file) == config
    back = load("--config", str(file), "--model.rope_scaling", "null")
    assert back.model.rope_scaling is None


def test_our_configs_are_found_from_any_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config("small.yaml") == find_config("small") == CONFIGS / "small.yaml"
    (tmp_path / "small.yaml").write_text("seed: 9\n", encoding="utf-8")
    assert load("--config", "small.yaml").seed == 9  # a file that is really there comes first
    with pytest.raises(UserError, match="no config 'smal.yaml'.*small.yaml"):
        load("--config=smal.yaml")


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--model.positon", "rope"], r"--model.positon.*did you mean model.position\?"),
        (["--modle.dim", "64"], r"did you mean model.dim\?"),
        (["--stesp", "64"], r"did you mean train.steps\?"),
        (["--optim.lr", "fast"], "optim.lr.*float.*fast"),
        (["--model.dim", "1.5"], "model.dim.*int.*1.5"),
        (["--model.position", "rop"], "model.position.*rope.*sinusoidal.*rop"),
        (["--train.dtype", "half"], "train.dtype.*half"),
        (["--model.n_heads", "3"], "model.dim 256 is not divisible by model.n_heads 3"),
        (["--model.head_dim", "7"], "model.head_dim must be even, not 7"),
        (["--model.norm_eps", "0"], "model.norm_eps must be above 0, not 0"),
        (["--train.compile", "maybe"], r"--train.compile: Expected a bool or value of 'auto'"),
        (["--seed", "x"], "--seed: Expected a int. Got value: x"),
        (["--model.n_kv_heads", "3"], "model.n_heads 4 is not divisible by model.n_kv_heads 3"),
        (["--model.vocab_size", "99"], "model.vocab_size 99 and data.vocab_size 4096 differ"),
        (["--data.seq_len", "99", "--model.max_positions", "98"], "seq_len 99 is longer .* 98"),
        (["--model.position", "learned", "--model.max_positions", "999"], "would never be trained"),
        (["--model.partial", "0.5", "--model.position", "none"], "model.partial has no effect"),
        (["--model.rope_scaling.type", "ntk"], "rope_scaling.* required: factor$"),
        (["--model.rope_scaling", "{type: yam, factor: 2}"], "rope_scaling.*llama3.*yam$"),
        (
            ["--model.rope_scaling", "{type: ntk, factor: 0.5}"],
            "^model.rope_scaling.factor must be at least 1, not 0.5$",
        ),
        (["--optim.muon_lr", "0.1"], "optim.muon_lr has no effect"),
        (["--optim.warmup_steps", "2000"], "warmup_steps 2000 is longer than train.steps 1000"),
        (["--train.steps", "0"], "train.steps must be at least 1, not 0"),
        (["--train.micro_batch_size", "-1"], "train.micro_batch_size must be at least 1"),
        (["--seed", "-1"], "seed must be in"),
        (["surprise"], "surprise"),
    ],
)
def test_mistakes_are_refused_in_a_sentence(argv, words):
    with pytest.raises(UserError, match=words) as caught:
        load(*argv)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, words",
    [
        ("model: {positon: rope}", r"positon.*did you mean model.position\?"),
        ("modle: {position: rope}", "modle"),
        ("optim: {lr: fast}", "optim.lr.*fast"),
        ("model: [", "bad.yaml"),
        ("just words", "bad.yaml"),
    ],
)
def test_mistakes_in_a_file_are_refused_too(tmp_path, text, words):
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=words):
        load("--config", str(file))


def test_user_errors_leave_by_exit_2_in_one_line_and_bugs_keep_their_traceback(capsys):
    with pytest.raises(SystemExit) as caught, exit_in_words():
        raise UserError("model.dim 50 is not divisible")
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: model.dim 50 is not divisible\n"
    with pytest.raises(ZeroDivisionError), exit_in_words():
        raise ZeroDivisionError


def test_help_explains_every_option():
    done = subprocess.run(
        [sys.executable, "train.py", "--help"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name, field in _options(Config):
        assert f"--{name}" in done.stdout
        doc = _docstring_of(*field)
        assert doc and " ".join(doc.split())[:40] in " ".join(done.stdout.split()), name


def test_every_option_is_read_by_something():
    """Beyond the class that declares it: an option that nothing reads has no effect."""
    read = set()
    for path in [*ROOT.glob("*.py"), *(ROOT / "model").glob("*.py"), *(ROOT / "data").glob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        checks = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef) and function.name == "__post_init__"
            for node in ast.walk(function)
        }
        read |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and id(node) not in checks
        }
    for name, _ in _options(Config):
        assert name.rpartition(".")[2] in read, name


def _options(cls: type, prefix: str = ""):
    import typing

    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _options(hints[field.name], f"{field.name}.")
        else:
            yield prefix + field.name, (cls, field.name)


def _docstring_of(cls: type, name: str) -> str | None:
    import inspect

    (tree,) = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    for node, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and node.target.id == name:
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            return after.value.value if is_text else None
    return None


def calls(*folders: str):
    """Every call in our Python files, with where it stands."""
    for folder in folders:
        for path in (ROOT / folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield node, ast.unparse(node.func), f"{path}:{node.lineno}"


def test_text_files_are_opened_with_their_encoding_named():
    """On Windows the default is not UTF-8."""
    for node, name, where in calls(".", "model", "data", "ablation", "tests"):
        modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
        binary = any(isinstance(m, str) and "b" in m and set(m) <= set("rwaxb+") for m in modes)
        opens = name == "open" or name.endswith((".open", ".read_text", ".write_text"))
        if opens and name not in ("os.open", "RunDir.open", "cls.open") and not binary:
            assert "encoding" in {k.arg for k in node.keywords}, where


def test_nothing_is_loaded_that_could_execute_and_nothing_is_loaded_loosely():
    for node, name, where in calls(".", "model", "data", "ablation"):
        keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
        assert name not in ("eval", "exec", "pickle.load", "pickle.loads"), where
        if name == "torch.load":
            assert keywords.get("weights_only") == "True", where
        if name.endswith("load_state_dict"):
            assert keywords.get("strict", "True") == "True", where
