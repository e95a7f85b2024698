"""A study as it lies on disk: the plan, one record per run, the probes; and what is read off them.

Refuses to put runs side by side that were not measured on the same text, or whose arms did not
start from the same values and see the same batches.
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
        study._refuse_mixtures()
        return study

    def _refuse_mixtures(self) -> None:
        for key in SAME_EVERYWHERE:
            self._must_agree(key, self.records.items(), "only runs that agree can share a table")
        for seed in self.seeds():
            runs = [(run, record) for run, record in self.records.items() if run[1] == seed]
            for key in SAME_IN_A_SEED:
                self._must_agree(
                    key, runs, "arms of one seed must share it, or they differ in more than the arm"
                )

    def _must_agree(
        self, key: str, runs: Iterable[tuple[tuple[str, int], Record]], why: str
    ) -> None:
        holders = defaultdict(list)
        for (arm, seed), record in runs:
            holders[str(record[key])].append(f"{arm}-s{seed}")
        if len(holders) > 1:
            groups = "; ".join(f"{short(v)} in {', '.join(names)}" for v, names in holders.items())
            raise UserError(f"{self.path}: {key} differs ({groups}): {why}; remove or repeat a run")

    @property
    def seq_len(self) -> int:
        return self._any["seq_len"]

    @property
    def tokens(self) -> int:
        return self._any["tokens"]

    @property
    def _any(self) -> Record:
        return next(iter(self.records.values()))

    @property
    def tier(self) -> str:
        return str(self.plan.get("tier", "cpu"))

    @property
    def headline(self) -> tuple[str, str]:
        """The arm that the study is about, and the baseline it is measured against."""
        arm, baseline = self.plan.get("headline", ("rope", "sin"))
        return arm, baseline

    @property
    def baseline(self) -> str:
        return self.plan.get("baseline", self.headline[1])

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
            for seed in planned.get("seeds", [])
            if (arm, seed) not in self.records
        ]

    @property
    def diverged(self) -> list[str]:
        """Runs that ended without a loss: no mean can include them."""
        return [f"{arm}-s{seed}" for (arm, seed), r in self.records.items() if r["loss"] is None]

    def seeds(self, arm: str | None = None) -> list[int]:
        return sorted({seed for a, seed in self.records if arm in (None, a)})

    def of(self, arm: str) -> dict[int, Record]:
        return {seed: self.records[arm, seed] for seed in self.seeds(arm)}

    def values(self, arm: str, measure: Callable[[Record], float | None]) -> dict[int, float]:
        """{seed: measure(record)}, without the seeds for which it is undefined."""
        measured = {seed: measure(record) for seed, record in self.of(arm).items()}
        return {seed: value for seed, value in measured.items() if value is not None}

    def losses(self, arm: str) -> dict[int, float]:
        return self.values(arm, lambda record: record["loss"])

    def paired(self, arm: str, baseline: str | None = None) -> stats.Paired:
        """Difference of the final validation loss, arm - baseline, nats per token."""
        return stats.paired(self.losses(arm), self.losses(baseline or self.baseline))

    def mean(self, arm: str, measure: Callable[[Record], float | None]) -> float | None:
        return stats.mean(list(self.values(arm, measure).values()))

    def probe(self, probe: str, arm: str) -> dict[int, Record]:
        return {seed: r for (p, a, seed), r in self.probes.items() if (p, a) == (probe, arm)}

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


def curve(record: Record, key: str = "curve") -> tuple[list[float], list[float]]:
    """(x, y) of the points that are defined."""
    defined = [point for point in record.get(key) or [] if point[1] is not None]
    return [x for x, _ in defined], [y for _, y in defined]


def past_the_end(record: Record) -> float | None:
    """Mean loss at positions T+1 ... 2T minus that at 1 ... T, where position p is predicted from
    the p tokens of its row up to there. Buckets weigh as many positions as they hold."""
    length = record["seq_len"]
    inside = _mean_over_positions(record, 1, length + 1)
    beyond = _mean_over_positions(record, length + 1, 2 * length + 1)
    return None if inside is None or beyond is None else beyond - inside


def _mean_over_positions(record: Record, start: int, stop: int) -> float | None:
    by_position = record.get("by_position")
    if not by_position:
        return None
    starts = by_position["position"]
    ends = [*starts[1:], 8 * record["seq_len"] + 1]
    total, width = 0.0, 0
    for low, high, loss in zip(starts, ends, by_position["loss"], strict=True):
        if start <= low and high <= stop:
            if loss is None:
                return None
            total += (high - low) * loss
            width += high - low
    return total / width if width else None


def shifted(record: Record, delta: int, key: str = "dloss") -> float | None:
    return _pick(record.get("shift"), key, delta=delta)


def with_context(record: Record, context: int, mode: str) -> float | None:
    return _pick(record.get("context"), "loss", context=context, mode=mode)


def scaled(record: Record, scaling: str, context: int) -> float | None:
    return _pick(record.get("rope_scaling"), "loss", scaling=scaling, context=context)


def _pick(rows: list[Record] | None, key: str, **which: Any) -> float | None:
    for row in rows or []:
        if all(row[name] == value for name, value in which.items()):
            return row[key]
    return None


def distinct(records: Iterable[Record], table: str, key: str) -> list[Any]:
    """The values of `key` in a table of the records, as first met."""
    rows = [row for record in records for row in record.get(table) or []]
    return list(dict.fromkeys(row[key] for row in rows))


def short(digest: str) -> str:
    """Enough of a hash to tell two apart by eye."""
    return digest[:12]


def in_lengths(tokens: int, seq_len: int) -> str:
    """512 of T = 128 as 4T."""
    if 0 < tokens < seq_len and seq_len % tokens == 0:
        return f"T/{seq_len // tokens}"
    return {0: "0", 1: "T"}.get(tokens / seq_len, f"{tokens / seq_len:g}T")


def _keyed(folder: Path, keys: tuple[str, ...]) -> dict[tuple, Record]:
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
