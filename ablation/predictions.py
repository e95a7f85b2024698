"""H1-H11: what we expect, written down before the headline runs and never changed after them.

Each prediction is words and one or more checks of a number against a range. It holds when all of
its checks hold, and is not measured when a number is missing and no other check failed. Δ is in
nats per token, negative where the arm named first is the better one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ablation import stats
from ablation.study import Study, curve, past_the_end, scaled, shifted, with_context

Verdict = Literal["held", "not held", "not measured"]


@dataclass(frozen=True)
class Check:
    what: str
    measure: Callable[[Study], float | None]
    low: float = -math.inf
    high: float = math.inf

    def verdict(self, value: float | None) -> Verdict:
        if value is None:
            return "not measured"
        return "held" if self.low <= value <= self.high else "not held"


@dataclass(frozen=True)
class Prediction:
    name: str
    subject: str
    cpu: str
    gpu: str
    """The prediction in words, for each tier."""
    checks: dict[str, list[Check]]
    """By tier; none where the tier predicts nothing."""

    def expected(self, tier: str) -> str:
        return self.gpu if tier.startswith("gpu") else self.cpu

    def outcome(self, study: Study) -> tuple[Verdict, list[tuple[str, float | None, Verdict]]]:
        checks = self.checks["gpu" if study.tier.startswith("gpu") else "cpu"]
        numbers = [(check, check.measure(study)) for check in checks]
        rows = [(check.what, value, check.verdict(value)) for check, value in numbers]
        verdicts = {verdict for *_, verdict in rows}
        if "not held" in verdicts:
            return "not held", rows
        return ("held" if verdicts == {"held"} else "not measured"), rows


def difference(arm: str, baseline: str) -> Callable[[Study], float | None]:
    return lambda study: study.paired(arm, baseline).mean


def upper_end(arm: str, baseline: str) -> Callable[[Study], float | None]:
    def measure(study: Study) -> float | None:
        interval = study.paired(arm, baseline).interval
        return interval.high if interval else None

    return measure


def change_of_difference(arm: str, baseline: str) -> Callable[[Study], float | None]:
    """|mean difference| on the validation curve at the end minus that at half the tokens."""

    def measure(study: Study) -> float | None:
        at = np.array([study.tokens / 2, study.tokens])
        changes = []
        for seed in set(study.seeds(arm)) & set(study.seeds(baseline)):
            a, b = (np.interp(at, *curve(study.of(name)[seed])) for name in (arm, baseline))
            changes.append(a - b)
        if not changes:
            return None
        half, end = np.abs(np.mean(changes, axis=0))
        return float(end - half)

    return measure


def beyond(arm: str) -> Callable[[Study], float | None]:
    return lambda study: study.mean(arm, past_the_end)


def shift_by_length(arm: str) -> Callable[[Study], float | None]:
    return lambda study: study.mean(arm, lambda record: shifted(record, record["seq_len"]))


def excess(arm: str, context: str) -> Callable[[Study], float | None]:
    def measure(study: Study) -> float | None:
        records = study.probe("P1", arm).values()
        values = [(record.get("excess") or {}).get(context) for record in records]
        return stats.mean([value for value in values if value is not None])

    return measure


def time_ratio(arm: str, baseline: str) -> Callable[[Study], float | None]:
    """Median over seeds of tokens to the baseline's final loss / all tokens; inf: never reached."""

    def measure(study: Study) -> float | None:
        needed = list(study.tokens_to_target(arm, baseline).values())
        return float(np.median(needed)) / study.tokens if needed else None

    return measure


def scaling(name: str, lengths: int) -> Callable[[Study], float | None]:
    return lambda study: study.mean("rope", lambda r: scaled(r, name, lengths * r["seq_len"]))


def raw_degradation(study: Study) -> float | None:
    """At 4T, against the same targets seen through a window of T that slides."""
    at_length = study.mean("rope", lambda r: with_context(r, r["seq_len"], "sliding"))
    return minus(scaling("raw", 4)(study), at_length)


def best_scaling_minus_raw(study: Study) -> float | None:
    """At 4T; undefined where raw RoPE degrades by less than 0.1, as the prediction is silent."""
    degradation = raw_degradation(study)
    if degradation is None or degradation < 0.1:
        return None
    tuned = [scaling(name, 4)(study) for name in ("ntk", "yarn")]
    return None if None in tuned else minus(min(tuned), scaling("raw", 4)(study))


def linear_minus_worst_other(study: Study) -> float | None:
    """At 2T, the shortest context at which the scalings are measured."""
    others = [scaling(name, 2)(study) for name in ("ntk", "dynamic", "yarn", "llama3")]
    known = [value for value in others if value is not None]
    return minus(scaling("linear", 2)(study), max(known)) if known else None


def minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def gap(
    a: Callable[[Study], float | None], b: Callable[[Study], float | None]
) -> Callable[[Study], float | None]:
    return lambda study: minus(a(study), b(study))


def ratio(
    a: Callable[[Study], float | None], b: Callable[[Study], float | None]
) -> Callable[[Study], float | None]:
    def measure(study: Study) -> float | None:
        top, bottom = a(study), b(study)
        return None if top is None or not bottom else top / bottom

    return measure


SHIFT = [
    Check("sin, ≥ 0.10", shift_by_length("sin"), low=0.10),
    Check("rope, |Δ| ≤ 1e-4", shift_by_length("rope"), low=-1e-4, high=1e-4),
]
SCALINGS = [
    Check(
        "best of NTK and YaRN minus raw at 4T, ≤ 0 (not asked where raw degrades by < 0.1)",
        best_scaling_minus_raw,
        high=0.0,
    ),
    Check("linear minus the worst other scaling at 2T, ≥ 0", linear_minus_worst_other, low=0.0),
]

PREDICTIONS = [
    Prediction(
        "H1",
        "rope − sin at the training length",
        cpu="< 0, interval excludes 0, −0.02 … −0.30 (if |Δ| < 0.01: “no difference”)",
        gpu="−0.00 … −0.05",
        checks={
            "cpu": [
                Check("mean, −0.30 … −0.02", difference("rope", "sin"), -0.30, -0.02),
                Check("upper end of the 95 % interval, ≤ 0", upper_end("rope", "sin"), high=0.0),
            ],
            "gpu": [Check("mean, −0.05 … 0", difference("rope", "sin"), -0.05, 0.0)],
        },
    ),
    Prediction(
        "H2",
        "rope − learned at the training length",
        cpu="−0.02 … −0.30",
        gpu="−0.03 … −0.15",
        checks={
            "cpu": [Check("mean, −0.30 … −0.02", difference("rope", "learned"), -0.30, -0.02)],
            "gpu": [Check("mean, −0.15 … −0.03", difference("rope", "learned"), -0.15, -0.03)],
        },
    ),
    Prediction(
        "H3",
        "nope − rope at the training length",
        cpu="≥ +0.03 (up to +0.4)",
        gpu="+0.02 … +0.17",
        checks={
            "cpu": [Check("mean, 0.03 … 0.40", difference("nope", "rope"), 0.03, 0.40)],
            "gpu": [Check("mean, 0.02 … 0.17", difference("nope", "rope"), 0.02, 0.17)],
        },
    ),
    Prediction(
        "H4",
        "alibi − rope at the training length",
        cpu="|Δ| ≤ 0.05, either sign",
        gpu="|Δ| ≤ 0.05",
        checks=dict.fromkeys(
            ("cpu", "gpu"),
            [Check("mean, −0.05 … 0.05", difference("alibi", "rope"), -0.05, 0.05)],
        ),
    ),
    Prediction(
        "H5",
        "sin_naive − sin at the training length",
        cpu="≥ +0.10 at 1M tokens; shrinks with tokens",
        gpu="≥ +0.02",
        checks={
            "cpu": [
                Check("mean, ≥ 0.10", difference("sin_naive", "sin"), low=0.10),
                Check(
                    "|Δ| at the end minus at half the tokens, ≤ 0",
                    change_of_difference("sin_naive", "sin"),
                    high=0.0,
                ),
            ],
            "gpu": [Check("mean, ≥ 0.02", difference("sin_naive", "sin"), low=0.02)],
        },
    ),
    Prediction(
        "H6",
        "loss at positions (T, 2T] minus at ≤ T, full context",
        cpu="sin ≥ +0.30; (sin − rope) ≥ +0.20; alibi ≤ +0.02",
        gpu="sin ≥ +0.7; rope +0.05 … +0.5; alibi ≤ 0",
        checks={
            "cpu": [
                Check("sin, ≥ 0.30", beyond("sin"), low=0.30),
                Check("sin − rope, ≥ 0.20", gap(beyond("sin"), beyond("rope")), low=0.20),
                Check("alibi, ≤ 0.02", beyond("alibi"), high=0.02),
            ],
            "gpu": [
                Check("sin, ≥ 0.70", beyond("sin"), low=0.70),
                Check("rope, 0.05 … 0.50", beyond("rope"), 0.05, 0.50),
                Check("alibi, ≤ 0", beyond("alibi"), high=0.0),
            ],
        },
    ),
    Prediction(
        "H7",
        "all positions shifted by T: change of the loss",
        cpu="sin ≥ +0.10; rope ≤ 1e-4",
        gpu="sin ≥ +0.10; rope ≤ 1e-4",
        checks={"cpu": SHIFT, "gpu": SHIFT},
    ),
    Prediction(
        "H8",
        "P1: loss above the entropy floor, one layer",
        cpu="rope ≤ 0.02, nope ≥ 0.3; at 4T rope ≤ 0.1 and ≤ ½ sin",
        gpu="–",
        checks={
            "cpu": [
                Check("rope at T, ≤ 0.02", excess("rope", "T"), high=0.02),
                Check("nope at T, ≥ 0.30", excess("nope", "T"), low=0.30),
                Check("rope at 4T, ≤ 0.10", excess("rope", "4T"), high=0.10),
                Check(
                    "rope / sin at 4T, ≤ 0.5",
                    ratio(excess("rope", "4T"), excess("sin", "4T")),
                    high=0.5,
                ),
            ],
            "gpu": [],
        },
    ),
    Prediction(
        "H9",
        "tokens to target, rope / sin",
        cpu="≤ 0.90",
        gpu="0.7–1.0",
        checks={
            "cpu": [Check("median over seeds, ≤ 0.90", time_ratio("rope", "sin"), high=0.90)],
            "gpu": [Check("median over seeds, 0.7 … 1.0", time_ratio("rope", "sin"), 0.7, 1.0)],
        },
    ),
    Prediction(
        "H10",
        "RoPE scaling past the training length, without tuning",
        cpu="best of {NTK, YaRN} ≤ raw at 4T when raw degrades ≥ 0.1; PI worst at short range",
        gpu="best of {NTK, YaRN} ≤ raw at 4T when raw degrades ≥ 0.1; PI worst at short range",
        checks={"cpu": SCALINGS, "gpu": SCALINGS},
    ),
    Prediction(
        "H11",
        "copying past the trained length (P4)",
        cpu="rope and sin both < 0.2 at 1.25×",
        gpu="–",
        checks={
            "cpu": [Check("P4 is not among the probes of this study", lambda study: None)],
            "gpu": [],
        },
    ),
]
