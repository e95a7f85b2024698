"""docs/tour.ipynb runs from top to bottom on a run, as committed: without outputs."""

import json
import re

import pytest
from conftest import ROOT, output
from noise import noise_run

TOUR = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in TOUR["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    """In docs/ of a checkout, in a process of its own."""
    noise_run(tmp_path / "runs", "noise", position="rope")
    (tmp_path / "docs").mkdir()
    shown = "\nfor n in plt.get_fignums():\n    print(f'figure {n}:', len(plt.figure(n).axes))"
    printed = output("\n\n".join(CODE) + shown, cwd=tmp_path / "docs", MPLBACKEND="agg",
                     PYTHONPATH=str(ROOT))
    lines = printed.splitlines()
    assert lines[0] == "noise"
    assert "'rope'" in lines[1]
    scores = {line.rpartition(" ")[2] for line in lines if line.startswith("query at")}
    assert len(scores) == 1  # one distance, three places
    table = re.findall(r"^(\w+) +\d+\.\d{3}(  as trained)?$", printed, re.M)
    assert table == [("rope", "  as trained"), ("alibi", ""), ("none", "")]
    assert "figure 1: 6" in printed  # two layers of three heads
    assert "figure 2: 1" in printed


def test_it_is_committed_without_outputs():
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in TOUR["cells"])
