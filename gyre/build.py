"""Build what each process needs for training, from a checkpoint or anew."""

import math
import os
import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import torch

from errors import UserError, find_script, say
from gyre.checkpoint import STATES, WEIGHTS, check_shapes, read_safetensors, weight_shapes
from gyre.estimate import training_flops
from gyre.gradient_graphs import MOST_FLOPS, GradientGraphs
from gyre.memory import count_rows, count_shards
from gyre.optim import Optimizers, lr_factor
from gyre.options import Config
from gyre.parallel import Replicated, World, copy_weights
from gyre.rundir import RunDir, resolve_path
from gyre.signals import StopSignal
from gyre.start import Resolved, Start
from gyre.step import Progress, Setup, add_gradient, summed_loss
from model.transformer import Transformer


def build(resolved: Resolved, world: World, stop: StopSignal) -> Setup:
    """Return the `Setup` of a training. If it starts from a checkpoint, that is restored.

    Call it within `resolved.compute.active()`.
    """
    start = resolved.start
    config = resolved.config
    compute = resolved.compute
    shards = count_shards(config.train, world)
    parallelism = Replicated(world)
    if shards > 1:
        from gyre.sharding import Sharded  # slow to import

        parallelism = Sharded(world, shards)
    # `wrapped` is what training calls: the model, or DDP around it.
    model, wrapped = parallelism.build_model(config.model, compute.compiled)
    model.checkpoint_blocks = config.train.checkpoint_blocks
    # Muon gets gradients without the loss scale, and so they are too small for float16.
    muon_dtype = torch.float32 if compute.dtype == torch.float16 else compute.dtype
    optimizers = Optimizers(model, config.optim, muon_dtype)
    scaler = torch.amp.GradScaler(world.device.type, enabled=compute.dtype == torch.float16)
    progress = Progress()
    base_sha256 = ""
    if start.has_checkpoint():
        progress = restore(start, world, model, optimizers, scaler)
    elif config.init_from is not None:
        base_sha256 = load_base(start, model)
    else:
        copy_weights(model, model.draw_matrices(config.seed))
    parallelism.share_weights(model)  # the other ranks may have drawn or read other ones
    # Any of the processes may have prepared the text, and has then printed the notes on it, so rank
    # 0 must not print them again (`print_setup`).
    is_new = any(world.all_gather(resolved.data.is_new))
    dataset_arguments = {
        "seq_len": config.data.seq_len, "batch_size": config.train.batch_size,
        "seed": config.seed, "rank": world.rank, "world_size": world.size,
    }
    setup = Setup(
        config=config, world=world, compute=compute, parallelism=parallelism,
        data=replace(resolved.data, is_new=is_new),
        train_data=resolved.data.dataset("train", **dataset_arguments),
        val_data=resolved.data.dataset("val", **dataset_arguments), model=model, wrapped=wrapped,
        optimizers=optimizers,
        loss_function=torch.compile(summed_loss) if compute.compiled else summed_loss,
        rows_per_pass=count_rows(config.train, world), progress=progress,
        scaler=scaler, stop=stop, base_sha256=base_sha256,
        reads_late=world.device.type == "cuda",
    )
    return with_graphs(setup) if uses_graphs(config, world) else setup


def with_graphs(setup: Setup) -> Setup:
    """Return a setup whose gradients are computed by CUDA graphs."""
    # `add_gradient` does not read `graphs`, so it gets the setup that has none yet.
    graphs = GradientGraphs(partial(add_gradient, setup), [*setup.model.parameters()])
    return replace(setup, graphs=graphs)


def uses_graphs(config: Config, world: World) -> bool:
    """Return whether gradients are computed by CUDA graphs.

    They are if train.cuda_graphs allows it, one process trains on CUDA, and the model is so small
    that launching its kernels takes longer than computing.
    """
    rows_per_pass = count_rows(config.train, world)
    flops_per_pass = training_flops(config.model, rows_per_pass * config.data.seq_len)
    is_launch_bound = flops_per_pass <= MOST_FLOPS
    can_record = world.device.type == "cuda" and world.size == 1
    return can_record and is_launch_bound and config.train.cuda_graphs


def restore(
    start: Start, world: World, model: Transformer, optimizers: Optimizers,
    scaler: torch.amp.GradScaler,
) -> Progress:
    """Load the checkpoint that `start` names, and return the progress of a training from there on.

    Its `best_loss` is infinite if no checkpoint `best` is kept. Prints how the learning rate goes
    on if the run gets another number of steps. Raises UserError for a command by which the training
    cannot go on: see `check_steps_to_keep`, `check_branch` and `check_resumed`.
    """
    run = start.source
    assert run is not None, "there is nothing to restore"
    progress, steps_when_saved = load_checkpoint(run, start.step, world, model, optimizers, scaler)
    if start.trunk is not None:
        check_steps_to_keep(run, start, progress.step, kept=())
        check_branch(run, start, progress.step)
        progress.best_loss = math.inf  # the branch has saved no `best` yet
        progress.skipped_in_a_row = 0  # the trunk skipped those with its own learning rates
        return progress
    check_steps_to_keep(run, start, progress.step, run.checkpoints.kept_steps())
    check_resumed(run, start, progress.step, steps_when_saved)
    if progress.step >= start.config.train.steps:
        return progress  # of a finished run (--resume auto): nothing of it changes
    best_step = run.checkpoints.saved_step("best")  # 0: it was removed, or cannot be read
    # If `best` is of a step that is taken again, RunDir.resume removes it.
    keeps_best = 0 < best_step <= progress.step
    if not keeps_best:
        progress.best_loss = math.inf
    if steps_when_saved != start.config.train.steps and world.is_main:
        print_schedule(run, start.config, progress.step, steps_when_saved)
    return progress


def load_base(start: Start, model: Transformer) -> str:
    """Load the weights of the run of --init-from, and return the hash of their file.

    A run that was killed before its first checkpoint begins again. Raises UserError if its base is
    gone, or has other weights by now, because it was trained on.
    """
    path = str(start.config.init_from)
    begun = start.resumed
    if begun is None:
        base = RunDir.open(path)
    else:
        # The run may have named its base from another folder.
        path = resolve_path(path, begun.record.get("folder", os.getcwd()))
        try:
            base = RunDir.open(path)
        except UserError as error:
            raise UserError(f"{begun.path} has no checkpoint yet, so it begins again, from "
                            f"{path}: {error}") from error
    saved = base.checkpoints.load_saved_weights("best", shapes=weight_shapes(model))
    if begun is not None:
        before = begun.record.get("base_sha256", "")  # "": not known, as of an older run
        if before not in ("", saved.sha256):
            raise UserError(f"{begun.path} has no checkpoint yet, and {path}, from which it would "
                            "begin again, has other weights by now: remove it, and start another "
                            "one")
    copy_weights(model, saved.weights.items())
    return saved.sha256


def load_checkpoint(
    run: RunDir, step: int | None, world: World, model: Transformer, optimizers: Optimizers,
    scaler: torch.amp.GradScaler,
) -> tuple[Progress, int]:
    """Load the weights, the optimizers and the scaler of a checkpoint: of a step, or the last.

    Returns its progress, and the train.steps of the command that saved it.
    """
    with run.checkpoints.open("last" if step is None else step, world) as folder:
        training = run.checkpoints.load_training(folder)
        check_shapes(folder, weight_shapes(model))
        copy_weights(model, read_safetensors(folder / WEIGHTS))
        optimizers.load_tensors(read_safetensors(folder / STATES))
    if "scaler" in training:  # saved by runs in float16 only
        scaler.load_state_dict(training["scaler"])
    return Progress.from_saved(training["progress"]), training["steps"]


def check_steps_to_keep(
    run: RunDir, start: Start, step: int, kept: Collection[int]
) -> None:
    """Raise UserError if the command names a step for train.keep that the training has taken.

    `step` steps are taken, and `kept` are those of them whose checkpoints are kept already. With
    --resume auto, the command is the one that started the run, and may name steps of that time.
    """
    if "train.keep" not in start.given or start.resumes_auto:
        return
    lost = [number for number in start.config.train.keep if number <= step and number not in kept]
    if lost:
        where = f"{run.path} has taken {step} steps"
        if start.trunk is not None:
            where = f"the branch starts after step {step} of {run.path}"
        raise UserError(f"train.keep names step {lost[0]}, and {where}: leave it out")


def check_branch(run: RunDir, start: Start, step: int) -> None:
    """Raise UserError if a branch from the checkpoint of this step of a run has no step left."""
    steps = start.config.train.steps
    if step >= steps:
        origin = "" if "train.steps" in start.given else ", with which that run was started"
        raise UserError(f"the branch starts after step {step} of {run.path}, and train.steps "
                        f"is {steps}{origin}: give a larger number, or an earlier step with --at")


def check_resumed(run: RunDir, start: Start, step: int, steps_when_saved: int) -> None:
    """Raise UserError if a run cannot go on after this step, or not by this command.

    `steps_when_saved` is the train.steps of the command that saved the checkpoint. Without
    --train.steps, a command takes the number in config.yaml, with which the run was started. The
    learning rates depend on it, so a command that would change the number has to say so.
    """
    is_given = "train.steps" in start.given
    steps = start.config.train.steps  # that of config.yaml, unless it is given
    end = steps if is_given else steps_when_saved
    if step >= end and not start.resumes_auto:
        raise UserError(f"{run.path} has taken {step} steps: give --train.steps a larger number "
                        "to go on")
    if is_given or steps == steps_when_saved:
        return
    # The last command gave the run another end than config.yaml, such as 200 instead of 100, and it
    # is not known which one is meant. A run that has taken all 200 is finished, and left as it is.
    # Only --resume auto comes here with such a run: others were refused above.
    is_finished = step >= max(steps, steps_when_saved)
    if not is_finished:
        raise UserError(f"{run.path} was last resumed with --train.steps {steps_when_saved}, on "
                        "which its learning rates depend: repeat that, or give another number")


def print_schedule(run: RunDir, config: Config, step: int, old_steps: int) -> None:
    """Print how the learning rate goes on after `step` with another number of steps.

    The rates of AdamW and of Muon have one schedule. AdamW's is printed, or Muon's if that is 0.
    """
    optim = config.optim
    steps = config.train.steps
    rates = optim.rates()
    option, peak = next(iter(rates.items()))
    label = "the learning rate" if option == "optim.lr" else "Muon's learning rate"
    # `step` steps are taken. `lr_factor` numbers them from 0, so the last one is number `step - 1`.
    last_factor = lr_factor(optim, step - 1, old_steps)
    last_lr = peak * last_factor
    next_lr = peak * lr_factor(optim, step, steps)
    end_lr = peak * lr_factor(optim, steps - 1, steps)
    # A warm-up does not depend on the number of steps: its rates rise as they would have.
    is_past_warmup = step >= optim.warmup_steps
    note = (f"note: {label} of step {step} was {last_lr:.2g}. With {steps} steps it goes "
            f"on at {next_lr:.2g} and ends at {end_lr:.2g}.")
    if is_past_warmup and next_lr > last_lr > 0:
        low_rates = {name: rate * last_factor for name, rate in rates.items()}
        note += f" To start low instead: {advise_branch(run, step, steps, low_rates)}"
    say(note)


def advise_branch(run: RunDir, step: int, steps: int, rates: Mapping[str, float]) -> str:
    """Return how to branch off from this step of a run with these rates, by the option's name."""
    words = ["--branch-from", str(run.path)]
    before = ""
    if step in run.checkpoints.kept_steps():
        words += ["--at", str(step)]
    else:  # this training replaces the checkpoint when it saves, also after a single Ctrl-C
        before = "end this training by two Ctrl-C before it saves again, and give "
    words += ["--train.steps", str(steps)]
    for name, rate in rates.items():
        words += [f"--{name}", f"{rate:.2g}"]
    return f"{before}python {find_script('train.py')} {shlex.join(words)}"
