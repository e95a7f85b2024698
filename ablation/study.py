"""A study as it lies on disk: the plan, one record per arm and seed, the probes; what is read off.

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
"""Nats below the bigrams' loss from which on an encoding counts as used."""
# Losses by the length of the context: (label behind the arm, table of the record, which rows).
BY_CONTEXT = (("", "context", {"mode": "sliding"}), (", YaRN", "rope_scaling", {"scaling": "yarn"}))


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
        """Raises UserError for what is missing, damaged, or not comparable."""
        path = Path(path)
        if not (path / "plan.json").is_file():
            raise UserError(f"{path} is not a study: it has no plan.json; make one with ablate.py")
        plan = read_plan(path)
        records = _keyed(path / "results", ("arm", "seed"))
        for arm, seed in records:
            if arm not in plan["arms"] or seed not in plan["seeds"]:
                raise UserError(
                    f"{path / 'results'} has a run of arm {arm!r} and seed {seed}, and plan.json "
                    f"has arms {', '.join(plan['arms'])} and seeds "
                    f"{', '.join(map(str, plan['seeds']))}: move it to a study of its own"
                )
        probes = _keyed(path / "probes", ("probe", "arm", "seed"))
        study = cls(path, plan, records, probes)
        study._check()
        return study

    def _check(self) -> None:
        """UserError for records that do not belong into one table.

        Initial values are compared where arms have equal shapes, and embeddings where they have
        one scale: an arm may be another model, and an encoding may ask for larger embeddings.
        """
        for key, same, why in (  # what is compared, among the records that have the same of what
            ("data_sha256", (), "losses on different texts do not compare"),
            ("tokenizer_sha256", (), "losses of different tokens do not compare"),
            ("lr", ("arm",), "an arm has one learning rate"),
            ("init_sha256", ("seed", "init_kind"),
             "arms of one seed start from the same values, or they differ in more than the arm"),
            ("embeddings_sha256", ("seed", "embeddings_kind"),
             "arms of one seed start from the same embeddings, or they differ in more than the "
             "arm"),
            ("batches_sha256", ("seed",),
             "arms of one seed see the same batches, or they differ in more than the arm"),
        ):
            holders: dict[Any, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
            for (arm, seed), record in self.records.items():
                group = tuple(record[name] for name in same)
                holders[group][record[key]].append(f"{arm}-s{seed}")
            for values in holders.values():
                if len(values) > 1:
                    groups = "; ".join(f"{str(value)[:12]} in {', '.join(names)}"
                                       for value, names in values.items())
                    raise UserError(f"{self.path}: {key} differs ({groups}): {why}; remove or "
                                    "repeat a run")

    # --- what was planned ---

    @property
    def seq_len(self) -> int:
        """T, the length of training rows in tokens."""
        return self.plan["seq_len"]

    @property
    def horizons(self) -> list[int]:
        """Training tokens of the runs of each arm and seed, in ascending order."""
        return [steps * self.plan["step_tokens"] for steps in self.plan["steps"]["horizons"]]

    @property
    def baseline(self) -> str:
        return self.plan["baseline"]

    @property
    def bigram(self) -> float:
        """The loss of bigrams on the validation split."""
        return self.plan["ngrams"][1]

    @property
    def arms(self) -> list[str]:
        """With at least one run, as planned."""
        return [arm for arm in self.plan["arms"] if self.runs(arm)]

    @property
    def others(self) -> list[str]:
        """The arms that have a difference from the baseline."""
        return [arm for arm in self.arms if arm != self.baseline]

    @property
    def planned_others(self) -> list[str]:
        """The arms that are to have one; the first is the headline's."""
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
        """Standard error of that mean difference over stretches of the validation text: what
        another text of this kind would change."""
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
        return [minus(curve, base[seed])
                for seed, curve in self.curves(arm, "loss").items() if seed in base]

    def tokens_until_used(self, arm: str) -> dict[int, float]:
        """By seed the training tokens at which the loss along the constant rate first is USED nats
        below the bigrams'; inf: never."""
        return {seed: stats.tokens_to_target(curve, self.bigram - USED)
                for seed, curve in self.curves(arm, "loss").items()}


def rows(record: Record, table: str, **which: Any) -> list[Record]:
    """Those of a table of a record that have the values `which`."""
    return [row for row in record[table] or [] if which.items() <= row.items()]


def cell(table: str, column: str, **which: Any) -> Measure:
    """What stands in a column of the first of these `rows`."""
    return lambda record: next((row[column] for row in rows(record, table, **which)), None)


def at_horizon(tokens: int, key: str) -> Measure:
    """The measure `key` of the run of so many tokens."""
    return cell("horizons", key, tokens=tokens)


def defined(points: Iterable[tuple[K, float | None]]) -> dict[K, float]:
    """Those of the points (x, y) that have a y."""
    return {x: y for x, y in points if y is not None}


def minus(a: Curve, b: Curve) -> Curve:
    """The difference of two curves at the x that both have."""
    return {x: y - b[x] for x, y in a.items() if x in b}


def aligned(curves: Iterable[Mapping[K, float]]) -> dict[K, list[float]]:
    """The y of all curves that have a point, at each x that all of these have."""
    drawn = [curve for curve in curves if curve]
    shared = [x for x in drawn[0] if all(x in curve for curve in drawn)] if drawn else []
    return {x: [curve[x] for curve in drawn] for x in shared}


def _keyed(folder: Path, keys: tuple[str, ...]) -> dict[Any, Record]:
    """The records of a folder by these values of theirs."""
    records = {}
    for file in sorted(folder.glob("[!.]*.json")):
        record = read_sealed(file, "remove it and run ablate.py again")
        key = tuple(record[name] for name in keys)
        if key in records:
            raise UserError(f"{file} is a second record of {'-'.join(map(str, key))}: remove one")
        records[key] = record
    return records
