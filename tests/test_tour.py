"""docs/tour.ipynb runs from top to bottom on a run, as committed: without outputs."""

import json
import re

import pytest
from builders import ROOT, run_python
from random_runs import random_run

TOUR = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in TOUR["cells"] if cell["cell_type"] == "code"]
COUNT_AXES = """
for number in plt.get_fignums():
    print(f"figure {number}: {len(plt.figure(number).axes)} axes")
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What all cells print, run in docs/ of a checkout, in a process of its own."""
    folder = tmp_path_factory.mktemp("checkout")
    random_run(folder / "runs", "noise", position="rope")
    (folder / "docs").mkdir()
    return run_python("\n\n".join([*CODE, COUNT_AXES]), cwd=folder / "docs", MPLBACKEND="agg",
                      PYTHONPATH=str(ROOT))


@pytest.mark.slow
def test_the_tour_begins_with_the_run_and_its_configuration(printed):
    lines = printed.splitlines()
    assert lines[0] == "noise"
    assert "'rope'" in lines[1]


@pytest.mark.slow
def test_the_tour_shows_one_score_at_three_places(printed):
    """RoPE's scores depend on the distance only, which is the same."""
    lines = [line for line in printed.splitlines() if line.startswith("query at")]
    scores = [line.rpartition(" ")[2] for line in lines]
    assert len(scores) == 3
    assert len(set(scores)) == 1


@pytest.mark.slow
def test_the_tour_measures_the_model_with_other_encodings(printed):
    rows = re.findall(r"^(\w+) +\d+\.\d{3}(  as trained)?$", printed, re.MULTILINE)
    assert rows == [("rope", "  as trained"), ("alibi", ""), ("none", "")]


@pytest.mark.slow
def test_the_tour_draws_each_head(printed):
    """Two layers of three heads."""
    assert "figure 1: 6 axes" in printed
    assert "figure 2: 1 axes" in printed


def test_the_tour_is_committed_without_outputs():
    for cell in TOUR["cells"]:
        assert not cell.get("outputs")
        assert not cell.get("execution_count")
