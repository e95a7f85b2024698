"""What a difference between two arms is worth. The replication unit is the seed.

Arms share every initial value and every batch of a seed, so differences are taken seed by seed. An
interval needs two seeds; with one it is None.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
MARGIN = 0.01
"""Nats per token below which a difference does not matter here: the equivalence test's bound."""


@dataclass(frozen=True)
class Interval:
    low: float
    high: float

    def inside(self, bound: float) -> bool:
        return -bound < self.low and self.high < bound

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class Paired:
    """Arm minus baseline, by seed. What the number of seeds cannot support is None."""

    differences: dict[int, float]
    mean: float | None
    sd: float | None
    interval: Interval | None
    """95 %, paired t."""
    p: float | None
    """Two-sided exact sign-flip test."""
    correlation: float | None
    """Of the two arms over the common seeds: what pairing rests on."""
    welch: Interval | None
    """95 %, all seeds of both arms, as if nothing had been shared."""
    equivalent: bool | None
    """Two one-sided t tests at 5 %: the 90 % interval lies within +-MARGIN."""

    @property
    def n(self) -> int:
        return len(self.differences)

    @property
    def pairing_helps(self) -> bool:
        """Whether the paired interval is the narrower one; where not, both belong in a report."""
        if self.welch is None:
            return True
        return self.interval is not None and self.interval.width < self.welch.width


def paired(arm: Mapping[int, float], baseline: Mapping[int, float]) -> Paired:
    """Compare two arms given as {seed: value}, over the seeds that both have."""
    seeds = sorted(arm.keys() & baseline.keys())
    a = [arm[seed] for seed in seeds]
    b = [baseline[seed] for seed in seeds]
    differences = [x - y for x, y in zip(a, b, strict=True)]
    narrow = t_interval(differences, 0.90)
    return Paired(
        differences=dict(zip(seeds, differences, strict=True)),
        mean=mean(differences),
        sd=sd(differences),
        interval=t_interval(differences),
        p=sign_flip(differences) if len(seeds) > 1 else None,
        correlation=correlation(a, b),
        welch=welch_interval(list(arm.values()), list(baseline.values())),
        equivalent=narrow.inside(MARGIN) if narrow else None,
    )


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def sd(values: Sequence[float]) -> float | None:
    """Of the population the values were drawn from (n - 1), in their unit."""
    return math.sqrt(_variance(values)) if len(values) > 1 else None


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Student's interval for the mean."""
    n = len(values)
    if n < 2:
        return None
    error = math.sqrt(_variance(values) / n)
    return _interval(statistics.fmean(values), error, n - 1, confidence)


def welch_interval(
    a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE
) -> Interval | None:
    """For mean(a) - mean(b) of independent samples whose variances may differ."""
    if len(a) < 2 or len(b) < 2:
        return None
    va, vb = _variance(a) / len(a), _variance(b) / len(b)
    if va + vb == 0:
        freedom = len(a) + len(b) - 2.0  # the interval is a point, whatever this number is
    else:
        freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    difference = statistics.fmean(a) - statistics.fmean(b)
    return _interval(difference, math.sqrt(va + vb), freedom, confidence)


def _variance(values: Sequence[float]) -> float:
    return float(np.var(values, ddof=1))


def _interval(centre: float, error: float, freedom: float, confidence: float) -> Interval:
    from scipy.special import stdtrit  # slow to import, and only a finished study needs it

    half = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return Interval(centre - half, centre + half)


def sign_flip(differences: Sequence[float]) -> float:
    """Exact two-sided p of the hypothesis that each difference could have had either sign.

    The share, among all 2^n choices of signs, of those whose sum is at least as far from 0 as the
    one observed; so p is never below 2/2^n, and fewer than 6 seeds cannot reach 0.05.
    """
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    observed = abs(math.fsum(differences))
    rounding = 1e-12 * math.fsum(map(abs, differences))  # the order of a sum must not break ties
    return float(np.mean(np.abs(sums) >= observed - rounding))


def correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Pearson's. Two points always give +-1, which says nothing, so it needs three."""
    if len(a) < 3 or np.std(a) == 0 or np.std(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p values that keep the chance of any false alarm in the family at the level (Holm
    1979): the smallest times m, the next times m - 1, ..., never decreasing and never above 1."""
    adjusted, largest = {}, 0.0
    for rank, name in enumerate(sorted(p, key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[name]))
        adjusted[name] = largest
    return adjusted


def tokens_to_target(curve: Sequence[tuple[float, float | None]], target: float) -> float | None:
    """Training tokens at which a validation curve [(tokens, loss)] first reaches `target`, linear
    between its points; None where it never does."""
    before: tuple[float, float] | None = None
    for tokens, loss in curve:
        if loss is None:
            continue
        if loss <= target:
            if before is None:
                return float(tokens)
            share = (before[1] - target) / (before[1] - loss)
            return before[0] + share * (tokens - before[0])
        before = (tokens, loss)
    return None
