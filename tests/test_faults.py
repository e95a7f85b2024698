"""The trials of tests/faults are made, and can find something."""

import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="the faults are in C")
def test_a_few_faults_of_each_kind_cost_nothing():
    command = [sys.executable, ROOT / "tests" / "faults" / "run.py", "--minutes", "0.01"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    tried = re.findall(r"^(\w+): [1-9]\d* faults tried.*, 0 found$", said.stdout, re.MULTILINE)
    assert tried == ["kills", "errors", "damage", "imports"]
