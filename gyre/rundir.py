"""RunDir: what a run looks like on disk and in wandb. Nothing else touches `runs/` or wandb.

runs/
    NAME/
        config.yaml         the resolved configuration
        tokenizer.model     of an imported run, tokenizer.json and tokenizer_config.json too
        manifest.json       of the prepared data, or of the import
        run.json            when, by which command, from which revision; hashes of all the above
        metrics.jsonl       one point per line: the truth, which wandb mirrors
        last/               model.safetensors + training.pt: what --resume continues from
        previous/           the `last` before it, should that one turn out damaged
        best/               model.safetensors
    wandb/                  all runs, for `wandb leet runs/wandb` and `wandb sync`
"""

import itertools
import json
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from errors import UserError
from files import atomic_path, fsync, remove, sha256, writing
from gyre.checkpoint import read_checkpoint, read_weights
from gyre.wandb_log import LogConfig, WandbThread, say_above, wandb_id

STAGING = ".saving"


class RunDir:
    """One run. Only rank 0 holds one; the other ranks hold a `NullRun`."""

    def __init__(self, path: Path, record: dict[str, Any]):
        self.path = path
        self.record = record  # run.json
        self._wandb: WandbThread | None = None
        self._last_is_good = True

    @property
    def tokenizer_sha256(self) -> str:
        """Of the file that its ids come from."""
        hashes = self.record["sha256"]
        return hashes.get("tokenizer.json") or hashes["tokenizer.model"]

    @property
    def manifest(self) -> dict[str, Any]:
        """Of the data that the run was started with."""
        return json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))

    @classmethod
    def create(
        cls,
        log: LogConfig,
        name: str,
        *,
        config_yaml: str,
        config: dict[str, Any],
        tokenizer: list[Path],
        manifest: dict[str, Any],
        need_bytes: int = 0,
        write_best: Callable[[Path], None] | None = None,
    ) -> "RunDir":
        """A new folder `runs/NAME`, there completely or not at all, and a new wandb run.

        `tokenizer` are the files that make it up. `write_best` writes the weights of a run that has
        some from the start into the file it is given.
        `need_bytes` is what the run is going to write; a disk without that much room is an error
        now and not at the first checkpoint.
        """
        path = cls.new_path(log.runs, name)
        with writing(path, "choose another folder with --log.runs"):
            path.parent.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(path.parent).free
            if free < need_bytes:
                raise UserError(
                    f"{path} needs {need_bytes / 1e6:,.1f} MB for its checkpoints and the disk has "
                    f"{free / 1e6:,.1f} MB free; make room or choose another disk with --log.runs"
                )
            with atomic_path(path) as staging:
                staging.mkdir()
                (staging / "config.yaml").write_text(config_yaml, encoding="utf-8")
                for file in tokenizer:
                    shutil.copyfile(file, staging / file.name)
                (staging / "manifest.json").write_text(
                    json.dumps(manifest, indent=2), encoding="utf-8"
                )
                record = {
                    "created": datetime.now(UTC).isoformat(timespec="microseconds"),
                    "command": shlex.join(sys.argv),
                    "git": _git_revision(),
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                    "wandb_id": wandb_id(name),
                    "sha256": {file.name: sha256(file) for file in sorted(staging.iterdir())},
                }
                (staging / "run.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
                if write_best is not None:
                    (staging / "best").mkdir()
                    write_best(staging / "best" / "model.safetensors")
        run = cls(path, record)
        run._start_wandb(log, config)
        return run

    @classmethod
    def open(cls, path: str | Path | None = None, runs: str | Path = "runs") -> "RunDir":
        """An existing run, by default the newest under `runs`, to read or to `resume`.

        Leaves the stray files of a crashed save alone: the run may be training right now.
        """
        path = _newest(Path(runs)) if path is None else Path(path)
        if not path.is_dir():
            raise UserError(f"no run folder at {path}")
        try:
            record = _read_record(path)
            for file, digest in record["sha256"].items():
                if not (path / file).is_file():
                    raise UserError(f"{path / file} is missing: restore it, or choose another run")
                if sha256(path / file) != digest:
                    raise UserError(
                        f"{path / file} is not the file this run was made with (its sha256 differs "
                        f"from the one in run.json): restore it, or choose another run"
                    )
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise UserError(
                f"{path / 'run.json'} is missing or damaged: {path} is not a run folder, "
                f"or no longer a whole one; choose another run"
            ) from error
        return cls(path, record)

    @staticmethod
    def new_path(runs: str | Path, name: str) -> Path:
        """Where a run of this name will be. UserError if it cannot be, or is there already."""
        if not re.fullmatch(r"\w[\w.=+-]*", name) or name == "wandb":
            raise UserError(
                f"run name {name!r} must be letters, digits and _ . = + - (and not 'wandb', "
                "which holds wandb's files): choose another name"
            )
        path = Path(runs) / name
        if path.exists():
            raise UserError(
                f"{path} already exists: continue it with --resume {path}, "
                f"or start another run with --name"
            )
        return path

    @staticmethod
    def free_name(runs: str | Path, stem: str) -> str:
        """The first of stem, stem-2, stem-3 ... that is no run yet."""
        names = itertools.chain([stem], (f"{stem}-{n}" for n in itertools.count(2)))
        return next(name for name in names if not (Path(runs) / name).exists())

    def resume(self, step: int, log: LogConfig, config: dict[str, Any]) -> None:
        """Continue after the checkpoint of `step`, in the files and in the same wandb run.

        The points that a crash left behind the checkpoint go, as those steps are taken again.
        """
        points = [point for point in self.metrics() if point["step"] <= step]
        file = self.path / "metrics.jsonl"
        staging = file.with_suffix(".tmp")
        with writing(file):
            remove(self.path / STAGING)
            staging.write_text("".join(json.dumps(p) + "\n" for p in points), encoding="utf-8")
            fsync(staging)
            os.replace(staging, file)
            fsync(self.path)
        self._start_wandb(log, config)

    def log(self, point: dict[str, float | int | str]) -> None:
        """One line in metrics.jsonl and one wandb point; `step` must be in it.

        What is not finite becomes null, because NaN is not JSON.
        """
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in point.items()
        }
        file = self.path / "metrics.jsonl"
        with writing(file), file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(finite, allow_nan=False) + "\n")
        if self._wandb:
            self._wandb.log(point)

    def metrics(self) -> list[dict[str, float | int | str | None]]:
        """The points of metrics.jsonl, without a last line that a crash cut short."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        *lines, _cut = file.read_text(encoding="utf-8").split("\n")
        points = []
        for number, line in enumerate(lines, 1):
            try:
                points.append(json.loads(line))
            except ValueError:
                raise UserError(f"{file} is damaged in line {number}: remove that line") from None
        return points

    def save(
        self,
        name: Literal["last", "best"],
        weights: dict[str, Tensor],
        training: dict[str, Any] | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        """Write a checkpoint: `last` with the training state, `best` without.

        Everything is written and fsynced in a folder aside and moved into place by renames, so
        that at every instant a whole checkpoint stands in `last` or, between two renames, in
        `previous`; and `best` is replaced in one. `training` holds dicts, lists, numbers, text and
        tensors: what `torch.load(weights_only=True)` accepts.
        """
        assert (training is not None) == (name == "last"), "training state goes with `last` only"
        for key in weights:
            assert not key.startswith(("_orig_mod.", "module.")), f"{key}: save the bare module"
        last, previous, target = self.path / "last", self.path / "previous", self.path / name
        staging = self.path / STAGING
        with writing(target, "the checkpoint before it is kept; make room and --resume"):
            remove(staging)
            staging.mkdir()
            file = staging / "model.safetensors"
            save_file({k: v.detach().contiguous() for k, v in weights.items()}, file, metadata)
            if training is not None:
                state = {"training": training, "weights_sha256": sha256(file)}
                with (staging / "training.pt").open("wb") as stream:
                    torch.save(state, stream)
            fsync(*staging.iterdir(), staging)
            if name == "best":
                target.mkdir(exist_ok=True)
                os.replace(file, target / file.name)
                fsync(target)
                staging.rmdir()
            else:
                if self._last_is_good and last.exists():
                    remove(previous)
                    os.rename(last, previous)
                else:  # `previous` is the only good one: it stays
                    remove(last)
                os.rename(staging, last)
                self._last_is_good = True
            fsync(self.path)

    def load_weights(self, name: Literal["last", "best"] = "best") -> dict[str, Tensor]:
        """The weights on the CPU; `last` where no `best` was ever written."""
        file = self.path / "best" / "model.safetensors"
        if name == "best" and file.exists():
            try:
                return read_weights(file)
            except UserError as error:
                raise UserError(f"{error}: restore it, or remove it to use `last`") from error
        return self._newest_checkpoint(lambda folder: read_weights(folder / "model.safetensors"))

    def load_training(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights and the training state of `last`, or of `previous` where that is damaged."""
        return self._newest_checkpoint(read_checkpoint)

    def finish(self, exit_code: int = 0) -> None:
        """Wait for wandb to write or upload the rest, within limits."""
        if self._wandb:
            self._wandb.finish(exit_code)
            self._wandb = None

    def _newest_checkpoint(self, read: Callable[[Path], Any]) -> Any:
        last, previous = self.path / "last", self.path / "previous"
        if not last.exists() and not previous.exists():
            raise UserError(f"{self.path} has no checkpoint yet; choose another run or train again")
        try:
            return read(last)
        except UserError as error:
            if not previous.exists():
                raise UserError(f"{error}: restore it, or choose another run") from error
            self._last_is_good = False
            say_above(f"warning: {error}; taking the checkpoint before it, {previous}")
            return read(previous)

    def _start_wandb(self, log: LogConfig, config: dict[str, Any]) -> None:
        if log.wandb != "disabled":
            self._wandb = WandbThread(log, self.path.name, self.record["wandb_id"], config)
            self._wandb.start()


class NullRun:
    """The run of every rank but the first: takes what RunDir takes and keeps nothing."""

    def log(self, *args: Any, **kwargs: Any) -> None:
        pass

    save = finish = log


def _newest(runs: Path) -> Path:
    created = {}
    for path in runs.glob("[!.]*/run.json"):
        try:
            created[_read_record(path.parent)["created"], path.name] = path.parent
        except (ValueError, KeyError, TypeError, OSError):
            continue  # not ours
    if not created:
        raise UserError(
            f"no run in {runs}/ yet: make one with `python train.py --config small.yaml`"
        )
    return created[max(created)]


def _read_record(path: Path) -> dict[str, Any]:
    return json.loads((path / "run.json").read_text(encoding="utf-8"))


def _git_revision() -> dict[str, Any] | None:
    """The revision of this code, and whether tracked files differ from it; None outside git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=10
        ).stdout.strip()

    try:
        return {
            "revision": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None
