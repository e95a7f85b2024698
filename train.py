"""Train a model on text.

    python train.py --config small.yaml
    python train.py --config small.yaml --model.position sinusoidal --train.steps 500
    python train.py --resume runs/small-rope-s1
    python train.py --init-from runs/small-rope-s1 --config small.yaml
    torchrun --nproc-per-node 2 train.py --config small.yaml

Values come from the defaults, then from the YAML file, then from the command line. What the run
leaves behind is in runs/NAME.
"""

import dataclasses
import json
import sys
from pathlib import Path

from data.tokenizer import open_tokenizer
from errors import UserError, exit_in_words, say
from gyre.cli import config_parser, load_file, parse
from gyre.config import Config
from gyre.parallel import World
from gyre.rundir import RunDir
from gyre.trainer import Trainer


def main(argv: list[str] | None = None) -> None:
    with exit_in_words():
        try:
            config, resumed = load(sys.argv[1:] if argv is None else argv)
            world = World.read(config.train.device)
            try:
                code = Trainer(config, world, resumed).run()
            finally:
                world.leave()
        except KeyboardInterrupt:
            say("\ninterrupted; what was saved before is kept")
            code = 130
    sys.exit(code)


def load(argv: list[str]) -> tuple[Config, RunDir | None]:
    """The configuration, and the run to go on with if there is one.

    A resumed run keeps everything that decides its numbers. UserError names what would change it.
    """
    parser = config_parser(__doc__)
    parser.add_argument(
        "--resume", metavar="RUN", help="Go on with this run, exactly where it was."
    )
    parser.add_argument(
        "--init-from",
        dest="start",
        metavar="RUN",
        help="Start from the weights of this run, with its model and its tokenizer.",
    )
    resume, start = value_of("--resume", argv), value_of("--init-from", argv)
    if resume is None:
        if start is not None:
            argv = from_run(RunDir.open(start), argv)
        config, _ = parse(parser, argv)
        if start is None and config.init_from is not None:
            raise UserError(
                f"init_from {config.init_from} stands in a configuration: say --init-from "
                f"{config.init_from}, which takes the model and the tokenizer too"
            )
        if config.name is None:
            stem = Path(value_of("--config", argv) or "gyre").stem
            name = f"{stem}-{config.model.position}-s{config.seed}"
            config.name = RunDir.free_name(config.log.runs, name)
        RunDir.new_path(config.log.runs, config.name)  # a bad name is refused before any work
        return config, None
    if start is not None:
        raise UserError(
            f"--resume {resume} goes on with its own weights: leave out --init-from {start}"
        )
    run = RunDir.open(resume)
    if "imported" in run.manifest:
        raise UserError(f"{resume} was imported, not trained: start from it with --init-from")
    saved = load_file(run.path / "config.yaml")
    config, _ = parse(parser, ["--config", str(run.path / "config.yaml"), *argv])
    for part in ("name", "seed", "init_from", "model", "data", "optim"):
        if getattr(config, part) != getattr(saved, part):
            raise UserError(
                f"{part} of {run.path} cannot change on --resume: start a new run for that"
            )
    if config.train.batch_size != saved.train.batch_size:
        raise UserError(f"train.batch_size of {run.path} cannot change on --resume")
    return config, run


# What the weights of a run pin down.
SHAPE = ("dim", "n_layers", "n_heads", "n_kv_heads", "head_dim", "hidden_dim", "vocab_size",
         "tie_embeddings", "position")  # fmt: skip


def from_run(run: RunDir, argv: list[str]) -> list[str]:
    """`argv` with the model and the tokenizer of `run`, which stand above a --config and below what
    is said on the command line."""
    saved, tokenizer = load_file(run.path / "config.yaml").model, open_tokenizer(run.path)
    words = [f"--init_from={run.path}", f"--data.tokenizer={run.path}"]
    words.append(f"--data.vocab_size={tokenizer.vocab_size}")
    for name, value in dataclasses.asdict(saved).items():
        words.append(f"--model.{name}={value if isinstance(value, str) else json.dumps(value)}")
    named = {word.partition("=")[0] for word in argv}
    for option in [f"--model.{name}" for name in SHAPE] + ["--data.tokenizer", "--data.vocab_size"]:
        if option in named:
            raise UserError(f"{option} cannot be given with --init-from: it is that of {run.path}")
    file = value_of("--config", argv)
    return [*(() if file is None else ("--config", file)), *words, *without("--config", argv)]


def without(option: str, argv: list[str]) -> list[str]:
    """`argv` without an option and its value."""
    rest = iter(argv)
    kept = []
    for word in rest:
        if word == option:
            next(rest, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept


def value_of(option: str, argv: list[str]) -> str | None:
    """What `argv` gives for an option that has to be known before the rest can be parsed."""
    for word, following in zip(argv, [*argv[1:], None], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


if __name__ == "__main__":
    main()
