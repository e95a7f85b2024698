"""Build what each process needs for training: data, model, optimizers, dtype, restored state."""

import math
from dataclasses import replace
from functools import partial

import torch

from data.dataset import find_prepared
from errors import UserError, say
from gyre.checkpoint import STATES, WEIGHTS, read_tensors
from gyre.device import DTYPE_NAMES, check_memory, matmul_rates, resolve_compile, resolve_dtype
from gyre.optim import Optimizers
from gyre.options import Config
from gyre.parallel import Initial, Replicated, World, copy_weights
from gyre.rundir import RunDir
from gyre.start import Start
from gyre.step import Progress, Setup, summed_loss
from model import kernels
from model.transformer import Transformer


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

    data = find_prepared(config.data, source.manifest["settings"] if source else None)
    if data is None:
        from data.prepare import prepare  # slow to import

        data = prepare(config.data)  # one of several processes does it, and the others wait
    if source and source.manifest["files"] != data.manifest["files"]:
        raise UserError(f"the text of {source.path} has changed since it was started: restore it, "
                        "or start a new run")
    world.connect()
    config, dtype, compiled, reason = decide_arithmetic(config, world, rows)
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
    if world.is_main:
        tokens = config.train.batch_size * config.data.seq_len * config.train.steps
        if start.repeatable and start.resumed:
            say(f"{start.resumed.path} goes on with its own configuration, without --config")
        if start.resumed and not restores:
            say(f"{start.resumed.path} has no checkpoint yet: starting at step 0")
        say(f"data    {data.folder}: {train_data.n_tokens:,} training tokens and "
            f"{val_data.n_tokens:,} for validation, vocabulary {config.data.vocab_size}")
        say(f"model   {sum(p.numel() for p in model.parameters()):,} parameters, positions: "
            f"{config.model.position}; {config.train.steps} steps of {config.train.batch_size}x"
            f"{config.data.seq_len} tokens ({tokens / train_data.n_tokens:.1f} epochs)")
        say(f"device  {world.device}{layout}; {reason}")
    return setup


def decide_arithmetic(
    config: Config, world: World, rows: int
) -> tuple[Config, torch.dtype, bool, str]:
    """Decide what `auto` stands for here: the device, the dtype, oneDNN and compilation.

    Returns the configuration with the choices in it, so that a resumed run keeps them on another
    machine too; the dtype; whether the training is compiled; and the reasons in words. Tells
    model/kernels.py whether to use oneDNN.
    """
    train, tokens = config.train, rows * config.data.seq_len
    # Each rank has timed oneDNN and may differ, so all take rank 0's choice: the others add 0.
    onednn = kernels.uses_onednn if train.onednn == "auto" else train.onednn
    kernels.uses_onednn = world.sum(float(world.is_main and onednn))[0] > 0
    dtype, why = resolve_dtype(  # by the sums over the ranks, so that all choose the same
        train.dtype, world.device,
        lambda: world.sum(*matmul_rates(world.device, config.model, tokens, training=True)),
    )
    # 6 FLOPs for every weight in a matrix product, per token. Attention and the encoding are left
    # out, so that all arms of an ablation decide alike.
    flops = 6.0 * config.model.matrix_parameters * train.batch_size * config.data.seq_len
    flops *= train.steps
    compiled, why_compiled = resolve_compile(train.compile, world.device, dtype, flops)
    train = replace(
        train, dtype=DTYPE_NAMES[dtype],
        device=world.device.type if train.device == "auto" else train.device,
        compile=compiled if train.compile == "auto" else train.compile,
        onednn=kernels.uses_onednn,
    )
    return replace(config, train=train), dtype, compiled, f"{why}; {why_compiled}"


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
        copy_weights(setup.model, read_tensors(folder / WEIGHTS))
        setup.optimizers.load_tensors(read_tensors(folder / STATES))
        vars(setup.progress).update(training["progress"])
    step = setup.progress.step
    if start.resumed is None:
        if step >= steps:
            raise UserError(f"the branch starts after step {step} of {run.path}, and train.steps "
                            f"is {steps}: give a larger number, or an earlier step with --at")
        setup.progress.best = math.inf  # `best` has to be weights that this run has saved
    elif training["steps"] != steps and "train.steps" not in start.given:
        raise UserError(f"{run.path} was last resumed with --train.steps {training['steps']}, "
                        "on which its learning rates depend: repeat that, or give another number")
    elif step >= steps and not start.repeatable:
        raise UserError(f"{run.path} has taken {step} steps: give --train.steps a larger number to "
                        "go on")
    elif not 0 < run.checkpoints.saved_step("best") <= step:
        # `best` is of a later step, which is taken again, so RunDir.resume removes it; or did so
        # when the run was resumed before.
        setup.progress.best = math.inf
