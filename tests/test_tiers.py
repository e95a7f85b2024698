"""Which tests run where: without a GPU, with one, and where programs are missing."""

import ast
import os
import sys
from subprocess import run

import pytest
import torch
from builders import ROOT, require_package, require_program
from conftest import selects_cuda

TESTS = """import os
import pytest

@pytest.mark.cuda
def test_of_a_gpu():
    pass

def test_of_a_cpu():
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == {expected!r}
"""


def test_no_gpu_is_visible():
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert torch.cuda.device_count() == 0


@pytest.mark.parametrize("expression", ["cuda", "cuda and not slow", "not slow or cuda"])
def test_an_expression_that_names_cuda_asks_for_it(expression):
    assert selects_cuda(expression)


@pytest.mark.parametrize("expression", ["", "slow", "not slow", "not cuda", "slow and not cuda"])
def test_other_expressions_do_not_ask_for_cuda(expression):
    assert not selects_cuda(expression)


def run_pytest(folder, expression: str, expected: str) -> str:
    """What pytest prints, with our settings, on a machine whose user chose GPU 7."""
    file = folder / "test_both.py"
    file.write_text(TESTS.format(expected=expected), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n1", "-c", ROOT / "pyproject.toml", "-rs", "-p",
               "conftest", "-p", "no:cacheprovider", "-m", expression, file]
    environment = {"CUDA_VISIBLE_DEVICES": "7", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    done = run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_cpu_tests_do_not_see_the_gpu_that_the_user_chose(tmp_path):
    shown = run_pytest(tmp_path, "not slow", expected="")
    assert "1 passed in" in shown  # and the other one is left out


@pytest.mark.slow
def test_cuda_tests_see_it_and_are_skipped_without_one(tmp_path):
    shown = run_pytest(tmp_path, "cuda or not slow", expected="7")
    assert "needs an NVIDIA GPU" in shown
    assert "1 passed, 1 skipped" in shown


def test_the_process_that_hands_out_tests_imports_no_pytorch():
    """It imports conftest.py, and the workers wait for that."""
    conftest = ast.parse((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"))
    names = set()
    for statement in conftest.body:
        if isinstance(statement, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in statement.names)
        if isinstance(statement, ast.ImportFrom):
            names.add(str(statement.module).partition(".")[0])
    assert names - sys.stdlib_module_names == {"clean_environment", "pytest"}


def test_a_test_whose_program_is_missing_is_skipped(monkeypatch):
    monkeypatch.delenv("REQUIRED_IN_TESTS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="^needs no-such-program$"):
        require_program("no-such-program", "no-such-program-either")


def test_a_test_whose_package_is_missing_is_skipped(monkeypatch):
    monkeypatch.delenv("REQUIRED_IN_TESTS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="^needs no_such_package$"):
        require_package("no_such_package")


def test_in_ci_it_fails(monkeypatch):
    monkeypatch.setenv("REQUIRED_IN_TESTS", "git no-such-program")
    outcomes = (pytest.fail.Exception, pytest.skip.Exception)
    with pytest.raises(outcomes, match="no-such-program") as caught:
        require_program("no-such-program")
    assert caught.type is pytest.fail.Exception


def test_ci_says_what_tests_may_not_skip():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 'export REQUIRED_IN_TESTS="gcc git wandb"' in script
