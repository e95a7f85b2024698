"""The plan of a study: what arms share, which rates are tried, and where runs branch off."""

import math
import shutil
from dataclasses import replace

import pytest
from builders import ROOT
from hypothesis import given
from hypothesis import strategies as st
from tiny_study import make_plan

from ablation import plan
from ablation.runner import select_decisive
from errors import UserError
from files import read_json
from gyre.optim import OptimConfig, lr_factor
from gyre.options import make_config
from model.encodings import POSITIONS
from model.position import ALiBi

QUICK = plan.TIERS["quick"]
STUDIES = sorted(path.parent for path in (ROOT / "studies").rglob("plan.json"))


# --- plan.json ------------------------------------------------------------------------------------


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_committed_plan_is_written_again_byte_for_byte(study, tmp_path):
    shutil.copy(study / "plan.json", tmp_path)
    plan.write_plan(tmp_path, plan.read_plan(tmp_path))
    assert (tmp_path / "plan.json").read_bytes() == (study / "plan.json").read_bytes()


def test_a_plan_is_written_and_read_as_it_was(tmp_path):
    written = make_plan(diverged=[], second_val=False, onednn=False)
    plan.write_plan(tmp_path, written)
    assert plan.read_plan(tmp_path) == written


def test_a_new_plan_has_no_fields_of_other_studies(tmp_path):
    plan.write_plan(tmp_path, make_plan(diverged=[], second_val=True))
    assert list(read_json(tmp_path / "plan.json")) == [
        "name", "command", "tier", "arms", "grid", "tuning_seeds", "steps", "seeds", "baseline",
        "seq_len", "step_tokens", "config", "data_sha256", "dtype", "onednn", "ngrams", "machine",
        "versions", "git", "tuned", "diverged", "second_val", "sha256"]


def test_an_old_plan_has_defaults_for_later_fields():
    five = plan.read_plan(ROOT / "studies" / "five")
    assert (five.onednn, five.diverged, five.second_val) == ("auto", None, None)


def test_a_committed_rate_is_read_by_seed():
    losses = plan.tuning_losses(plan.read_plan(ROOT / "studies" / "five"))
    assert losses["rope"][2e-3] == {1000: 2.2390489713275983, 1001: 2.2194433877457844}


def test_a_rate_that_diverged_has_an_infinite_loss():
    tuned = plan.Tuned(arms={"rope": {"0.002": {"1000": None}}})
    assert plan.tuning_losses(make_plan(tuned=tuned)) == {"rope": {2e-3: {1000: math.inf}}}


# --- arms -----------------------------------------------------------------------------------------


def test_an_arm_of_the_users_own_comes_last_as_text():
    arms = plan.choose_arms(QUICK, "rope,sin", ["b500=model.theta=500,optim.lr=2e-3"], {})
    assert list(arms) == ["rope", "sin", "b500"]
    assert arms["b500"] == {"model.theta": "500", "optim.lr": "2e-3"}


def test_arms_that_another_study_has_come_first():
    arms = plan.choose_arms(QUICK, "sin", [], {"mine": {"model.theta": "5"}})
    assert list(arms) == ["mine", "sin"]


def test_without_names_the_arms_are_those_of_the_tier():
    assert list(plan.choose_arms(QUICK, None, [], {})) == ["rope", "sin", "nope"]


@pytest.mark.parametrize("names, added, words", [
    ("sin,alibbi", [], r"unknown arm 'alibbi' \(did you mean alibi\?\)"),
    ("sin,sinusoidal", [], "'sinusoidal', which is an encoding: its arms are sin, sin_vaswani"),
    ("sin", [], "at least two arms"),
    (None, ["rope=model.theta=2"], "there is an arm of this name already"),
    ("sin,alibi,sin", [], "--arms sin,alibi,sin has sin twice: leave one out"),
    (None, ["b=seed=2,l"], "must be NAME=OPTION=VALUE"),
    (None, ["b=model.n-heads=2,model.n_heads=4"], "must be NAME=OPTION=VALUE"),
    (None, ["a/b=x=1"], "must be NAME=OPTION=VALUE"),
    (None, ["b=config=x"], "must be NAME=OPTION=VALUE"),
])
def test_arms_that_are_wrong_are_refused(names, added, words):
    with pytest.raises(UserError, match=words):
        plan.choose_arms(QUICK, names, added, {})


def test_spaces_between_the_names_of_arms_do_not_count():
    assert [*plan.choose_arms(QUICK, "rope, sin", [], {})] == ["rope", "sin"]


def test_an_arm_may_change_no_encoding(monkeypatch):
    monkeypatch.setitem(plan.ARMS, "fast", {"optim.lr": 1.0})
    assert [*plan.choose_arms(QUICK, "rope,fast", [], {})] == ["rope", "fast"]


def test_an_encoding_that_is_no_arm_is_given_as_one(monkeypatch):
    monkeypatch.setitem(POSITIONS, "mine", ALiBi)
    with pytest.raises(UserError) as caught:
        plan.choose_arms(QUICK, "rope,mine", [], {})
    assert str(caught.value) == ("unknown arm 'mine', which is an encoding: give it as an arm of "
                                 "your own, --arm mine=model.position=mine")


@pytest.mark.parametrize("names", [None, "mine"])
def test_beside_a_study_an_arm_has_to_be_new(names):
    with pytest.raises(UserError, match="all of these arms have their records already: add a new"):
        plan.choose_arms(replace(QUICK, arms=()), names, [], {"mine": {}, "yours": {}})


@pytest.mark.parametrize("name, arms, baseline", [
    (None, ["rope", "sin", "nope"], "sin"),
    (None, ["sin_vaswani", "b"], "sin_vaswani"),
    (None, ["a", "b"], "a"),
    ("rope", ["rope", "sin"], "rope"),
])
def test_the_baseline_is_the_given_arm_sinusoids_or_the_first(name, arms, baseline):
    assert plan.choose_baseline(name, arms) == baseline


def test_a_baseline_that_is_no_arm_is_refused():
    with pytest.raises(UserError, match="unknown arm 'ropee'"):
        plan.choose_baseline("ropee", ["rope", "sin"])


def test_beside_a_study_options_are_shared_where_all_arms_agree():
    first = {"model": {"dim": 64, "theta": 10.0}, "data": {}, "optim": {"lr": 1e-3},
             "train": {"steps": 9}}
    second = {"model": {"dim": 64, "theta": 20.0}, "data": {}, "optim": {"lr": 1e-3}, "train": {}}
    assert plan.shared_options({"a": first, "b": second}, {"a": {}, "b": {}}) == {
        "model": {"dim": 64}, "data": {}, "optim": {"lr": 1e-3}, "train": {}}


@pytest.mark.parametrize("option", [{"gone": 1}, {"head_dim": None}])
def test_beside_a_study_no_option_is_shared_that_is_gone_or_unset(option):
    arm = {"model": {"dim": 64, **option}, "data": {}, "optim": {}, "train": {}}
    assert plan.shared_options({"a": arm, "b": arm}, {"a": {}, "b": {}})["model"] == {"dim": 64}


@pytest.mark.parametrize("study, rate", [("causes", 2e-3), ("what-where", 2e-3), ("wide", 1e-3)])
def test_a_new_arm_has_the_rate_of_arms_without_their_own(study, rate):
    """Some arms of these studies say a rate, and no rate was tuned."""
    tier = plan.tier_beside(plan.read_plan(ROOT / "studies" / study), seeds=None)
    assert tier.overrides["optim"]["lr"] == rate


def test_an_option_that_every_arm_says_is_shared_where_all_agree():
    config = {"model": {"position": "rope"}, "data": {}, "optim": {}, "train": {}}
    own = {"model.position": "rope"}
    shared = plan.shared_options({"a": config, "b": config}, {"a": own, "b": own})
    assert shared["model"] == {"position": "rope"}


def test_a_part_of_an_option_is_an_arms_own():
    scaled = {"model": {"rope_scaling": {"type": "ntk"}}, "data": {}, "optim": {}, "train": {}}
    plain = {"model": {"rope_scaling": {"type": "yarn"}}, "data": {}, "optim": {}, "train": {}}
    own = {"model.rope_scaling.type": "ntk"}
    shared = plan.shared_options({"a": scaled, "b": plain}, {"a": own, "b": {}})
    assert shared["model"] == {"rope_scaling": {"type": "yarn"}}


def test_sizes_that_follow_from_others_are_left_to_a_new_arm():
    base = make_config({"model.n_heads": 4, "model.hidden_dim": 344})
    config = select_decisive(base)
    shared = plan.shared_options({"a": config, "b": config}, {"a": {}, "b": {}})
    arm = make_config(shared, {"model.n_heads": 8}).model
    assert (arm.n_kv_heads, arm.head_dim, arm.hidden_dim) == (8, 32, 344)
    assert make_config(shared) == base


def test_learned_positions_can_stand_beside_encodings_of_a_longer_context():
    english = plan.read_plan(ROOT / "studies" / "english")
    shared = plan.shared_options(english.config, english.arms)
    assert make_config(shared, {"model.position": "learned"}).model.max_positions == 128


def test_what_each_arm_says_of_its_own_encoding_is_not_shared():
    arms = {"a": {"model.position": "sinusoidal", "model.sinusoid": "vaswani"},
            "b": {"model.position": "sin_residual", "model.sinusoid": "vaswani"}}
    configs = {arm: select_decisive(make_config(overlay)) for arm, overlay in arms.items()}
    shared = plan.shared_options(configs, arms)
    assert make_config(shared, {"model.position": "rope"}).model.sinusoid == "matched"


def test_an_option_of_an_arm_may_be_spelt_with_dashes():
    usual = {"model": {}, "data": {}, "optim": {"warmup_steps": 50}, "train": {}}
    quick = {"model": {}, "data": {}, "optim": {"warmup_steps": 5}, "train": {}}
    own = {"optim.warmup-steps": "5"}
    shared = plan.shared_options({"a": usual, "b": quick}, {"a": {}, "b": own})
    assert shared["optim"] == {"warmup_steps": 50}


def test_beside_a_study_its_lengths_and_seeds_are_taken_over():
    tier = plan.tier_beside(plan.read_plan(ROOT / "studies" / "five"), seeds=None)
    assert tier.horizons == (1048576, 2097152, 4194304, 8388608)
    assert (tier.seeds, tier.grid, tier.tuning_seeds) == (6, (2e-3, 4e-3), (1000, 1001))


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_study_can_stand_beside_every_committed_one(study):
    committed = plan.read_plan(study)
    tier = plan.tier_beside(committed, seeds=None)
    assert (tier.seeds, list(tier.grid)) == (len(committed.seeds), committed.grid)


def test_beside_a_study_fewer_seeds_can_be_taken():
    tier = plan.tier_beside(plan.read_plan(ROOT / "studies" / "five"), seeds=2)
    assert tier.seeds == 2


def test_beside_a_study_more_seeds_than_it_has_are_refused():
    with pytest.raises(UserError, match="--seeds 7 is more than the 6 of the study beside"):
        plan.tier_beside(plan.read_plan(ROOT / "studies" / "five"), seeds=7)


# --- learning rates -------------------------------------------------------------------------------


def tune(cost, grid, seeds) -> dict[float, dict[int, float]]:
    """Return the losses of all rates that `next_rates` asks for, where a rate and a seed have the
    loss `cost(rate, seed)`."""
    losses: dict[float, dict[int, float]] = {}
    todo = plan.next_rates(grid, seeds, losses)
    while todo:
        for lr, seed in todo:
            assert seed not in losses.get(lr, {}), "asked for twice"  # or it would never end
            losses.setdefault(lr, {})[seed] = cost(lr, seed)
        todo = plan.next_rates(grid, seeds, losses)
    return losses


@given(st.floats(-20, 4), st.integers(1, 3))
def test_the_best_rate_has_a_worse_neighbour_on_either_side(optimum, seeds):
    """Wherever the optimum is, up to the widest extension; and every rate has all seeds."""
    losses = tune(lambda lr, seed: (math.log2(lr) - optimum) ** 2, (2e-3, 4e-3), [*range(seeds)])
    best = plan.best_rate(losses)
    rates = sorted(losses)
    assert abs(math.log2(best) - optimum) <= 0.5 + 1e-9 or best in (rates[0], rates[-1])
    if min(rates) > 2e-3 / plan.WIDEST and max(rates) < 4e-3 * plan.WIDEST:
        assert rates[0] < best < rates[-1]
    # Two of the grid, and up to three beyond one of its ends: 2, 4 and 8 times as far.
    assert len(rates) <= 5
    if best in (rates[0], rates[-1]):
        assert len(rates) == 5
    assert all(len(by_seed) == seeds for by_seed in losses.values())


def test_the_mean_over_the_seeds_decides_and_an_edge_is_crossed():
    values = {(2e-3, 0): 2.0, (4e-3, 0): 1.9, (2e-3, 1): 1.7, (4e-3, 1): 1.95,
              (1e-3, 0): 2.1, (1e-3, 1): 1.5, (5e-4, 0): 2.5, (5e-4, 1): 2.5}
    losses = tune(lambda lr, seed: values[lr, seed], (2e-3, 4e-3), [0, 1])
    assert plan.best_rate(losses) == 1e-3
    assert sorted(losses) == [5e-4, 1e-3, 2e-3, 4e-3]


def test_a_rate_with_fewer_seeds_does_not_win():
    losses = {1e-3: {0: 1.0}, 2e-3: {0: 1.4, 1: 1.6}, 4e-3: {0: 1.5, 1: 1.7}}
    assert plan.best_rate(losses) == 2e-3


def test_rates_that_all_diverge_call_for_a_smaller_one():
    losses = {4e-3: {0: math.inf}, 2e-3: {0: math.inf}}
    assert plan.next_rates((2e-3, 4e-3), [0], losses) == [(1e-3, 0)]


def test_a_grid_of_one_rate_is_not_extended():
    assert tune(lambda lr, seed: 1.0, (1e-3,), [0, 1]) == {1e-3: {0: 1.0, 1: 1.0}}


# --- lengths --------------------------------------------------------------------------------------


def test_checkpoints_are_kept_where_shorter_runs_branch_off():
    kept = plan.kept_steps([400, 819, 1638, 3277], 4)
    assert {400, 819, 1638, 3277} <= set(kept)
    assert kept[-1] == 3277


def test_checkpoints_are_kept_four_to_an_octave():
    """From step 16 on: before, there is little to see."""
    assert plan.kept_steps([128], 4) == [16, 19, 23, 27, 32, 38, 45, 54, 64, 76, 91, 108, 128]


def test_the_cooldown_of_a_short_run_begins_at_a_kept_step():
    assert plan.kept_steps([8, 16], 4) == [8, 10, 11, 13, 16]


def test_a_run_branches_off_at_the_last_full_rate():
    """With a cooldown of half of an odd number of steps too."""
    config = OptimConfig(warmup_steps=2, schedule="wsd", cooldown=0.5, final_lr=0.0)
    for steps in (25, 51, 75):
        at = steps - plan.count_cooldown(config, steps)
        assert lr_factor(config, at - 1, steps) == 1.0 > lr_factor(config, at, steps)
