"""A study as it lies on disk: the plan, one record per run, the probes; and what is read off them.

Loading refuses runs that were not measured on the same text, and arms of one seed that did not
start from the same values or did not see the same batches. Losses are in nats per token.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation import stats
from errors import UserError
from files import read_json

Record = dict[str, Any]
Curve = tuple[list[float], list[float]]
"""x and y."""
Measure = str | Callable[[Record], float | None]
"""A number of a record: its key, or a function of the record; None where it is undefined."""

SAME_EVERYWHERE = ("data_sha256", "tokenizer_sha256", "seq_len", "tokens")
SAME_IN_A_SEED = ("init_sha256", "batches_sha256")


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
        plan = read_json(path / "plan.json")
        records = _keyed(path / "results", ("arm", "seed"))
        if not records:
            raise UserError(f"{path} has no results yet: run ablate.py until one run is measured")
        for arm, seed in records:
            if arm not in plan["arms"]:
                raise UserError(
                    f"{path / 'results'} has a run of arm {arm!r} (seed {seed}), which plan.json "
                    f"does not have: {', '.join(plan['arms'])}; move it to a study of its own"
                )
        study = cls(path, plan, records, _keyed(path / "probes", ("probe", "arm", "seed")))
        for key in SAME_EVERYWHERE:
            study._must_agree(key, records, "only runs that agree can share a table")
        for seed in study.seeds():
            runs = [run for run in records if run[1] == seed]
            for key in SAME_IN_A_SEED:
                study._must_agree(
                    key, runs, "arms of one seed must share it, or they differ in more than the arm"
                )
        return study

    def _must_agree(self, key: str, runs: Iterable[tuple[str, int]], why: str) -> None:
        holders = defaultdict(list)
        for arm, seed in runs:
            holders[str(self.records[arm, seed][key])].append(f"{arm}-s{seed}")
        if len(holders) > 1:
            groups = "; ".join(f"{short(v)} in {', '.join(names)}" for v, names in holders.items())
            raise UserError(f"{self.path}: {key} differs ({groups}): {why}; remove or repeat a run")

    @property
    def seq_len(self) -> int:
        """T, the length of training rows in tokens."""
        return next(iter(self.records.values()))["seq_len"]

    @property
    def tokens(self) -> int:
        """Training tokens of each run."""
        return next(iter(self.records.values()))["tokens"]

    @property
    def tier(self) -> str:
        return self.plan["tier"]

    @property
    def headline(self) -> tuple[str, str]:
        """The arm that the study is about, and the baseline it is measured against."""
        arm, baseline = self.plan["headline"]
        return arm, baseline

    @property
    def baseline(self) -> str:
        return self.plan["baseline"]

    @property
    def arms(self) -> list[str]:
        """With at least one run; the headline pair first, the others as planned."""
        planned = dict.fromkeys([*self.headline, *self.plan["arms"]])
        return [arm for arm in planned if any(a == arm for a, _ in self.records)]

    @property
    def secondary(self) -> list[str]:
        return [arm for arm in self.arms if arm not in {*self.headline, self.baseline}]

    @property
    def missing(self) -> list[str]:
        """Planned runs without a record."""
        return [
            f"{arm}-s{seed}"
            for arm, planned in self.plan["arms"].items()
            for seed in planned["seeds"]
            if (arm, seed) not in self.records
        ]

    @property
    def diverged(self) -> list[str]:
        """Runs that ended without a loss: no mean can include them."""
        return [f"{arm}-s{seed}" for (arm, seed), r in self.records.items() if r["loss"] is None]

    def seeds(self, arm: str | None = None) -> list[int]:
        """Of the runs of one arm, or of all."""
        return sorted({seed for a, seed in self.records if arm in (None, a)})

    def of(self, arm: str) -> dict[int, Record]:
        """The records of an arm by seed."""
        return {seed: self.records[arm, seed] for seed in self.seeds(arm)}

    def probe(self, probe: str, arm: str) -> dict[int, Record]:
        """The records of a probe and an arm by seed."""
        return {seed: r for (p, a, seed), r in self.probes.items() if (p, a) == (probe, arm)}

    def values(self, arm: str, measure: Measure) -> dict[int, float]:
        """A measure by seed, without the seeds for which it is undefined."""
        read = measure if callable(measure) else lambda record: record.get(measure)
        measured = {seed: read(record) for seed, record in self.of(arm).items()}
        return {seed: value for seed, value in measured.items() if value is not None}

    def mean(self, arm: str, measure: Measure) -> float | None:
        """Over the seeds for which the measure is defined."""
        return stats.mean(list(self.values(arm, measure).values()))

    def losses(self, arm: str) -> dict[int, float]:
        """Final validation losses by seed."""
        return self.values(arm, "loss")

    def paired(self, arm: str, baseline: str | None = None) -> stats.Paired:
        """Difference of the final validation loss, arm - baseline."""
        return stats.paired(self.losses(arm), self.losses(baseline or self.baseline))

    def tokens_to_target(self, arm: str, baseline: str | None = None) -> dict[int, float]:
        """Tokens the arm needed for the final loss of the baseline of its seed; inf: never did.

        Both are read off the curve, so that they come from one and the same measurement.
        """
        needed = {}
        for seed, reference in self.of(baseline or self.baseline).items():
            final = curve(reference)[1][-1:]
            if (arm, seed) in self.records and final:
                tokens = stats.tokens_to_target(self.records[arm, seed]["curve"], final[0])
                needed[seed] = math.inf if tokens is None else tokens
        return needed

    def distinct(self, table: str, column: str) -> list[Any]:
        """The values in a column of a table of all records, as first met."""
        rows = [row for record in self.records.values() for row in record.get(table) or []]
        return list(dict.fromkeys(row[column] for row in rows))


def curve(record: Record) -> Curve:
    """Training tokens (of a probe: steps) and losses, where these are defined."""
    return defined(record.get("curve") or [])


def defined(points: Iterable[tuple[float, float | None]]) -> Curve:
    """x and y of the points that have a y."""
    kept = [(x, y) for x, y in points if y is not None]
    return [x for x, _ in kept], [y for _, y in kept]


def cell(table: str, column: str, **which: Any) -> Callable[[Record], float | None]:
    """The measure that stands in a table of a record, in the row that has the values `which`."""

    def read(record: Record) -> float | None:
        for row in record.get(table) or []:
            if all(row[name] == value for name, value in which.items()):
                return row[column]
        return None

    return read


def past_the_end(record: Record) -> float | None:
    """Mean loss at positions T+1 ... 2T minus that at 1 ... T, where position p is predicted from
    the p tokens of its row up to there. Buckets weigh as many positions as they hold."""
    length = record["seq_len"]
    inside = _mean_over_positions(record, 1, length + 1)
    beyond = _mean_over_positions(record, length + 1, 2 * length + 1)
    return None if inside is None or beyond is None else beyond - inside


def _mean_over_positions(record: Record, start: int, stop: int) -> float | None:
    """Over the buckets within [start, stop); None where one of them has no loss."""
    by_position = record.get("by_position")
    if not by_position:
        return None
    starts = by_position["position"]
    ends = [*starts[1:], 8 * record["seq_len"] + 1]
    buckets = [
        (high - low, loss)
        for low, high, loss in zip(starts, ends, by_position["loss"], strict=True)
        if start <= low and high <= stop
    ]
    if not buckets or any(loss is None for _, loss in buckets):
        return None
    return sum(width * loss for width, loss in buckets) / sum(width for width, _ in buckets)


def short(digest: str) -> str:
    """Enough of a hash to tell two apart by eye."""
    return digest[:12]


def in_lengths(tokens: int, seq_len: int) -> str:
    """512 of T = 128 as 4T."""
    if 0 < tokens < seq_len and seq_len % tokens == 0:
        return f"T/{seq_len // tokens}"
    return {0.0: "0", 1.0: "T"}.get(tokens / seq_len, f"{tokens / seq_len:g}T")


def _keyed(folder: Path, keys: tuple[str, ...]) -> dict[Any, Record]:
    """The records of a folder by these values of theirs."""
    records = {}
    for file in sorted(folder.glob("[!.]*.json")):
        record = read_json(file)
        try:
            key = tuple(record[name] for name in keys)
        except (KeyError, TypeError) as error:
            raise UserError(f"{file} has no {error}: remove it and run ablate.py again") from None
        if key in records:
            raise UserError(f"{file} is a second record of {'-'.join(map(str, key))}: remove one")
        records[key] = record
    return records
