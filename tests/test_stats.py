"""Each statistic against another way to compute it: scipy, or a worked example."""

import math

import numpy as np
import pytest

from ablation.stats import holm, paired, tokens_to_target


@pytest.mark.parametrize("n", [2, 6])
def test_paired_is_what_scipy_says(n):
    import scipy.stats  # slow

    a, b = 2 + 0.05 * np.random.default_rng(0).standard_normal((2, n))
    result, t = paired(dict(enumerate(a)), dict(enumerate(b))), scipy.stats.ttest_rel(a, b)
    assert result.interval == pytest.approx(t.confidence_interval(0.95))
    assert (result.mean, result.p) == pytest.approx((a.mean() - b.mean(), t.pvalue))


def test_only_common_seeds_are_paired_and_seeds_decide_what_belongs_together():
    result = paired({3: 1.0, 1: 5.0, 9: 100.0}, {1: 4.0, 2: -50.0, 3: 3.0})
    assert (result.n, result.mean) == (2, -0.5)


def test_one_common_seed_has_a_difference_and_no_more_and_none_has_nothing():
    result = paired({1: 1.5, 2: 1.6}, {1: 2.0, 5: 2.0, 6: 2.1})
    assert (result.n, result.mean) == (1, -0.5)
    assert result.interval is result.p is None
    assert paired({1: 1.5}, {7: 2.0}) is None


def test_holm_by_hand():
    # sorted 0.005 0.01 0.03 0.04 times 4 3 2 1 = 0.02 0.03 0.06 0.04, then never decreasing
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.7, "b": 0.6}) == {"b": 1.0, "a": 1.0}
    assert holm({"only": 0.03}) == {"only": 0.03}
    assert holm({}) == {}


def test_identical_arms_have_a_point_for_an_interval():
    same = {1: 2.0, 2: 2.5}
    assert paired(same, same).interval == (0.0, 0.0)
    assert paired(same, same).p is None


@pytest.mark.parametrize("target, tokens", [
    (3.5, 100 * 2**0.5), (3.0, 200), (2.6, 300 * (4 / 3) ** 0.5), (2.0, 400), (5.0, 100),
    (1.999, math.inf),
])
def test_tokens_to_target_are_read_off_in_the_logarithm_of_the_tokens(target, tokens):
    curve = {100: 4.0, 200: 3.0, 300: 3.2, 400: 2.0}
    assert tokens_to_target(curve, target) == pytest.approx(tokens)
    assert tokens_to_target({}, target) == math.inf
