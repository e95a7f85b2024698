"""What a difference between two arms is worth. The replication unit is the seed.

Arms share every batch of a seed, and every initial value where they have the same shapes, so
differences are taken seed by seed. An interval needs two seeds; with one it is None.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TYPICAL_SD = (0.006, 0.013, 0.044)
"""Standard deviation over seeds of the differences in studies/, in nats: a tenth of them are below
the first number, half below the second, and nine tenths below the third. nope-english, which
repeats seeds of another study, is left out."""


@dataclass(frozen=True)
class Paired:
    """Arm minus baseline, seed by seed."""

    n: int
    """Seeds that both have."""
    mean: float
    interval: tuple[float, float] | None
    """Its ends: 95 %, Student's t; None with one seed."""
    p: float | None = None
    """Two-sided p-value of no difference, by Student's t; None with one seed."""


def paired(arm: Mapping[int, float], baseline: Mapping[int, float]) -> Paired | None:
    """Compare two arms given as {seed: value}, over the seeds that both have; None without any."""
    differences = [arm[seed] - baseline[seed] for seed in arm.keys() & baseline]
    n = len(differences)
    if n == 0:
        return None
    if n == 1:
        return Paired(n, differences[0], None)
    from scipy.special import stdtr, stdtrit  # slow to import, and only a finished study needs it

    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / n**0.5
    half = float(stdtrit(n - 1, 0.975)) * error
    t = math.inf  # of a difference that is the same on every seed
    if error > 0:
        t = abs(mean) / error
    elif mean == 0:
        t = 0.0
    p = 2 * float(stdtr(n - 1, -t))
    return Paired(n, mean, (mean - half, mean + half), p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values, corrected for their number, in the order given (Holm 1979).

    That one of them is below 0.05 although no pair of arms differs, happens in 5 % of studies at
    most.
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    ascending = sorted(range(len(p_values)), key=lambda i: p_values[i])
    for rank, i in enumerate(ascending):
        factor = len(p_values) - rank
        highest = max(highest, min(1.0, factor * p_values[i]))
        corrected[i] = highest
    return corrected


def detectable(n: int) -> float:
    """Return the true difference between two arms that a study of `n` seeds shows with a
    probability of 0.8, in standard deviations of the difference over seeds; inf for one seed.

    A study shows it if the interval of `paired` excludes 0.
    """
    if n < 2:
        return math.inf
    from scipy.special import nctdtrinc, stdtrit

    # Student's t of a true difference is noncentral: one fifth of it stays below the limit.
    noncentrality = nctdtrinc(n - 1, 0.2, stdtrit(n - 1, 0.975))
    return float(noncentrality) / n**0.5


def tokens_to_target(curve: Mapping[int, float], target: float) -> float:
    """Where a curve (loss by tokens) first reaches `target`, linear between its points in the
    logarithm of the tokens; inf where it never does."""
    tokens = list(curve)
    losses = list(curve.values())
    reached = [i for i, loss in enumerate(losses) if loss <= target]
    if not reached:
        return math.inf
    after = reached[0]
    before = max(0, after - 1)
    # In ascending order of the losses, which `interp` needs: the curve falls from before to after.
    log_tokens = np.interp(target, [losses[after], losses[before]],
                           np.log([tokens[after], tokens[before]]))
    return math.exp(log_tokens)
