"""wandb, which mirrors what metrics.jsonl holds. Nothing else imports wandb."""

import os
import queue
import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from errors import say
from files import first_line

WANDB_START = 10  # seconds until an unreachable server is given up and the run goes on offline
WANDB_FINISH = 20  # seconds the upload may take at the end; the rest is left to `wandb sync`
# What a point of metrics.jsonl can be drawn against. wandb has one axis, its step, and that is
# tokens: they compare runs of other batches. An axis more would be a panel of its own.
AXES = ("step", "tokens", "seconds")


@dataclass
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


@dataclass(frozen=True)
class Table:
    """A table, as the value of a point: wandb draws it."""

    columns: list[str]
    rows: list[list[str | float | None]]


def log_to_wandb(
    log: LogConfig, name: str, config: dict[str, Any], points: list[dict[str, Any]]
) -> bool:
    """Make a wandb run of what is over: its points may hold a `Table`, or the Path of an image, and
    are drawn against their `x`, a whole number.

    Returns whether wandb took it: if not, another one is not worth trying.
    """
    if log.wandb == "disabled":
        return False
    run = WandbThread(log, name, wandb_id(name), config, kept="the files have everything")
    run.start()
    rows: dict[int, dict[str, Any]] = {}
    for point in points:
        rows.setdefault(point["x"], {}).update(point)
    for x in sorted(rows):  # wandb's steps only rise
        run.queue.put(rows[x])
    run.finish(0)
    return not (run.failed or run.is_alive())


class WandbThread(threading.Thread):
    """One wandb run behind a queue, in a thread of its own.

    Training only ever puts a point into the queue. A package that is missing, a server that does
    not answer, an upload that hangs: each costs one warning, and no step.
    """

    def __init__(
        self, log: LogConfig, name: str, id: str, config: dict[str, Any],
        kept: str = "metrics.jsonl has every point",
    ):
        """`id` continues the wandb run that has it; `kept` is what a user has without wandb."""
        super().__init__(name="wandb", daemon=True)
        self.mode = log.wandb
        self.kept = kept
        self.failed = False
        self.arguments = dict(
            dir=log.runs, project=log.project, group=log.group, job_type=log.job_type,
            tags=log.tags, name=name, id=id, config=config,
        )
        self.queue: queue.SimpleQueue[dict[str, Any] | int] = queue.SimpleQueue()

    def log(self, point: dict[str, Any]) -> None:
        """Hand over a point of metrics.jsonl."""
        if self.is_alive():
            values = {name: value for name, value in point.items() if name not in AXES}
            self.queue.put(values | {"x": point["tokens"]})

    def finish(self, exit_code: int) -> None:
        """Wait until all points are written, or uploaded, within limits."""
        self.queue.put(exit_code)
        self.join(2 * WANDB_START + WANDB_FINISH)
        if self.is_alive():
            say("warning: wandb does not finish; upload the run later with `wandb sync`")

    def run(self) -> None:
        """The thread: take points from the queue until the exit code comes."""
        try:
            run = self._init()
            # A resumed run hands over its points again. They are the same points (resuming is
            # exact): online, with `step` given, wandb keeps those it has; an offline folder holds
            # them all, whatever of the folder before it was lost.
            while isinstance(item := self.queue.get(), dict):
                x = item.pop("x")
                run.log({_key(k): _media(v) for k, v in item.items()}, step=x)
            run.finish(exit_code=item)
        except Exception as error:
            self.failed = True
            say(f"warning: going on without wandb ({first_line(error)}); {self.kept}")

    def _init(self) -> Any:
        """The wandb run, whose summary has the lowest validation loss."""
        import wandb  # slow, and not everybody who opens a run needs it

        known = ("online", "offline", "dryrun", "run", "shared", "disabled")
        if (asked := os.environ.get("WANDB_MODE", "online")) not in known:
            raise ValueError(f"WANDB_MODE is {asked!r} and must be one of {', '.join(known)}")
        chosen: dict[str, Any] = {} if self.mode == "auto" else {"mode": self.mode}
        settings = wandb.Settings(  # silent: the terminal belongs to the progress bar
            silent=True, console="off", disable_git=True, disable_code=True, **chosen,
            init_timeout=WANDB_START, finish_timeout=WANDB_FINISH, finish_timeout_raises=True,
        )
        mode: Any = wandb.setup(settings).settings.mode  # knows WANDB_MODE and `wandb offline`
        if mode not in ("offline", "dryrun", "disabled"):
            try:
                if not wandb.login(prompt=False):  # asks the server only where there is a key
                    mode = "offline"
                    if self.mode == "online":
                        say("warning: not logged in to wandb (`wandb login`); logging offline")
            except wandb.Error as error:
                mode = "offline"
                say(f"warning: wandb is not reachable ({first_line(error)}); logging offline")
        run = wandb.init(mode=mode, resume="allow", reinit="create_new", **self.arguments)
        if run.url:
            say(f"wandb: {run.url}")
        run.define_metric("val/*", summary="min")
        return run


def _key(name: str) -> str:
    """What wandb calls a value. "grad_norm" would stand before "loss"."""
    return {"train/grad_norm": "train/norm"}.get(name, name)


def _media(value: Any) -> Any:
    import wandb

    match value:
        case Table(columns, rows):
            return wandb.Table(columns=[*columns], data=[*rows])
        case Path():
            return wandb.Image(str(value))
    return value


def wandb_id(name: str, encoding: str = "") -> str:
    """A new id that says which run it is: wandb names its folders by id, and `wandb leet` lists
    those, of which a narrow terminal shows five letters. So the encoding comes first:
    small-rope-s1 is rope-s1-small."""
    stem, found, rest = name.partition(f"-{encoding}-")
    if encoding and found:
        name = f"{encoding}-{rest}-{stem}"
    return f"{name[:50]}-{secrets.token_hex(3)}"
