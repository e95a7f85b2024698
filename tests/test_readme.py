"""What the README says is run: its commands, its tree, its ten lines."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gyre.cli import config_parser, parse
from model import position, transformer
from model.cache import KVCache

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)


def commands(program: str) -> list[list[str]]:
    """Every `python PROGRAM ...` in a code block, as words."""
    lines = [line for kind, text in BLOCKS if kind in ("", "sh") for line in text.splitlines()]
    found = [line.partition(f"{program} ")[2] for line in lines if f"{program} --" in line]
    return [shlex.split(line, comments=True) for line in found]


def test_its_training_commands_are_understood(tmp_path):
    found = commands("train.py")
    assert len(found) >= 4
    parser = config_parser("")
    for argv in found:
        if {"--resume", "--init-from"} & set(argv):
            continue
        assert parse(parser, argv)[0]


def test_its_generation_commands_are_understood():
    from generate import parse as parse_generate

    found = commands("generate.py")
    assert found
    for argv in found:
        assert parse_generate(argv)


def test_its_export_commands_are_understood():
    from export import parse as parse_export

    lines = [line for _, text in BLOCKS for line in text.splitlines()]
    found = [shlex.split(x)[2:] for x in lines if x.startswith("python export.py ")]
    assert {parse_export(argv).to for argv in found} == {"hf", "gguf", "run"}


def test_ci_runs_its_test_command_and_every_requirement_is_pinned():
    (line,) = [x for x in README.splitlines() if "requirements-dev.txt && pytest" in x]
    assert line.startswith("python3 -m venv .venv && ")
    assert "requirements-dev.txt && pytest' README.md" in (ROOT / ".ci" / "run").read_text(
        encoding="utf-8"
    )
    for name in ("requirements.txt", "requirements-dev.txt"):
        for requirement in (ROOT / name).read_text(encoding="utf-8").split():
            assert requirement in ("-r", "requirements.txt") or "==" in requirement
    assert "torch==2.13.0" in (ROOT / "requirements.txt").read_text(encoding="utf-8").split()


def test_the_map_names_what_is_there():
    (tree,) = [text for _, text in BLOCKS if "train.py " in text and "model/" in text]
    names = re.findall(r"^ *([\w./]+\.py|[\w]+/) ", tree, flags=re.MULTILINE)
    assert len(names) > 15
    for name in names:
        assert list(ROOT.glob(f"**/{name.rstrip('/')}")), name
    for path in [*ROOT.glob("*.py"), *ROOT.glob("model/*.py"), *ROOT.glob("data/*.py")]:
        assert path.name == "__init__.py" or path.name in names, f"{path.name} is not on the map"


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_ten_lines_make_an_encoding():
    (code,) = [text for kind, text in BLOCKS if kind == "python" and "PositionEncoding" in text]
    assert len(code.strip().splitlines()) <= 12
    # As if the lines stood at the end of model/position.py.
    exec(compile(code, "README.md", "exec"), dict(vars(position)))
    (name,) = set(position.POSITIONS) - {"rope", "sinusoidal", "learned", "alibi", "none"}
    try:
        config = transformer.ModelConfig(
            dim=48, n_layers=2, n_heads=6, n_kv_heads=2, vocab_size=97, max_positions=32,
            position=name,
        )  # fmt: skip
        model = transformer.Transformer(config)
        model.init_weights(seed=1)
        tokens = torch.arange(14).view(2, 7)
        whole, cache = model(tokens), KVCache(config, 2, 7)
        parts = torch.cat([model(tokens[:, a:b], cache) for a, b in ((0, 3), (3, 4), (4, 7))], 1)
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-5)
        plain = transformer.Transformer(
            transformer.ModelConfig(**{**vars(config), "position": "none"})
        )
        plain.init_weights(seed=1)
        assert (plain(tokens) - whole).abs().max() > 1e-4
    finally:
        del position.POSITIONS[name]


@pytest.mark.parametrize("program", ["train.py", "generate.py"])
def test_help_works_and_teaches(program):
    done = subprocess.run(
        [sys.executable, program, "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and "python " in done.stdout and not done.stderr


def test_the_checks_it_points_to_exist():
    text = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    tests = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").glob("test_*.py"))
    names = re.findall(r"`(test_\w+)`", text)
    assert len(names) > 40
    for name in names:
        assert f"def {name}(" in tests, name
