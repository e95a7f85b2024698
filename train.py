"""Train a model on text.

    python train.py --config small.yaml
    python train.py --config small.yaml --model.position sinusoidal --train.steps 500
    python train.py --resume runs/small-rope-s1
    python train.py --init-from runs/small-rope-s1 --optim.lr 1e-4
    python train.py --branch-from runs/small-rope-s1 --train.steps 2000
    torchrun --nproc-per-node 2 train.py --config small.yaml
    torchrun --nproc-per-node 8 --max-restarts 3 train.py --config small.yaml --train.shard full \\
        --name big --resume auto

Values come from the defaults, then from the YAML file, then from the run of --init-from,
--branch-from or --resume, then from the command line. What the run leaves behind is in runs/NAME.
"""

from errors import UserError, exit_in_words, say  # first: Ctrl-C has no traceback

# isort: split
import dataclasses
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from data.tokenizer import open_tokenizer
from gyre.cli import ConfigParser, config_parser, load_config, load_file
from gyre.config import Config
from gyre.parallel import World, times_restarted
from gyre.rundir import RunDir, locked_run
from gyre.trainer import Finished, Stopped, Trainer


def main(argv: list[str] | None = None) -> None:
    with exit_in_words():
        config, stem, origin, resumes_itself, note = load(
            sys.argv[1:] if argv is None else argv
        )
        try:
            world = World.read(config.train.device, config.train.shard, config.train.timeout)
            if note and world.is_main:
                say(note)
            with ExitStack() as held, world.in_contact():
                held.callback(world.leave)
                if not world.is_main:
                    config.name = config.name or stem
                elif "resumed" in origin:
                    held.enter_context(locked_run(origin["resumed"].path))
                else:
                    config.name = held.enter_context(RunDir.claim(
                        config.log.runs, config.name or stem, numbered=config.name is None
                    ))
                code = Trainer(config, world, **origin).run()
        except Finished as finished:
            if not resumes_itself:
                raise
            say(f"nothing to do: {finished}")
            code = 0
        except (KeyboardInterrupt, Stopped) as stop:
            say("\ninterrupted; what was saved before is kept")
            code = 130
            if isinstance(stop, Stopped):
                os._exit(stop.args[0])  # Python would wait for the threads that compile
    sys.exit(code)


class Start(NamedTuple):
    """What a command line asks for."""

    config: Config
    stem: str
    """What the run is called where the configuration has no name."""
    origin: dict[str, Any] = {}
    """The Trainer's arguments about the run to go on with, if there is one."""
    resumes_itself: bool = False
    """Whether the same command line starts the run and goes on with it."""
    note: str = ""
    """What to say before training."""


def load(argv: list[str]) -> Start:
    """What `argv` asks for.

    Raises UserError for a configuration that cannot be, or that is not the one of that run.
    """
    if not argv:
        raise UserError("say what to train, such as --config small.yaml, or what to --resume "
                        "(--help lists all options)")
    parser = config_parser(__doc__)
    parser.add_argument("--resume", metavar="RUN",
                        help="Go on with this run, exactly where it was; auto: with the run of "
                        "--name where there is one, so that the same command can be started again "
                        "and again.")
    parser.add_argument("--init-from", dest="start", metavar="RUN",
                        help="Start from the weights of this run, with its model and tokenizer.")
    parser.add_argument("--branch-from", dest="branch", metavar="RUN",
                        help="Go on from a checkpoint of this run as a new run, with other "
                        "--train.steps, --optim.schedule or learning rates.")
    parser.add_argument("--at", type=int, metavar="STEP",
                        help="The step at which to branch off, one of --train.keep; default: the "
                        "last.")
    options, words = parser.split(argv)
    if options.at is not None and options.branch is None:
        raise UserError(f"--at {options.at} has no effect without --branch-from")
    if options.resume is not None and options.branch is not None:
        raise UserError("--resume goes on with a run and --branch-from starts another one: leave "
                        "one of them out")
    auto = options.resume == "auto"
    if times_restarted() and options.resume is None:
        raise UserError("torchrun has started this command again, which would be another run: say "
                        "--resume auto")
    named = None if auto else options.resume
    for option, name in (("--resume", named), ("--branch-from", options.branch)):
        if name is not None:
            if options.start is not None or options.config:
                raise UserError(f"{option} {name} goes on with its own weights and its own "
                                "configuration: leave out --init-from and --config")
            run = RunDir.open(name)
            if option == "--resume":
                return Start(resumed(parser, argv, run), run.path.name, {"resumed": run})
            config = branched(parser, argv, run)
            return Start(config, f"{run.path.name}-branch", {"branch": (run, options.at)})

    base, gone = {}, None
    if options.start is not None:
        try:
            start = RunDir.open(options.start)
            base = from_run(start, words)
            argv = [*argv, *trained_length(start, words)]
        except UserError as error:
            if not auto:
                raise
            gone = error  # which does not matter where there is something to go on with
    config, _ = load_config(parser, argv, base)
    if gone is not None and config.name is None:
        raise gone  # whose encoding is part of the name
    if config.init_from != base.get("init_from"):
        raise UserError(f"init_from {config.init_from} stands in a configuration: say --init-from "
                        f"{config.init_from}, which takes the model and the tokenizer too")
    file = Path(options.config[0]).stem if options.config else "gyre"
    file = re.sub(r"[^\w.=+-]+", "-", file).lstrip("-.=+") or "gyre"  # what a name may have
    stem = f"{file}-{config.model.position}-s{config.seed}"
    if auto:
        config.name = config.name or stem
        path = Path(config.log.runs) / config.name
        if path.exists():
            run = RunDir.open(path)
            kept = resumed(parser, argv, run)
            note = "" if gone else what_differs(run.path, config, kept)
            return Start(kept, stem, {"resumed": run}, resumes_itself=True, note=note)
    if gone is not None:
        raise gone
    if config.name is not None:
        RunDir.new_path(config.log.runs, config.name)  # a bad name is refused before any work
    return Start(config, stem, resumes_itself=auto)


def trained_with(run: RunDir) -> Config:
    """The configuration that a run was started with. UserError where it was imported."""
    if "imported" in run.manifest:
        raise UserError(f"{run.path} was imported, not trained: start from it with --init-from")
    return load_file(run.path / "config.yaml")


def resumed(parser: ConfigParser, argv: list[str], run: RunDir) -> Config:
    """The configuration of a run that goes on."""
    saved = trained_with(run)
    config, options = load_config(parser, argv, dataclasses.asdict(saved))
    if options.resume == "auto":  # as when it was started, which has been decided since
        config.data.tokenizer = saved.data.tokenizer
        for name in ("device", "dtype", "compile"):
            if getattr(config.train, name) == "auto":
                setattr(config.train, name, getattr(saved.train, name))
    refuse_changes(run.path, saved, config, "--resume", "name", "optim")
    return config


def what_differs(path: Path, asked: Config, kept: Config) -> str:
    """Which settings a file of --config, or the run of --init-from, asks for otherwise than the run
    has, in a sentence; empty: none."""
    differs = [name for name in ("seed", "init_from")
               if getattr(asked, name) != getattr(kept, name)]
    differs += [
        f"{part}.{name}"
        for part in ("model", "data", "optim", "train")
        for name, value in vars(getattr(asked, part)).items()
        if name != "tokenizer" and value not in ("auto", getattr(getattr(kept, part), name))
    ]
    if not differs:
        return ""
    return f"{path} goes on with its own {', '.join(differs)}, not what is asked for now"


def branched(parser: ConfigParser, argv: list[str], run: RunDir) -> Config:
    """The configuration of a new run that starts from a checkpoint of `run`."""
    saved = trained_with(run)
    saved.name, saved.train.keep = None, []
    said = {word.partition("=")[0] for word in argv}
    if "--optim.schedule" in said and "--optim.cooldown" not in said:
        saved.optim.cooldown = None  # that of the other schedule
    config, _ = load_config(parser, argv, dataclasses.asdict(saved))
    refuse_changes(run.path, saved, config, "--branch-from")
    if config.name is not None:
        RunDir.new_path(config.log.runs, config.name)  # a bad name is refused before any work
    return config


def refuse_changes(path: Path, saved: Config, config: Config, option: str, *parts: str) -> None:
    """UserError where a run could not go on from the checkpoints of `path`, or where one of these
    `parts` of the configuration, too, is another."""
    for part in ("seed", "init_from", "model", "data", *parts):
        if getattr(config, part) != getattr(saved, part):
            raise UserError(f"{part} of {path} cannot change on {option}: start a new run for "
                            "that")
    if config.optim.optimizer != saved.optim.optimizer:
        raise UserError(f"optim.optimizer of {path} cannot change on {option}")
    if config.train.batch_size != saved.train.batch_size:
        raise UserError(f"train.batch_size of {path} cannot change on {option}")


# What the weights and the tokenizer of a run pin down.
PINNED = [f"--model.{name}" for name in (
    "dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden_dim", "vocab_size",
    "tie_embeddings", "position",
)] + ["--data.tokenizer", "--data.vocab_size", "--model", "--data"]


def from_run(run: RunDir, words: list[str]) -> dict[str, Any]:
    """The values of a configuration that starts from a run: its model, tokenizer and weights.

    Raises UserError where `words`, of the command line, say another model or tokenizer.
    """
    said = {word.partition("=")[0] for word in words}
    for option in PINNED:
        if option in said:
            raise UserError(f"{option} cannot be given with --init-from: it is that of {run.path}")
    model = dataclasses.asdict(load_file(run.path / "config.yaml").model)
    tokenizer = {"tokenizer": str(run.path), "vocab_size": open_tokenizer(run.path).vocab_size}
    return {"init_from": str(run.path), "model": model, "data": tokenizer}


def trained_length(run: RunDir, words: list[str]) -> list[str]:
    """Where `words` scale the rotations of a run that was trained without, the option that says how
    long its rows were, unless they do."""
    option, trained = "--model.rope_scaling", load_file(run.path / "config.yaml")
    scaled = trained.model.rope_scaling is None and any(w.startswith(option) for w in words)
    if not scaled or any("original_positions" in word for word in words):
        return []
    return [f"{option}.original_positions={trained.data.seq_len}"]


if __name__ == "__main__":
    main()
