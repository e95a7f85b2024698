#!/usr/bin/env bash
# interrater's BCa intervals have no acceleration, and scipy's in their place no width.
#
# Versions: interrater 2.0.0, scipy 1.17.1.
# Guess before the run: with ci_method="bca", the interval of an agreement is that of scipy's BCa over
#     the subjects, and `estimate(use_scipy_bca=True)` is a check of it, with the same ends but for
#     noise. (That neither jackknifes the subjects was read in the source before the run.)
# Seen: the acceleration is that of the mean of the bootstrap values, which goes to 0 with their
#     number: -0.002 for -0.11 to -0.16, so that lower ends are 0.60, 0.76 and 0.68 for 0.50, 0.71 and
#     0.61. With `use_scipy_bca`, scipy resamples the bootstrap values themselves: the interval is
#     that of their mean, 10 times too short with 100 of them and 30 times with 1,000, and may not
#     hold the estimate, which raises an error.
# For gyre: it measures no agreement. There, take scipy.stats.bootstrap with paired=True.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile interrater==2.0.0 numpy==2.4.6 scipy==1.17.1 \
    pandas==2.3.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import scipy.stats
from interrater import GwetAC1Analyzer, GwetAC1Config
from interrater.data_objects import Ratings
from interrater.semantics import RatingsSemantics, UnorderedCategories

SEMANTICS = RatingsSemantics(raters=["ann", "bob"], categories=UnorderedCategories(("in", "out")))


def ac1(first, second, axis=-1):
    # Gwet's coefficient for two raters and two categories
    agreement = np.mean(first == second, axis=axis)
    share = (np.mean(first, axis=axis) + np.mean(second, axis=axis)) / 2
    chance = 2 * share * (1 - share)
    return (agreement - chance) / (1 - chance)


def acceleration(first, second):
    left_out = np.array([ac1(np.delete(first, i), np.delete(second, i)) for i in range(len(first))])
    influences = left_out.mean() - left_out
    return np.sum(influences ** 3) / (6 * np.sum(influences ** 2) ** 1.5)


def implied_acceleration(values):
    # interrater's: each value of the bootstrap distribution is left out of its mean
    influences = values - values.mean()
    return np.sum(influences ** 3) / (6 * np.sum(influences ** 2) ** 1.5)


def estimate(ratings, n_resamples, method, **options):
    config = GwetAC1Config(n_resamples=n_resamples, random_state=0, ci_method=method)
    return GwetAC1Analyzer(ratings, config).estimate(**options)


for n_subjects, n_apart in [(20, 1), (40, 1), (40, 2)]:
    # half of the subjects are in, and the raters disagree on the first ones
    first = np.arange(n_subjects) % 2
    second = first.copy()
    second[:n_apart] = 1 - second[:n_apart]
    ratings = Ratings(np.stack([first, second], axis=1).astype(np.int8), SEMANTICS)
    scipys = scipy.stats.bootstrap((first, second), ac1, paired=True, n_resamples=4000, method="BCa",
                                   rng=0).confidence_interval
    percentile = estimate(ratings, 4000, "percentile")
    assert abs(percentile.point - ac1(first, second)) < 1e-9
    values = percentile.bootstrap_distribution
    bca = estimate(ratings, 4000, "bca").confidence_interval
    print(f"{n_apart} of {n_subjects} apart, AC1 {percentile.point:.3f}: interrater's BCa "
          f"{bca[0]:.3f} to {bca[1]:.3f}, scipy's over the subjects {scipys.low:.3f} to "
          f"{scipys.high:.3f}; acceleration {implied_acceleration(values):.4f}, by the jackknife of "
          f"subjects {acceleration(first, second):.4f}")
    assert abs(implied_acceleration(values)) < 0.01 and acceleration(first, second) < -0.1
    assert bca[0] > scipys.low + 0.03

# scipy's interval is that of the mean of the bootstrap values
widths = []
for n_resamples in [100, 1000]:
    percentile = estimate(ratings, n_resamples, "percentile").confidence_interval
    checked = estimate(ratings, n_resamples, "bca", use_scipy_bca=True).confidence_interval
    widths.append((percentile[1] - percentile[0]) / (checked[1] - checked[0]))
    print(f"{n_resamples} resamples: by percentiles {percentile[0]:.3f} to {percentile[1]:.3f}, with "
          f"use_scipy_bca {checked[0]:.3f} to {checked[1]:.3f}, {widths[-1]:.0f} times as short")
assert 5 < widths[0] < 20 < widths[1] < 45
PYTHON
