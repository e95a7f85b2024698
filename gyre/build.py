"""Build what each process needs for training.

`resolve_auto` chooses what a command line leaves open, and `build` makes what a step needs.
"""

import gc
import math
import os
import shlex
from dataclasses import asdict, replace
from functools import partial

import torch

from data.dataset import (
    Prepared,
    explain_change,
    find_data_of,
    find_or_prepare,
    has_changed,
)
from data.sources import DataConfig
from errors import UserError, busy_load, note_backslash_n, place_scripts, say
from gyre.checkpoint import STATES, WEIGHTS, check_shapes, read_safetensors, weight_shapes
from gyre.compute import (
    DTYPE_NAMES,
    Compute,
    check_memory,
    describe_load,
    estimate_seconds,
    format_estimate,
    matmul_rates,
    memory_of,
    resolve_compile,
    resolve_dtype,
    training_flops,
)
from gyre.fit import FITTED_TO_STEPS
from gyre.gradient_graphs import MOST_FLOPS, GradientGraphs
from gyre.optim import OptimConfig, Optimizers, lr_factor
from gyre.options import Config, TrainConfig, make_config
from gyre.parallel import Replicated, World, copy_weights
from gyre.rundir import RunDir, check_runs_folder
from gyre.signals import StopSignal
from gyre.start import Start
from gyre.step import Progress, Setup, add_gradient, start_step, summed_loss, train_step
from model import kernels
from model.encodings import POSITIONS, key_dim, overrides, table_positions
from model.transformer import Transformer

# Fewer training tokens than this are called little text. 8,000 of them (30 kB) end at 2.1 bits per
# byte, 110,000 (400 kB) at 1.4 (docs/speed.md).
LITTLE_TEXT = 50_000
# The loss of fewer validation tokens is too uncertain to tell which weights are the best.
FEW_VAL_TOKENS = 500
# The warm-up of the learning rate alone takes 40 steps of small.yaml.
FEW_STEPS = 40
# For train.minutes, the first steps are timed: at least MIN_TIMED_STEPS, and until they have taken
# MAX_TIMED_SECONDS or, if that is less, TIMED_SHARE of the minutes.
MIN_TIMED_STEPS = 3
MAX_TIMED_SECONDS = 10.0
TIMED_SHARE = 0.02
# A tokenizer does not fit a text that takes this many times more tokens per byte than its own text.
UNFIT_TOKENIZER = 2.0
# The estimate also names the time for validation if that is more than this fraction of the time for
# the steps.
LONG_VALIDATION = 0.3
WORTH_AN_ESTIMATE = 3e11  # FLOPs of a training; fewer are done in a few seconds
# FLOP/s of a slow GPU. train.minutes assumes this rate until the first steps are timed. All that
# depends on it is whether the first steps are compiled. What was compiled once stays so: its time
# is spent. On a CPU, a rate is measured instead.
GUESSED_RATE = 2e13


# --- what a training is: its text, its numbers, how it computes ----------------------------------


def resolve_auto(start: Start, world: World) -> tuple[Start, Compute]:
    """Return `start` with its text and its final configuration, and how the training computes.

    Connects the processes, which all call this. Raises UserError if the training cannot work. Most
    causes are found before the text is prepared.
    """
    check_start(start, world)
    # Prepare the text before the processes connect. It can take longer than train.timeout, the
    # longest that connected processes wait for each other.
    start = prepare_data(start, world)
    world.connect()
    compute = choose_compute(start.config, world)
    check_fits(start.config, world, compute.dtype, compute.compiled)
    if start.config.train.minutes is not None:
        start, compute = choose_steps(start, world, compute)
    # Write what `auto` stood for into the configuration, so that the run keeps it if it is resumed
    # on another machine. If a dtype or `onednn` was given, `compute` has the same. This need not be
    # so for a device or `compile`: several processes on a Mac use its CPU even if mps was given,
    # and without a compiler nothing is compiled. Keep these as they were given, because the next
    # machine may be able to use them.
    train = replace(start.config.train, dtype=DTYPE_NAMES[compute.dtype], onednn=compute.onednn)
    if train.device == "auto":
        train = replace(train, device=compute.device.type)
    if train.compile == "auto":
        train = replace(train, compile=compute.compiled)
    return replace(start, config=replace(start.config, train=train)), compute


def prepare_data(start: Start, world: World) -> Start:
    """Return `start` with its prepared text, and with the numbers that are chosen for it.

    If the text has to be prepared, one of several processes does it, and the others wait.
    """
    if start.source is not None:
        data_config = start.source.resolve_data_paths(start.config.data)
        if "data.prepared" in start.given:  # a path from here, and not from where the run was made
            data_config = replace(data_config, prepared=start.config.data.prepared)
        return replace(start, data=find_same_text(start.source, data_config, world))
    assert start.draft is not None, "a new run has a draft"
    fitted = start.draft.fitted
    data = find_or_prepare(start.config.data, fit_vocabulary="data.vocab_size" in fitted,
                           fit_val_fraction="data.val_fraction" in fitted)
    config, chosen = start.draft.fit(data.manifest)
    return replace(start, config=config, data=data, chosen=chosen)


def find_same_text(source: RunDir, config: DataConfig, world: World) -> Prepared:
    """Return the prepared text that a run was trained on, to go on with it.

    If the prepared data is gone, the text is prepared again. Raises UserError if that gives other
    token ids than before. If the prepared data is there, but the files that it was made of have
    changed, prints a note.
    """
    settings = source.manifest["settings"]
    data = find_data_of(source.path, config, settings)
    # "files" are the prepared ones, token ids and tokenizer. For files of text, see the note below.
    if source.manifest["files"] != data.manifest["files"]:
        raise UserError(f"the text of {source.path} has changed since it was started: restore it, "
                        "or start a new run")
    if world.is_main and has_changed(config, settings):
        started = (source.path / "manifest.json").stat().st_mtime
        reason = explain_change(config, started)
        say(f"note: the text of {source.path} has changed since then, or is gone{reason}: the "
            "training goes on with what was prepared of it")
    return data


def check_start(start: Start, world: World) -> None:
    """Raise UserError, before any work, for options with which the training cannot work."""
    config = start.config
    train = config.train
    if not start.resumed:
        check_runs_folder(config.log.runs)
        if config.name is not None:
            RunDir.new_path(config.log.runs, config.name)  # refuses one that is bad or taken
    # A run that was trained on CUDA may go on elsewhere, without TF32.
    asks_for_tf32 = start.source is None or "train.tf32" in start.given
    if train.tf32 and asks_for_tf32 and world.device.type != "cuda":
        raise UserError(f"train.tf32 has no effect on {world.device}: it is for CUDA")
    if train.batch_size < world.size:
        raise UserError(f"train.batch_size {train.batch_size} cannot be shared by {world.size} "
                        "processes")
    shards = count_shards(train, world)
    if world.size % shards:
        raise UserError(f"train.shard {shards} does not divide the {world.size} processes: choose "
                        "a number that does, or full")
    # Sizes that are chosen for the text are not known yet, and `resolve_auto` checks them later.
    fitted = start.draft.fitted if start.draft is not None else frozenset()
    sizes_are_known = fitted.isdisjoint(("data.vocab_size", "data.seq_len"))
    if sizes_are_known:
        # How training computes is chosen later. Assume what needs the least: bfloat16, and compiled
        # except on a CPU (`count_logit_bytes`).
        check_fits(config, world, torch.bfloat16, compiled=world.device.type != "cpu")


def check_fits(config: Config, world: World, dtype: torch.dtype, compiled: bool) -> None:
    """Raise UserError for a training that the memory of these processes cannot hold.

    `dtype` is that of matrix products.
    """
    rows = count_rows(config.train, world)
    check_memory(world.device, count_least_bytes(config, world, dtype, compiled),
                 f"this model with {rows} rows of {config.data.seq_len} tokens",
                 "choose a smaller model, data.seq_len or train.micro_batch_size")


def count_least_bytes(
    config: Config, world: World, dtype: torch.dtype, compiled: bool
) -> int:
    """Return how many bytes one process of a training takes at least.

    `dtype` is that of matrix products. The activations of the blocks are not counted.
    """
    rows = count_rows(config.train, world)
    shards = count_shards(config.train, world)
    logits = rows * config.data.seq_len * config.model.vocab_size
    # At least 4 bytes for each parameter, its gradient and one moment.
    size = 12 * config.model.matrix_parameters // shards
    size += logits * count_logit_bytes(world.device, dtype, compiled)
    if overrides(POSITIONS[config.model.position], "freqs_cis"):  # it has a table of rotations
        size += 4 * table_positions(config.model) * key_dim(config.model)
    return size


def count_logit_bytes(device: torch.device, dtype: torch.dtype, compiled: bool) -> int:
    """Return how many bytes a logit takes at the peak of a step: the backward pass of the loss.

    `dtype` is that of matrix products, and of the logits.
    """
    if compiled:  # the pass is one kernel, which reads a logit and writes its gradient
        return 2 * dtype.itemsize
    if device.type == "cpu":  # the gradient overwrites the logit (`loss_by_chunks`)
        return dtype.itemsize
    # The log-probability, its gradient and the gradient of the logit, in float32.
    return 3 * torch.float32.itemsize


def count_rows(train: TrainConfig, world: World) -> int:
    """Return the largest number of rows in one forward pass of one process."""
    share = math.ceil(train.batch_size / world.size)
    if train.micro_batch_size is None:
        return share
    return min(train.micro_batch_size, share)


def count_shards(train: TrainConfig, world: World) -> int:
    """Return over how many processes the model is sharded."""
    if train.shard == "full":
        return world.size
    # One process is never sharded, so a cluster's configuration with shard 4 also runs on one GPU.
    if world.size > 1 and isinstance(train.shard, int):
        return train.shard
    return 1


def choose_compute(config: Config, world: World) -> Compute:
    """Return how the training computes here; `auto` becomes what is measured to be fast.

    All processes call this together, and choose the same.
    """
    train = config.train
    onednn = choose_onednn(config, world)
    tokens = train.batch_size * config.data.seq_len * train.steps
    flops = training_flops(config.model, tokens)
    on_cpu = world.device.type == "cpu"
    # Only on a CPU do the rates of a few products tell how long the steps take.
    needs_estimate = on_cpu and (train.minutes is not None or flops > WORTH_AN_ESTIMATE)
    rates: dict[torch.dtype, float] = {}
    if needs_estimate or (on_cpu and train.dtype == "auto"):
        rates = measure_rates(config, world, onednn)
    dtype, dtype_reason = choose_dtype(config, world, rates)
    seconds = None
    if needs_estimate:
        seconds = estimate_seconds(config.model, tokens, rates[dtype])
    flops_ahead = flops
    if train.minutes is not None:
        # Until the first steps are timed, train.steps is a placeholder, and so are `flops` and
        # `seconds`. But their ratio is the FLOP/s of whole steps, for any number of them.
        step_rate = GUESSED_RATE if seconds is None else flops / seconds
        seconds = 60 * train.minutes
        flops_ahead = seconds * step_rate
    compiled, compile_reason = choose_compile(config, world, dtype, flops_ahead)
    # A run that was trained on CUDA with TF32 may go on elsewhere, without.
    tf32 = train.tf32 and world.device.type == "cuda"
    return Compute(world.device, dtype, compiled, onednn, tf32,
                   dtype_reason, compile_reason, seconds)


def choose_onednn(config: Config, world: World) -> bool:
    """Return whether float32 products are oneDNN's. `auto` is what rank 0 has found faster."""
    onednn = config.train.onednn
    if onednn == "auto":
        onednn = kernels.prefers_onednn(world.device)
    return world.all_gather(onednn)[0]


def choose_dtype(
    config: Config, world: World, rates: dict[torch.dtype, float]
) -> tuple[torch.dtype, str]:
    """Return the dtype of matrix products, and the reason in words.

    `rates` are those of `measure_rates`, which `auto` needs on a CPU.
    """
    def both_rates() -> list[float]:
        return [rates[torch.float32], rates[torch.bfloat16]]

    dtype, reason = resolve_dtype(config.train.dtype, world.device, both_rates)
    if world.device.type == "cuda":  # take rank 0's, because the cards may differ
        dtype, reason = world.all_gather((dtype, reason))[0]
    return dtype, reason


def choose_compile(
    config: Config, world: World, dtype: torch.dtype, flops: float
) -> tuple[bool, str]:
    """Return whether a training of `flops` is compiled, and the reason in words."""
    choice = config.train.compile
    compiled, reason = resolve_compile(choice, world.device, dtype, flops)
    if compiled and choice == "auto":  # compiled steps need more memory on a CPU
        least_bytes = count_least_bytes(config, world, dtype, compiled=True)
        if least_bytes > memory_of(world.device):
            compiled = False
            reason = "not compiled: compiled steps would not fit into the memory"
    all_compile = all(world.all_gather(compiled))  # all call it, whatever they have found
    if compiled and not all_compile:
        return False, "not compiled: another process cannot compile"
    return compiled, reason


def measure_rates(config: Config, world: World, onednn: bool) -> dict[torch.dtype, float]:
    """Return the FLOP/s of matrix products by dtype, summed over all processes.

    All of them call this together. They get the same sums, and so choose alike.
    """
    train = config.train
    dtypes = [torch.float32, torch.bfloat16]
    if train.dtype != "auto":
        dtypes = [getattr(torch, train.dtype)]
    row_tokens = count_rows(train, world) * config.data.seq_len
    with kernels.products_by_onednn(onednn):
        rates = matmul_rates(world.device, config.model, row_tokens, training=True, dtypes=dtypes)
    return dict(zip(dtypes, world.sum(*rates), strict=True))


def choose_steps(start: Start, world: World, compute: Compute) -> tuple[Start, Compute]:
    """Return `start` with as many steps as fit into its train.minutes, and how they are computed.

    Takes the first steps, times them, and throws their results away. If compiling pays for so many
    steps, compiles them and times them again. A run that is given what was chosen (the numbers, the
    dtype, the compilation) computes the same bits. Raises UserError if other options, such as the
    warm-up, need more steps.
    """
    minutes = start.config.train.minutes
    assert minutes is not None
    assert start.draft is not None, "only a new run has minutes"
    assert start.data is not None, "the text is prepared before"
    if world.is_main:
        say("timing  the first steps, to choose train.steps")
    step_tokens = start.config.train.batch_size * start.config.data.seq_len
    step_seconds = time_first_steps(start, world, compute)
    if start.config.train.compile == "auto" and not compute.compiled:
        tokens = step_tokens * round(60 * minutes / step_seconds)
        flops = training_flops(start.config.model, tokens)
        compiled, reason = choose_compile(start.config, world, compute.dtype, flops)
        if compiled:
            compute = replace(compute, compiled=True, compile_reason=reason)
            step_seconds = time_first_steps(start, world, compute)
    steps = max(1, round(60 * minutes / step_seconds))
    val_tokens = start.data.manifest["val"]["tokens"]
    numbers = {"train.steps": steps, **start.draft.fit_to_steps(steps, step_tokens, val_tokens)}
    without_minutes = {"train.minutes": None}  # minutes would contradict the steps
    try:
        config = make_config(asdict(start.config), numbers, without_minutes)
    except UserError as error:
        raise UserError(f"train.minutes {minutes:g} makes train.steps {steps} here, and {error}: "
                        "choose more minutes, or smaller numbers") from None
    chosen = {**start.chosen, **numbers}
    return replace(start, config=config, chosen=chosen, timed=True), compute


def time_first_steps(start: Start, world: World, compute: Compute) -> float:
    """Return the mean seconds of the first steps of a training, which leave nothing behind."""
    minutes = start.config.train.minutes
    assert minutes is not None
    enough = min(MAX_TIMED_SECONDS, 60 * minutes * TIMED_SHARE)
    with compute.active():
        step_seconds = time_steps(build(start, world, compute, StopSignal()), enough)
    gc.collect()  # nothing else frees a compiled model, which is in a reference cycle
    return step_seconds


def time_steps(setup: Setup, enough: float) -> float:
    """Return the mean seconds of a step.

    Takes steps from the first one on, until they have taken `enough` seconds. All processes call
    this together, and get the mean of rank 0.
    """
    # Steps that are slower than later ones are not timed. The first compiles, and fills caches.
    train_step(setup, 0)
    if setup.graphs is not None:
        # A graph is recorded at the second call of its kind. So the second step records the CUDA
        # graph of a first micro-batch, which sets the gradients. The other micro-batches add to
        # those, and are recorded after that: in the third step at the latest.
        train_step(setup, 0)
        train_step(setup, 0)
    # The learning rate is defined for the steps 0 to n_steps - 1. After them, begin again at 0.
    n_steps = setup.config.train.steps
    taken = 0
    seconds = 0.0
    finished = -math.inf
    pending = start_step(setup, 0)
    while True:
        taken += 1
        # As in `take_steps` of train.py: on a GPU the next step is started before this one is read.
        following = None
        if setup.reads_late:
            following = start_step(setup, taken % n_steps)
        result = pending.read(since=finished)
        finished = result.finished
        seconds += setup.world.all_gather(result.seconds)[0]  # rank 0's, so that all stop alike
        if taken >= MIN_TIMED_STEPS and seconds >= enough:
            return seconds / taken
        if following is None:
            following = start_step(setup, taken % n_steps)
        pending = following


# --- what a step needs ---------------------------------------------------------------------------


def build(start: Start, world: World, compute: Compute, stop: StopSignal) -> Setup:
    """Return what `start_step` needs. If `start` names a checkpoint, it has been restored.

    `start` has no `auto` left, except while the first steps are timed for train.minutes. `compute`
    is active.
    """
    config = start.config
    assert start.data is not None, "resolve_auto comes first"
    shards = count_shards(config.train, world)
    parallelism = Replicated(world)
    if shards > 1:
        from gyre.sharding import Sharded  # slow to import

        parallelism = Sharded(world, shards)
    # `module` is what training calls: the model, or DDP around it.
    model, module = parallelism.build_model(config.model, compute.compiled)
    model.checkpoint_blocks = config.train.checkpoint_blocks
    # Muon multiplies gradients that the scaler has unscaled. They are too small for float16.
    muon_dtype = torch.float32 if compute.dtype == torch.float16 else compute.dtype
    optimizers = Optimizers(model, config.optim, muon_dtype)
    scaler = torch.amp.GradScaler(world.device.type, enabled=compute.dtype == torch.float16)
    progress = Progress()
    if start.has_checkpoint():
        progress = restore(start, world, model, optimizers, scaler)
    elif config.init_from is not None:
        run = RunDir.open(config.init_from)
        weights = run.checkpoints.load_weights("best", shapes=weight_shapes(model))
        copy_weights(model, weights.items())
    else:
        copy_weights(model, model.draw_matrices(config.seed))
    parallelism.share_weights(model)  # the other ranks may have drawn or read other ones
    # Any of the processes may have prepared the text, and that one has printed the notes on it.
    is_new = any(world.all_gather(start.data.is_new))
    dataset_arguments = {
        "seq_len": config.data.seq_len, "batch_size": config.train.batch_size,
        "seed": config.seed, "rank": world.rank, "world_size": world.size,
    }
    setup = Setup(
        config=config, world=world, compute=compute, parallelism=parallelism,
        data=replace(start.data, is_new=is_new),
        train_data=start.data.dataset("train", **dataset_arguments),
        val_data=start.data.dataset("val", **dataset_arguments), model=model, module=module,
        optimizers=optimizers, loss=torch.compile(summed_loss) if compute.compiled else summed_loss,
        rows=count_rows(config.train, world), progress=progress,
        scaler=scaler, stop=stop, reads_late=world.device.type == "cuda",
    )
    if not uses_graphs(config, world):
        return setup
    # `add_gradient` does not read `graphs`, so it can have a setup without.
    graphs = GradientGraphs(partial(add_gradient, setup), [*model.parameters()])
    return replace(setup, graphs=graphs)


def uses_graphs(config: Config, world: World) -> bool:
    """Return whether gradients are computed by CUDA graphs.

    They are if train.cuda_graphs allows it, one process trains on CUDA, and the model is so small
    that launching its kernels takes longer than computing.
    """
    tokens = count_rows(config.train, world) * config.data.seq_len
    is_launch_bound = training_flops(config.model, tokens) <= MOST_FLOPS
    can_record = world.device.type == "cuda" and world.size == 1
    return can_record and is_launch_bound and config.train.cuda_graphs


def restore(
    start: Start, world: World, model: Transformer, optimizers: Optimizers,
    scaler: torch.amp.GradScaler,
) -> Progress:
    """Load the weights, the optimizers and the scaler of the checkpoint that `start` names.

    Returns its progress, whose `best` is infinite if no `best` is kept. Prints how the learning
    rate goes on if the run gets another number of steps. Raises UserError if no step is left
    (except with --resume auto). Without --train.steps, also raises it if the checkpoint was saved
    with another train.steps than that of config.yaml.
    """
    run = start.source
    assert run is not None, "there is nothing to restore"
    which = "last" if start.step is None else start.step
    with run.checkpoints.open(which, world) as folder:
        training = run.checkpoints.load_training(folder)
        check_shapes(folder, weight_shapes(model))
        copy_weights(model, read_safetensors(folder / WEIGHTS))
        optimizers.load_tensors(read_safetensors(folder / STATES))
    if "scaler" in training:  # saved by runs in float16 only
        scaler.load_state_dict(training["scaler"])
    progress = Progress(**training["progress"])
    if start.is_branch:
        check_branch(run, start, progress.step)
        progress.best = math.inf  # `best` has to be weights that this run has saved
        return progress
    check_resumed(run, start, progress.step, training["steps"])
    if progress.step >= start.config.train.steps:
        return progress  # of a finished run (--resume auto), whose `best` and schedule stay
    best_step = run.checkpoints.saved_step("best")
    has_best = best_step > 0  # 0: `best` was removed, or cannot be read
    # If `best` is of a step that is taken again, RunDir.resume removes it.
    keeps_best = has_best and best_step <= progress.step
    if not keeps_best:
        progress.best = math.inf
    if training["steps"] != start.config.train.steps and world.is_main:
        print_schedule(run, start.config, progress.step, training["steps"])
    return progress


def check_branch(run: RunDir, start: Start, step: int) -> None:
    """Raise UserError if a branch from the checkpoint of this step of a run has no step left."""
    steps = start.config.train.steps
    if step >= steps:
        origin = "" if "train.steps" in start.given else ", with which that run was started"
        raise UserError(f"the branch starts after step {step} of {run.path}, and train.steps "
                        f"is {steps}{origin}: give a larger number, or an earlier step with --at")


def check_resumed(run: RunDir, start: Start, step: int, steps_when_saved: int) -> None:
    """Raise UserError if a run cannot go on after this step, or not by this command.

    config.yaml keeps the train.steps with which the run was started. A later command can have given
    another one, and `steps_when_saved` is that of the command which saved the checkpoint. With
    --train.steps N, the run ends at N. Without it, the run ends at `steps_when_saved`. There are
    two errors:

    - The run has reached its end, and is not resumed by --resume auto.
    - The command is without --train.steps, config.yaml has another number than `steps_when_saved`,
      on which the learning rates depend, and a step is left up to one of the two.
    """
    steps_now = start.config.train.steps
    gives_steps = "train.steps" in start.given
    end = steps_now if gives_steps else steps_when_saved
    if step >= end and not start.resumes_auto:
        raise UserError(f"{run.path} has taken {step} steps: give --train.steps a larger number "
                        "to go on")
    if gives_steps or steps_when_saved == steps_now:
        return
    has_reached_both = step >= max(steps_when_saved, steps_now)
    if not has_reached_both:
        raise UserError(f"{run.path} was last resumed with --train.steps {steps_when_saved}, on "
                        "which its learning rates depend: repeat that, or give another number")


# --- what is said before the first step ----------------------------------------------------------


def print_setup(start: Start, setup: Setup, repeats_validation: bool = False) -> None:
    """Print what is trained on what, on rank 0.

    `repeats_validation` says whether the checkpoint of a resumed run still has to be validated.
    """
    if not setup.world.is_main:
        return
    config = setup.config
    n_tokens = setup.train_data.n_tokens
    epochs = config.train.batch_size * config.data.seq_len * config.train.steps / n_tokens
    if start.resumed and start.ignores_file:
        say(f"{start.resumed.path} goes on with the configuration that it has saved: --config is "
            "ignored")
    if start.resumed and setup.progress.step == 0:
        say(f"{start.resumed.path} has no checkpoint yet: starting at step 0")
    if not setup.data.is_new:  # else they were printed just now
        for note in setup.data.notes:
            say(place_scripts(note))
    if start.chosen:
        choices = [f"{name} {number}" for name, number in start.chosen.items()]
        say(f"auto    {', '.join(choices)}: {explain_choice(start)}")
    say(f"data    {describe_data(setup)}")
    duration = describe_duration(start, setup, repeats_validation)
    parameters = sum(p.numel() for p in setup.model.parameters())
    say(f"model   {parameters:,} parameters, positions: {config.model.position}; "
        f"{format_steps(config.train.steps)} of {config.train.batch_size} rows of "
        f"{config.data.seq_len} tokens ({format_epochs(epochs)}{duration})")
    say(f"device  {describe_devices(setup)}")
    print_notes(start, setup)


def print_notes(start: Start, setup: Setup) -> None:
    """Print notes on what the user may not expect, and can change."""
    config = setup.config
    if start.has_default_sizes:
        say("note: without --config, a model has the default sizes, which are larger than those of "
            "--config small.yaml")
    note_few_steps(start, config.train.steps)
    if setup.compute.device.type == "cpu":
        note_busy_cores()
    note_final_lr(config.optim, config.train.steps)
    if start.is_fine_tuning:
        assert config.init_from is not None
        base = RunDir.open(config.init_from)
        base.note_missing_best()
        note_unfit_tokenizer(base, setup.data)
    if "train.sample_prompt" in start.given:
        note_backslash_n("--train.sample_prompt", [config.train.sample_prompt])


def describe_data(setup: Setup) -> str:
    """Return how much text there is, and what to expect if it is little."""
    remarks = ""
    n_tokens = setup.train_data.n_tokens
    if n_tokens < LITTLE_TEXT:
        remarks += ". This is little text: expect fragments of it, and hardly a new sentence"
    n_val_tokens = setup.val_data.n_tokens
    if n_val_tokens < FEW_VAL_TOKENS:
        remarks += ". So few tokens for validation choose the best weights almost by chance"
    return (f"{setup.data.folder}: {n_tokens:,} training tokens and {n_val_tokens:,} for "
            f"validation, vocabulary {setup.config.data.vocab_size}{remarks}")


def note_few_steps(start: Start, steps: int) -> None:
    """Print a note if train.minutes has room for so few steps that hardly anything is learned."""
    if start.timed and steps < FEW_STEPS:
        say(f"note: {format_steps(steps)} teach a model next to nothing: give more train.minutes")


def note_busy_cores() -> None:
    """Print a note if threads of this training wait for cores that other processes use.

    At the end of each product, all threads wait for the last one, and spin meanwhile. If the
    machine was busy when the command started, `spare_busy_cores` in errors.py has set
    GOMP_SPINCOUNT, and they sleep instead.
    """
    threads_sleep = "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ
    if torch.get_num_threads() > 1 and not threads_sleep and busy_load():
        say("note: other processes keep the cores busy: with OMP_NUM_THREADS=1 before the command, "
            "it may be several times as fast")


def note_unfit_tokenizer(base: RunDir, data: Prepared) -> None:
    """Print a note if a fine-tuning has a tokenizer that does not fit its text.

    The tokenizer is that of the base, and was learned from the text of the base.
    """
    base_val = base.manifest.get("val")
    if base_val is None or not base_val.get("bytes"):  # an imported run has no text
        return
    val = data.manifest["val"]
    ratio = val["tokens"] / val["bytes"] / (base_val["tokens"] / base_val["bytes"])
    if ratio > UNFIT_TOKENIZER:
        say(f"note: the tokenizer of {base.path} makes {ratio:.1f} times as many tokens of a byte "
            "of this text as of its own: a new run, with a tokenizer for this text, may be better")


def note_final_lr(optim: OptimConfig, steps: int) -> None:
    """Print a note if the learning rate does not fall to `final_lr`, a fraction of the highest one,
    in so many steps."""
    if lr_factor(optim, steps - 1, steps) <= optim.final_lr:
        return
    remedy = "fewer optim.warmup_steps"
    if optim.schedule == "wsd":
        remedy = "a larger optim.cooldown"
    say(f"note: no step is left in which the learning rate falls to optim.final_lr "
        f"{optim.final_lr:g}: give more train.steps, or {remedy}")


def describe_duration(start: Start, setup: Setup, repeats_validation: bool) -> str:
    """Return after which step a training goes on, and how long the remaining steps will take.

    The time is left out if it was not estimated. That of validations is named if they are long.
    With `repeats_validation`, the first of them is that of the checkpoint.
    """
    taken = setup.progress.step
    begin = f", going on after step {taken}" if taken > 0 else ""
    seconds = setup.compute.expected_seconds
    if seconds is None:
        return begin
    train = setup.config.train
    remaining = seconds * (train.steps - taken) / train.steps
    duration = f", {format_estimate(remaining)}"
    if taken > 0:
        duration += " from here"
    n_validations = math.ceil(train.steps / train.eval_interval)
    n_validations -= taken // train.eval_interval  # done before the training was resumed
    if start.is_fine_tuning:
        n_validations += 1  # of the model that it begins with (`measure_base` of train.py)
    if repeats_validation:
        n_validations += 1  # of the checkpoint (`repeat_validation` of train.py)
    val_tokens = n_validations * setup.val_data.n_tokens
    train_tokens = train.steps * train.batch_size * setup.config.data.seq_len
    # A token of a validation takes a third of the time of one that is trained on.
    val_seconds = seconds * val_tokens / 3 / train_tokens
    if val_seconds > LONG_VALIDATION * remaining:
        duration += f", and {format_estimate(val_seconds)} for validation"
    return begin + duration + describe_load()


def format_steps(steps: int) -> str:
    """Return a number of steps as text."""
    return "1 step" if steps == 1 else f"{steps} steps"


def format_epochs(epochs: float) -> str:
    """Return a number of epochs as text, with two digits where it is small."""
    if epochs < 0.001:
        return "less than 0.001 epochs"
    if epochs < 0.995:  # from there on, two digits would round it to 1
        return f"{epochs:.2g} epochs"
    return f"{epochs:.1f} epochs"


def describe_devices(setup: Setup) -> str:
    """Return on what the training computes, how, and why."""
    compute = setup.compute
    layout = f" x {setup.world.size}" if setup.world.size > 1 else ""
    shards = count_shards(setup.config.train, setup.world)
    if shards > 1:
        layout += f", each with 1/{shards} of the model"
    graphs = "; gradients by CUDA graphs" if setup.graphs is not None else ""
    return f"{compute.device}{layout}; {compute.dtype_reason}; {compute.compile_reason}{graphs}"


def explain_choice(start: Start) -> str:
    """Return why numbers were chosen."""
    names = start.chosen.keys()
    # FITTED_TO_STEPS has train.steps and what follows from it. Only the text decides on the others.
    fits_text = bool(names - set(FITTED_TO_STEPS))
    if start.timed:
        return "chosen for this text and time" if fits_text else "chosen for this time"
    # Without train.minutes, the size of the text decides on train.steps, too.
    chose_steps = "train.steps" in names
    if fits_text or chose_steps:
        return "chosen for this text"
    return "chosen for these steps"


def print_schedule(run: RunDir, config: Config, step: int, old_steps: int) -> None:
    """Print how the learning rate goes on after `step` with another number of steps."""
    optim = config.optim
    steps = config.train.steps
    # `step` steps are taken. `lr_factor` numbers them from 0, so the last one is number `step - 1`.
    last_lr = optim.lr * lr_factor(optim, step - 1, old_steps)
    next_lr = optim.lr * lr_factor(optim, step, steps)
    end_lr = optim.lr * lr_factor(optim, steps - 1, steps)
    note = (f"note: the learning rate of step {step} was {last_lr:.2g}. With {steps} steps it goes "
            f"on at {next_lr:.2g} and ends at {end_lr:.2g}.")
    if next_lr > last_lr > 0:
        words = ["--branch-from", str(run.path)]
        first_stop = ""
        if step in run.checkpoints.kept_steps():
            words += ["--at", str(step)]
        else:  # this training replaces the checkpoint
            first_stop = "stop this training now, and give "
        words += ["--train.steps", str(steps), "--optim.lr", f"{last_lr:.2g}"]
        if optim.muon_lr is not None:
            words += ["--optim.muon_lr", f"{optim.muon_lr * last_lr / optim.lr:.2g}"]
        note += f" To start low instead: {first_stop}{shlex.join(words)}"
    say(note)
