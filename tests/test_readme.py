"""What the README and the guide say is run: their commands, the tree, the lines of Python."""

import importlib
import re
import shlex
from unittest.mock import patch

import torch
from cached_decoding import assert_cached_equals_uncached
from conftest import ROOT, random_model
from noise import noise_run

import ablation.options
import bench
import evaluate
import export
import generate
from gyre.start import resolve
from model import encodings

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README + GUIDE + CONTRIBUTING, flags=re.DOTALL)
LINES = [line for kind, text in BLOCKS if kind == "" for line in text.splitlines()]
OWN = {"--resume", "--init-from", "--branch-from"}  # options of train.py that need a run


def commands(program: str) -> list[list[str]]:
    """The arguments of every `python PROGRAM ...` in a code block."""
    matches = [re.search(rf"(?:python|^torchrun .*) {program}(.*)", line) for line in LINES]
    return [shlex.split(match[1], comments=True) for match in matches if match]


def test_its_commands_are_understood(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(bench, "measure_all", lambda *arguments: {})
    monkeypatch.setattr(bench, "write_json", lambda path, figures: None)
    monkeypatch.setitem(encodings.POSITIONS, "log", encodings.ALiBi)  # the README's own
    for program, at_least, parse in (
        ("train.py", 4, lambda argv: resolve(argv, "")), ("ablate.py", 2, ablation.options.resolve),
        ("bench.py", 1, bench.main), ("generate.py", 4, generate.parse),
        ("evaluate.py", 6, evaluate.parse), ("export.py", 3, export.parse)):
        written = [argv for argv in commands(program) if not OWN & set(argv)]
        assert len(written) >= at_least
        for argv in written:
            parse(argv)


def test_ci_runs_its_test_command_and_every_requirement_is_pinned():
    (line,) = [x for x in README.splitlines() if "requirements-dev.txt && pytest" in x]
    assert line.startswith("python3 -m venv .venv && ")
    assert "requirements-dev.txt && pytest' README.md" in (ROOT / ".ci" / "run").read_text(
        encoding="utf-8")
    pinned = [word for name in ("requirements.txt", "requirements-dev.txt")
              for word in (ROOT / name).read_text(encoding="utf-8").split()]
    assert "torch==2.13.0" in pinned
    assert {word for word in pinned if "==" not in word} == {"-r", "requirements.txt"}


def test_the_map_is_what_draw_map_writes(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    assert importlib.import_module("draw_map").draw_map() in CONTRIBUTING


def test_links_lead_somewhere():
    for file in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        text = file.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
            led_to = file.parent / target if target else file
            assert target.startswith("http") or led_to.exists(), target
            if anchor:
                heads = re.findall("^#+ (.*)$", led_to.read_text(encoding="utf-8"), re.M)
                known = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
                assert anchor in known, f"{target}#{anchor}"


def test_it_is_short_and_has_its_pictures():
    assert len(README.splitlines()) <= 150 and max(map(len, README.splitlines())) <= 180
    images = re.findall(r"!\[(.*?)\]\((.*?)\)", README)
    assert images and all(len(text.split()) > 8 for text, _ in images)  # say what is to be seen


def test_its_lines_of_python_load_a_run_and_continue_a_text(tmp_path, monkeypatch, capsys):
    (code,) = [text for kind, text in BLOCKS if kind == "python" and "load(" in text]
    monkeypatch.chdir(tmp_path)
    noise_run(tmp_path / "runs", "small-rope-s1", max_positions=90)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_files_that_documents_name_exist():
    text = CONTRIBUTING + (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.]+/)*[\w.]+\.(?:py|md|yaml)|[\w./]+/)`", text)
    paths = [str(path) for path in ROOT.glob("**/*")]
    assert len(named) > 50
    for name in set(named) - {"runs/", "data/prepared/"}:
        assert any(path.endswith(f"/{name.rstrip('/')}") for path in paths), name


def test_ten_lines_make_an_encoding():
    (code,) = [text for kind, text in BLOCKS if kind == "python" and "PositionEncoding" in text]
    assert len(code.strip().splitlines()) <= 12
    before = set(encodings.POSITIONS)
    with patch.dict(encodings.POSITIONS):
        # As if the lines stood at the end of model/encodings.py.
        exec(compile(code, "README.md", "exec"), dict(vars(encodings)))
        (name,) = set(encodings.POSITIONS) - before
        model, plain = random_model(position=name), random_model(position="none")
        tokens = torch.arange(14).view(2, 7)
        assert_cached_equals_uncached(model, tokens)
        assert (plain(tokens) - model(tokens)).abs().max() > 1e-4
