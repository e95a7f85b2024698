"""The trials of tests/faults are made, and can find something."""

import shutil
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="the faults are in C")
@pytest.mark.parametrize(
    "trial", ["kills", "errors", "damage", "configurations", "imports", "processes"])
def test_a_few_faults_of_each_kind_cost_nothing(trial):
    command = [sys.executable, ROOT / "tests" / "faults" / "run.py", "--minutes", "0.05", trial]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{trial}: " in said.stdout and " 0 faults tried" not in said.stdout
