"""What several test files need: the command line of a tiny run, small models, processes.

A test file says `from builders import tiny_argv, exit_code, ...`. Fixtures are in conftest.py. That
imports neither this module nor PyTorch, because the process that hands out tests imports it.
Everything drawn at random comes from a generator with a fixed seed.
"""

import os
import random
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, NoReturn

import clean_environment  # noqa: F401  first: it sets the environment
import pytest
import torch
from torch import Tensor

import gyre.step
import train
from data.dataset import prepare
from gyre.announce import print_setup
from gyre.auto import resolve_auto
from gyre.build import build
from gyre.compute import Compute, InferenceDtype
from gyre.load import load as load_run
from gyre.options import Config, make_config
from gyre.parallel import World
from gyre.parser import Parser
from gyre.rundir import RunDir
from gyre.signals import StopSignal
from gyre.start import Resolved, Start, resolve
from gyre.step import Setup, token_losses
from gyre.wandb_log import LogConfig
from gyre.yaml_files import read_yaml
from model.config import ModelConfig
from model.rope import rope_frequencies
from model.transformer import Transformer

ROOT = Path(__file__).parent.parent
CPU = torch.device("cpu")

# A model of no two equal sizes, so that no transposed pair of dimensions goes unnoticed.
SIZES: dict[str, Any] = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 80,
                         "vocab_size": 97, "max_positions": 64}

# The encodings that see where a row starts.
ABSOLUTE = ("sinusoidal", "learned", "sin_qk", "sin_qk_first", "sin_qkv", "sin_residual",
            "learned_qk", "sin_aligned", "sin_qk_aligned", "rope_sin_qk", "sin_qk_rope_last")


def require_program(*names: str) -> str:
    """Return the path of the first of these programs that is installed, or else `skip_without`."""
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    skip_without(names[0])


def require_package(name: str) -> None:
    """Call `skip_without` if the package is not installed."""
    if find_spec(name) is None:
        skip_without(name)


def skip_without(name: str) -> NoReturn:
    """Skip the test, which needs `name`.

    Fail it if `name` is in REQUIRED_IN_TESTS, where .ci/run says what it has.
    """
    if name in os.environ.get("REQUIRED_IN_TESTS", "").split():
        pytest.fail(f"{name} is not installed, and REQUIRED_IN_TESTS names it")
    pytest.skip(f"needs {name}")


def quick_for(quick: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Return parameters for a test: `values`, marked slow where they are not among `quick`.

    `quick` show what there is to see, and the others repeat it.
    """
    values = [*values]
    assert all(value in values for value in quick), f"{quick} are not all among {values}"
    parameters = []
    for value in values:
        marks = [] if value in quick else [pytest.mark.slow]
        parameters.append(pytest.param(value, marks=marks))
    return parameters


# For `quick_for`: the encodings of model/position.py, one that adds rows by hooks, and one with
# wider keys. Other experiments are variants of these.
KINDS = ["rope", "sinusoidal", "learned", "alibi", "none", "sin_qk", "pope"]


def model_config(**changes) -> ModelConfig:
    """SIZES, with these fields of ModelConfig changed or added. Heads are 8 wide."""
    return ModelConfig(**{**SIZES, **changes})


def random_model(seed: int = 1, **changes) -> Transformer:
    """A model of `model_config(**changes)` with fresh weights, in evaluation mode."""
    model = Transformer(model_config(**changes))
    model.init_weights(seed)
    return model.eval()


def sharp_model(**changes) -> Transformer:
    """A model with large weights and a context of 80 tokens.

    With initial weights attention is flat, and a wrong key hardly shows.
    """
    sizes = {"dim": 40, "head_dim": 8, "hidden_dim": 56, "max_positions": 80}
    model = random_model(seed=4, **{**sizes, "tie_embeddings": False, **changes})
    with torch.no_grad():
        for parameter in model.layers.parameters():
            if parameter.ndim > 1:
                parameter.mul_(7)
        model.output.weight.mul_(8)
    return model


def random_tokens(*shape: int, seed: int = 0) -> Tensor:
    """Ids of the vocabulary of SIZES."""
    return torch.randint(0, 97, shape, generator=torch.Generator().manual_seed(seed))


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rotation(position: int, head_dim: int) -> Tensor:
    """R(position) of RoPE's derivation: a 2x2 block per pair on the diagonal, in float64."""
    angles = position * rope_frequencies(head_dim)
    blocks = torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), dim=-1)
    return torch.block_diag(*blocks.view(-1, 2, 2))


def spread(scores: Tensor) -> float:
    """How far scores (T, T) at one distance, which are a diagonal, lie apart at most."""
    diagonals = [scores.diagonal(distance) for distance in range(1 - len(scores), len(scores))]
    return max(diagonal.max().item() - diagonal.min().item() for diagonal in diagonals)


def random_text(n_words: int = 1760, seed: int = 0) -> str:
    """Words of a vocabulary of 50, eight a line, with a letter that takes two bytes."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdeé", k=rng.randint(1, 4))) for _ in range(50)]
    lines = [" ".join(rng.choices(words, k=8)) for _ in range(n_words // 8)]
    return "".join(f"{line}\n" for line in lines)


def training_argv(workdir: Path, *extra: str) -> list[str]:
    """Command line of a tiny training on the CPU, in float32: 12 steps, of whatever model.

    What `extra` says comes later and so wins.
    """
    options = ("--data.seq_len 20 --optim.warmup_steps 3 --train.steps 12 --train.batch_size 9 "
               "--train.eval_interval 5 --train.sample_tokens 2 --train.dtype float32 "
               "--train.device cpu --log.wandb disabled")
    return [*options.split(), f"--data.files={workdir / 'text.txt'}",
            f"--log.runs={workdir / 'runs'}",
            f"--data.prepared={workdir / 'prepared'}", *extra]


def tiny_argv(workdir: Path, *extra: str) -> list[str]:
    """The same of a tiny model with a tiny vocabulary: nine tenths of an epoch.

    It has one layer, which takes two thirds of the time of two. Tests for which it matters that
    layers are told apart ask for more.
    """
    sizes = ("--data.vocab_size 300 --model.dim 48 --model.n_layers 1 --model.n_heads 6 "
             "--model.n_kv_heads 2")
    return training_argv(workdir, *sizes.split(), *extra)


def exit_code(main: Callable[[list[str]], object], *argv: str | Path) -> int:
    """Exit code of a command's `main`, called in this process; 0 where it simply returns."""
    try:
        main([str(word) for word in argv])
    except SystemExit as stop:
        assert stop.code is None or isinstance(stop.code, int), stop.code
        return stop.code or 0
    return 0


def error_lines(capture: Any, main: Callable[[list[str]], object], *argv: str | Path) -> list[str]:
    """The lines on stderr of a command that exits with 2.

    Only the last one is an error, and nothing is on stdout. `capture` is capsys or capfd.
    """
    capture.readouterr()  # of what ran before
    assert exit_code(main, *argv) == 2
    out, err = capture.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[-1].startswith("error: ")
    assert err.count("error:") == 1
    assert "Traceback" not in err
    return lines


def start_python(program: str | Path, *argv: str | Path, cwd: Path = ROOT,
                 new_session: bool = False,
                 **environment: str) -> Popen[str]:
    """A process of its own that runs a file, or this code, from the root of the checkout."""
    command = [sys.executable]
    if isinstance(program, Path):
        command.append(str(program))
    else:
        command += ["-c", program]
    command += map(str, argv)
    return Popen(command, cwd=cwd, env=os.environ | environment, text=True, stdin=PIPE,
                 stdout=PIPE, stderr=PIPE, start_new_session=new_session)


def run_python(program: str | Path, *argv: str | Path, **options: Any) -> str:
    """What such a program prints, which has to succeed."""
    process = start_python(program, *argv, **options)
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, printed + errors
    return printed


class Ranks:
    """Processes that call `target(*args)` as the ranks of one training."""

    def __init__(self, context: Any, log: Path, size: int, target: Callable, *args: Any):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.log = log
        self.processes = []
        for rank in range(size):
            environment = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            process = context.Process(target=be_rank, args=(environment, log, target, args))
            process.start()
            self.processes.append(process)

    def join(self, code: int = 0) -> str:
        """What all of them wrote to stderr. The first exit code that is not 0 has to be `code`."""
        for process in self.processes:
            process.join(100)
        errors = self.log.read_text(encoding="utf-8")
        codes = [process.exitcode for process in self.processes]
        assert None not in codes, errors
        failures = [failure for failure in codes if failure != 0]
        first = failures[0] if failures else 0
        assert first == code, errors
        return errors


def be_rank(environment: dict[str, str], log: Path, target: Callable, args: Any) -> None:
    """What such a process does: with stderr in a file, call the target."""
    stderr = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(stderr, 2)
    os.environ.update(environment)
    target(*args)


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fail if it does not within 100 s."""
    stop = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < stop, "waited in vain"
        time.sleep(0.05)


def train_tiny(workdir: Path, name: str, *extra: str) -> Path:
    """Train a tiny run of this name; returns its folder."""
    assert exit_code(train.main, *tiny_argv(workdir, "--name", name, *extra)) == 0
    return workdir / "runs" / name


def target_losses(run: Path, dtype: InferenceDtype = "float32") -> Tensor:
    """The loss of every target of the validation split, of the best weights of a run."""
    trained = load_run(run, device="cpu", dtype=dtype)
    data = trained.config.data
    split = prepare(data).dataset("val", seq_len=data.seq_len)
    with trained.compute.active():
        pairs = token_losses(trained.model, split, 27, Compute(CPU, torch.float32))
        return torch.cat([nats for nats, _ in pairs]).detach()


def build_setup(workdir: Path, *extra: str, device: torch.device = CPU) -> Setup:
    """What a tiny training of two layers and 27 rows a step needs, in this process."""
    alone = World(0, 1, device)
    argv = tiny_argv(workdir, "--model.n_layers=2", "--train.batch_size=27", *extra)
    resolved = resolve_auto(resolve(argv, ""), alone)
    setup = build(resolved, alone, StopSignal())
    print_setup(resolved, setup)
    return setup


def as_resolved(start: Start, setup: Setup, **changes: Any) -> Resolved:
    """What `resolve_auto` would have returned for a training, with some fields given."""
    return Resolved(start, setup.config, setup.data, setup.compute, **changes)


def stop_at(number: int, *argv: str | Path) -> None:
    """train.py, told to stop in this step."""
    start_step = gyre.step.start_step
    stop = StopSignal()

    def signalled(setup: Setup, step: int) -> Any:
        if step == number - 1:
            stop.number = signal.SIGTERM
        return start_step(setup, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "StopSignal", lambda: stop)
        patch.setattr(gyre.step, "start_step", signalled)
        assert exit_code(train.main, *argv) == 128 + signal.SIGTERM


def read_metric(path: Path, key: str = "train/loss") -> dict[int, Any]:
    """{step: value} of a run; each step may stand there once."""
    values: dict[int, Any] = {}
    for point in RunDir.open(path).metrics():
        if key in point:
            assert point["step"] not in values
            values[point["step"]] = point[key]
    return values


def parse_config(*argv: str) -> Config:
    """The configuration that a command line describes."""
    options = Parser(config=True).parse_args(list(argv))
    files = [read_yaml(file) for file in options.config]
    return make_config(*files, options.given)


def untrained_run(runs: Path, name: str, tokenizer: Path, config: Config) -> RunDir:
    """The folder of a run with this configuration, and no weights yet."""
    config = replace(config, name=name, log=LogConfig(runs=str(runs), wandb="disabled"))
    return RunDir.create(config, tokenizer=[tokenizer], manifest={})


def empty_run(folder: Path, name: str = "a", log: dict[str, Any] | None = None, runs: str = "runs",
              **changes: Any) -> RunDir:
    """Make a run in folder/runs whose configuration and tokenizer stand for any others.

    `log` are options of LogConfig (without any, wandb is disabled), `changes` of RunDir.create.
    """
    tokenizer = folder / "tokenizer.model"
    tokenizer.write_bytes(bytes(range(256)) * 9)
    config = parse_config("--name", name, "--data.tokenizer", "elsewhere")
    log_config = LogConfig(runs=str(folder / runs), **(log or {"wandb": "disabled"}))
    config = replace(config, log=log_config)
    options: dict[str, Any] = {"manifest": {"n": 7}, **changes}
    return RunDir.create(config, tokenizer=[tokenizer], **options)
