"""Each statistic against a table, or a worked example."""

import math

import numpy as np
import pytest

from ablation.stats import Paired, detectable, holm, paired, tokens_to_target


@pytest.mark.parametrize("n, t", [(2, 12.7062047), (6, 2.5705818)])
def test_an_interval_is_that_of_students_t(n, t):
    """`t` is the table's, of n - 1 degrees of freedom and 95 %; the mean's standard error is 1."""
    values = np.random.default_rng(0).standard_normal(n)
    values = t + (values - values.mean()) * n**0.5 / values.std(ddof=1)
    result = paired(dict(enumerate(values + 2)), dict.fromkeys(range(n), 2.0))
    assert (result.mean, *result.interval) == pytest.approx((t, 0, 2 * t), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("n, t", [(2, 12.7062047), (6, 2.5705818), (6, -2.5705818)])
def test_a_p_value_is_that_of_students_t(n, t):
    """Of the same table, two-sided."""
    values = np.random.default_rng(0).standard_normal(n)
    values = t + (values - values.mean()) * n**0.5 / values.std(ddof=1)
    assert paired(dict(enumerate(values)), dict.fromkeys(range(n), 0.0)).p == pytest.approx(0.05)


@pytest.mark.parametrize("difference, p", [(0.0, 1.0), (-0.5, 0.0)])
def test_a_difference_without_spread_is_certain(difference, p):
    assert paired({0: difference, 1: difference}, {0: 0.0, 1: 0.0}).p == p


@pytest.mark.parametrize("p_values, corrected", [
    ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # 2 * 0.03 is more than 1 * 0.04
    ([0.9, 0.5], [1.0, 1.0]),
    ([0.03], [0.03]),
    ([], []),
])
def test_p_values_are_corrected_as_by_holm(p_values, corrected):
    assert holm(p_values) == pytest.approx(corrected)


@pytest.mark.parametrize("n", [2, 6])
def test_four_of_five_studies_show_the_detectable_difference(n):
    """Of 20,000 made-up ones, whose differences have a standard deviation of 1. The standard error
    of their share is 0.003."""
    values = detectable(n) + np.random.default_rng(1).standard_normal((20_000, n))
    limit = {2: 12.7062047, 6: 2.5705818}[n]  # of t
    t = values.mean(1) / (values.std(1, ddof=1) / n**0.5)
    assert np.mean(np.abs(t) > limit) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("n, expected", [(2, 11.54989), (3, 3.26404), (5, 1.68200), (10, 0.99600)])
def test_the_detectable_difference_is_that_of_noncentral_t(n, expected):
    """The root of scipy.stats.nct.sf(limit, n - 1, d * n**0.5) = 0.8, found by brentq."""
    assert detectable(n) == pytest.approx(expected, rel=1e-5)


def test_one_seed_shows_no_difference():
    assert detectable(1) == math.inf


def test_only_seeds_that_both_have_are_paired():
    result = paired({3: 1.0, 1: 5.0, 9: 100.0}, {1: 4.0, 2: -50.0, 3: 3.0})
    assert (result.n, result.mean) == (2, -0.5)


def test_one_seed_has_no_interval():
    assert paired({1: 1.5, 2: 1.6}, {1: 2.0, 5: 2.0, 6: 2.1}) == Paired(1, -0.5, None)


def test_no_common_seed_is_no_difference():
    assert paired({1: 1.5}, {7: 2.0}) is None


@pytest.mark.parametrize("target, tokens", [
    (5.0, 100),
    (3.5, 168.17928),  # 100 * 2**0.75: three quarters of the way from 5 to 3
    (3.0, 200),
    (2.6, 346.41016),  # 300 * (4/3)**0.5
    (2.0, 400),
])
def test_a_target_is_read_in_the_logarithm_of_tokens(target, tokens):
    curve = {100: 5.0, 200: 3.0, 300: 3.2, 400: 2.0}
    assert tokens_to_target(curve, target) == pytest.approx(tokens)


def test_a_target_that_is_never_reached_is_infinitely_far():
    assert tokens_to_target({100: 5.0, 200: 2.0}, 1.999) == math.inf


def test_a_curve_without_points_reaches_nothing():
    assert tokens_to_target({}, 5.0) == math.inf
