"""The trials of tests/faults are made, and can find something."""

import re
import shutil

import pytest
from conftest import ROOT, run_python


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="the faults are in C")
def test_a_few_faults_of_each_kind_cost_nothing():
    said = run_python(ROOT / "tests" / "faults" / "run.py", "--minutes", "0.01")
    tried = re.findall(r"^(\w+): [1-9]\d* faults tried.*, 0 found$", said, re.MULTILINE)
    assert tried == ["kills", "errors", "damage", "imports"]
