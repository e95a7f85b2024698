"""Build what each process needs for training: data, model, optimizers, dtype, restored state."""

import math
import time
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple

import torch

from data.dataset import find_prepared, has_changed
from errors import UserError, say
from gyre.checkpoint import STATES, WEIGHTS, read_safetensors
from gyre.device import (
    DTYPE_NAMES,
    check_memory,
    estimate_seconds,
    format_estimate,
    matmul_rates,
    resolve_compile,
    resolve_dtype,
    training_flops,
)
from gyre.fit import Draft
from gyre.optim import Optimizers, lr_factor
from gyre.options import Config, make_config
from gyre.parallel import Initial, Replicated, World, copy_weights
from gyre.rundir import RunDir
from gyre.start import Start
from gyre.step import Progress, Setup, summed_loss, train_step
from model import kernels
from model.transformer import Transformer

# Training tokens. 8,000 of them (30 kB) end at 2.1 bits per byte, 110,000 (400 kB) at 1.4
# (docs/benchmarks.md).
LITTLE_TEXT = 50_000
# How long the rate of the first steps is measured, for train.minutes.
MIN_TIMED_STEPS = 3
MAX_TIMED_SECONDS = 10.0
TIMED_SHARE = 0.02  # of the minutes
WORTH_AN_ESTIMATE = 3e11  # FLOPs of a training; fewer are done in a few seconds


class Arithmetic(NamedTuple):
    """How a training computes here."""

    config: Config
    """With the choices in it, so that a resumed run keeps them on another machine too."""
    dtype: torch.dtype
    compiled: bool
    seconds: float | None
    """About how long the steps take; None where that is not known, or no time at all."""
    reason: str
    """Why, in words."""


def build(start: Start, world: World) -> Setup:
    """Return what `train_step` needs. If `start` names a checkpoint, it has been restored.

    Raises UserError for whatever stands in the way, before any training.
    """
    config, source = start.config, start.source
    if config.name is not None and not start.resumed:
        RunDir.new_path(config.log.runs, config.name)  # refuses a bad name before any work
    share = math.ceil(config.train.batch_size / world.size)  # rows of any process, at most
    rows = min(config.train.micro_batch_size or share, share)
    if config.train.batch_size < world.size:
        raise UserError(f"train.batch_size {config.train.batch_size} cannot be shared by "
                        f"{world.size} processes")
    named = {"none": 1, "full": world.size}
    shards = 1 if world.size == 1 else int(named.get(str(config.train.shard), config.train.shard))
    if world.size % shards:
        raise UserError(f"train.shard {shards} does not divide the {world.size} processes: choose "
                        "a number that does, or full")
    # At least 4 bytes for each parameter, its gradient and one moment, and for each logit.
    size = 12 * config.model.matrix_parameters // shards
    size += 4 * rows * config.data.seq_len * config.model.vocab_size
    size += 4 * config.model.max_positions * config.model.head_dim  # RoPE's table
    check_memory(world.device, size, f"this model with {rows} rows of {config.data.seq_len} tokens",
                 "choose a smaller model, data.seq_len or train.micro_batch_size")

    fits_vocabulary = start.draft is not None and "data.vocab_size" in start.draft.fitted
    known = source.manifest["settings"] if source else None
    data = find_prepared(config.data, known, fits_vocabulary)
    if data is None:
        from data.prepare import prepare  # slow to import

        # One of several processes does it, and the others wait.
        data = prepare(config.data, fits_vocabulary)
    chosen: list[str] = []
    if start.draft is not None:
        config, chosen = start.draft.fit(data.manifest)
    elif source and known and world.is_main and has_changed(config.data, known):
        say(f"note: the text of {source.path} has changed since then, or is gone: the training "
            "goes on with what was prepared of it")
    if source and source.manifest["files"] != data.manifest["files"]:
        raise UserError(f"the text of {source.path} has changed since it was started: restore it, "
                        "or start a new run")
    world.connect()
    arithmetic = decide_arithmetic(config, world, rows)
    config, dtype, compiled = arithmetic.config, arithmetic.dtype, arithmetic.compiled
    options = {"seq_len": config.data.seq_len, "batch_size": config.train.batch_size,
               "seed": config.seed, "rank": world.rank, "world_size": world.size}
    train_data, val_data = (data.dataset(split, **options) for split in ("train", "val"))

    # A run that was killed before its first save is resumed without a checkpoint.
    restores = source is not None and (start.is_branch or source.checkpoints.has_training)
    # Only a branch has points of another run.
    if start.resumed and not restores and start.resumed.record.get("inherited"):
        raise UserError(f"{start.resumed.path} is a branch that was killed before its first "
                        "checkpoint: remove it, and branch again")
    initial: Initial | None = None  # yields the first weights, which `wrap` copies into the model
    if not restores and config.init_from is None:
        initial = partial(Transformer.draw_matrices, seed=config.seed)
    elif not restores:
        weights = RunDir.open(config.init_from).checkpoints.load_weights("best")
        initial = lambda model: weights.items()  # noqa: E731
    parallelism, layout = Replicated(world), f" x {world.size}" if world.size > 1 else ""
    if shards > 1:
        from gyre.sharding import Sharded  # slow to import

        parallelism = Sharded(world, shards)
        layout += f", each with 1/{shards} of the model"
    model, module = parallelism.wrap(config.model, initial, compiled)
    setup = Setup(
        config=config, world=world, parallelism=parallelism, data=data, train_data=train_data,
        val_data=val_data, model=model, module=module,
        optimizers=Optimizers(model, config.optim, dtype),
        loss=torch.compile(summed_loss) if compiled else summed_loss,
        dtype=dtype, rows=rows, progress=Progress(),
    )
    if restores:
        restore(start, setup)
    if config.train.minutes is not None:
        assert start.draft is not None, "only a new run has minutes"
        setup, more = choose_steps(start.draft, setup)
        chosen += more
    if world.is_main:
        print_setup(start, setup, layout, arithmetic, chosen, restores)
    return setup


def print_setup(
    start: Start, setup: Setup, layout: str, arithmetic: Arithmetic, chosen: list[str],
    restores: bool,
) -> None:
    """Print what is trained on what, before the first step."""
    config, n_tokens = setup.config, setup.train_data.n_tokens
    epochs = config.train.batch_size * config.data.seq_len * config.train.steps / n_tokens
    if start.repeatable and start.resumed:
        say(f"{start.resumed.path} goes on with its own configuration, without --config")
    if start.resumed and not restores:
        say(f"{start.resumed.path} has no checkpoint yet: starting at step 0")
    if chosen:
        say(f"auto    {', '.join(chosen)}: chosen for this text")
    little = ""
    if n_tokens < LITTLE_TEXT:
        little = ". This is little text: expect fragments of it, and hardly a new sentence"
    say(f"data    {setup.data.folder}: {n_tokens:,} training tokens and "
        f"{setup.val_data.n_tokens:,} for validation, vocabulary {config.data.vocab_size}{little}")
    time = "" if arithmetic.seconds is None else f", {format_estimate(arithmetic.seconds)}"
    parameters = sum(p.numel() for p in setup.model.parameters())
    say(f"model   {parameters:,} parameters, positions: {config.model.position}; "
        f"{config.train.steps} steps of {config.train.batch_size}x{config.data.seq_len} tokens "
        f"({epochs:.1f} epochs{time})")
    say(f"device  {setup.world.device}{layout}; {arithmetic.reason}")


def decide_arithmetic(config: Config, world: World, rows: int) -> "Arithmetic":
    """Decide what `auto` stands for here: the device, the dtype, oneDNN and compilation.

    Tells model/kernels.py whether to use oneDNN.
    """
    train, row_tokens = config.train, rows * config.data.seq_len
    # Each rank has timed oneDNN and may differ, so all take rank 0's choice: the others add 0.
    onednn = kernels.uses_onednn if train.onednn == "auto" else train.onednn
    kernels.uses_onednn = world.sum(float(world.is_main and onednn))[0] > 0

    tokens = train.batch_size * config.data.seq_len * train.steps
    flops = training_flops(config.model, tokens)
    is_long = train.minutes is not None or flops > WORTH_AN_ESTIMATE
    estimates = is_long and world.device.type == "cpu"
    dtypes = [torch.float32, torch.bfloat16]
    if train.dtype != "auto":
        dtypes = [getattr(torch, train.dtype)]
    rates = []
    if estimates or (train.dtype == "auto" and world.device.type != "mps"):
        # Summed over the ranks, so that all choose the same.
        rates = world.sum(*matmul_rates(world.device, config.model, row_tokens, training=True,
                                        dtypes=dtypes))
    dtype, why = resolve_dtype(train.dtype, world.device, lambda: rates)
    seconds = None
    if estimates:
        seconds = estimate_seconds(config.model, tokens, rates[dtypes.index(dtype)])
        if train.minutes is not None:
            flops *= 60 * train.minutes / seconds
            seconds = 60 * train.minutes
    compiled, why_compiled = resolve_compile(train.compile, world.device, dtype, flops)
    train = replace(
        train, dtype=DTYPE_NAMES[dtype],
        device=world.device.type if train.device == "auto" else train.device,
        compile=compiled if train.compile == "auto" else train.compile,
        onednn=kernels.uses_onednn,
    )
    return Arithmetic(replace(config, train=train), dtype, compiled, seconds,
                      f"{why}; {why_compiled}")


def choose_steps(draft: Draft, setup: Setup) -> tuple[Setup, list[str]]:
    """Return the setup with as many steps as fit into train.minutes, and what was chosen, in words.

    The first steps are taken to measure their rate, and then undone: the run is the one that these
    numbers give, bit for bit.
    """
    minutes = setup.config.train.minutes
    assert minutes is not None
    if setup.world.is_main:
        say("timing  the first steps, to choose train.steps")
    before = {name: tensor.clone() for name, tensor in setup.model.state_dict().items()}
    train_step(setup, 0)  # compiles, and fills the caches
    taken, started = 0, time.perf_counter()
    seconds = 0.0
    while taken < MIN_TIMED_STEPS or seconds < min(MAX_TIMED_SECONDS, 60 * minutes * TIMED_SHARE):
        taken += 1
        train_step(setup, taken)
        # Rank 0's time, so that all ranks stop at the same step: the others add 0.
        elapsed = time.perf_counter() - started if setup.world.is_main else 0.0
        (seconds,) = setup.world.sum(elapsed)
    setup.model.load_state_dict(before)
    for optimizer in setup.optimizers.optimizers:
        optimizer.state.clear()
    steps = max(1, round(60 * minutes * taken / seconds))
    numbers = {"train.steps": steps, **draft.fit_to_steps(steps)}
    config = make_config(asdict(setup.config), numbers, {"train.minutes": None})
    chosen = [f"{name} {number}" for name, number in numbers.items()]
    return replace(setup, config=config), chosen


def restore(start: Start, setup: Setup) -> None:
    """Load weights, optimizers and progress of the checkpoint that `start` names.

    Raises UserError if no step is left (except for --resume auto), or if the checkpoint was saved
    with another --train.steps than the configuration has, and this command does not give one.
    """
    run, steps = start.source, setup.config.train.steps
    assert run is not None, "there is nothing to restore"
    which = "last" if start.step is None else start.step
    with run.checkpoints.open(which, setup.world) as folder:
        training = run.checkpoints.load_training(folder)
        copy_weights(setup.model, read_safetensors(folder / WEIGHTS))
        setup.optimizers.load_tensors(read_safetensors(folder / STATES))
        vars(setup.progress).update(training["progress"])
    step = setup.progress.step
    if start.resumed is None:
        if step >= steps:
            raise UserError(f"the branch starts after step {step} of {run.path}, and train.steps "
                            f"is {steps}: give a larger number, or an earlier step with --at")
        setup.progress.best = math.inf  # `best` has to be weights that this run has saved
        return
    if training["steps"] != steps and "train.steps" not in start.given:
        raise UserError(f"{run.path} was last resumed with --train.steps {training['steps']}, "
                        "on which its learning rates depend: repeat that, or give another number")
    if step >= steps:
        if not start.repeatable:
            raise UserError(f"{run.path} has taken {step} steps: give --train.steps a larger "
                            "number to go on")
        return
    if not 0 < run.checkpoints.saved_step("best") <= step:
        # `best` is of a later step, which is taken again, so RunDir.resume removes it; or did so
        # when the run was resumed before.
        setup.progress.best = math.inf
    if training["steps"] != steps and setup.world.is_main:
        print_schedule(run, setup.config, step, training["steps"])


def print_schedule(run: RunDir, config: Config, step: int, old_steps: int) -> None:
    """Print how the learning rate goes on after `step` with another number of steps."""
    optim, steps = config.optim, config.train.steps
    last = optim.lr * lr_factor(optim, step - 1, old_steps)
    following = optim.lr * lr_factor(optim, step, steps)
    end = optim.lr * lr_factor(optim, steps - 1, steps)
    note = (f"note: the learning rate of step {step} was {last:.2g}. With {steps} steps it goes on "
            f"at {following:.2g} and ends at {end:.2g}.")
    if last:
        note += (f" To start low instead: --branch-from {run.path} --train.steps {steps} "
                 f"--optim.lr {last:.2g}")
    say(note)
