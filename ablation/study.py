"""A study on disk: its plan, its records, and the values that the report uses.

Loading refuses runs that were not measured on the same text, and arms that differ in more than
their overlay. Losses are in nats per token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ablation import stats
from ablation.plan import Overlay, Plan, read_plan
from ablation.record import ContextLoss, End, Record
from errors import UserError
from files import read_sealed

USED = 0.3
"""An encoding counts as used once the loss is this many nats below the bigrams'."""
ONE_CHANGE = "arms of one seed start from the same values and see the same batches"
# (key, fields, why): records with the same values of these fields have to agree in the key. Initial
# values are compared between arms of equal shapes, and embeddings between those of one scale.
AGREEMENTS = (
    ("data_sha256", (), "losses on different texts do not compare"),
    ("tokenizer_sha256", (), "losses of different tokens do not compare"),
    ("lr", ("arm",), "an arm has one learning rate"),
    ("init_sha256", ("seed", "init_kind"), ONE_CHANGE),
    ("embeddings_sha256", ("seed", "embeddings_kind"), ONE_CHANGE),
    ("batches_sha256", ("seed",), ONE_CHANGE),
)


@dataclass(frozen=True)
class Study:
    path: Path
    plan: Plan
    records: dict[tuple[str, int], Record]
    """By (arm, seed)."""

    @classmethod
    def load(cls, path: Path) -> "Study":
        """Return a study with those of its planned records that are there.

        Raises UserError for what is missing, damaged, or not comparable.
        """
        plan = read_plan(path)
        records = {}
        for arm in plan.arms:
            for seed in plan.seeds:
                file = path / "results" / f"{arm}-s{seed}.json"
                if file.exists():
                    records[arm, seed] = read_record(file, arm, seed)
        return cls(path, plan, records)

    def __post_init__(self) -> None:
        """Raise UserError for records that do not belong into one table."""
        for key, names, why in AGREEMENTS:
            first: dict[Any, tuple[str, Record]] = {}
            for (arm, seed), record in self.records.items():
                name = f"{arm}-s{seed}"
                group = tuple(getattr(record, field) for field in names)
                other, example = first.setdefault(group, (name, record))
                if getattr(record, key) != getattr(example, key):
                    raise UserError(f"{self.path}: {key} differs between {other} and {name}: "
                                    f"{why}; remove or repeat a run")

    # --- what was planned ---

    @property
    def baseline(self) -> str:
        return self.plan.baseline

    @property
    def horizons(self) -> list[int]:
        """Training tokens of the runs of each arm and seed, in ascending order."""
        return [steps * self.plan.step_tokens for steps in self.plan.steps.horizons]

    @property
    def others(self) -> list[str]:
        """The arms except the baseline."""
        return [arm for arm in self.plan.arms if arm != self.baseline]

    # --- what was measured ---

    def records_of(self, arm: str) -> dict[int, Record]:
        """The records of an arm by seed."""
        return {seed: record for (name, seed), record in sorted(self.records.items())
                if name == arm}

    def trained_overlay(self, arm: str) -> Overlay:
        """Return the options of an arm as its runs had them.

        An older version chose some of them by tuning runs: its records have these, but not its
        plan.
        """
        overlay = dict(self.plan.arms[arm])
        planned = self.plan.config[arm]["model"]
        for record in self.records_of(arm).values():
            for name, value in record.config["model"].items():
                if value != planned.get(name, value):
                    overlay[f"model.{name}"] = value
        return overlay

    def code_of_encoding(self, arm: str) -> dict[str, list[int]]:
        """The hashes of the code of an arm's encoding, each with the seeds that were trained by it.

        Records of older versions do not have one, and are left out.
        """
        seeds: dict[str, list[int]] = {}
        for seed, record in self.records_of(arm).items():
            if record.encoding_sha256:
                seeds.setdefault(record.encoding_sha256, []).append(seed)
        return seeds

    def ends(self, arm: str, tokens: int) -> dict[int, End]:
        """By seed, the end of the run of so many tokens."""
        ends = {}
        for seed, record in self.records_of(arm).items():
            for end in record.horizons:
                if end.tokens == tokens:
                    ends[seed] = end
        return ends

    def contexts(self, arm: str, context: int, mode: str) -> dict[int, ContextLoss]:
        """By seed, what was measured in windows of `context` tokens that move as `mode` says.

        Without the seeds for which it is undefined.
        """
        rows = {}
        for seed, record in self.records_of(arm).items():
            for row in record.context:
                if (row.context, row.mode) == (context, mode) and row.loss is not None:
                    rows[seed] = row
        return rows

    def losses(self, arm: str, tokens: int) -> dict[int, float]:
        """By seed, the loss of the run of so many tokens."""
        return {seed: end.loss for seed, end in self.ends(arm, tokens).items()}

    def paired(self, arm: str, tokens: int) -> stats.Paired | None:
        """Difference of the loss of the runs of so many tokens, arm - baseline; None where no seed
        has both."""
        return stats.paired(self.losses(arm, tokens), self.losses(self.baseline, tokens))

    def p_values(self) -> dict[tuple[str, int], float]:
        """By arm and tokens, the p-value of each difference that `paired` gives with an
        interval."""
        p_values = {}
        for arm in self.others:
            for tokens in self.horizons:
                result = self.paired(arm, tokens)
                if result is not None and result.p is not None:
                    p_values[arm, tokens] = result.p
        return p_values

    def text_error(self, arm: str, tokens: int) -> float:
        """Standard error, over stretches of the validation text, of the mean difference from the
        baseline: what another text of this kind would change."""
        ends = self.ends(arm, tokens)
        base = self.ends(self.baseline, tokens)
        differences = [np.subtract(ends[seed].stretches, base[seed].stretches)
                       for seed in ends.keys() & base]
        by_stretch = np.mean(differences, axis=0)
        return by_stretch.std(ddof=1) / len(by_stretch) ** 0.5

    def curves(self, arm: str, key: str) -> dict[int, dict[int, float]]:
        """By seed, a measure during the longest run, before its cooldown, by training tokens.

        `key` is its field of Point (ablation/record.py). Points without it are left out.
        """
        curves = {}
        for seed, record in self.records_of(arm).items():
            values = {point.tokens: getattr(point, key) for point in record.trajectory}
            curves[seed] = defined(values)
        return curves

    def gaps(self, arm: str) -> list[dict[int, float]]:
        """Of each seed that both have, the difference from the baseline along the constant rate."""
        base = self.curves(self.baseline, "loss")
        gaps = []
        for seed, curve in self.curves(arm, "loss").items():
            if seed in base:
                gaps.append({tokens: loss - base[seed][tokens] for tokens, loss in curve.items()})
        return gaps

    def tokens_until_used(self, arm: str) -> dict[int, float]:
        """By seed the training tokens at which the loss along the constant rate first is USED nats
        below the bigrams'; inf: never."""
        target = self.plan.ngrams[1] - USED
        return {seed: stats.tokens_to_target(curve, target)
                for seed, curve in self.curves(arm, "loss").items()}


def read_record(file: Path, arm: str, seed: int) -> Record:
    """Return the record in a file. UserError if it is damaged, or of another arm or seed."""
    # The runs have lost what a record is made from: ablation/runner.py removes the checkpoints.
    runs = file.parent.parent / f"{arm}-s{seed}-*"
    advice = f"remove it and the folders {runs}, if there are any, and run ablate.py again"
    try:
        record = msgspec.convert(read_sealed(file, advice), Record)
    except msgspec.ValidationError as error:
        raise UserError(f"{file} is not a record of a run ({error}): {advice}") from None
    if (record.arm, record.seed) != (arm, seed):
        raise UserError(f"{file} is the record of {record.arm}, seed {record.seed}: {advice}")
    return record


def defined(values: Mapping[int, float | None]) -> dict[int, float]:
    """Return the values that are not None."""
    return {key: value for key, value in values.items() if value is not None}
