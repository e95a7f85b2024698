"""The mirror of metrics.jsonl in wandb. Nothing else imports wandb."""

import glob
import os
import queue
import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from errors import describe_error, say
from files import first_line

WANDB_START = 10  # seconds to wait for a server before going on offline
WANDB_FINISH = 20  # seconds the upload may take at the end; the rest is left to `wandb sync`
# The axes of a point of metrics.jsonl. wandb has one, its step, and that is tokens, which compare
# runs of different batches. Each of the others would be a panel.
AXES = ("step", "tokens", "seconds")


@dataclass(frozen=True)
class LogConfig:
    """Where a run is written, and how wandb files it."""

    runs: str = "runs"
    """Folder of all runs."""
    wandb: Literal["auto", "online", "offline", "disabled"] = "auto"
    """auto: WANDB_MODE if set, else online when logged in, else offline without asking."""
    project: str = "gyre"
    """wandb project."""
    group: str | None = None
    """wandb group: the runs that one average is taken over, such as the seeds of an arm."""
    job_type: str = "train"
    """wandb job type."""
    tags: list[str] = field(default_factory=list)
    """wandb tags."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", os.path.expanduser(self.runs))  # it is frozen


class WandbThread(threading.Thread):
    """A wandb run behind a queue, in a thread of its own.

    Training only puts points into the queue. A package that is missing, a server that does not
    answer, an upload that hangs: each costs a warning, and no step.
    """

    def __init__(self, log: LogConfig, name: str, id: str, config: dict[str, Any]):
        """`id` continues the wandb run that has it."""
        super().__init__(name="wandb", daemon=True)
        self.mode = log.wandb
        self.arguments = dict(
            dir=log.runs, project=log.project, group=log.group, job_type=log.job_type,
            tags=log.tags, name=name, id=id, config=config,
        )
        # Tokens and the values that a point has there; at the end, the exit code.
        self.queue: queue.SimpleQueue[tuple[int, dict[str, Any]] | int] = queue.SimpleQueue()

    def log(self, point: dict[str, Any]) -> None:
        """Hand over a point of metrics.jsonl. Tokens are wandb's step, so a damaged point that has
        none is left out."""
        if self.is_alive() and type(point.get("tokens")) is int:
            values = {name: value for name, value in point.items() if name not in AXES}
            self.queue.put((point["tokens"], values))

    def finish(self, exit_code: int) -> None:
        """Wait until all points are written, or uploaded, within limits."""
        self.queue.put(exit_code)
        self.join(2 * WANDB_START + WANDB_FINISH)
        if self.is_alive():
            say("warning: wandb does not finish; upload the run later with `wandb sync`")

    def run(self) -> None:
        """Take points from the queue until the exit code comes."""
        try:
            run = self.init()
            # A resumed run hands over its points again. They are the same points, because resuming
            # is exact. Online, wandb keeps those that it has; offline, the new folder holds them
            # all, and takes the place of the older ones.
            item = self.queue.get()
            while isinstance(item, tuple):
                tokens, values = item
                run.log(values, step=tokens)
                item = self.queue.get()
            run.finish(exit_code=item)
        except ModuleNotFoundError as error:
            say(f"warning: going on without wandb, the files have everything: "
                f"{describe_error(error)}, or say --log.wandb disabled")
        except Exception as error:  # no failure of wandb is worth a training
            say(f"warning: going on without wandb, the files have everything: {first_line(error)}")

    def init(self) -> Any:
        """Return the wandb run, offline where nobody is logged in or no server answers."""
        import wandb  # slow, and not everybody who opens a run needs it

        chosen: dict[str, Any] = {} if self.mode == "auto" else {"mode": self.mode}
        settings = wandb.Settings(  # silent: the terminal belongs to the progress bar
            silent=True, console="off", disable_git=True, disable_code=True, **chosen,
            init_timeout=WANDB_START, finish_timeout=WANDB_FINISH, finish_timeout_raises=True,
        )
        mode: Any = wandb.setup(settings).settings.mode  # knows WANDB_MODE and `wandb offline`
        if mode not in ("offline", "dryrun", "disabled"):
            reason = "not logged in, see `wandb login`" if self.mode == "online" else ""
            try:
                if not wandb.login(prompt=False):  # asks the server only where there is a key
                    mode = "offline"
            except wandb.Error as error:
                mode = "offline"
                reason = first_line(error)
            if mode == "offline" and reason:
                say(f"warning: wandb is offline: {reason}")
        # Without "allow", `wandb sync` of an offline folder overwrites the run on the server, as it
        # should. With "allow" it would append the points, and renumber those that the server has.
        resume = None if mode in ("offline", "dryrun") else "allow"
        run = wandb.init(mode=mode, resume=resume, reinit="create_new", **self.arguments)
        if not run.disabled:
            set_aside_older(Path(run.dir).parent, run.id)
        if run.url:
            say(f"wandb: {run.url}")
        run.define_metric("val/*", summary="min")
        return run


def set_aside_older(folder: Path, id: str) -> None:
    """Move older offline folders of the wandb run `id` to superseded/, where no `wandb sync` looks.

    `folder` is the new one, which gets every point of the run. What the older ones hold after a
    kill need not be known then.
    """
    for older in sorted(folder.parent.glob(f"offline-run-????????_??????-{glob.escape(id)}")):
        if older.name == folder.name:
            continue
        superseded = folder.parent / "superseded"
        try:
            superseded.mkdir(exist_ok=True)
            older.rename(superseded / older.name)
        except OSError as error:
            say(f"warning: {older} stays ({first_line(error)}): do not upload it, {folder} has all "
                "its points")


def log_report(
    log: LogConfig, name: str, plan: dict[str, Any], columns: list[str], rows: list[list[Any]],
    figures: list[Path],
) -> None:
    """Make a wandb run of a finished study: its figures, and a table of its runs."""
    try:
        import wandb

        images = {figure.stem: wandb.Image(str(figure)) for figure in figures}
        table = wandb.Table([*columns], [*rows])
    except Exception as error:  # no failure of wandb is worth a study
        say(f"warning: the study is not in wandb: {describe_error(error)}")
        return
    thread = WandbThread(log, name, wandb_id(name), plan)
    thread.start()
    thread.queue.put((0, {"runs": table, **images}))
    thread.finish(0)


def wandb_id(name: str, distinct: str | None = None) -> str:
    """Return a new id, which begins with the name of the run.

    `wandb leet` lists folders by it, and shows only its first letters in a narrow terminal. So the
    part of the name from `distinct` on, such as "rope-s1" of "small-rope-s1", comes first.
    """
    if distinct is not None and f"-{distinct}" in name:
        start = name.index(f"-{distinct}")
        name = f"{name[start + 1 :]}-{name[:start]}"
    return f"{name[:50]}-{secrets.token_hex(3)}"
