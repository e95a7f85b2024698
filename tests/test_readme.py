"""What the README and the guide say is run: their commands, the tree, the lines of Python."""

import importlib
import re
import shlex
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from builders import ROOT, random_model
from cached_decoding import assert_cached_equals_uncached
from random_runs import random_run

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
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS_RUN = {"--resume", "--init-from", "--branch-from"}  # options of train.py


def commands(program: str) -> list[list[str]]:
    """The arguments of every `python PROGRAM ...` in a code block."""
    matches = [re.search(rf"(?:python|^torchrun .*) {program}(.*)", line) for line in LINES]
    return [shlex.split(match[1], comments=True) for match in matches if match]


PARSERS = {
    "train.py": lambda argv: resolve(argv, ""), "ablate.py": ablation.options.resolve,
    "bench.py": bench.main, "generate.py": generate.parse, "evaluate.py": evaluate.parse,
    "export.py": export.parse}


@pytest.mark.parametrize("program, at_least", [
    ("train.py", 4), ("ablate.py", 2), ("bench.py", 1), ("generate.py", 4), ("evaluate.py", 6),
    ("export.py", 3)])
def test_its_commands_are_understood(program, at_least, monkeypatch):
    monkeypatch.chdir(ROOT)
    # bench.py has no parser of its own: call its main, and let it measure and write nothing.
    monkeypatch.setattr(bench, "measure_all", lambda *arguments: {})
    monkeypatch.setattr(bench, "write_json", lambda path, figures: None)
    monkeypatch.setitem(encodings.POSITIONS, "log", encodings.ALiBi)  # the README's own
    written = [argv for argv in commands(program) if not NEEDS_RUN & set(argv)]
    assert len(written) >= at_least
    for argv in written:
        PARSERS[program](argv)


def test_ci_runs_its_test_command():
    (line,) = [x for x in README.splitlines() if "requirements-dev.txt && pytest" in x]
    assert line.startswith("python3 -m venv .venv && ")
    # .ci/run finds this line by grep, and runs it.
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "requirements-dev.txt && pytest' README.md" in script


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_requirement_is_pinned(name):
    words = (ROOT / name).read_text(encoding="utf-8").split()
    pinned = [word for word in words if "==" in word]
    assert len(pinned) > 3
    assert {*words} - {*pinned} <= {"-r", "requirements.txt"}


def test_the_map_is_what_draw_map_writes(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    assert importlib.import_module("draw_map").draw_map() in CONTRIBUTING


def anchors(file: Path) -> set[str]:
    """The anchors of the headings of a document."""
    headings = re.findall("^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_diffs_of_contributing_apply():
    """Every line that a diff keeps or takes away is in its file."""
    diffs = [text for kind, text in BLOCKS if kind == "diff"]
    assert len(diffs) == 4
    for diff in diffs:
        source = ""
        for line in diff.splitlines():
            if line.startswith("+++ b/"):
                source = (ROOT / line.removeprefix("+++ b/")).read_text(encoding="utf-8")
            elif line[0] == " " or (line[0] == "-" and not line.startswith("---")):
                assert f"{line[1:]}\n" in source


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_links_lead_somewhere(file):
    text = file.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
        if target.startswith("http"):
            continue
        led_to = file.parent / target if target else file
        assert led_to.exists(), target
        if anchor:
            assert anchor in anchors(led_to), f"{target}#{anchor}"


def test_it_is_short():
    lines = README.splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 180


def test_the_model_is_as_short_as_it_says():
    names = ("config", "position", "rope", "transformer")
    sources = [(ROOT / "model" / f"{name}.py").read_text(encoding="utf-8") for name in names]
    said = int(re.search(r"about (\d+) lines", README)[1])
    assert abs(sum(len(source.splitlines()) for source in sources) - said) < 25


def test_its_pictures_say_what_is_to_be_seen():
    images = re.findall(r"!\[(.*?)\]\((.*?)\)", README)
    assert images
    assert all(len(text.split()) > 8 for text, _ in images)


def test_its_lines_of_python_continue_a_text(tmp_path, monkeypatch, capsys):
    (code,) = [text for kind, text in BLOCKS if kind == "python" and "load(" in text]
    monkeypatch.chdir(tmp_path)
    random_run(tmp_path / "runs", "small-rope-s1", max_positions=90)
    with pytest.warns(UserWarning, match="trained on rows of 32"):
        exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_files_that_documents_name_exist():
    text = CONTRIBUTING + (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.]+/)*[\w.]+\.(?:py|md|yaml)|[\w./]+/)`", text)
    paths = [str(path) for path in ROOT.glob("**/*")]
    assert len(named) > 50
    for name in set(named) - {"runs/", "data/prepared/"}:
        assert any(path.endswith(f"/{name.rstrip('/')}") for path in paths), name


# Names in documents that are not ours: of variables of the environment, and of torch.
NAMES_ELSEWHERE = {
    "GGML_NATIVE", "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI", "activation_memory_budget",
    "use_deterministic_algorithms"}


@pytest.fixture(scope="module")
def words_of_code():
    """Every word of our Python files, and their names."""
    words = set()
    for path in [*ROOT.glob("*.py"), *ROOT.glob("*/*.py")]:
        words |= {path.stem, *re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    return words


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_the_names_in_documents_exist(file, words_of_code):
    prose = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    quoted = " ".join(re.findall(r"`([^`\n]+)`", prose))
    named = {name for name in re.findall(r"\w+", quoted) if "_" in name[1:]}
    assert named - words_of_code - NAMES_ELSEWHERE == set()


def test_ten_lines_make_an_encoding():
    (code,) = [text for kind, text in BLOCKS if kind == "python" and "PositionEncoding" in text]
    assert len(code.strip().splitlines()) <= 12
    before = set(encodings.POSITIONS)
    with patch.dict(encodings.POSITIONS):
        # As if the lines stood at the end of model/encodings.py.
        exec(compile(code, "README.md", "exec"), dict(vars(encodings)))
        (name,) = set(encodings.POSITIONS) - before
        model = random_model(position=name)
        plain = random_model(position="none")
        tokens = torch.arange(14).view(2, 7)
        assert_cached_equals_uncached(model, tokens)
        assert (plain(tokens) - model(tokens)).abs().max() > 1e-4
