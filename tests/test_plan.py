"""The plan of a study: what arms share, what the budget buys, and when two plans are the same."""

import copy
from dataclasses import asdict, replace

import pytest
from conftest import load
from hypothesis import given
from hypothesis import strategies as st

from ablation import plan
from ablation.runner import spelled
from errors import UserError
from model.transformer import Transformer

CPU = plan.TIERS["cpu"]


def config_of(arm: str, tier: str = "cpu"):
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


@pytest.mark.parametrize("tier", [*plan.TIERS.values(), replace(CPU, headline_seeds=1)])
def test_every_seed_of_an_arm_has_a_partner_in_the_baseline(tier):
    """Also where the headline has fewer seeds than the others would have."""
    for arm in tier.arms:
        assert set(plan.seeds_of(tier, arm)) <= set(plan.seeds_of(tier, plan.BASELINE))


def test_the_headline_ends_with_the_baseline():
    assert plan.headline(("rope", "sin", "nope")) == ["rope", "sin"]
    assert plan.headline(("sin", "nope")) == ["nope", "sin"]


@given(st.floats(5, 200), st.floats(2e3, 5e5), st.floats(0, 20), st.integers(1, 16))
def test_a_study_is_shrunk_to_its_budget_and_not_below_its_warm_up(budget, rate, overhead, jobs):
    speed = plan.Speed(rate, overhead, jobs)
    try:
        steps, minutes = plan.shrink(CPU, CPU.arms, 512, 2048, 50, budget, speed)
    except UserError as error:
        needed = int(str(error).split("give ")[1].split()[0])
        assert needed >= budget - 1e-9
        steps, minutes = plan.shrink(CPU, CPU.arms, 512, 2048, 50, needed, speed)
        assert minutes <= needed and steps >= 102
        return
    training = steps * 2048 * 33 / rate / 60
    assert 102 <= steps <= 512 and training <= plan.TRAINING_SHARE * budget + 1e-9
    assert minutes <= budget + 1e-9
    if steps < 512:  # one step more would not have fitted
        more = 2048 * 33 / rate / 60
        assert training + more > plan.TRAINING_SHARE * budget or minutes + more > budget


def test_unknown_names_are_corrected():
    with pytest.raises(UserError, match=r"unknown arm 'alibbi' \(did you mean alibi\?\)"):
        plan.choose_tier("cpu", "sin,alibbi")
    with pytest.raises(UserError, match=r"unknown tier 'smok' \(did you mean smoke\?\)"):
        plan.choose_tier("smok", None)
    for arms in ("rope,alibi", "sin", "sin,sin"):
        with pytest.raises(UserError, match="must name sin"):
            plan.choose_tier("cpu", arms)
    assert plan.choose_tier("cpu", "nope,p_rope,sin")[1] == ("sin", "nope", "p_rope")


def test_a_learning_rate_that_diverged_loses():
    assert plan.best_rate({"0.001": 2.0, "0.002": 1.9, "0.004": None}) == 0.002


@pytest.fixture
def stored() -> dict:
    made = {
        "tier": "cpu", "grid": [1e-3, 2e-3], "tuning_seed": 1000,
        "arms": {"rope": {"overrides": plan.ARMS["rope"], "seeds": [0, 1], "lr": None}},
        "probes": {"P1": {"arms": ["rope"], "seeds": [0], "steps": None}},
        "config": {"rope": {"model": {"dim": 128}}}, "data_sha256": {"train.bin": "a"},
        "tokens": 2048, "steps": 1, "dtype": "float32", "expected_minutes": 3.0,
        "budget_minutes": 45.0,
    }
    return {**made, "sha256": plan.fingerprint(made)}


def test_another_speed_or_a_tuned_rate_is_the_same_plan(stored, tmp_path):
    wanted = copy.deepcopy(stored)
    stored["arms"]["rope"]["lr"] = 2e-3
    del wanted["tokens"], wanted["steps"], wanted["dtype"], wanted["expected_minutes"]
    plan.check_same(tmp_path, stored, wanted)
    del stored["dtype"]  # of before it was noted
    stored["sha256"] = plan.fingerprint(stored)
    plan.check_same(tmp_path, stored, wanted)


@pytest.mark.parametrize("part, change", [
    ("tier", lambda p: p.update(tier="gpu")),
    ("arms", lambda p: p["arms"]["rope"]["seeds"].append(2)),
    ("arms", lambda p: p["arms"].update(sin={})),
    ("grid", lambda p: p["grid"].pop()),
    ("tuning_seed", lambda p: p.update(tuning_seed=1001)),
    ("probes", lambda p: p["probes"]["P1"].update(steps=10)),
    ("budget_minutes", lambda p: p.update(budget_minutes=46.0)),
    ("config", lambda p: p["config"]["rope"]["model"].update(dim=64)),
    ("data_sha256", lambda p: p["data_sha256"].update({"train.bin": "b"})),
])
def test_another_plan_is_refused_by_the_part_that_differs(stored, tmp_path, part, change):
    wanted = copy.deepcopy(stored)
    change(wanted)
    with pytest.raises(UserError, match=rf"of another plan \({part}\).*--name"):
        plan.check_same(tmp_path, stored, wanted)
    change(stored)  # and where the stored one was edited, its hash tells
    with pytest.raises(UserError, match=rf"changed by hand \({part}\)"):
        plan.check_same(tmp_path, stored, wanted)


@pytest.mark.parametrize("edited", [{"tokens": 4096}, {"dtype": "bfloat16"}])
def test_what_was_measured_and_is_edited_by_hand_is_noticed(stored, tmp_path, edited):
    with pytest.raises(UserError, match=rf"changed by hand \({next(iter(edited))}\)"):
        plan.check_same(tmp_path, {**stored, **edited}, stored)


def test_without_tuning_the_learning_rate_belongs_to_the_plan(stored):
    stored["grid"] = []
    other = copy.deepcopy(stored)
    other["arms"]["rope"]["lr"] = 2e-3
    assert plan.fingerprint(stored)["arms"] != plan.fingerprint(other)["arms"]
