"""Each statistic against another way to compute it: scipy, brute force, or a worked example."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation import stats
from ablation.stats import Interval, holm, paired, sign_flip, t_interval, tokens_to_target


def draw(n, seed=0, effect=-0.05, shared=0.05, own=0.01):
    """Two arms whose seeds move together."""
    rng = np.random.default_rng(seed)
    common = 2 + shared * rng.standard_normal(n)
    baseline = common + own * rng.standard_normal(n)
    arm = common + effect + own * rng.standard_normal(n)
    return dict(enumerate(arm.tolist())), dict(enumerate(baseline.tolist()))


@pytest.mark.parametrize("n", [2, 3, 6, 11])
def test_paired_is_what_scipy_says(n):
    arm, baseline = draw(n)
    result = paired(arm, baseline)
    a, b = list(arm.values()), list(baseline.values())
    t = scipy.stats.ttest_rel(a, b)
    welch = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert result.interval == Interval(*map(pytest.approx, t.confidence_interval(0.95)))
    assert result.welch == Interval(*map(pytest.approx, welch))
    assert result.mean == pytest.approx(np.mean(a) - np.mean(b))
    assert result.sd == pytest.approx(np.subtract(a, b).std(ddof=1))
    flips = scipy.stats.permutation_test(
        (np.subtract(a, b),), np.sum, permutation_type="samples", n_resamples=np.inf
    )
    assert result.p == pytest.approx(flips.pvalue)
    if n > 2:
        assert result.correlation == pytest.approx(scipy.stats.pearsonr(a, b).statistic)


def test_only_common_seeds_are_paired_and_seeds_decide_what_belongs_together():
    arm = {3: 1.0, 1: 5.0, 9: 100.0}
    baseline = {1: 4.0, 2: -50.0, 3: 3.0}
    result = paired(arm, baseline)
    assert result.differences == {1: 1.0, 3: -2.0}
    assert (result.n, result.mean) == (2, -0.5)


@pytest.mark.parametrize("baseline", [{1: 2.0}, {1: 2.0, 5: 2.0, 6: 2.1}])
def test_one_common_seed_has_a_difference_and_no_more_and_none_has_nothing(baseline):
    result = paired({1: 1.5, 2: 1.6}, baseline)
    assert (result.n, result.mean) == (1, -0.5)
    assert (result.sd, result.interval, result.p, result.equivalent) == (None,) * 4
    assert result.correlation is None
    nothing = paired({1: 1.5}, {7: 2.0})
    assert (nothing.n, nothing.mean, nothing.interval, nothing.p) == (0, None, None, None)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=7))
def test_sign_flip_counts_every_choice_of_signs(tenths):
    every = [
        abs(sum(s * t for s, t in zip(signs, tenths, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(tenths))
    ]  # in integers, where ties are exact
    expected = sum(total >= abs(sum(tenths)) for total in every) / len(every)
    assert sign_flip([t / 10 for t in tenths]) == expected


def test_equivalence_needs_the_90_percent_interval_inside_the_margin():
    # sd 0.01 over sqrt(4) and t(3, 0.95) = 2.353: half a width of 0.01177
    wide = [x * math.sqrt(3) / 2 for x in (0.01, -0.01, 0.01, -0.01)]
    zero = dict.fromkeys(range(4), 0.0)
    assert t_interval(wide, 0.90).high == pytest.approx(0.011767, abs=1e-6)
    # Ends at +-0.01177, 0.00988, 0.01012; 0.00988; -0.01088; and surely different.
    for shift, scale, expected in [(0, 1, False), (0, 0.84, True), (0, 0.86, False),
                                   (0.004, 0.5, True), (-0.005, 0.5, False), (0.02, 0.1, False)]:
        arm = {seed: shift + scale * x for seed, x in enumerate(wide)}
        assert paired(arm, zero).equivalent is expected, (shift, scale)


def test_pairing_helps_only_arms_that_move_together():
    arm, baseline = draw(6)
    assert paired(arm, baseline).pairing_helps
    assert paired(arm, baseline).correlation > 0.5
    against = {seed: 4 - value for seed, value in baseline.items()}
    result = paired(arm, against)
    assert not result.pairing_helps
    assert result.correlation < -0.5 and result.welch.width < result.interval.width


def test_holm_by_hand():
    # sorted 0.005 0.01 0.03 0.04 times 4 3 2 1 = 0.02 0.03 0.06 0.04, then never decreasing
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.7, "b": 0.6}) == {"b": 1.0, "a": 1.0}
    assert holm({"only": 0.03}) == {"only": 0.03}
    assert holm({}) == {}


def test_identical_arms_have_a_point_for_an_interval():
    same = {1: 2.0, 2: 2.5}
    result = paired(same, same)
    assert result.interval == Interval(0.0, 0.0)
    assert (result.p, result.equivalent) == (1.0, True)
    assert stats.welch_interval([2.0, 2.0], [1.5, 1.5]) == Interval(0.5, 0.5)


@pytest.mark.parametrize("target, tokens", [
    (3.5, 150), (3.0, 200), (2.6, 350), (2.0, 400), (5.0, 100), (1.999, None),
])
@pytest.mark.parametrize("undefined", [[], [50, 250, 500]])
def test_tokens_to_target(target, tokens, undefined):
    """Points without a loss are as if they were not there."""
    curve = [(100, 4.0), (200, 3.0), (300, 3.2), (400, 2.0), *((at, None) for at in undefined)]
    found = tokens_to_target(sorted(curve), target)
    assert found == (tokens and pytest.approx(tokens))
    assert tokens_to_target([(at, None) for at in undefined], target) is None
