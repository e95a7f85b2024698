"""The trials of tests/faults are made, and can find something."""

import re

import pytest
from builders import ROOT, require_program, run_python


@pytest.mark.slow
def test_a_few_faults_of_each_kind_cost_nothing():
    require_program("gcc")
    said = run_python(ROOT / "tests" / "faults" / "run.py", "--minutes", "0.03")
    tried = re.findall(r"^(\w+): [1-9]\d* faults tried.*, 0 found$", said, re.MULTILINE)
    assert tried == ["kills", "errors", "damage", "imports", "conversions"]
