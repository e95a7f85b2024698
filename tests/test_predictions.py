"""Predictions are held against the numbers of a study, each by its checks."""

import pytest
from made_up_study import EFFECT, T, change, losses, make_pair, make_study

from ablation.predictions import outcomes
from ablation.study import Study


def of(path):
    return {outcome.name: outcome for outcome in outcomes(Study.load(path))}


def test_each_is_marked_with_its_number(tmp_path):
    found = of(make_study(tmp_path / "held"))
    expected = {f"H{i}": "held" for i in range(1, 11)} | {"H11": "not measured"}
    assert {name: outcome.verdict for name, outcome in found.items()} == expected
    ((_, value, mark),) = found["H4"].checks
    d = losses("alibi", range(3)) - losses("rope", range(3))
    assert value == pytest.approx(d.mean()) and mark == "held"


def test_they_fail_where_rope_loses(tmp_path):
    lost = EFFECT | {"rope": 0.08, "sin_naive": 0.05}
    found = of(make_study(tmp_path / "lost", effect=lost, probes=()))
    assert {found[h].verdict for h in ("H1", "H2", "H3", "H4", "H5", "H9")} == {"not held"}
    assert found["H7"].verdict == "held" and found["H8"].verdict == "not measured"
    assert found["H9"].checks == [("median over seeds, ≤ 0.90", float("inf"), "not held")]


@pytest.mark.parametrize("arm, value, beyond", [
    ("rope", -1e-4, -1e-5), ("rope", 1e-4, 1e-5), ("sin", 0.1, -1e-3),
])
def test_a_check_turns_at_its_bound(tmp_path, arm, value, beyond):
    """H7: |rope| <= 1e-4 and sin >= 0.1 when all positions are shifted by T."""
    path = make_pair(tmp_path / "bound")
    for number, expected in ((value, "held"), (value + beyond, "not held")):
        shift = [{"delta": d, "dloss": number if d == T else 5.0} for d in (0, T // 2, T, 2 * T)]
        change(path, f"{arm}-s0", shift=shift)
        assert of(path)["H7"].verdict == expected
