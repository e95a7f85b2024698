"""The plan of a study: what arms share, which rates are tried, and where runs branch off."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation import plan
from errors import UserError
from gyre.optim import OptimConfig, lr_factor

QUICK = plan.TIERS["quick"]


def test_arms_of_the_users_own_and_names_that_are_wrong():
    arms = plan.choose_arms(QUICK, "rope,sin", ["b500=model.theta=500,optim.lr=2e-3"], {})
    assert list(arms) == ["rope", "sin", "b500"]
    assert arms["b500"] == {"model.theta": "500", "optim.lr": "2e-3"}
    for names, baseline in ((arms, "sin"), ("ab", "b"), (["sin_vaswani", "b"], "sin_vaswani")):
        assert plan.choose_baseline(None, dict.fromkeys(names, {})) == baseline
    assert plan.choose_baseline("rope", arms) == "rope"
    for names, added, words in (
        ("sin,alibbi", [], r"unknown arm 'alibbi' \(did you mean alibi\?\)"),
        ("sin", [], "at least two arms"),
        (None, ["rope=model.theta=2"], "there is an arm of this name already"),
        *((None, [arm], "must be NAME=OPT") for arm in ("b=seed=2,l", "a/b=x=1", "b=config=x"))):
        with pytest.raises(UserError, match=words):
            plan.choose_arms(QUICK, names, added, {})
    with pytest.raises(UserError, match="unknown arm 'ropee'"):
        plan.choose_baseline("ropee", arms)


# --- learning rates -------------------------------------------------------------------------------


def tuned(loss, grid, seeds) -> dict[float, dict[int, float]]:
    """All that is run where (rate, seed) costs `loss`."""
    losses: dict[float, dict[int, float]] = {}
    while todo := plan.next_rates(grid, seeds, losses):
        for lr, seed in todo:
            assert seed not in losses.get(lr, {}), "asked for twice"  # or it would never end
            losses.setdefault(lr, {})[seed] = loss(lr, seed)
    return losses


@given(st.floats(-20, 4), st.integers(1, 3))
def test_the_best_rate_has_a_worse_neighbour_on_either_side(optimum, seeds):
    """Wherever the optimum is, up to the widest extension; and every rate has all seeds."""
    losses = tuned(lambda lr, seed: (math.log2(lr) - optimum) ** 2, (2e-3, 4e-3), [*range(seeds)])
    best, rates = plan.best_rate(losses), sorted(losses)
    assert abs(math.log2(best) - optimum) <= 0.5 + 1e-9 or best in (rates[0], rates[-1])
    if min(rates) > 2e-3 / plan.WIDEST and max(rates) < 4e-3 * plan.WIDEST:
        assert rates[0] < best < rates[-1]
    assert all(len(by_seed) == seeds for by_seed in losses.values()) and len(rates) <= 9


def test_the_mean_over_the_seeds_decides_and_an_edge_is_crossed():
    values = {(2e-3, 0): 2.0, (4e-3, 0): 1.9, (2e-3, 1): 1.7, (4e-3, 1): 1.95,
              (1e-3, 0): 2.1, (1e-3, 1): 1.5, (5e-4, 0): 2.5, (5e-4, 1): 2.5}
    losses = tuned(lambda lr, seed: values[lr, seed], (2e-3, 4e-3), [0, 1])
    assert plan.best_rate(losses) == 1e-3
    assert {(lr, seed) for lr, by_seed in losses.items() for seed in by_seed} == values.keys()


def test_few_seeds_rates_that_all_diverge_and_a_grid_of_one():
    """The first does not win, the second call for a smaller rate, the third is not extended."""
    assert plan.best_rate({1e-3: {0: 1.0}, 2e-3: {0: 1.4, 1: 1.6}, 4e-3: {0: 1.5, 1: 1.7}}) == 2e-3
    lost = {0: math.inf}
    assert plan.next_rates((2e-3, 4e-3), [0], {4e-3: lost, 2e-3: lost}) == [(1e-3, 0)]
    assert tuned(lambda lr, seed: 1.0, (1e-3,), [0, 1]) == {1e-3: {0: 1.0, 1: 1.0}}


# --- lengths --------------------------------------------------------------------------------------


def test_checkpoints_are_kept_where_shorter_runs_branch_off_and_on_the_way():
    kept = plan.kept_steps([400, 819, 1638, 3277], 4)
    assert {400, 819, 1638, 3277} <= set(kept) and max(kept) == 3277 and min(kept) >= 16
    assert all(1.0 < b / a < 1.25 for a, b in itertools.pairwise(kept) if a > 30)
    assert plan.kept_steps([8, 16], 4)[-1] == 16 and 8 in plan.kept_steps([8, 16], 4)


def test_a_cooldown_of_half_an_odd_number_of_steps_is_the_one_of_the_schedule():
    """The step at which a run branches off is the last at the full rate."""
    config = OptimConfig(warmup_steps=2, schedule="wsd", cooldown=0.5, final_lr=0.0)
    for steps in (25, 51, 75):
        at = steps - plan.count_cooldown(config, steps)
        assert lr_factor(config, at - 1, steps) == 1.0 > lr_factor(config, at, steps)
