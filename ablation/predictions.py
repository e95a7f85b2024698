"""H1-H11: what was predicted, written down before the headline runs and not changed after them.

Each prediction is words for each tier, and checks of a number against a range. It holds when all
of its checks hold, and is not measured when a number is missing and no check failed. Differences
of losses are in nats per token, negative where the arm named first is the better one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablation import stats
from ablation.study import Study, cell, curve, past_the_end


def difference(study: Study, arm: str, baseline: str) -> float | None:
    return study.paired(arm, baseline).mean


def upper_end(study: Study, arm: str, baseline: str) -> float | None:
    interval = study.paired(arm, baseline).interval
    return interval.high if interval else None


def growth(study: Study, arm: str, baseline: str) -> float | None:
    """|mean difference| on the validation curve at the end minus that at half the tokens."""
    at = np.array([study.tokens / 2, study.tokens])
    gaps = []
    for seed in set(study.seeds(arm)) & set(study.seeds(baseline)):
        a, b = (np.interp(at, *curve(study.of(name)[seed])) for name in (arm, baseline))
        gaps.append(a - b)
    if not gaps:
        return None
    half, end = np.abs(np.mean(gaps, axis=0))
    return float(end - half)


def beyond(study: Study, arm: str, other: str | None = None) -> float | None:
    own = study.mean(arm, past_the_end)
    return minus(own, study.mean(other, past_the_end)) if other else own


def shifted(study: Study, arm: str) -> float | None:
    return study.mean(arm, cell("shift", "dloss", delta=study.seq_len))


def excess(study: Study, arm: str, at: str) -> float | None:
    found = [record["excess"][at] for record in study.probe("P1", arm).values()]
    return stats.mean([value for value in found if value is not None])


def excess_ratio(study: Study, arm: str, other: str, at: str) -> float | None:
    top, bottom = excess(study, arm, at), excess(study, other, at)
    return None if top is None or not bottom else top / bottom


def share_to_target(study: Study, arm: str, baseline: str) -> float | None:
    """Median over seeds of tokens to the baseline's final loss / all tokens; inf: never reached."""
    needed = list(study.tokens_to_target(arm, baseline).values())
    return float(np.median(needed)) / study.tokens if needed else None


def scaled(study: Study, scaling: str, lengths: int) -> float | None:
    context = lengths * study.seq_len
    return study.mean("rope", cell("rope_scaling", "loss", scaling=scaling, context=context))


def raw_degradation(study: Study) -> float | None:
    """Of raw RoPE at 4T, against the same targets seen through a window of T that slides."""
    at_length = cell("context", "loss", context=study.seq_len, mode="sliding")
    return minus(scaled(study, "raw", 4), study.mean("rope", at_length))


def best_scaling_minus_raw(study: Study) -> float | None:
    """At 4T; None where raw RoPE degrades by less than 0.1, as the prediction is silent there."""
    degradation = raw_degradation(study)
    if degradation is None or degradation < 0.1:
        return None
    losses = [scaled(study, name, 4) for name in ("ntk", "yarn")]
    known = [loss for loss in losses if loss is not None]
    return minus(min(known), scaled(study, "raw", 4)) if len(known) == 2 else None


def linear_minus_worst_other(study: Study) -> float | None:
    """At 2T, the shortest context at which the scalings are measured."""
    losses = [scaled(study, name, 2) for name in ("ntk", "dynamic", "yarn", "llama3")]
    known = [loss for loss in losses if loss is not None]
    return minus(scaled(study, "linear", 2), max(known)) if known else None


def minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


# name: (what it is about, predicted for the CPU tier, for the GPU tier)
PREDICTIONS = {
    "H1": ("rope − sin at the training length",
           "< 0, interval excludes 0, −0.02 … −0.30 (if |Δ| < 0.01: “no difference”)",
           "−0.00 … −0.05"),
    "H2": ("rope − learned at the training length", "−0.02 … −0.30", "−0.03 … −0.15"),
    "H3": ("nope − rope at the training length", "≥ +0.03 (up to +0.4)", "+0.02 … +0.17"),
    "H4": ("alibi − rope at the training length", "|Δ| ≤ 0.05, either sign", "|Δ| ≤ 0.05"),
    "H5": ("sin_naive − sin at the training length",
           "≥ +0.10 at 1M tokens; shrinks with tokens", "≥ +0.02"),
    "H6": ("loss at positions (T, 2T] minus at ≤ T, full context",
           "sin ≥ +0.30; (sin − rope) ≥ +0.20; alibi ≤ +0.02",
           "sin ≥ +0.7; rope +0.05 … +0.5; alibi ≤ 0"),
    "H7": ("all positions shifted by T: change of the loss",
           "sin ≥ +0.10; rope ≤ 1e-4", "sin ≥ +0.10; rope ≤ 1e-4"),
    "H8": ("P1: loss above the entropy floor, one layer",
           "rope ≤ 0.02, nope ≥ 0.3; at 4T rope ≤ 0.1 and ≤ ½ sin", "–"),
    "H9": ("tokens to target, rope / sin", "≤ 0.90", "0.7–1.0"),
    "H10": ("RoPE scaling past the training length, without tuning",
            "best of {NTK, YaRN} ≤ raw at 4T when raw degrades ≥ 0.1; PI worst at short range",
            "best of {NTK, YaRN} ≤ raw at 4T when raw degrades ≥ 0.1; PI worst at short range"),
    "H11": ("copying past the trained length (P4)", "rope and sin both < 0.2 at 1.25×", "–"),
}

INF = math.inf
# (prediction, tiers, in words, lowest, highest, measure, its arguments after the study)
CHECKS: list[tuple[str, str, str, float, float, Callable[..., float | None], tuple[Any, ...]]] = [
    ("H1", "cpu", "mean, −0.30 … −0.02", -0.30, -0.02, difference, ("rope", "sin")),
    ("H1", "cpu", "upper end of the 95 % interval, ≤ 0", -INF, 0.0, upper_end, ("rope", "sin")),
    ("H1", "gpu", "mean, −0.05 … 0", -0.05, 0.0, difference, ("rope", "sin")),
    ("H2", "cpu", "mean, −0.30 … −0.02", -0.30, -0.02, difference, ("rope", "learned")),
    ("H2", "gpu", "mean, −0.15 … −0.03", -0.15, -0.03, difference, ("rope", "learned")),
    ("H3", "cpu", "mean, 0.03 … 0.40", 0.03, 0.40, difference, ("nope", "rope")),
    ("H3", "gpu", "mean, 0.02 … 0.17", 0.02, 0.17, difference, ("nope", "rope")),
    ("H4", "cpu gpu", "mean, −0.05 … 0.05", -0.05, 0.05, difference, ("alibi", "rope")),
    ("H5", "cpu", "mean, ≥ 0.10", 0.10, INF, difference, ("sin_naive", "sin")),
    ("H5", "cpu", "|Δ| at the end minus at half the tokens, ≤ 0", -INF, 0.0, growth,
     ("sin_naive", "sin")),
    ("H5", "gpu", "mean, ≥ 0.02", 0.02, INF, difference, ("sin_naive", "sin")),
    ("H6", "cpu", "sin, ≥ 0.30", 0.30, INF, beyond, ("sin",)),
    ("H6", "cpu", "sin − rope, ≥ 0.20", 0.20, INF, beyond, ("sin", "rope")),
    ("H6", "cpu", "alibi, ≤ 0.02", -INF, 0.02, beyond, ("alibi",)),
    ("H6", "gpu", "sin, ≥ 0.70", 0.70, INF, beyond, ("sin",)),
    ("H6", "gpu", "rope, 0.05 … 0.50", 0.05, 0.50, beyond, ("rope",)),
    ("H6", "gpu", "alibi, ≤ 0", -INF, 0.0, beyond, ("alibi",)),
    ("H7", "cpu gpu", "sin, ≥ 0.10", 0.10, INF, shifted, ("sin",)),
    ("H7", "cpu gpu", "rope, |Δ| ≤ 1e-4", -1e-4, 1e-4, shifted, ("rope",)),
    ("H8", "cpu", "rope at T, ≤ 0.02", -INF, 0.02, excess, ("rope", "T")),
    ("H8", "cpu", "nope at T, ≥ 0.30", 0.30, INF, excess, ("nope", "T")),
    ("H8", "cpu", "rope at 4T, ≤ 0.10", -INF, 0.10, excess, ("rope", "4T")),
    ("H8", "cpu", "rope / sin at 4T, ≤ 0.5", -INF, 0.5, excess_ratio, ("rope", "sin", "4T")),
    ("H9", "cpu", "median over seeds, ≤ 0.90", -INF, 0.90, share_to_target, ("rope", "sin")),
    ("H9", "gpu", "median over seeds, 0.7 … 1.0", 0.7, 1.0, share_to_target, ("rope", "sin")),
    ("H10", "cpu gpu",
     "best of NTK and YaRN minus raw at 4T, ≤ 0 (not asked where raw degrades by < 0.1)",
     -INF, 0.0, best_scaling_minus_raw, ()),
    ("H10", "cpu gpu", "linear minus the worst other scaling at 2T, ≥ 0", 0.0, INF,
     linear_minus_worst_other, ()),
    ("H11", "cpu", "P4 is not among the probes of this study", -INF, INF, lambda study: None, ()),
]


@dataclass(frozen=True)
class Outcome:
    name: str
    subject: str
    expected: str
    checks: list[tuple[str, float | None, str]]
    """In words, the number, and whether it "held", "not held" or was "not measured"."""
    verdict: str
    """The same for the whole prediction."""


def outcomes(study: Study) -> list[Outcome]:
    """All predictions for the study's tier, with what was measured."""
    tier = "gpu" if study.tier.startswith("gpu") else "cpu"
    found = []
    for name, (subject, cpu, gpu) in PREDICTIONS.items():
        checks = []
        for which, tiers, what, low, high, measure, arguments in CHECKS:
            if which == name and tier in tiers.split():
                value = measure(study, *arguments)
                mark = "not measured"
                if value is not None:
                    mark = "held" if low <= value <= high else "not held"
                checks.append((what, value, mark))
        marks = [mark for *_, mark in checks]
        order = ("not held", "not measured", "held")
        verdict = next((mark for mark in order if mark in marks), "not measured")
        found.append(Outcome(name, subject, gpu if tier == "gpu" else cpu, checks, verdict))
    return found
