"""What a difference between two arms is worth. The replication unit is the seed.

Arms share every batch of a seed, and every initial value where they have the same shapes, so
differences are taken seed by seed. An interval needs two seeds; with one it is None.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Paired:
    """Arm minus baseline, seed by seed."""

    n: int
    """Seeds that both have."""
    mean: float
    interval: tuple[float, float] | None
    """Its ends: 95 %, Student's t; None with one seed."""


def paired(arm: Mapping[int, float], baseline: Mapping[int, float]) -> Paired | None:
    """Compare two arms given as {seed: value}, over the seeds that both have; None without any."""
    differences = [arm[seed] - baseline[seed] for seed in arm.keys() & baseline]
    n = len(differences)
    if n == 0:
        return None
    if n == 1:
        return Paired(n, differences[0], None)
    from scipy.special import stdtrit  # slow to import, and only a finished study needs it

    mean = statistics.fmean(differences)
    half = float(stdtrit(n - 1, 0.975)) * statistics.stdev(differences) / n**0.5
    return Paired(n, mean, (mean - half, mean + half))


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
