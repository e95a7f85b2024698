"""The plan of a study: what arms share, what the budget buys, and when two plans are the same."""

import copy
import math
from dataclasses import asdict

import pytest
from conftest import load
from hypothesis import given
from hypothesis import strategies as st

from ablation import plan
from ablation.runner import spelled
from errors import UserError
from model.transformer import Transformer

QUICK = plan.TIERS["quick"]


def config_of(arm: str, tier: str = "quick"):
    values = {**plan.TIERS[tier].overrides, **plan.ARMS[arm]}
    return load("--config", "ablation.yaml", *spelled(values))


@pytest.mark.slow
@pytest.mark.parametrize("tier", plan.TIERS)
def test_arms_differ_from_rope_in_nothing_but_their_overlay(tier):
    reference = asdict(config_of("rope", tier))
    for arm in plan.ARMS:
        config = asdict(config_of(arm, tier))
        model = config.pop("model")
        differing = {f"model.{k}" for k, v in model.items() if v != reference["model"][k]}
        # How far tables reach follows from the encoding; training rows are equally long.
        assert differing - {"model.max_positions"} <= set(plan.ARMS[arm])
        assert config == {k: v for k, v in reference.items() if k != "model"}


def test_the_model_is_the_one_of_the_protocol():
    config = config_of("rope").model
    assert (config.dim, config.n_layers, config.n_heads, config.head_dim) == (128, 4, 4, 32)
    assert 0.8e6 < sum(p.numel() for p in Transformer(config).parameters()) < 0.9e6


def test_arms_of_the_users_own_and_names_that_are_wrong():
    arms = plan.choose_arms(QUICK, "rope,sin", ["b500=model.theta=500,optim.lr=2e-3"])
    assert list(arms) == ["rope", "sin", "b500"]
    assert arms["b500"] == {"model.theta": "500", "optim.lr": "2e-3"}
    assert plan.choose_baseline(None, arms) == "sin"
    assert plan.choose_baseline(None, {"a": {}, "b": {}}) == "b"
    assert plan.choose_baseline("rope", arms) == "rope"
    for names, added, words in (
        ("sin,alibbi", [], r"unknown arm 'alibbi' \(did you mean alibi\?\)"),
        ("sin", [], "at least two arms"),
        (None, ["rope=model.theta=2"], "there is an arm of this name already"),
        (None, ["b500"], "must be NAME=OPTION=VALUE"),
        (None, ["b500=model.theta"], "must be NAME=OPTION=VALUE"),
    ):
        with pytest.raises(UserError, match=words):
            plan.choose_arms(QUICK, names, added)
    with pytest.raises(UserError, match=r"unknown tier 'smok' \(did you mean smoke\?\)"):
        plan.choose_tier("smok")
    with pytest.raises(UserError, match="unknown arm 'ropee'"):
        plan.choose_baseline("ropee", arms)


# --- learning rates -------------------------------------------------------------------------------


def tuned(loss, grid, seeds) -> tuple[dict, int]:
    """All that is run where (rate, seed) costs `loss`, and in how many rounds."""
    losses: dict[float, dict[int, float | None]] = {}
    for rounds in range(99):
        todo = plan.next_rates(grid, seeds, losses)
        if not todo:
            return losses, rounds
        for lr, seed in todo:
            assert seed not in losses.get(lr, {}), "asked for twice"
            losses.setdefault(lr, {})[seed] = loss(lr, seed)
    raise AssertionError("it never ends")


@given(st.floats(-12, -4), st.integers(1, 3))
def test_the_best_rate_has_a_worse_neighbour_on_either_side(optimum, seeds):
    """Wherever the optimum is, up to the widest extension; and two rates have all seeds."""
    losses, _ = tuned(lambda lr, seed: (math.log2(lr) - optimum) ** 2, (2e-3, 4e-3),
                      list(range(seeds)))
    best, rates = plan.best_rate(losses), sorted(losses)
    assert abs(math.log2(best) - optimum) <= 0.5 + 1e-9 or best in (rates[0], rates[-1])
    if min(rates) > 2e-3 / plan.WIDEST and max(rates) < 4e-3 * plan.WIDEST:
        assert rates[0] < best < rates[-1]
    assert sum(len(of) == seeds for of in losses.values()) >= 2
    assert len(rates) <= 9


def test_a_rate_that_diverged_loses_and_the_seeds_decide_between_the_best_two():
    values = {(2e-3, 0): 2.0, (4e-3, 0): 1.9, (8e-3, 0): None, (2e-3, 1): 1.7, (4e-3, 1): 1.95,
              (1e-3, 0): 2.1}
    losses, _ = tuned(lambda lr, seed: values[lr, seed], (2e-3, 4e-3), [0, 1])
    assert plan.best_rate(losses) == 2e-3 and plan.lowest(losses) == pytest.approx(1.85)
    assert set(losses) == {1e-3, 2e-3, 4e-3, 8e-3} and list(losses[8e-3]) == [0]
    assert list(losses[1e-3]) == [0]  # worse than 2e-3 there, which therefore is no edge


def test_a_rate_beyond_the_edge_that_all_seeds_prefer_is_run_on_all_where_it_could_win():
    values = {(2e-3, 0): 2.0, (4e-3, 0): 1.9, (8e-3, 0): 3.0, (2e-3, 1): 1.7, (4e-3, 1): 1.95,
              (1e-3, 0): 1.98, (1e-3, 1): 1.6, (5e-4, 0): 2.5}
    losses, _ = tuned(lambda lr, seed: values[lr, seed], (2e-3, 4e-3), [0, 1])
    assert plan.best_rate(losses) == 1e-3 and list(losses[5e-4]) == [0]


def test_where_all_rates_diverge_a_smaller_one_is_tried():
    losses = {4e-3: {0: None}, 2e-3: {0: None}}
    assert plan.next_rates((2e-3, 4e-3), [0], losses) == [(1e-3, 0)]


def test_one_rate_is_no_grid_to_extend():
    losses, _ = tuned(lambda lr, seed: 1.0, (1e-3,), [0, 1])
    assert losses == {1e-3: {0: 1.0, 1: 1.0}}


# --- lengths --------------------------------------------------------------------------------------


def test_checkpoints_are_kept_where_shorter_runs_branch_off_and_on_the_way():
    kept = plan.kept_steps([512, 1024, 2048, 4096], 0.2, 4)
    assert {410, 819, 1638, 3277} <= set(kept) and max(kept) == 3277 and min(kept) >= 16
    apart = [b / a for a, b in zip(kept, kept[1:], strict=False) if a > 30]
    assert all(1.0 < ratio < 1.25 for ratio in apart)
    assert plan.kept_steps([10, 20], 0.2, 4)[-1] == 16 and 8 in plan.kept_steps([10, 20], 0.2, 4)


@given(st.floats(5, 200), st.floats(2e3, 5e5), st.floats(0, 20), st.integers(1, 16))
def test_a_study_is_shrunk_to_its_budget_and_not_below_its_warm_up(budget, rate, overhead, jobs):
    speed = plan.Speed(tokens_per_second=rate, overhead=overhead, jobs=jobs)
    try:
        share, minutes = plan.shrink(QUICK, 3, 24, 2048, 50, 0.2, 1e6, budget, speed)
    except UserError as error:
        needed = int(str(error).split("give ")[1].split()[0])
        assert needed >= budget - 1e-9
        budget = needed
        share, minutes = plan.shrink(QUICK, 3, 24, 2048, 50, 0.2, 1e6, budget, speed)
    usable = (1 - plan.KEPT_FREE) * budget
    assert minutes <= usable + 1e-6
    assert share == 1 or minutes == pytest.approx(usable)
    assert 0.8 * share * QUICK.tuning_tokens / 2048 > 50 and share <= 1  # its shortest runs
    unlimited, longest = plan.shrink(QUICK, 3, 24, 2048, 50, 0.2, 1e6, None, speed)
    assert unlimited == 1 and longest >= minutes - 1e-9


@pytest.mark.parametrize("warmup, cooldown", [(300, 0.2), (0, 1.0)])
def test_a_warm_up_into_the_cooldown_is_refused(warmup, cooldown):
    speed = plan.Speed(tokens_per_second=1e4, overhead=1.0, jobs=2)
    with pytest.raises(UserError, match=f"warmup_steps {warmup} is longer than the shortest run"):
        plan.shrink(QUICK, 3, 24, 2048, warmup, cooldown, 1e6, None, speed)


# --- the same plan --------------------------------------------------------------------------------


@pytest.fixture
def stored() -> dict:
    return {
        "tier": "quick", "grid": [1e-3, 2e-3], "tuning_seeds": [1000], "baseline": "sin",
        "arms": {"rope": plan.ARMS["rope"]}, "treatments": [], "seeds": [0, 1],
        "probes": {"P1": {"arms": ["rope"], "seeds": [0], "steps": None}},
        "config": {"rope": {"model": {"dim": 128}}}, "data_sha256": {"train.bin": "a"},
        "steps": {"horizons": [10]}, "dtype": "float32", "expected_minutes": 3.0,
        "tuned": {"arms": {}},
    }


def test_a_tuple_is_the_list_that_json_makes_of_it(stored, tmp_path):
    plan.check_same(tmp_path, stored, {**stored, "grid": (1e-3, 2e-3)})


@pytest.mark.parametrize("part, change", [
    ("tier", lambda p: p.update(tier="full")),
    ("arms", lambda p: p["arms"].update(sin={})),
    ("baseline", lambda p: p.update(baseline="rope")),
    ("grid", lambda p: p["grid"].pop()),
    ("seeds", lambda p: p["seeds"].append(2)),
    ("tuning_seeds", lambda p: p.update(tuning_seeds=[1001])),
    ("treatments", lambda p: p["treatments"].append("sin")),
    ("probes", lambda p: p["probes"]["P1"].update(steps=10)),
    ("config", lambda p: p["config"]["rope"]["model"].update(dim=64)),
    ("data_sha256", lambda p: p["data_sha256"].update({"train.bin": "b"})),
])
def test_another_plan_is_refused_by_the_part_that_differs(stored, tmp_path, part, change):
    wanted = copy.deepcopy(stored)
    change(wanted)
    with pytest.raises(UserError, match=rf"of another plan \({part}\).*--name"):
        plan.check_same(tmp_path, stored, wanted)


def test_a_plan_from_before_an_option_is_the_same_plan_until_it_is_set(stored, tmp_path):
    wanted = copy.deepcopy(stored)
    wanted["config"]["rope"] = {"model": {"dim": 128, "partial": 1.0}, "train": {"shard": "none"}}
    with pytest.raises(UserError, match=r"of another plan \(config\)"):
        plan.check_same(tmp_path, stored, wanted)  # a whole section is missing
    wanted["config"]["rope"].pop("train")
    plan.check_same(tmp_path, stored, wanted)
    wanted["config"]["rope"]["model"]["partial"] = 0.5
    with pytest.raises(UserError, match=r"of another plan \(config\)"):
        plan.check_same(tmp_path, stored, wanted)


def test_a_plan_from_before_lengths_could_be_chosen_has_those_of_its_tier():
    stored, lengths = {"tier": "full", "config": {}}, list(plan.TIERS["full"].horizons)
    plan.check_same("s", stored, {"config": {}, "lengths": lengths})
    with pytest.raises(UserError, match="another plan .lengths"):
        plan.check_same("s", stored, {"config": {}, "lengths": lengths[:1]})
