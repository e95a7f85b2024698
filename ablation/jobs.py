"""What a Dask worker does for a study: train runs and measure them.

Every job can be repeated. What is on the disk is not done again, and a training that was stopped or
killed is resumed. So if a worker is lost, another one takes its job.
"""

import gc
import shlex
import signal
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from ablation.options import to_words
from ablation.record import measure_runs
from data.dataset import find_or_prepare
from errors import UserError, report_errors
from files import first_line, locked, remove
from gyre.fit import make_draft
from gyre.rundir import RunDir, locked_run
from gyre.signals import StopSignal
from gyre.start import Start, begin, branch, resume
from gyre.yaml_files import read_config


class TrainingOutcome(Protocol):
    """The `Outcome` of train.py."""

    @property
    def signal(self) -> int:
        """Number of the signal that stopped it; 0: it has taken all its steps."""


RunTraining = Callable[[Start, StopSignal], TrainingOutcome]
"""`run_training` of train.py. It is passed as an argument, because commands import this package,
and not the other way round."""

Ending = Literal["finished", "diverged"]

Result = float | dict[str, Any] | None
"""What a job returns: the loss of a tuning or calibration run, or the record of an arm and seed.
None: a run diverged."""


class Training(msgspec.Struct, frozen=True):
    """A run that a study trains."""

    folder: str
    """That of the run."""
    options: dict[str, Any]
    """Options of train.py by dotted name. They override the defaults, or those of the trunk."""
    trunk: str | None = None
    """The run to branch off from. None: the run starts at step 0."""
    at: int | None = None
    """The step of the trunk at which the run branches off. None without a trunk."""
    text_sha256: str | None = None
    """The hash of the study's text. None: it is not known."""

    @property
    def steps(self) -> int:
        """Its optimizer steps, all of them."""
        return self.options["train.steps"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a worker: some trainings, and a Result, which the subclass names."""

    name: str
    trainings: list[Training]
    """Of a RecordJob: the longest run, then its branches from long to short. Of other jobs: one."""


class CalibrationJob(Job, frozen=True, kw_only=True):
    """Repeat a run of another study (`--beside`). The result is the loss.

    It shows whether this machine gives the same loss as that of the other study.
    """

    committed: float
    """The loss in the record of the other study."""


class TuningJob(Job, frozen=True, kw_only=True):
    """Try a learning rate of an arm. The result is the loss, which ablation/runner.py keeps under
    the arm, lr and seed.
    """

    arm: str

    @property
    def lr(self) -> float:
        return self.trainings[0].options["optim.lr"]

    @property
    def seed(self) -> int:
        return self.trainings[0].options["seed"]


class RecordJob(Job, frozen=True, kw_only=True):
    """Train the runs of an arm and seed, and measure them. The result is their record."""

    arm: str
    max_spans: int
    """The most spans on which a run is measured. Each has 8T tokens, where T is data.seq_len
    (gyre/measure.py)."""
    device: str
    """On which the runs are measured: train.device of the study."""


def do_job_on_worker(run_training: RunTraining, folder: str, job: Job) -> Result:
    """Return what `do_job` returns, on a Dask worker, where `request_stop` can stop it."""
    from distributed import get_worker  # slow to import

    worker: Any = get_worker()  # it has one thread, and does one job at a time
    stop = StopSignal()
    # `request_stop` runs in another thread, at any moment. It writes `stopped_keys`, and then reads
    # `stop_of_job`. This function writes `stop_of_job`, and then reads `stopped_keys`. So at least
    # one of the two sees what the other has written, and no request gets lost.
    worker.stop_of_job = stop
    if worker.get_current_task() in getattr(worker, "stopped_keys", ()):
        raise UserError(f"{job.name} was stopped before it began")
    return do_job(run_training, folder, job, stop)


def do_job(run_training: RunTraining, folder: str, job: Job, stop: StopSignal) -> Result:
    """Train and measure. What the job prints is in the study's `folder`, as logs/NAME.log."""
    logs = Path(folder, "logs").resolve()
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{job.name}.log"
    with log.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            # A worker that the scheduler has lost may still do this job.
            busy = f"another worker is doing {job.name}: waiting for it"
            with locked(logs / job.name, busy, gives_up=stop.is_asked):
                return train_and_measure(run_training, job, stop)
        except Exception:
            traceback.print_exc()  # the study shows a line of it only
            raise


def train_and_measure(run_training: RunTraining, job: Job, stop: StopSignal) -> Result:
    """Return the result of a job. None if a run of it diverged."""
    for training in job.trainings:
        if finish_training(run_training, training, stop) == "diverged":
            return None
    runs = [RunDir.open(training.folder) for training in job.trainings]
    for training, run in zip(job.trainings, runs, strict=True):
        check_encoding(run)
        check_text(training, run.manifest)
    if isinstance(job, RecordJob):
        return measure_runs(job.arm, job.max_spans, job.device, *runs)
    (run,) = runs  # a tuning or calibration job trains one
    return last_validation(run)


def last_validation(run: RunDir) -> float:
    """Return the last validation loss of a run. UserError if the file with it is gone."""
    losses = [point["val/loss"] for point in run.metrics() if "val/loss" in point]
    if not losses:
        raise UserError(f"{run.path} has lost the losses of its validations: remove it, and give "
                        "the same command again, to train it anew")
    return losses[-1]


def how_it_ended(folder: Path, steps: int) -> Ending | None:
    """Return how the training of a run has ended, or None if some of its `steps` are missing.

    Raises UserError if the run was trained further by hand.
    """
    if not folder.exists():
        return None
    step = resumable_step(folder)
    if step > steps:
        raise UserError(f"{folder} has taken {step} steps, and the study wants {steps}: remove it, "
                        "and give the same command again")
    if step == steps:
        return "finished"
    if has_diverged(folder):
        return "diverged"
    return None


def remove_without_checkpoint(folder: Path) -> None:
    """Remove a run that was stopped before its first checkpoint, to begin it anew.

    It could only be resumed at step 0, and a branch not even there. If train.keep has kept a
    checkpoint before the first `last`, it goes too, and the new run keeps one like it.
    """
    if folder.exists() and not RunDir.open(folder).checkpoints.can_resume:
        remove_run(folder)


def remove_run(folder: Path) -> None:
    """Remove a run. If this is interrupted, what is left has a name that nothing looks for."""
    hidden = folder.with_name(f".{folder.name}-removed")
    remove(hidden)
    folder.rename(hidden)
    remove(hidden)


def finish_training(run_training: RunTraining, training: Training, stop: StopSignal) -> Ending:
    """Train what is missing of a run: all, the rest of it, or nothing. Return how it ended.

    Raises UserError if it failed, if it was trained further by hand, or if `stop` asked it to stop.
    A run that is stopped in its training has saved. If `stop` came while this waited for another
    process that trains the run or prepares its text, nothing was begun here.
    """
    folder = Path(training.folder)
    # While somebody trains this run by hand, train.py holds this lock. Hold it here only to look at
    # the folder, because `run_training` takes the same lock.
    with locked_run(folder, wait=True, gives_up=stop.is_asked):
        ending = how_it_ended(folder, training.steps)
        if ending is None:
            remove_without_checkpoint(folder)
    if ending is not None:  # a run that diverged would diverge again
        return ending
    # `report_errors` prints an error as train.py does, here into the log of the job, and exits. The
    # study gets a line of it.
    try:
        with report_errors():
            start = make_start(training, stop)
            print("$", shlex.join(["python", "train.py", *start.argv]), flush=True)
            outcome = run_training(start, stop)
    except SystemExit as error:
        if has_diverged(folder):
            return "diverged"
        reason = f"exit {error.code}"
        if error.__context__ is not None:  # what `report_errors` has caught
            reason = first_line(error.__context__)
        raise UserError(f"{folder.name} failed, and the study stopped: {reason} (more is in the "
                        f"job's log in {folder.parent / 'logs'})") from None
    finally:
        gc.collect()  # nothing else frees a compiled model, which is in a reference cycle
    if outcome.signal:
        raise UserError(f"{folder.name} was stopped, and has saved")
    return "finished"


def make_start(training: Training, stop: StopSignal) -> Start:
    """Return how a training goes on, if its run has begun, or else how it begins.

    Prepares the text of one that begins. Raises UserError if `stop` is asked while another process
    does that.
    """
    if Path(training.folder).exists():
        run = RunDir.open(training.folder)
        check_encoding(run)
        check_text(training, run.manifest)
        return resume(run, ["--resume", training.folder], {})
    argv = to_argv(training)
    if training.trunk is not None:
        trunk = RunDir.open(training.trunk)
        check_encoding(trunk)
        return branch(trunk, argv, training.options, training.at)
    draft = make_draft(training.options)
    data = find_or_prepare(draft.config.data, gives_up=stop.is_asked)
    check_text(training, data.manifest)
    # argv only becomes the "command" in run.json: the options are in the draft, and in `given`. No
    # stem is needed: it is for runs without a name, and a study names its runs in their options.
    return begin(draft, argv, stem="", given=training.options)


def check_text(training: Training, manifest: dict[str, Any]) -> None:
    """Raise UserError if this manifest is not of the text that the study began with. Records of two
    texts would not compare."""
    if training.text_sha256 is None:
        return
    if manifest["text"]["sha256"] != training.text_sha256:
        raise UserError(f"the text of {Path(training.folder).name} is not that with which the "
                        "study began: put it back, or begin another study with --name")


def check_encoding(run: RunDir) -> None:
    """Raise UserError if the code of the encoding was edited since a run was made. Otherwise its
    record would be of the old code in part, and of the new code in part."""
    position = read_config(run.path / "config.yaml").model.position
    if run.has_changed_encoding(position):
        raise UserError(f"the code of model.position {position} has changed since {run.path} was "
                        "made: undo the change, or remove that folder, to train it anew")


def to_argv(training: Training) -> list[str]:
    """Return the command line of train.py for a training that begins, for the log and the run."""
    words = to_words(training.options)
    if training.trunk is None:
        return words
    return ["--branch-from", training.trunk, "--at", str(training.at), *words]


def resumable_step(folder: Path) -> int:
    """Return the step that a run can be resumed from; 0 without a checkpoint.

    Unlike `saved_step`, this checks the files: a damaged `last` counts as the one before it.
    """
    checkpoints = RunDir.open(folder).checkpoints
    if not checkpoints.can_resume:
        return 0
    with checkpoints.open("last") as last:
        return checkpoints.load_training(last)["progress"]["step"]


def has_diverged(folder: Path) -> bool:
    """Return whether train.py gave a run up: a loss, gradients or a weight were not finite."""
    if not folder.exists():
        return False
    return any("diverged" in point for point in RunDir.open(folder).metrics())


def request_stop(keys: set[str], dask_worker: Any) -> set[str]:
    """Stop the jobs with these keys on a worker, and return the keys of those that it is doing.

    A job in progress ends, after saving if it trains. There is one exception: a job that resumes a
    run whose text is gone, and waits for another process to prepare it again, keeps waiting. Jobs
    that are not in progress will not begin. Dask fills in `dask_worker` because of its name.
    """
    dask_worker.stopped_keys = getattr(dask_worker, "stopped_keys", set()) | keys
    doing = keys & {task.key for task in dask_worker.state.executing}
    stop = getattr(dask_worker, "stop_of_job", None)
    if doing and stop is not None:
        stop.number = signal.SIGTERM
    return doing


def dask_setup(worker: Any) -> None:
    """Ignore Ctrl-C and SIGTERM. Dask calls this when a worker of our own starts, also one that
    replaces a lost one.

    A terminal, or a batch system such as Slurm, sends them to all processes of a group. The command
    gets them too, and stops the jobs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
