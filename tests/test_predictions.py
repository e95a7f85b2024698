"""Predictions are held against the numbers of a study."""

import math

import pytest
from made_up_study import EFFECT, USED, change, make_pair, make_study

from ablation.predictions import outcomes
from ablation.stats import Paired
from ablation.study import Study


def of(path) -> list[tuple[float | None, str]]:
    return [(value.mean if isinstance(value, Paired) else value, verdict)
            for _, value, verdict in outcomes(Study.load(path))]


def test_each_is_marked_with_its_number(tmp_path):
    found = of(make_study(tmp_path / "held"))
    assert found[0] == (pytest.approx(USED["sin"] / USED["rope"], rel=1e-4), "held")
    assert found[1][0] == pytest.approx(0.25, abs=0.05) and found[1][1] == "held"
    assert found[2][0] == pytest.approx(EFFECT["nope"], abs=0.01) and found[2][1] == "held"
    # sin's shift costs more with every length, and the gap shrinks
    assert found[3] == (pytest.approx(-1), "held")
    assert found[4][1] == found[5][1] == "held" and len(found) == 6


@pytest.mark.parametrize(("lead", "verdict"), [(0.0, "held"), (-0.05, "not held")])
def test_a_study_of_bases_decides_the_one_about_them(tmp_path, lead, verdict):
    path = make_study(tmp_path / "b", 3, {"rope_b1k": lead, "rope_b500k": 0.0, "sin": 0.1}, ())
    assert of(path) == [(pytest.approx(lead, abs=0.01), verdict)]
    assert of(make_pair(tmp_path / "pair", 2)) == []  # two of the five arms of the full study


@pytest.mark.filterwarnings("error")
def test_they_fail_where_rope_has_no_lead(tmp_path):
    """A gap that is always the same has no rank correlation with anything, and so none below 0."""
    found = of(make_study(tmp_path / "lost", effect=EFFECT | {"rope": 0.0, "nope": 0.0}, noise=0))
    assert found[1:4] == [(None, "not measured"), (0.0, "not held"), (0.0, "not held")]


def test_a_seed_that_never_gets_there_decides_nothing_by_itself(tmp_path):
    path = make_study(tmp_path / "two", 2)
    record = Study.load(path).of("sin")[1]
    for points in ([], record["trajectory"][:1]):  # and where it was not looked for long
        change(path, "sin-s1", trajectory=points)
        assert of(path)[0] == (pytest.approx(math.nan, nan_ok=True), "not decided")


def test_without_an_arms_runs_nothing_is_measured_of_it(tmp_path):
    path = make_study(tmp_path / "pair", 2)
    for file in (path / "results").iterdir():
        if file.stem.split("-")[0] not in ("rope", "sin"):
            file.unlink()
    assert [verdict == "not measured" for _, verdict in of(path)] == [False, False, True, False,
                                                                     True, True]
