"""The tools say in one sentence what is wrong with their arguments."""

import runpy
import sys

import pytest
from builders import ROOT

WRONG = [
    "copy_probe", "draw_figures x", "draw_map x", "fingerprint", "fingerprint .", "judge_gguf",
    "judge_gguf run", "list_peak", "list_peak int8", "profile_decoding",
    "profile_decoding 1 float32 --config nope.yaml", "profile_training", "profile_training int8",
    "shuffle_lines", "shuffle_lines all prepared", "split_losses",
]
TOOLS = sorted({words.split()[0] for words in WRONG})


@pytest.fixture
def run_tool(monkeypatch, capsys):
    """Run a command line of a tool. Return its exit code, its output and its errors."""
    def run_tool(words):
        name, *arguments = words.split()
        file = ROOT / "tools" / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(file), *arguments])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(file), run_name="__main__")
        return stop.value.code, *capsys.readouterr()

    return run_tool


@pytest.mark.parametrize("words", WRONG)
def test_wrong_arguments_are_a_sentence(run_tool, words):
    code, out, errors = run_tool(words)
    assert (code, out) == (2, "")
    *usage, sentence = errors.splitlines()
    assert "error: " in sentence
    assert all(line.startswith(("usage: ", " ")) for line in usage)


@pytest.mark.parametrize("name", TOOLS)
def test_help_only_prints(run_tool, name):
    """The two that draw write their files if there is no argument."""
    code, out, errors = run_tool(f"{name} --help")
    assert (code, errors) == (0, "")
    assert out.startswith("usage: ")
