"""What a difference between two arms is worth. The replication unit is the seed.

Arms share every batch of a seed, and every initial value where they have the same shapes, so
differences are taken seed by seed. An interval needs two seeds; with one it is None.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class Paired:
    """Arm minus baseline, by seed. What the number of seeds cannot support is None."""

    differences: dict[int, float]
    mean: float | None
    sd: float | None
    interval: Interval | None
    """95 %, paired t."""
    p: float | None
    """Two-sided, of the same t."""

    @property
    def n(self) -> int:
        return len(self.differences)


def paired(arm: Mapping[int, float], baseline: Mapping[int, float]) -> Paired:
    """Compare two arms given as {seed: value}, over the seeds that both have."""
    differences = {seed: arm[seed] - baseline[seed] for seed in sorted(arm.keys() & baseline)}
    values = list(differences.values())
    return Paired(differences, mean(values), sd(values), t_interval(values), t_test(values))


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def sd(values: Sequence[float]) -> float | None:
    """Of the population the values were drawn from (n - 1), in their unit."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Student's interval for the mean."""
    n = len(values)
    if n < 2:
        return None
    from scipy.special import stdtrit  # slow to import, and only a finished study needs it

    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * float(np.std(values, ddof=1)) / n**0.5
    centre = statistics.fmean(values)
    return Interval(centre - half, centre + half)


def t_test(values: Sequence[float]) -> float | None:
    """Two-sided p of the hypothesis that the mean is 0, by Student's t; None without a spread."""
    spread = sd(values)
    if not spread:
        return None
    from scipy.special import stdtr

    t = statistics.fmean(values) / (spread / len(values) ** 0.5)
    return 2 * float(stdtr(len(values) - 1, -abs(t)))


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p values that keep the chance of any false alarm in the family at the level (Holm
    1979): the smallest times m, the next times m - 1, ..., never decreasing and never above 1."""
    adjusted, largest = {}, 0.0
    for rank, name in enumerate(sorted(p, key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[name]))
        adjusted[name] = largest
    return adjusted


def tokens_to_target(curve: tuple[Sequence[float], Sequence[float]], target: float) -> float | None:
    """Where a curve (tokens, losses) first reaches `target`, linear between its points in the
    logarithm of the tokens; None where it never does."""
    before: tuple[float, float] | None = None
    for tokens, loss in zip(*curve, strict=True):
        if loss <= target:
            if before is None:
                return float(tokens)
            share = (before[1] - target) / (before[1] - loss)
            return before[0] * (tokens / before[0]) ** share
        before = (tokens, loss)
    return None


def censored_median(values: Sequence[float]) -> float:
    """The median where some values are only known to be larger than what was waited for (inf): inf
    where half of them or more are."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
