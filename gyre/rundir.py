"""RunDir: what a run looks like on disk.

runs/
    NAME/
        config.yaml         the resolved configuration
        tokenizer.model     of an imported run, tokenizer.json and tokenizer_config.json too
        manifest.json       of the prepared data, or of the import
        run.json            when, by which command, from which revision; hashes of all the above
                            and of itself
        metrics.jsonl       one point per line: the truth, which wandb mirrors
        loss.png            a picture of its losses, once it is finished
        last/               model.safetensors + training.pt: what --resume continues from
        previous/           the `last` before it, should that one turn out damaged
        best/               model.safetensors
        kept/N/             as last/, of a step N that was asked for
    wandb/                  all runs, for `wandb leet runs/wandb` and `wandb sync`

Only this module and checkpoint.py, which has the last four folders, write there, and a study, which
removes checkpoints that it has measured.
"""

import hashlib
import itertools
import json
import math
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from torch import Tensor

from data.tokenizer import tokenizer_files
from errors import UserError, say
from files import (
    atomic_path,
    first_line,
    fsync,
    json_sha256,
    locked,
    read_json,
    remove,
    require_space,
    sha256,
    stage_json,
    write_file,
    writing,
)
from gyre.checkpoint import WEIGHTS, Checkpoints, seal
from gyre.wandb_log import LogConfig, WandbThread, wandb_id

METRICS = "metrics.jsonl"


class Taken(UserError):
    """A name that another run has."""


@contextmanager
def locked_run(path: Path) -> Iterator[None]:
    """Let one process at a time train the run at `path`. Raises Taken, which says who does."""
    busy = f"{path} is being trained by another process: wait for it, or stop it"
    with ExitStack() as held:
        with writing(path, "choose another folder with --log.runs"):
            try:
                held.enter_context(locked(path.resolve(), busy, wait=False))
            except UserError as error:
                raise Taken(str(error)) from None
        yield


class RunDir(Checkpoints):
    """One run: its checkpoints, and all else. Of several processes only the first holds one."""

    def __init__(self, path: Path, record: dict[str, Any]):
        super().__init__(path)
        self.record = record  # run.json
        self._metrics_file = path / METRICS
        self._logged, self._hash = 0, hashlib.sha256()  # points, and their lines
        self._wandb: WandbThread | None = None

    @property
    def tokenizer_sha256(self) -> str:
        """Of the file that its ids come from."""
        hashes = self.record["sha256"]
        return hashes.get("tokenizer.json") or hashes["tokenizer.model"]

    @property
    def manifest(self) -> dict[str, Any]:
        """Of the data that the run was started with."""
        return read_json(self.path / "manifest.json")

    # --- creating and opening ---

    @classmethod
    def create(
        cls, log: LogConfig, name: str, *, config_yaml: str, config: dict[str, Any],
        tokenizer: list[Path], manifest: dict[str, Any], need_bytes: int = 0,
        write_best: Callable[[Path], None] | None = None, points: Sequence[dict[str, Any]] = (),
        last: tuple[dict[str, Tensor], dict[str, Any]] | None = None,
    ) -> "RunDir":
        """A new folder `runs/NAME`, there completely or not at all, and a new wandb run.

        `config_yaml` is the configuration for config.yaml and `config` the one for wandb;
        `tokenizer` are the files that make it up. `write_best` writes the weights of a run that has
        some from the start into the file it is given, with METADATA; `points` and `last`, weights
        and training state, are what it already has, as a branch has those of its run. `need_bytes`
        is what the run is going to write: a disk without that much room is an error now and not at
        the first checkpoint.

        Raises UserError for a bad name, a run that is there already, and what the disk refuses.
        """
        path = cls.new_path(log.runs, name)
        require_space(path, need_bytes, "make room or choose another disk with --log.runs")
        with writing(path, "choose another folder with --log.runs"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as staging:
                staging.mkdir()
                (staging / "config.yaml").write_text(config_yaml, encoding="utf-8")
                for file in tokenizer:
                    shutil.copyfile(file, staging / file.name)
                stage_json(staging / "manifest.json", manifest)
                record: dict[str, Any] = {
                    "created": datetime.now(UTC).isoformat(timespec="microseconds"),
                    "command": shlex.join(sys.argv),
                    "git": _git_revision(),
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                    "wandb_id": wandb_id(name, config.get("model", {}).get("position", "")),
                    "sha256": {file.name: sha256(file) for file in sorted(staging.iterdir())},
                }
                if points:
                    record["inherited"] = len(points)
                record["sha256"]["run.json"] = _record_sha256(record)
                stage_json(staging / "run.json", record)
                staged, run = cls(staging, record), cls(path, record)
                if points:
                    staged._write_points(points)
                if write_best is not None:
                    staged.best.mkdir()
                    write_best(staged.best / WEIGHTS)
                    seal(staged.best / WEIGHTS)
                if last is not None:
                    staged.save("last", *last)
        run._logged, run._hash = staged._logged, staged._hash
        run._start_wandb(log, config, points)
        return run

    @classmethod
    def open(cls, path: str | Path | None = None, runs: str | Path = "runs") -> "RunDir":
        """An existing run, by its path or its name under `runs`, to read or to `resume`; by default
        the newest that has weights.

        Raises UserError where its files are not those it was made with. What a save that crashed
        has left is not touched: the run may be training right now.
        """
        path = _newest(Path(runs)) if path is None else Path(path)
        if not path.is_dir() and path.name == str(path):
            path = Path(runs) / path
        if not path.is_dir():
            raise UserError(f"no run folder at {path} (python evaluate.py lists the runs)")
        if not (path / "run.json").exists():
            raise UserError(f"{path / 'run.json'} is missing: {path} is no run")
        try:
            record = read_json(path / "run.json", "restore it, or choose another run")
            hashes = dict(record["sha256"])
            if not {"config.yaml", "manifest.json"} < hashes.keys() or "created" not in record:
                raise KeyError("sha256")
            if hashes.pop("run.json", None) not in (None, _record_sha256(record)):
                raise ValueError("its own hash differs")  # None: from before there was one
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path / 'run.json'} is damaged: {path} is no longer a whole run; "
                            "choose another one") from error
        for name, digest in hashes.items():
            if not (path / name).is_file():
                raise UserError(f"{path / name} is missing: restore it, or choose another run")
            if sha256(path / name) != digest:
                raise UserError(f"{path / name} is not the file this run was made with (its sha256 "
                                "differs from the one in run.json): restore it, or choose another "
                                "run")
        for file in tokenizer_files(path):
            if file.name not in hashes:  # it would be read in place of the run's own
                raise UserError(f"{file} is no part of this run (run.json has no hash of it): "
                                "remove it")
        return cls(path, record)

    @classmethod
    def open_all(cls, paths: Sequence[str | Path], runs: str | Path = "runs") -> list["RunDir"]:
        """These runs, or all under `runs`, the oldest first. Says what it skips, and why."""
        found = []
        for path in paths or sorted(p for p in Path(runs).glob("[!.]*") if p.name != "wandb"):
            try:
                found.append(cls.open(path, runs))
            except UserError as error:
                say(f"skipped: {error}")
        return found if paths else sorted(found, key=lambda run: run.record["created"])

    @staticmethod
    def new_path(runs: str | Path, name: str) -> Path:
        """Where a run of this name will be. UserError if it cannot be, or is there already."""
        if not re.fullmatch(r"\w[\w.=+-]*", name) or name == "wandb":
            raise UserError(f"run name {name!r} must be letters, digits and _ . = + - (and not "
                            "'wandb', which holds wandb's files): choose another name")
        path = Path(runs) / name
        if path.exists():
            raise Taken(f"{path} already exists: continue it with --resume {path}, or start "
                        "another run with --name")
        return path

    @classmethod
    @contextmanager
    def claim(cls, runs: str | Path, name: str, *, numbered: bool) -> Iterator[str]:
        """Hold the name of a new run, and then that run, for this process alone.

        Yields the name: `numbered`, it is the first of name, name-2, name-3 ... that is neither
        a run nor held. Raises UserError where it cannot be had.
        """
        names = itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2)))
        with ExitStack() as held:
            for name in names:
                try:
                    held.enter_context(locked_run(Path(runs) / name))
                    cls.new_path(runs, name)
                    break
                except Taken:
                    held.close()
                    if not numbered:
                        raise
            yield name

    def resume(
        self, step: int, log: LogConfig, config: dict[str, Any],
        logged: dict[str, Any] | None = None,
    ) -> None:
        """Continue after the checkpoint of `step`, in the files and in the same wandb run.

        `logged` is what the checkpoint says of the points, see `points_until`. Points of later
        steps, which a crash left behind, go: those steps are taken again. wandb gets all points
        once more, because of what it had not written yet when a process was killed.
        """
        points = self.points_until(step, logged)
        self._write_points(points)
        self._start_wandb(log, config, points)

    # --- points ---

    def save(
        self, name: Literal["last", "best"] | int, weights: dict[str, Tensor],
        training: dict[str, Any] | None = None,
    ) -> None:
        """As that of Checkpoints. The points so far are on the disk first, and the checkpoint says
        how many there are and which (`metrics` of the training state)."""
        super().save(name, weights, None if training is None else self.noting_points(training))

    def noting_points(self, training: dict[str, Any]) -> dict[str, Any]:
        """A training state that says which points there are; they are on the disk first."""
        if self._logged:
            with writing(self._metrics_file):
                fsync(self._metrics_file)
        logged = {"points": self._logged, "sha256": self._hash.hexdigest()}
        return {**training, "metrics": logged}

    def _write_points(self, points: Sequence[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(point) + "\n" for point in points).encode()
        write_file(self._metrics_file, lines)
        self._logged, self._hash = len(points), hashlib.sha256(lines)

    def log(self, point: dict[str, float | int | str]) -> None:
        """One line in metrics.jsonl and one wandb point; `step` must be in it.

        What is not finite becomes null, because NaN is not JSON.
        """
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in point.items()
        }
        file = self._metrics_file
        line = (json.dumps(finite, allow_nan=False) + "\n").encode()
        with writing(file), file.open("ab") as lines:
            lines.write(line)
        self._logged += 1
        self._hash.update(line)
        if self._wandb:
            self._wandb.log(point)

    def metrics(self) -> list[dict[str, Any]]:
        """The points of metrics.jsonl, without a last line that a crash cut short.

        Values are numbers, text or None. UserError where any other line is damaged.
        """
        points = []
        for number, line in enumerate(self._lines(), 1):
            try:
                points.append(_point(line))
            except ValueError as error:
                raise UserError(f"{self._metrics_file} is damaged in line {number} ({error}): "
                                "remove that line") from None
        return points

    def best_point(self) -> dict[str, Any] | None:
        """The point of the lowest validation loss, whose weights are `best`; None before the first
        validation. What a branch has of the run that it left does not count."""
        own = self.metrics()[self.record.get("inherited", 0) :]
        validated = (point for point in own if point.get("val/loss") is not None)
        return min(validated, key=itemgetter("val/loss"), default=None)

    def points_until(self, step: int, logged: dict[str, Any] | None) -> list[dict[str, Any]]:
        """The points up to `step`, of which a checkpoint says what there were when it was saved:
        how many `points`, and the `sha256` of their lines.

        Says what is missing or damaged of them, and leaves out what is no point.
        """
        lines = self._lines()
        if logged is not None:
            count = logged["points"]
            before = b"".join(line + b"\n" for line in lines[:count])
            if hashlib.sha256(before).hexdigest() != logged["sha256"]:
                what = "points were changed"
                if len(lines) < count:
                    what = f"{count - len(lines)} of its {count} points are missing"
                say(f"warning: {self._metrics_file} is not what it was at step {step}: {what}; "
                    "going on with what it holds")
        points = []
        for number, line in enumerate(lines, 1):
            try:
                points.append(_point(line))
            except ValueError as error:
                say(f"warning: leaving out line {number} of {self._metrics_file}: {error}")
        return [point for point in points if point["step"] <= step]

    def settings(self) -> dict[str, Any]:
        """config.yaml, unchecked: a hundred times as fast to read as a Config."""
        return yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8"))

    def draw_losses(self) -> None:
        """loss.png. It says where it cannot: no picture is worth a training."""
        try:
            from gyre.plot import draw_losses

            write_file(self.path / "loss.png", draw_losses([(self.path.name, self.metrics())]))
        except Exception as error:
            say(f"warning: no loss.png ({first_line(error)})")

    def _lines(self) -> list[bytes]:
        """The whole lines of metrics.jsonl."""
        with suppress(FileNotFoundError):
            return self._metrics_file.read_bytes().split(b"\n")[:-1]
        return []

    # --- wandb ---

    def _start_wandb(
        self, log: LogConfig, config: dict[str, Any], points: Sequence[dict[str, Any]] = ()
    ) -> None:
        if log.wandb != "disabled":
            id = self.record.get("wandb_id") or wandb_id(self.path.name)
            self._wandb = WandbThread(log, self.path.name, id, config)
            self._wandb.start()
            for point in points:
                self._wandb.log(point)

    def discard(self) -> None:
        """Remove the run, and what wandb has of it offline."""
        self.finish(1)
        for folder in (self.path.parent / "wandb").glob(f"*-{self.record['wandb_id']}"):
            remove(folder)
        remove(self.path)

    def finish(self, exit_code: int = 0) -> None:
        """Wait for wandb to write or upload the rest, within limits."""
        if self._wandb:
            self._wandb.finish(exit_code)
            self._wandb = None


def _point(line: bytes) -> dict[str, Any]:
    """A line of metrics.jsonl. ValueError where it is not what `RunDir.log` writes."""
    try:
        point = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(point, dict):
        raise ValueError("it is not a table of fields")
    for name, value in {"step": None, **point}.items():
        if name in ("step", "tokens"):
            good = type(value) is int and value >= 0
        elif name == "seconds":
            good = isinstance(value, int | float) and 0 < value < math.inf
        else:
            good = value is None or isinstance(value, str) or (
                isinstance(value, int | float) and math.isfinite(value))
        if not good:
            raise ValueError(f"{name} is {value!r}")
    return point


def _newest(runs: Path) -> Path:
    """That has weights: one that is compiling has none yet."""
    created = {}
    for file in runs.glob("[!.]*/run.json"):
        with suppress(UserError, KeyError, OSError):  # a folder that is not ours
            when = str(read_json(file)["created"])
            if Checkpoints(file.parent).has_weights:
                created[when, file.parent.name] = file.parent
    if not created:
        raise UserError(f"no run with weights in {runs}/ yet: make one with `python train.py "
                        "--config small.yaml`")
    return created[max(created)]


def _record_sha256(record: dict[str, Any]) -> str:
    """Of all that run.json holds but this hash."""
    others = {name: digest for name, digest in record["sha256"].items() if name != "run.json"}
    return json_sha256({**record, "sha256": others})


def _git_revision() -> dict[str, Any] | None:
    """The revision of this code, and whether tracked files differ from it; None outside git."""

    def git(*arguments: str) -> str:
        # It takes no lock, so that it is in no way of a git that the user runs.
        command = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent), *arguments]
        answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
        return answer.stdout.strip()

    try:
        return {
            "revision": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None
