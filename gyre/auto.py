"""Choose what a command line leaves open: the text, its numbers, and how the training computes."""

import gc
from dataclasses import asdict, replace

import torch

from data.dataset import Prepared, explain_change, find_data_of, find_or_prepare, has_changed
from data.prepare import TextTooSmallError
from data.sources import DataConfig
from errors import UserError, say
from gyre.build import build
from gyre.compute import (
    DTYPE_NAMES,
    Compute,
    matmul_rates,
    memory_of,
    resolve_compile,
    resolve_dtype,
)
from gyre.estimate import estimate_seconds, training_flops
from gyre.memory import check_batch, check_fits, count_least_bytes, count_rows, count_shards
from gyre.options import Config, make_config
from gyre.parallel import World
from gyre.rundir import RunDir, check_runs_folder
from gyre.signals import StopSignal
from gyre.start import Resolved, Start
from gyre.step import Setup, StepQueue, train_step
from model import kernels

# For train.minutes, the first steps are timed: at least MIN_TIMED_STEPS, and until they have taken
# MAX_TIMED_SECONDS or, if that is less, TIMED_SHARE of the minutes.
MIN_TIMED_STEPS = 3
MAX_TIMED_SECONDS = 10.0
TIMED_SHARE = 0.02
# Before these, some steps are not timed. The first one compiles, and fills caches. CUDA graphs are
# recorded in the next ones: that of the first micro-batch, which sets the gradients, in step 2, and
# that of the others, which add to them, by step 3, because it waits for the first graph.
UNTIMED_STEPS_WITH_GRAPHS = 3
WORTH_AN_ESTIMATE = 3e11  # FLOPs of a training; fewer are done in a few seconds
# FLOP/s of a slow GPU. train.minutes assumes this rate until the first steps are timed. It only
# decides whether these are compiled. If they are, the training is, too. On a CPU, a rate is
# measured instead.
GUESSED_RATE = 2e13


def resolve_auto(start: Start, world: World) -> Resolved:
    """Prepare the text, and choose what the command line leaves open.

    Connects the processes, which all call this. Raises UserError if the training cannot work. Most
    causes are found before the text is prepared.
    """
    check_start(start, world)
    if start.source is not None:
        note_changed_encoding(start.source, start.config.model.position, world)
    # Prepare the text before the processes connect. It can take longer than train.timeout, the
    # longest that connected processes wait for each other.
    data = prepare_data(start, world)
    config, chosen = start.draft.fit(data.manifest)
    check_batch(config, world)
    world.connect()
    compute, expected_seconds = choose_compute(config, world)
    check_fits(config, world, compute.dtype, compute.compiled)
    resolved = Resolved(start, config, data, compute, chosen, expected_seconds=expected_seconds)
    if config.train.minutes is not None:
        resolved = choose_steps(resolved, world)
    return replace(resolved, config=record_choices(resolved.config, resolved.compute))


def record_choices(config: Config, compute: Compute) -> Config:
    """Return a configuration with what `auto` stood for, so that the run keeps it if it is resumed
    on another machine.

    A device or `compile` that was given is kept as it was given, although `compute` may have
    another one: several processes on a Mac use its CPU even if mps was given, and without a
    compiler nothing is compiled. The next machine may be able to use them. A dtype or `onednn` that
    was given is what `compute` has.
    """
    train = replace(config.train, dtype=DTYPE_NAMES[compute.dtype], onednn=compute.onednn)
    if train.device == "auto":
        train = replace(train, device=compute.device.type)
    if train.compile == "auto":
        train = replace(train, compile=compute.compiled)
    return replace(config, train=train)


def prepare_data(start: Start, world: World) -> Prepared:
    """Return the prepared text.

    If the text has to be prepared, one of several processes does it, and the others wait.
    """
    if start.source is not None:
        data_config = start.source.resolve_data_paths(start.config.data)
        if "data.prepared" in start.given:  # a path from here, and not from where the run was made
            data_config = replace(data_config, prepared=start.config.data.prepared)
        return find_same_text(start.source, data_config, world)
    fitted = start.draft.fitted
    try:
        return find_or_prepare(start.config.data, fit_vocabulary="data.vocab_size" in fitted,
                               fit_val_fraction="data.val_fraction" in fitted)
    except TextTooSmallError as error:
        # Only train.py offers `auto`. ablate.py calls `find_or_prepare` too, so this is added here.
        raise UserError(f"{error}, or let train.py choose them: --data.vocab_size auto "
                        "--data.seq_len auto") from None


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
        reason = explain_change(config, source.created.timestamp())
        say(f"note: the text of {source.path} has changed since then, or is gone{reason}: the "
            "training goes on with what was prepared of it")
    return data


def note_changed_encoding(source: RunDir, position: str, world: World) -> None:
    """Print a note if the encoding of a run that goes on was edited since the run was made."""
    if world.is_main and source.has_changed_encoding(position):
        say(f"note: the code of model.position {position} has changed since {source.path} was "
            "made: the training goes on with the new code")


def check_start(start: Start, world: World) -> None:
    """Raise UserError, before any work, for options with which the training cannot work."""
    config = start.config
    train = config.train
    if not start.resumed:
        check_runs_folder(config.log.runs)
        if config.name is not None:
            RunDir.new_path(config.log.runs, config.name)  # refuses one that is bad or taken
    # A run that was trained on CUDA may go on elsewhere, without TF32.
    is_asked_now = start.source is None or "train.tf32" in start.given
    if train.tf32 and is_asked_now and world.device.type != "cuda":
        raise UserError(f"train.tf32 has no effect on {world.device}: it is for CUDA")
    if train.batch_size < world.size:
        raise UserError(f"train.batch_size {train.batch_size} cannot be shared by {world.size} "
                        "processes")
    shards = count_shards(train, world)
    if world.size % shards:
        raise UserError(f"train.shard {shards} does not divide the {world.size} processes: choose "
                        "a number that does, or full")
    # Sizes that are chosen for the text are not known yet, and `resolve_auto` checks them later.
    sizes_are_known = start.draft.fitted.isdisjoint(("data.vocab_size", "data.seq_len"))
    if sizes_are_known:
        check_batch(config, world)
        # How training computes is chosen later. Assume what needs the least on each device: on a
        # CPU a logit takes 2 bytes, in bfloat16 and not compiled, and elsewhere 4, in bfloat16 and
        # compiled.
        check_fits(config, world, torch.bfloat16, compiled=world.device.type != "cpu")


def choose_compute(config: Config, world: World) -> tuple[Compute, float | None]:
    """Return how the training computes here, and about how many seconds its steps take.

    `auto` becomes what is measured to be fast. The seconds are None where they are not known.

    All processes call this together, and choose the same.
    """
    train = config.train
    onednn = choose_onednn(config, world)
    tokens = config.step_tokens * train.steps
    flops = training_flops(config.model, tokens)
    on_cpu = world.device.type == "cpu"
    # Only on a CPU do the rates of a few products tell how long the steps take.
    needs_estimate = on_cpu and (train.minutes is not None or flops > WORTH_AN_ESTIMATE)
    rates: dict[torch.dtype, float] = {}
    if needs_estimate or (on_cpu and train.dtype == "auto"):
        rates = measure_rates(config, world, onednn)
    dtype, dtype_reason = choose_dtype(config, world, rates)
    estimate = None
    if needs_estimate:
        estimate = estimate_seconds(config.model, tokens, rates[dtype])
    if train.minutes is None:
        seconds = estimate
        flops_ahead = flops
    else:
        # Until the first steps are timed, train.steps is a placeholder. `flops` and `estimate` are
        # those of so many steps. Their ratio, the FLOP/s of a step, does not depend on the number.
        step_rate = GUESSED_RATE if estimate is None else flops / estimate
        seconds = 60 * train.minutes
        flops_ahead = seconds * step_rate
    compiled, compile_reason = choose_compile(config, world, dtype, flops_ahead)
    # A run that was trained on CUDA with TF32 may go on elsewhere, without.
    tf32 = train.tf32 and world.device.type == "cuda"
    compute = Compute(world.device, dtype, compiled, onednn, tf32, dtype_reason, compile_reason)
    return compute, seconds


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

    `rates` are those of `measure_rates`. They may be empty if train.dtype is not auto, and on CUDA.
    """
    def both_rates() -> list[float]:  # called for `auto` on a CPU only
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


def choose_steps(resolved: Resolved, world: World) -> Resolved:
    """Return a training of as many steps as fit into train.minutes, and how they are computed.

    Takes the first steps, times them, and throws their results away. If compiling pays for so many
    steps, compiles them and times them again. Raises UserError if other options, such as the
    warm-up, need more steps. A run that is given what was chosen (the numbers, the dtype, the
    compilation) computes the same bits.
    """
    start = resolved.start
    config = resolved.config
    minutes = config.train.minutes
    assert minutes is not None
    if world.is_main:
        say("timing  the first steps, to choose train.steps")
    step_tokens = config.step_tokens
    step_seconds = time_first_steps(resolved, world)
    if config.train.compile == "auto" and not resolved.compute.compiled:
        tokens = step_tokens * round(60 * minutes / step_seconds)
        flops = training_flops(config.model, tokens)
        compiled, reason = choose_compile(config, world, resolved.compute.dtype, flops)
        if compiled:
            compute = replace(resolved.compute, compiled=True, compile_reason=reason)
            resolved = replace(resolved, compute=compute)
            step_seconds = time_first_steps(resolved, world)
    steps = max(1, round(60 * minutes / step_seconds))
    val_tokens = resolved.data.manifest["val"]["tokens"]
    numbers = {"train.steps": steps, **start.draft.fit_to_steps(steps, step_tokens, val_tokens)}
    without_minutes = {"train.minutes": None}  # minutes would contradict the steps
    try:
        config = make_config(asdict(config), numbers, without_minutes)
    except UserError as error:
        raise UserError(f"train.minutes {minutes:g} makes train.steps {steps} here, and {error}: "
                        "choose more minutes, or smaller numbers") from None
    return replace(resolved, config=config, chosen={**resolved.chosen, **numbers}, timed=True)


def time_first_steps(resolved: Resolved, world: World) -> float:
    """Return the mean seconds of the first steps of a training, which leave nothing behind."""
    minutes = resolved.config.train.minutes
    assert minutes is not None
    enough = min(MAX_TIMED_SECONDS, 60 * minutes * TIMED_SHARE)
    with resolved.compute.active():
        step_seconds = time_steps(build(resolved, world, StopSignal()), enough)
    gc.collect()  # nothing else frees a compiled model, which is in a reference cycle
    return step_seconds


def time_steps(setup: Setup, enough: float) -> float:
    """Return the mean seconds of a step.

    First takes steps that are slower than later ones, which are not timed. Then times steps, at
    least MIN_TIMED_STEPS, until they have taken `enough` seconds. All processes call this together,
    and get the mean of rank 0.
    """
    n_untimed = 1 if setup.graphs is None else UNTIMED_STEPS_WITH_GRAPHS
    for _ in range(n_untimed):
        train_step(setup, 0)
    # The learning rate is defined for the steps 0 to n_steps - 1. After them, begin again at 0.
    n_steps = setup.config.train.steps
    steps = StepQueue(setup)
    taken = 0
    seconds = 0.0
    while taken < MIN_TIMED_STEPS or seconds < enough:
        result = steps.take(taken % n_steps, (taken + 1) % n_steps)
        taken += 1
        seconds += setup.world.all_gather(result.seconds)[0]  # rank 0's, so that all stop alike
    return seconds / taken
