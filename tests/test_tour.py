"""docs/tour.ipynb runs from top to bottom on a run, as committed: without outputs."""

import json
import re

import pytest
from conftest import ROOT, output
from noise import noise_run

TOUR = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in TOUR["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("position, swapped", [("rope", ["rope", "alibi", "none"]),
                                               ("learned", ["learned"])])
def test_the_notebook_runs_from_top_to_bottom(tmp_path, position, swapped):
    """In docs/ of a checkout, in a process of its own."""
    noise_run(tmp_path / "runs", "noise", position=position)
    (tmp_path / "docs").mkdir()
    shown = "\nfor n in plt.get_fignums():\n    print(f'figure {n}:', len(plt.figure(n).axes))"
    said = output("\n\n".join(CODE) + shown, cwd=tmp_path / "docs", MPLBACKEND="agg",
                  PYTHONPATH=str(ROOT))
    lines = said.splitlines()
    assert lines[0] == "noise" and f"{position!r}" in lines[1]
    scores = {line.rpartition(" ")[2] for line in lines if line.startswith("query at")}
    assert len(scores) == 1  # one distance, three places
    table = re.findall(r"^(\w+) +\d+\.\d{3}(  as trained)?$", said, re.M)
    assert [name for name, _ in table] == swapped and (position, "  as trained") in table
    assert "figure 1: 6" in said and "figure 2: 1" in said  # two layers of three heads


def test_it_is_committed_without_outputs():
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in TOUR["cells"])
