"""A study on disk: its plan, its records and probes, and the values that the report uses.

Loading refuses runs that were not measured on the same text, and arms that differ in more than
their overlay. Losses are in nats per token.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ablation import stats
from ablation.plan import read_plan
from errors import UserError
from files import read_sealed

K = TypeVar("K")
Record = dict[str, Any]
Curve = dict[float, float]
"""y by x, in ascending order."""
Measure = Callable[[Record], Any]
"""A number of a record; None where it is undefined."""

USED = 0.3
"""An encoding counts as used once the loss is this many nats below the bigrams'."""
# Losses by the length of the context: (label behind the arm, table of the record, which rows).
BY_CONTEXT = (("", "context", {"mode": "sliding"}), (", YaRN", "rope_scaling", {"scaling": "yarn"}))
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
    probes: dict[tuple[str, str, int], Record]
    """By (probe, arm, seed)."""

    @classmethod
    def load(cls, path: str | Path) -> "Study":
        """Return a study with those of its planned records that are there.

        Raises UserError for what is missing, damaged, or not comparable.
        """
        path = Path(path)
        if not (path / "plan.json").is_file():
            raise UserError(f"{path} is not a study: it has no plan.json; make one with ablate.py")
        plan, advice = read_plan(path), "remove it and run ablate.py again"
        records = {(arm, seed): read_sealed(file, advice)
                   for arm in plan["arms"] for seed in plan["seeds"]
                   if (file := path / "results" / f"{arm}-s{seed}.json").exists()}
        probes = {(probe, arm, seed): read_sealed(file, advice)
                  for probe, parts in plan["probes"].items()
                  for arm in parts["arms"] for seed in parts["seeds"]
                  if (file := path / "probes" / f"{probe}-{arm}-s{seed}.json").exists()}
        study = cls(path, plan, records, probes)
        study._check()
        return study

    def _check(self) -> None:
        """Raise UserError for records that do not belong into one table."""
        for key, names, why in AGREEMENTS:
            groups: dict[Any, dict[Any, list[str]]] = defaultdict(lambda: defaultdict(list))
            for (arm, seed), record in self.records.items():
                group = groups[tuple(record[name] for name in names)]
                group[record[key]].append(f"{arm}-s{seed}")
            for group in groups.values():
                if len(group) > 1:
                    values = "; ".join(f"{str(value)[:12]} in {', '.join(runs)}"
                                       for value, runs in group.items())
                    raise UserError(f"{self.path}: {key} differs ({values}): {why}; remove or "
                                    "repeat a run")

    # --- what was planned ---

    @property
    def seq_len(self) -> int:
        """T, the length of training rows in tokens."""
        return self.plan["seq_len"]

    @property
    def baseline(self) -> str:
        return self.plan["baseline"]

    @property
    def horizons(self) -> list[int]:
        """Training tokens of the runs of each arm and seed, in ascending order."""
        return [steps * self.plan["step_tokens"] for steps in self.plan["steps"]["horizons"]]

    @property
    def arms(self) -> list[str]:
        """The arms with at least one record, in the order of the plan."""
        return [arm for arm in self.plan["arms"] if self.runs(arm)]

    @property
    def others(self) -> list[str]:
        """The arms with records, except the baseline."""
        return [arm for arm in self.arms if arm != self.baseline]

    @property
    def planned_others(self) -> list[str]:
        """The planned arms except the baseline; p of the first is not corrected."""
        return [arm for arm in self.plan["arms"] if arm != self.baseline]

    # --- what was measured ---

    def runs(self, arm: str) -> dict[int, Record]:
        """The records of an arm by seed."""
        return {seed: record for (name, seed), record in sorted(self.records.items())
                if name == arm}

    def probe(self, probe: str, arm: str) -> dict[int, Record]:
        """The records of a probe and an arm by seed."""
        return {seed: r for (p, a, seed), r in self.probes.items() if (p, a) == (probe, arm)}

    def values(self, arm: str, measure: Measure) -> dict[int, float]:
        """A measure by seed, without the seeds for which it is undefined."""
        measured = {seed: measure(record) for seed, record in self.runs(arm).items()}
        return {seed: value for seed, value in measured.items() if value is not None}

    def mean(self, arm: str, measure: Measure) -> float | None:
        """Over the seeds for which the measure is defined."""
        return stats.mean(list(self.values(arm, measure).values()))

    def paired(self, arm: str, tokens: int, baseline: str | None = None) -> stats.Paired | None:
        """Difference of the loss of the runs of so many tokens, arm - baseline; None where no seed
        has both."""
        loss = at_horizon(tokens, "loss")
        return stats.paired(self.values(arm, loss), self.values(baseline or self.baseline, loss))

    def text_error(self, arm: str, tokens: int) -> float | None:
        """Standard error, over stretches of the validation text, of the mean difference from the
        baseline: what another text of this kind would change."""
        losses, baseline = (self.values(name, at_horizon(tokens, "stretches"))
                            for name in (arm, self.baseline))
        differences = [np.subtract(losses[seed], baseline[seed])
                       for seed in losses.keys() & baseline]
        by_stretch = np.mean(differences, axis=0).tolist()
        spread = stats.sd(by_stretch)
        return spread and spread / len(by_stretch) ** 0.5

    def curves(self, arm: str, key: str) -> dict[int, Curve]:
        """By seed, the measure `key` against training tokens along the constant rate."""
        return {seed: defined((point["tokens"], point[key]) for point in record["trajectory"])
                for seed, record in self.runs(arm).items()}

    def gaps(self, arm: str) -> list[Curve]:
        """Of each seed that both have, the difference from the baseline along the constant rate."""
        base = self.curves(self.baseline, "loss")
        return [{tokens: loss - base[seed][tokens] for tokens, loss in curve.items()
                 if tokens in base[seed]}
                for seed, curve in self.curves(arm, "loss").items() if seed in base]

    def tokens_until_used(self, arm: str) -> dict[int, float]:
        """By seed the training tokens at which the loss along the constant rate first is USED nats
        below the bigrams'; inf: never."""
        return {seed: stats.tokens_to_target(curve, self.plan["ngrams"][1] - USED)
                for seed, curve in self.curves(arm, "loss").items()}


def rows(record: Record, table: str, **which: Any) -> list[Record]:
    """The rows of a record's table that match `which`."""
    return [row for row in record[table] or [] if which.items() <= row.items()]


def cell(table: str, column: str, **which: Any) -> Measure:
    """A measure: a column of the first matching row."""
    return lambda record: next((row[column] for row in rows(record, table, **which)), None)


def at_horizon(tokens: int, key: str) -> Measure:
    """The measure `key` of the run of so many tokens."""
    return cell("horizons", key, tokens=tokens)


def defined(points: Iterable[tuple[K, float | None]]) -> dict[K, float]:
    """Those of the points (x, y) that have a y."""
    return {x: y for x, y in points if y is not None}


def aligned(curves: Iterable[Mapping[K, float]]) -> dict[K, list[float]]:
    """{x: [y of each curve that is not empty]}, for the x that they all have."""
    drawn = [curve for curve in curves if curve]
    shared = [x for x in drawn[0] if all(x in curve for curve in drawn)] if drawn else []
    return {x: [curve[x] for curve in drawn] for x in shared}
