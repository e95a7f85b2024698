"""What was predicted, written down before the runs of the studies and not changed after them.

Each prediction is one number against one range. Differences of losses are in nats per token,
negative where the arm named first is the better one.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from ablation import stats
from ablation.plan import TIERS
from ablation.stats import Paired
from ablation.study import Study, at_horizon


def times_the_tokens(study: Study, arm: str, other: str) -> float | None:
    """Median over seeds of the tokens until `arm` is used / those of `other`; None where no seed
    has both, NaN where all that is known are bounds of it. A seed in which neither ever is says
    nothing."""
    a, b = (study.tokens_until_used(name) for name in (arm, other))
    ends = [{seed: max(curve, default=1) for seed, curve in study.curves(name, "loss").items()}
            for name in (arm, other)]
    bounds = [(min(a[s], ends[0][s]) / b[s], a[s] / min(b[s], ends[1][s]))
              for s in a.keys() & b if min(a[s], b[s]) < math.inf]
    if not bounds:
        return None
    low, high = map(statistics.median, zip(*bounds, strict=True))
    return low if low == high else math.nan


def gaps(study: Study, arm: str, baseline: str) -> list[float]:
    """The mean difference at every horizon; empty where one of them is not measured."""
    results = [study.paired(arm, tokens, baseline) for tokens in study.horizons]
    return [result.mean for result in results if result] if all(results) else []


def share_of_peak(study: Study, arm: str, baseline: str) -> float | None:
    """|difference| at the last horizon / the largest at any."""
    sizes = [abs(gap) for gap in gaps(study, arm, baseline)]
    return sizes[-1] / max(sizes) if any(sizes) else None


def at_the_end(study: Study, arm: str, baseline: str) -> Paired | None:
    return study.paired(arm, study.horizons[-1], baseline)


def shift_against_gap(study: Study, arm: str, other: str) -> float | None:
    """Over the horizons, Spearman's correlation of what a shift by T costs `arm` with the size of
    its difference from `other`, both over the seeds that have both; 0 where one of the two is the
    same at all of them."""
    shared = study.of(arm).keys() & study.of(other)
    by_seed = [study.values(arm, at_horizon(tokens, "shift")) for tokens in study.horizons]
    costs = [stats.mean([of[seed] for seed in shared & of.keys()]) for of in by_seed]
    sizes = [abs(gap) for gap in gaps(study, other, arm)]
    if None in costs or not len(costs) == len(sizes) > 2:
        return None
    if min(len({*costs}), len({*sizes})) == 1:
        return 0.0
    from scipy.stats import spearmanr

    return float(spearmanr(costs, sizes).statistic)


@dataclass(frozen=True)
class Prediction:
    what: str
    low: float
    high: float
    measure: Callable[..., float | Paired | None]
    arms: tuple[str, ...]


# Written on 2026-11-22, before the first of the runs that decide them; each about the studies that
# have these arms.
PREDICTIONS = {TIERS["full"].arms: [
    Prediction("tokens until sin is used / until rope is, median over seeds: at least 2",
               2, math.inf, times_the_tokens, ("sin", "rope")),
    Prediction("|rope − sin| at the last length / the largest at any: at most 0.5",
               0, 0.5, share_of_peak, ("rope", "sin")),
    Prediction("nope − sin at the last length: at least +0.05",
               0.05, math.inf, at_the_end, ("nope", "sin")),
    Prediction("over the lengths, rank correlation of what a shift by T costs sin with "
               "|rope − sin|: below 0", -1, -1e-9, shift_against_gap, ("sin", "rope")),
    Prediction("rope − alibi at the last length: within ±0.05",
               -0.05, 0.05, at_the_end, ("rope", "alibi")),
    Prediction("learned − sin at the last length: at least 0",
               0, math.inf, at_the_end, ("learned", "sin")),
], ("rope_b1k", "rope_b500k"): [
    Prediction("base 1,000 − base 500,000 at the last length: within ±0.02",
               -0.02, 0.02, at_the_end, ("rope_b1k", "rope_b500k")),
]}


def outcomes(study: Study) -> list[tuple[Prediction, float | Paired | None, str]]:
    """The predictions about `study`, what was measured, and whether its number is in the range:
    "held", "not held" or "not measured", with the seeds that it rests on until these are all that
    are planned."""
    found: list[tuple[Prediction, float | Paired | None, str]] = []
    about = (those for arms, those in PREDICTIONS.items() if {*arms} <= study.plan["arms"].keys())
    for prediction in chain.from_iterable(about):
        measured = prediction.measure(study, *prediction.arms)
        value = measured.mean if isinstance(measured, Paired) else measured
        if value is None:
            found.append((prediction, None, "not measured"))
            continue
        verdict = "held" if prediction.low <= value <= prediction.high else "not held"
        verdict = "not decided" if math.isnan(value) else verdict
        first, second = (study.of(arm).keys() for arm in prediction.arms)
        planned = len(set.intersection(*(set(study.awaited(arm)) for arm in prediction.arms)))
        if (seeds := len(first & second)) < planned:
            verdict += f" so far, {seeds} of {planned} seeds"
        found.append((prediction, measured, verdict))
    return found
