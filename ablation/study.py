"""A study on disk: its plan, its records, and the values that the report uses.

Loading refuses runs that were not measured on the same text, and arms that differ in more than
their overlay. Losses are in nats per token.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablation import stats
from ablation.plan import read_plan
from errors import UserError
from files import read_sealed

Record = dict[str, Any]

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
    plan: Record
    records: dict[tuple[str, int], Record]
    """By (arm, seed)."""

    @classmethod
    def load(cls, path: Path) -> "Study":
        """Return a study with those of its planned records that are there.

        Raises UserError for what is missing, damaged, or not comparable.
        """
        if not (path / "plan.json").is_file():
            raise UserError(f"{path} is not a study: it has no plan.json; make one with ablate.py")
        plan, advice = read_plan(path), "remove it and run ablate.py again"
        records = {(arm, seed): read_sealed(file, advice)
                   for arm in plan["arms"] for seed in plan["seeds"]
                   if (file := path / "results" / f"{arm}-s{seed}.json").exists()}
        return cls(path, plan, records)

    def __post_init__(self) -> None:
        """Raise UserError for records that do not belong into one table."""
        for key, names, why in AGREEMENTS:
            first: dict[Any, tuple[str, Record]] = {}
            for (arm, seed), record in self.records.items():
                name, group = f"{arm}-s{seed}", tuple(record[field] for field in names)
                other, example = first.setdefault(group, (name, record))
                if record[key] != example[key]:
                    raise UserError(f"{self.path}: {key} differs between {other} and {name}: "
                                    f"{why}; remove or repeat a run")

    # --- what was planned ---

    @property
    def baseline(self) -> str:
        return self.plan["baseline"]

    @property
    def horizons(self) -> list[int]:
        """Training tokens of the runs of each arm and seed, in ascending order."""
        return [steps * self.plan["step_tokens"] for steps in self.plan["steps"]["horizons"]]

    @property
    def others(self) -> list[str]:
        """The arms except the baseline."""
        return [arm for arm in self.plan["arms"] if arm != self.baseline]

    # --- what was measured ---

    def runs(self, arm: str) -> dict[int, Record]:
        """The records of an arm by seed."""
        return {seed: run for (name, seed), run in sorted(self.records.items()) if name == arm}

    def values(self, arm: str, table: str, column: str, **which: Any) -> dict[int, Any]:
        """By seed, a column of the first row of a table that matches `which`; without the seeds for
        which it is undefined."""
        return defined((seed, row[column]) for seed, record in self.runs(arm).items()
                       for row in rows(record, table, **which)[:1])

    def losses(self, arm: str, tokens: int) -> dict[int, float]:
        """By seed, the loss of the run of so many tokens."""
        return self.values(arm, "horizons", "loss", tokens=tokens)

    def paired(self, arm: str, tokens: int) -> stats.Paired | None:
        """Difference of the loss of the runs of so many tokens, arm - baseline; None where no seed
        has both."""
        return stats.paired(self.losses(arm, tokens), self.losses(self.baseline, tokens))

    def text_error(self, arm: str, tokens: int) -> float:
        """Standard error, over stretches of the validation text, of the mean difference from the
        baseline: what another text of this kind would change."""
        losses, baseline = (self.values(name, "horizons", "stretches", tokens=tokens)
                            for name in (arm, self.baseline))
        by_stretch = np.mean([np.subtract(losses[seed], baseline[seed])
                              for seed in losses.keys() & baseline], axis=0)
        return by_stretch.std(ddof=1) / len(by_stretch) ** 0.5

    def curves(self, arm: str, key: str) -> dict[int, dict[float, float]]:
        """By seed, the measure `key` against training tokens along the constant rate."""
        return {seed: defined((point["tokens"], point[key]) for point in record["trajectory"])
                for seed, record in self.runs(arm).items()}

    def gaps(self, arm: str) -> list[dict[float, float]]:
        """Of each seed that both have, the difference from the baseline along the constant rate."""
        base = self.curves(self.baseline, "loss")
        return [{tokens: loss - base[seed][tokens] for tokens, loss in curve.items()}
                for seed, curve in self.curves(arm, "loss").items() if seed in base]

    def tokens_until_used(self, arm: str) -> dict[int, float]:
        """By seed the training tokens at which the loss along the constant rate first is USED nats
        below the bigrams'; inf: never."""
        return {seed: stats.tokens_to_target(curve, self.plan["ngrams"][1] - USED)
                for seed, curve in self.curves(arm, "loss").items()}


def rows(record: Record, table: str, **which: Any) -> list[Record]:
    """The rows of a record's table that match `which`."""
    return [row for row in record[table] or [] if which.items() <= row.items()]


def defined(points: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Those of the points (x, y) that have a y."""
    return {x: y for x, y in points if y is not None}
