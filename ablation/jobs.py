"""What a Dask worker does for a study: train runs and measure them.

Every job can be repeated. What is on the disk is not done again, and a training that was stopped or
killed is resumed. So if a worker is lost, another one takes its job.
"""

import shlex
import shutil
import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import msgspec

from ablation.options import to_words
from ablation.record import measure_runs
from errors import UserError, report_errors
from files import locked
from gyre.fit import make_draft
from gyre.rundir import RunDir
from gyre.signals import StopSignal
from gyre.start import Start, begin, branch, resume

Train = Callable[[Start, StopSignal], Any]
"""`run` of train.py, which returns an Outcome. It is handed down, because train.py is a command,
and imports are only made from commands to this package."""


class Training(msgspec.Struct, frozen=True):
    """A run that a study trains."""

    run: str
    """Its folder."""
    steps: int
    """Its optimizer steps, all of them."""
    options: dict[str, Any]
    """Options of train.py by dotted name, over the defaults, or over those of the trunk."""
    trunk: str | None = None
    """The run to branch off from. None: the run starts at step 0."""
    at: int | None = None
    """The step of the trunk at which the run branches off."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker does at a time."""

    name: str
    trainings: list[Training]
    """In their order: a trunk comes before its branches."""


class CalibrationJob(Job, frozen=True, kw_only=True):
    """Train a committed run again. The result is its loss."""

    committed: float
    """The loss in its record."""


class TuningJob(Job, frozen=True, kw_only=True):
    """Try a learning rate of an arm. The result is the loss."""

    arm: str
    lr: float
    seed: int


class RecordJob(Job, frozen=True, kw_only=True):
    """Train the runs of an arm and seed, and measure them. The result is their record."""

    arm: str
    windows: int
    """Most windows of 8T tokens on which a run is measured."""
    device: str


def do_job_on_worker(train: Train, folder: str, job: Job) -> Any:
    """Return what `do_job` returns, on a Dask worker, where `request_stop` can stop it."""
    from distributed import get_worker  # slow to import

    stop = StopSignal()
    worker: Any = get_worker()
    worker.stop_of_job = stop  # a worker has one thread, and so one job at a time
    return do_job(train, folder, job, stop)


def do_job(train: Train, folder: str, job: Job, stop: StopSignal) -> Any:
    """Return the loss of a tuning or calibration run, or the record of an arm and seed.

    None if a run diverged. What the job prints is in the study's `folder`, as logs/NAME.log.
    """
    log = Path(folder, "logs", f"{job.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        for training in job.trainings:
            if not train_run(train, training, stop):
                return None
        runs = [RunDir.open(training.run) for training in job.trainings]
        if isinstance(job, RecordJob):
            return measure_runs(job.arm, job.windows, job.device, *runs)
        return last_validation(runs[0])


def last_validation(run: RunDir) -> float:
    """Return the last validation loss of a run."""
    losses = [point["val/loss"] for point in run.metrics() if "val/loss" in point]
    return losses[-1]


def train_run(train: Train, training: Training, stop: StopSignal) -> bool:
    """Train what is missing of a run: all, the rest of it, or nothing.

    Returns False if it diverged. Raises UserError if it failed, or saved and stopped because `stop`
    asked it to.
    """
    folder = Path(training.run)
    # A worker that the scheduler has lost may still train this run; train.py locks it then.
    with locked(folder.resolve(), f"{folder} is being trained by another worker: waiting for it"):
        if folder.exists():
            step = count_saved_steps(folder)
            if step == training.steps:
                return True
            if has_diverged(folder):
                return False  # it would diverge again
            if not step:
                shutil.rmtree(folder)  # stopped before its first checkpoint
    try:
        with report_errors():
            start = make_start(training)
            print("$", shlex.join(["python", "train.py", *start.argv]), flush=True)
            code = train(start, stop).signal
    except SystemExit as error:
        code = error.code
    if code and not has_diverged(folder):
        raise UserError(f"{folder.name} failed (exit {code}), and the study stopped: see the "
                        f"job's log in {folder.parent / 'logs'}")
    return not code


def make_start(training: Training) -> Start:
    """Return how a training goes on, if its run has begun, or else how it begins."""
    if Path(training.run).exists():
        return resume(RunDir.open(training.run), ["--resume", training.run], {})
    argv = to_argv(training)
    if training.trunk is not None:
        return branch(RunDir.open(training.trunk), argv, training.options, training.at)
    return begin(make_draft(training.options), argv, "gyre", training.options)


def to_argv(training: Training) -> list[str]:
    """Return the command line that does the same, for the log and the run."""
    words = to_words(training.options)
    if training.trunk is None:
        return words
    return ["--branch-from", training.trunk, "--at", str(training.at), *words]


def count_saved_steps(folder: Path) -> int:
    """Return the step that a run can be resumed from; 0 without a checkpoint."""
    checkpoints = RunDir.open(folder).checkpoints
    if not checkpoints.has_training:
        return 0
    with checkpoints.open("last") as last:
        return checkpoints.load_training(last)["progress"]["step"]


def has_diverged(folder: Path) -> bool:
    """Return whether the trainer gave a run up because its loss was not finite."""
    if not folder.exists():
        return False
    return any("diverged" in point for point in RunDir.open(folder).metrics())


def request_stop(keys: set[str], dask_worker: Any) -> set[str]:
    """Tell the training of this worker to save and end, if its job is one of `keys`.

    Returns those of `keys` that the worker is doing. The caller asks again: a job may just begin.
    """
    doing = keys & {task.key for task in dask_worker.state.executing}
    stop = getattr(dask_worker, "stop_of_job", None)
    if doing and stop is not None:
        stop.number = signal.SIGTERM
    return doing


def dask_setup(worker: Any) -> None:
    """Ignore Ctrl-C: the command gets it too, and stops the jobs. Dask calls this when a worker of
    our own starts, also one that replaces a lost one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
