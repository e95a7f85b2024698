"""wandb, which mirrors what metrics.jsonl holds. Nothing else imports wandb."""

import queue
import secrets
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from files import first_line

WANDB_START = 10  # seconds until an unreachable server is given up and the run goes on offline
WANDB_FINISH = 20  # seconds the upload may take at the end; the rest is left to `wandb sync`
# wandb's x axes: for each group of metrics, the metric that it is drawn against.
AXES = {"train": "tokens", "val": "tokens", "position": "tokens_seen", "context": "context_length",
        "shift": "offset", "probe": "probe_step"}  # fmt: skip


@dataclass
class LogConfig:
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
    """A table for wandb."""

    columns: list[str]
    rows: list[list[str | float | None]]


def log_to_wandb(
    log: LogConfig, name: str, config: dict[str, Any], points: list[dict[str, Any]]
) -> bool:
    """A wandb run about runs that are over: its points may hold tables, and images by their path.

    What has an axis of its own (AXES) names its place on it in the same point. Returns whether it
    is worth trying another.
    """
    if log.wandb == "disabled":
        return False
    run = WandbThread(log, name, wandb_id(name), config, kept="the files have everything")
    run.start()
    for step, point in enumerate(points):
        run.log({"step": step} | point)
    run.finish(0)
    return not run.failed


class WandbThread(threading.Thread):
    """wandb behind a queue, in a thread of its own.

    Training only ever puts a point into the queue. A package that is missing, a server that does
    not answer, an upload that hangs: each costs one warning, and no step.
    """

    def __init__(
        self,
        log: LogConfig,
        name: str,
        id: str,
        config: dict[str, Any],
        kept: str = "metrics.jsonl has every point",
    ):
        super().__init__(name="wandb", daemon=True)
        self.options = log
        self.kept = kept  # what a user still has without wandb
        self.failed = False
        self.arguments = dict(
            dir=log.runs,
            project=log.project,
            group=log.group,
            job_type=log.job_type,
            tags=log.tags,
            name=name,
            id=id,
            config=config,
        )
        self.queue: queue.SimpleQueue[dict[str, Any] | int] = queue.SimpleQueue()

    def log(self, point: dict[str, Any]) -> None:
        if self.is_alive():
            self.queue.put(dict(point))

    def finish(self, exit_code: int) -> None:
        self.queue.put(exit_code)
        self.join(2 * WANDB_START + WANDB_FINISH)
        if self.is_alive():
            say_above("warning: wandb does not finish; upload the run later with `wandb sync`")

    def run(self) -> None:
        try:
            run = self._init()
            # A step that is logged twice after a crash is the same step again (resuming is exact):
            # with `step` given, wandb keeps the one it has.
            while isinstance(item := self.queue.get(), dict):
                run.log({k: _media(v) for k, v in item.items()}, step=item["step"])
            run.finish(exit_code=item)
        except Exception as error:
            self.failed = True
            say_above(f"warning: going on without wandb ({first_line(error)}); {self.kept}")

    def _init(self) -> Any:
        import wandb  # slow, and not everybody who opens a run needs it

        options = self.options
        chosen = {} if options.wandb == "auto" else {"mode": options.wandb}
        settings = wandb.Settings(
            silent=True,  # the terminal belongs to the progress bar
            console="off",
            disable_git=True,
            disable_code=True,
            init_timeout=WANDB_START,
            finish_timeout=WANDB_FINISH,
            finish_timeout_raises=True,
            **chosen,
        )
        mode = wandb.setup(settings).settings.mode  # knows WANDB_MODE and `wandb offline`
        if mode not in ("offline", "dryrun", "disabled"):
            try:
                if not wandb.login(prompt=False):  # asks the server only where there is a key
                    mode = "offline"
                    if options.wandb == "online":
                        say_above(
                            "warning: not logged in to wandb (`wandb login`); logging offline"
                        )
            except wandb.Error as error:
                mode = "offline"
                say_above(f"warning: wandb is not reachable ({first_line(error)}); logging offline")
        run = wandb.init(mode=mode, resume="allow", reinit="create_new", **self.arguments)
        if run.url:
            say_above(f"wandb: {run.url}")
        for axis in {"step", "seconds", *AXES.values()}:
            run.define_metric(axis, hidden=True)  # an x-axis, not a panel
        # No two patterns may match the same key: which of them wins is left to chance.
        for group, axis in AXES.items():
            summary = "min" if group == "val" else None
            run.define_metric(f"{group}/*", step_metric=axis, summary=summary)
        return run


def _media(value: Any) -> Any:
    import wandb

    match value:
        case Table(columns, rows):
            return wandb.Table(columns=columns, data=rows)
        case Path():
            return wandb.Image(str(value))
    return value


def wandb_id(name: str) -> str:
    """wandb names its folders by id, and `wandb leet` lists those: say which run it is."""
    return f"{name[:50]}-{secrets.token_hex(3)}"


def say_above(message: str) -> None:
    tqdm.write(message, file=sys.stderr)  # above the progress bar, not through it
