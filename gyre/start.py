"""Resolve a command line of train.py: start a run, resume one, or branch off from one."""

import os
import re
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from data.tokenizer import open_tokenizer
from errors import UserError
from gyre.options import Config, Parser, make_config, read_config, read_yaml
from gyre.rundir import RunDir
from gyre.wandb_log import LogConfig
from model.config import CHANGEABLE


@dataclass
class StartOptions:
    """What training starts from; without any of these, a new model."""

    resume: str | None = None
    """Go on with this run, exactly where it was. auto: resume the run of --name if there is one,
    else start it, so that the same command can be repeated."""
    init_from: str | None = None
    """Start from the weights of this run, with its model and tokenizer."""
    branch_from: str | None = None
    """Go on from a checkpoint of this run as a new run, with other --train.steps, --optim.schedule
    or learning rates."""
    at: int | None = None
    """Branch off from the checkpoint of this step, which train.keep has kept. Default: the last
    one."""


@dataclass(frozen=True)
class Start:
    """What a command line asks for."""

    config: Config
    stem: str
    """Name of a new run if the configuration has none. A number is added if it is taken."""
    argv: list[str]
    """The command line itself."""
    given: dict[str, Any]
    """The options of Config that the command line names, by dotted name."""
    resumed: RunDir | None = None
    """The run to go on with. None: a new run."""
    source: RunDir | None = None
    """The run whose checkpoint is restored: the resumed one, or the one to branch from."""
    step: int | None = None
    """The step of that checkpoint. None: the last."""
    repeatable: bool = False
    """Whether the command says --resume auto. Then a finished run is no error."""

    @property
    def is_branch(self) -> bool:
        """Whether a new run starts from a checkpoint of another one."""
        return self.source is not None and self.resumed is None


def resolve(argv: list[str], doc: str) -> Start:
    """Return what `argv` asks for; `doc` is the description for --help.

    Raises UserError for a configuration that is invalid, or that contradicts the run's.
    """
    options = Parser(doc, StartOptions, config=True).parse_args(argv)
    given, auto = options.given, options.resume == "auto"
    # Not for --resume auto, whose run need not exist yet.
    needs_run = options.branch_from or (options.resume and not auto)
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    for wrong, message in (
        (not argv, "say what to train, such as --config small.yaml, or what to --resume (--help "
         "lists all options)"),
        (options.resume and options.branch_from,
         "--resume goes on with a run and --branch-from starts another one: leave one of them out"),
        (options.at is not None and not options.branch_from,
         f"--at {options.at} has no effect without --branch-from"),
        (restarted and not options.resume,
         "torchrun has restarted this command, which would start another run: say --resume auto"),
        (needs_run and (options.init_from or options.config),
         "--resume and --branch-from take the weights and the configuration of their run: leave "
         "out --init-from and --config"),
    ):
        if wrong:
            raise UserError(message)
    if options.branch_from:
        return branch(RunDir.open(options.branch_from), argv, given, options.at)
    if needs_run:
        return resume(RunDir.open(options.resume), argv, given)

    files: dict[str, Any] = {}  # by dotted name, as `given`
    for name in options.config:
        files |= read_yaml(name)
    if auto:
        asked = files | given
        if asked.get("name") is None:
            raise UserError("--resume auto needs a --name: that of the run to start or go on with")
        path = Path(asked.get("log.runs", LogConfig.runs), asked["name"])
        if path.exists():
            return resume(RunDir.open(path), argv, given, again=True)
    init_run = read_init_run(RunDir.open(options.init_from), given) if options.init_from else {}
    config = make_config(files, init_run, given)
    stem = Path(options.config[0]).stem if options.config else "gyre"
    stem = re.sub(r"[^\w.=+-]+", "-", stem).lstrip("-.=+") or "gyre"  # without forbidden characters
    return Start(config, f"{stem}-{config.model.position}-s{config.seed}", argv, given,
                 repeatable=auto)


def resume(run: RunDir, argv: list[str], given: dict[str, Any], again: bool = False) -> Start:
    """Return how to go on with a run, with what the command line changes of it.

    `again`: --resume auto repeats the command that started the run. Of that command, --config,
    --data.tokenizer and every option whose value is `auto` are ignored, because the run has saved
    what they stood for.
    """
    saved = read_trained(run)
    if again:
        given = {option: value for option, value in given.items()
                 if option != "data.tokenizer" and value != "auto"}
    config = make_config(asdict(saved), given)
    check_unchanged(run, saved, config, "--resume", "name", "optim")
    return Start(config, run.path.name, argv, given, run, run, repeatable=again)


def branch(run: RunDir, argv: list[str], given: dict[str, Any], step: int | None) -> Start:
    """Return how to start a new run from a checkpoint of another one."""
    saved = read_trained(run)
    own: dict[str, Any] = {"name": None, "train.keep": []}
    if given.get("optim.schedule", saved.optim.schedule) != saved.optim.schedule:
        own["optim.cooldown"] = None  # it belongs to the other schedule
    config = make_config(asdict(saved), own, given)
    check_unchanged(run, saved, config, "--branch-from")
    return Start(config, f"{run.path.name}-branch", argv, given, source=run, step=step)


def read_init_run(run: RunDir, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that --init-from takes from a run: its path, model and tokenizer.

    Raises UserError if the command line asks for another model or tokenizer.
    """
    saved = read_config(run.path / "config.yaml")
    for option in given:
        section, _, name = option.partition(".")
        if (section == "model" and name.partition(".")[0] not in CHANGEABLE
                or option in ("data.tokenizer", "data.vocab_size")):
            raise UserError(f"--{option} cannot be given with --init-from: it is that of "
                            f"{run.path}")
    model = asdict(saved.model)
    if saved.model.rope_scaling is None and "model.rope_scaling.type" in given:
        # Without scaling, the trained length is data.seq_len.
        model["rope_scaling"] = {"original_positions": saved.data.seq_len}
    tokenizer = {"tokenizer": str(run.path), "vocab_size": open_tokenizer(run.path).vocab_size}
    return {"init_from": str(run.path), "model": model, "data": tokenizer}


def read_trained(run: RunDir) -> Config:
    """Return the configuration that a run was started with. UserError if it was imported."""
    if "imported" in run.manifest:
        raise UserError(f"{run.path} was imported, not trained: start from it with --init-from")
    return read_config(run.path / "config.yaml")


def check_unchanged(run: RunDir, saved: Config, config: Config, option: str, *more: str) -> None:
    """Raise UserError if an option that must match the checkpoints of a run has changed.

    `more` are further parts that cannot change on this `option`.
    """
    needed = ("seed", "init_from", "model", "data", "optim.optimizer", "train.batch_size")
    for part in (*needed, *more):
        if attrgetter(part)(config) != attrgetter(part)(saved):
            raise UserError(f"{part} of {run.path} cannot change on {option}: start a new run for "
                            "that")
