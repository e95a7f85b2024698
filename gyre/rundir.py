"""RunDir: what a run looks like on disk.

runs/
    NAME/
        config.yaml         the resolved configuration
        tokenizer.model     an imported run has the tokenizer's other files too: TOKENIZER_FILES
        manifest.json       of the prepared data, or of the import
        run.json            when, where, by which command, from which revision; hashes of the above,
                            and of the code of the encoding
        metrics.jsonl       one point (what a step has logged) per line: the truth, copied to wandb
        last/ previous/ best/ kept/     see gyre/checkpoint.py
    wandb/                  all runs, for `wandb leet runs/wandb` and `wandb sync`
        superseded/         offline folders, of which a newer one of the same run has all points

Only this module and checkpoint.py write in NAME/. A study also removes checkpoints that it does not
need any more.
"""

import glob
import hashlib
import json
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from data.sources import DataConfig
from data.tokenizer import TOKENIZER_FILES
from errors import UserError, did_you_mean, find_script, say
from files import (
    Busy,
    atomic_path,
    fsync,
    json_sha256,
    locked,
    may_be_in_name,
    read_json,
    sha256,
    stage_json,
    why_not_writable,
    write_file,
    writing,
)
from gyre.checkpoint import Checkpoints
from gyre.code import are_of_other_code, hash_encoding
from gyre.options import Config
from gyre.parallel import World
from gyre.wandb_log import WandbThread, wandb_id

METRICS = "metrics.jsonl"


def locked_run(
    path: Path, *, wait: bool = False, gives_up: Callable[[], bool] | None = None
) -> AbstractContextManager[None]:
    """Let one process at a time train the run at `path`.

    If another process trains it, entering this raises UserError, or waits with a message until
    `gives_up` returns True; then it raises UserError, too.
    """
    advice = "waiting for it" if wait else "wait for it, or stop it"
    return locked(path.resolve(), f"{path} is being trained by another process: {advice}",
                  wait=wait, gives_up=gives_up)


def is_foreign(path: Path) -> bool:
    """Return whether this is a folder of Hugging Face's or Meta's, or a GGUF, and not a run."""
    if (path / "run.json").exists():
        return False
    return is_gguf(path) or any((path / name).is_file() for name in ("config.json", "params.json"))


def is_gguf(path: Path) -> bool:
    """Return whether this is a GGUF file, by its name or by its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return path.suffix.lower() == ".gguf" or file.read(4) == b"GGUF"


def claim_name(runs: str | Path, name: str | None, stem: str, contexts: ExitStack) -> str:
    """Return the name of a new run, which nobody else can train until `contexts` is closed.

    Without a `name` it is the first of stem, stem-2, stem-3 ... that is neither a run nor being
    trained. Raises UserError if another process trains a run of this `name`, or where no lock can
    be written.
    """
    if name is not None:
        contexts.enter_context(locked_run(Path(runs, name)))
        return name
    name = stem
    number = 1
    while True:
        with suppress(Busy):  # another process trains a run of this name
            if not Path(runs, name).exists():
                contexts.enter_context(locked_run(Path(runs, name)))
                return name
        number += 1
        name = f"{stem}-{number}"


def check_runs_folder(runs: str | Path) -> None:
    """Raise UserError if no folder of runs can be made or written at this path."""
    reason = why_not_writable(Path(runs))
    if reason is not None:
        raise UserError(f"no run can be made in {runs}, because {reason}: choose another folder "
                        "with --log.runs")


def check_name(name: str) -> None:
    """Raise UserError for what cannot be the name of a run, or of a study."""
    is_valid = re.match(r"\w", name) and all(map(may_be_in_name, name))
    if not is_valid or name == "wandb":
        raise UserError(f"run name {name!r} must begin with a letter, a digit or _, and have only "
                        "these and . = + - behind it (and not be 'wandb', which holds wandb's "
                        "files): choose another name")


def clean_name(name: str) -> str:
    """Return a name with hyphens for the characters that the name of a run cannot have."""
    words = "".join(char if may_be_in_name(char) else " " for char in name).split()
    return re.sub(r"^\W+", "", "-".join(words))  # it begins with a letter, a digit or _


def check_there(file: Path) -> None:
    """Raise UserError if a file of a run is gone."""
    if not file.is_file():
        raise UserError(f"{file} is missing: restore it, or choose another run")


def newest_run(runs: Path) -> Path:
    """Return the folder of the newest run that has weights. Raises UserError if there is none.

    Runs whose run.json is damaged are skipped, with a message.
    """
    with_weights: set[Path] = set()
    for name in ("best", "last", "previous"):
        with_weights |= {checkpoint.parent for checkpoint in runs.glob(f"[!.]*/{name}")}
    created: dict[Path, datetime] = {}
    for folder in sorted(with_weights):
        if (folder / "run.json").is_file():
            try:
                created[folder] = read_created(folder, read_json(folder / "run.json"))
            except UserError as error:
                say(f"skipped: {error}")
    if not created:
        raise UserError(f"no run with weights in {runs.absolute()}/ yet: make one with `python "
                        f"{find_script('train.py')} --config small.yaml`")
    return max(created, key=lambda folder: created[folder])


def read_created(run: Path, record: dict[str, Any]) -> datetime:
    """Return when a run was made, by its run.json. UserError if that does not say it."""
    try:
        return datetime.fromisoformat(record["created"]).astimezone()
    except (KeyError, OverflowError, TypeError, ValueError):
        raise UserError(f"{run / 'run.json'} does not say when the run was made (\"created\"): "
                        "restore it, or choose another run") from None


def find_run(path: Path, runs: Path) -> Path:
    """Return the folder at `path`, or that of this name in `runs`.

    If there is none, or if it is no run, raises UserError with a hint at what may be meant.
    """
    if path.name in ("", ".."):  # callers name exports, branches and curves after the folder
        path = Path(os.path.abspath(path))
    folder = choose_folder(path, runs)
    if folder.is_dir():
        check_is_run(folder)
        return folder
    if is_gguf(path):
        raise UserError(f"{path} is GGUF, and no run: import it with python "
                        f"{find_script('export.py')} {shlex.quote(str(path))} --to run runs/NAME")
    if path.is_file():
        raise UserError(f"{path} is a file: give the folder of a run")
    if path.suffix.lower() == ".gguf":
        raise UserError(f"there is no file {path.absolute()}")
    place = str(folder)
    if not folder.is_absolute() and not folder.parent.exists():  # perhaps the wrong folder
        place = f"{folder} in {Path.cwd()}"
    raise UserError(f"no run folder at {place}{suggest_run(path, folder)}")


def choose_folder(path: Path, runs: Path) -> Path:
    """Return `path`, or `runs / path` if that is meant. It need not be there."""
    in_runs = runs / path
    if has_run_files(path):
        return path
    is_name = path.name == str(path)
    if not is_name:  # several folders, or an absolute path
        # Such as NAME/best. The error then names the run, which may be meant.
        is_part_of_run = not path.exists() and has_run_files(in_runs.parent)
        return in_runs if is_part_of_run else path
    # A folder of texts may have the name of the run that was trained on it.
    if has_run_files(in_runs) or not path.is_dir():
        return in_runs
    return path


def suggest_run(path: Path, folder: Path) -> str:
    """Return what may be meant by `path`, where no run was found at `folder`, for a message."""
    is_name = path.name == str(path)
    names = {file.parent.name for file in folder.parent.glob("[!.]*/run.json")}
    if not is_name:
        names = {str(folder.parent / name) for name in names}
    nearest = did_you_mean(str(path), names)
    parts = sorted(name for name in names if len(path.name) > 2 and path.name in Path(name).name)
    if not nearest and parts:  # as `shakespeare`, for the run small-shakespeare-rope-s1
        nearest = f" (did you mean {parts[0]}?)"
    suggestion = f"{nearest}: python {find_script('evaluate.py')} lists the runs"
    # It may be the name of a public model, such as gpt2 or OWNER/NAME.
    is_owner_and_name = len(path.parts) == 2 and not path.parent.exists()
    may_be_public = is_name or is_owner_and_name
    if may_be_public and not nearest and not has_run_files(folder.parent):
        suggestion += "; a model of the Hub is the folder that it was downloaded to"
    return suggestion


def has_run_files(folder: Path) -> bool:
    """Return whether a folder has a file that every run has."""
    return any((folder / name).exists() for name in ("run.json", "config.yaml"))


def check_is_run(folder: Path) -> None:
    """Raise UserError, which says what a folder is instead, if it has no file of a run."""
    if has_run_files(folder):
        return
    advice = f"python {find_script('evaluate.py')} lists the runs"
    inside = sorted(file.parent for file in folder.glob("[!.]*/run.json"))
    if is_foreign(folder):
        advice = (f"import this folder with python {find_script('export.py')} "
                  f"{shlex.quote(str(folder))} --to run runs/NAME")
    elif (folder.parent / "run.json").is_file():
        advice = f"it is a part of {folder.parent}, which you can give"
    elif inside:
        advice = f"give one that is in it, such as {inside[0]}"
    elif any(folder.glob("*.gguf")):
        advice = f"give the GGUF in it, {min(folder.glob('*.gguf'))}"
    raise UserError(f"{folder} is no run: {advice}")


def resolve_path(name: str, folder: str) -> str:
    """Return the path of a file or glob in `folder`.

    Returns `name` itself if nothing is there, or if `folder` is the working directory.
    """
    if os.path.isabs(os.path.expanduser(name)) or folder == os.getcwd():
        return name
    path = os.path.join(folder, name)
    if os.path.exists(path):
        return path
    pattern = os.path.join(glob.escape(folder), name)
    return pattern if glob.glob(pattern, recursive=True) else name


@dataclass
class RunDir:
    """One run on disk: its points, its checkpoints, and how it was made."""

    path: Path
    record: dict[str, Any]
    """run.json."""
    is_main: bool = True
    """Whether this process is the one that writes points: rank 0."""
    wandb: WandbThread | None = field(default=None, repr=False)

    checkpoints = cached_property(lambda self: Checkpoints(self.path))

    @property
    def created(self) -> datetime:
        """When the run was made, in local time."""
        return read_created(self.path, self.record)

    @property
    def is_branch(self) -> bool:
        """Whether the run began at a checkpoint of another one."""
        if "branched_at" in self.record:
            return self.record["branched_at"] is not None
        # A run of an older version.
        words = shlex.split(self.record.get("command", ""))
        return any(word.partition("=")[0] == "--branch-from" for word in words)

    def note_missing_best(self) -> None:
        """Print a note if there are no best weights, and the last ones stand in for them."""
        if not self.checkpoints.has_best and self.checkpoints.can_resume:
            say(f"note: {self.path} has no best weights: its last ones are taken")

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the training data, or of the import."""
        return json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))

    @property
    def is_imported(self) -> bool:
        """Whether the weights were imported. Such a run has no text and cannot be resumed."""
        return "imported" in self.manifest

    def has_changed_encoding(self, position: str) -> bool:
        """Return whether the code of its encoding is not what it was when the run was made.

        False if that is not known, as of a run of an older version.
        """
        before = self.record.get("encoding_sha256", "")
        return are_of_other_code(before, hash_encoding(position))

    def resolve_text_paths(self, data: DataConfig) -> DataConfig:
        """Return the settings of this run's text, with paths that lead to it from here.

        Relative paths are relative to the folder in which the run was made. A path that leads to
        nothing there stays as it is. So do all paths of a run whose run.json does not name that
        folder, because the run is too old: they are taken as relative to this one.
        """
        folder = self.record.get("folder", os.getcwd())
        files = data.files
        if files is not None:
            files = [resolve_path(name, folder) for name in files]
        hub = data.hub
        if hub is not None:  # it may be a folder
            hub = resolve_path(hub, folder)
        return replace(data, files=files, hub=hub)

    def resolve_data_paths(self, data: DataConfig) -> DataConfig:
        """Do what `resolve_text_paths` does, and resolve the path of the prepared data too."""
        folder = self.record.get("folder", os.getcwd())
        return replace(self.resolve_text_paths(data), prepared=resolve_path(data.prepared, folder))

    # --- creating and opening ---

    @classmethod
    def create(
        cls, config: Config, *, tokenizer: Sequence[Path], manifest: dict[str, Any],
        command: Sequence[str] = (), write: Callable[[Path], None] | None = None,
        branched_at: int | None = None, points: Sequence[dict[str, Any]] = (),
        base_sha256: str = "", advice: str = "choose another folder with --log.runs",
    ) -> "RunDir":
        """Make the folder of a new run, completely or not at all, and a new wandb run.

        `tokenizer` are its files. `command` made the run. `write(folder)` adds the files of an
        import. `branched_at` is the step of the trunk that a branch starts from, and `points` are
        those that the branch inherits. The branch can be resumed once it has a checkpoint.
        `base_sha256` is the hash of the weights that a fine-tuning starts from. `advice` says what
        to do if the disk refuses to write.

        Raises UserError for a bad name, a run that is there already, and what the disk refuses.
        """
        path = cls.new_path(config.log.runs, str(config.name))
        with writing(path, advice):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as staging:
                staging.mkdir()
                (staging / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
                for file in tokenizer:
                    shutil.copyfile(file, staging / file.name)
                stage_json(staging / "manifest.json", manifest)
                record: dict[str, Any] = {
                    "created": datetime.now(UTC).isoformat(timespec="microseconds"),
                    "folder": os.getcwd(),
                    "command": shlex.join(command),
                    "git": git_revision(),
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                    "wandb_id": wandb_id(path.name, f"{config.model.position}-s{config.seed}"),
                    "branched_at": branched_at,
                    "encoding_sha256": hash_encoding(config.model.position),
                    "base_sha256": base_sha256,
                    "sha256": {file.name: sha256(file) for file in sorted(staging.iterdir())},
                }
                stage_json(staging / "run.json", record | {"seal": json_sha256(record)})
                if points:
                    cls(staging, record).write_points(points)
                if write is not None:
                    write(staging)
        run = cls(path, record)
        run.start_wandb(config, points)
        return run

    @classmethod
    def open(cls, path: str | Path | None = None, runs: str | Path = "runs") -> "RunDir":
        """Return an existing run, by its path or its name under `runs`; by default the newest that
        has weights.

        Raises UserError where its files are not those it was made with. The run may be training
        right now: nothing is changed.
        """
        if path is None:
            path = newest_run(Path(runs))
        path = find_run(Path(path), Path(runs))
        try:
            record = read_json(path / "run.json")
            hashes = dict(record["sha256"])
            if not {"config.yaml", "manifest.json"} <= {*hashes}:
                raise ValueError("a file has no hash")
            # Not `read_sealed`, which refuses a file without a hash: older runs have none.
            stated = record.pop("seal", None)
            if stated is not None and stated != json_sha256(record):
                raise ValueError("a field was changed")
        except (UserError, FileNotFoundError, KeyError, TypeError, ValueError):
            raise UserError(f"{path / 'run.json'} is missing or damaged: restore it, or choose "
                            "another run") from None
        for name, digest in hashes.items():
            file = path / name
            check_there(file)
            if sha256(file) != digest:
                raise UserError(f"{file} is not what this run was made with (run.json has its "
                                "sha256): restore it, or choose another run")
        for name in TOKENIZER_FILES:
            file = path / name
            if name not in hashes and file.is_file():  # it would be read instead of ours
                raise UserError(f"{file} was added to this run, which has another tokenizer: "
                                "remove it, or choose another run")
        read_created(path, record)  # raises UserError here, and not later where runs are sorted
        return cls(path, record)

    @staticmethod
    def new_path(runs: str | Path, name: str) -> Path:
        """Return where a run of this name will be. UserError if the name is invalid or taken."""
        check_name(name)
        path = Path(runs) / name
        if path.exists():
            raise UserError(f"{path} already exists: continue it with --resume "
                            f"{shlex.quote(str(path))}, or start another run with --name")
        return path

    def resume(self, step: int, config: Config) -> None:
        """Continue after the checkpoint of `step`, in the files and in the same wandb run.

        A crash may have left points of later steps. They are removed, because those steps are taken
        again. wandb gets all points again: it may lack some that were logged before the process was
        killed and, if it was offline, may have some that are now removed.
        """
        points = self.points_until(step)
        self.checkpoints.forget_after(step)
        self.write_points(points)
        self.start_wandb(config, points)

    # --- points ---

    def write_points(self, points: Sequence[dict[str, Any]]) -> None:
        """Replace all points."""
        lines = "".join(json.dumps(point) + "\n" for point in points)
        write_file(self.path / METRICS, lines.encode())

    def log(self, point: dict[str, float | int | str]) -> None:
        """Add a line to metrics.jsonl, and a point to wandb; `step` must be in it.

        Numbers that are not finite become null, because NaN is not JSON. Ranks other than 0 do
        nothing.
        """
        if not self.is_main:
            return
        storable: dict[str, float | int | str | None] = {}
        for key, value in point.items():
            is_finite = not isinstance(value, float) or math.isfinite(value)
            storable[key] = value if is_finite else None
        file = self.path / METRICS
        with writing(file), file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(storable, allow_nan=False) + "\n")
        if self.wandb:
            self.wandb.log(point)

    def metrics(self, warns: bool = True) -> list[dict[str, Any]]:
        """Return the points of metrics.jsonl, whose values are numbers, text or None.

        Broken lines are left out. With `warns`, prints a warning if the file is missing, and one
        for each broken line, except for a last line that a crash cut short.
        """
        file = self.path / METRICS
        points: list[dict[str, Any]] = []
        if warns and self.checkpoints.can_resume and not file.exists():
            say(f"warning: {file} is missing")
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                point = json.loads(line)
                if type(point["step"]) is not int:
                    raise ValueError("no step")
                points.append(point)
            except (KeyError, TypeError, ValueError, RecursionError):
                if warns:
                    say(f"warning: leaving out line {number} of {file}, which is damaged")
        return points

    def points_until(self, step: int) -> list[dict[str, Any]]:
        """Return the points up to `step`."""
        return [point for point in self.metrics() if point["step"] <= step]

    def check_files(self) -> None:
        """Raise UserError if a file is gone without which `open` refuses the run."""
        for name in ("run.json", *self.record["sha256"]):
            check_there(self.path / name)

    def save(
        self, name: Literal["last", "best"] | int, write: Callable[[Path], object],
        training: dict[str, Any] | None, world: World,
    ) -> None:
        """Write a checkpoint; see `Checkpoints.save`. The points so far are on the disk first."""
        if self.is_main and (self.path / METRICS).exists():
            with writing(self.path / METRICS):
                fsync(self.path / METRICS)
        self.checkpoints.save(name, write, training, world)

    # --- wandb ---

    def start_wandb(self, config: Config, points: Sequence[dict[str, Any]] = ()) -> None:
        """Start the mirror in wandb, and hand it the points that there are."""
        if config.log.wandb != "disabled":
            self.wandb = WandbThread(config.log, self.path.name, self.record["wandb_id"],
                                     asdict(config))
            self.wandb.start()
            for point in points:
                self.wandb.log(point)

    def finish(self, exit_code: int = 0) -> None:
        """Wait for wandb to write or upload the rest, for less than a minute."""
        if self.wandb:
            self.wandb.finish(exit_code)


@cache  # the code has been imported: what becomes of its files later does not matter
def git_revision(folder: Path = Path(__file__).parent) -> dict[str, Any] | None:
    """Return the revision of the code in a folder, and whether tracked files differ from it.

    If they do, `diff_sha256` is a hash of the difference and of untracked Python files: two runs
    that share it had the same code. Returns None outside git, without git, and in a checkout that
    git distrusts.
    """
    git = ["git", "--no-optional-locks", "-C", str(folder), "-c", "diff.relative=false"]
    describe = [*git, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    # For a binary file, --full-index gives its hash. Its content would take more time and memory.
    diff = [*git, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "HEAD"]
    # Only those of the root and of packages: a virtual environment below has thousands of files.
    untracked = [*git, "ls-files", "--others", "--exclude-standard", "-z", "--",
                 ":(top,glob)*.py", ":(top,glob)*/*.py"]
    try:
        answer = subprocess.run(describe, check=True, capture_output=True, text=True).stdout.strip()
        if not answer.endswith("-dirty"):
            return {"revision": answer, "dirty": False}
        changes = hashlib.sha256(subprocess.run(diff, check=True, capture_output=True).stdout)
        names = subprocess.run(untracked, check=True, capture_output=True).stdout
        for name in names.split(b"\0")[:-1]:
            file = Path(folder, os.fsdecode(name))
            if file.is_file():  # an editor may lock a file by a link to nothing
                changes.update(name + b"\0" + bytes.fromhex(sha256(file)))
    except (OSError, subprocess.SubprocessError):
        return None
    return {"revision": answer.removesuffix("-dirty"), "dirty": True,
            "diff_sha256": changes.hexdigest()}
