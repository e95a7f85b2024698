"""Train a model on text.

    python train.py --config small.yaml
    python train.py --config small.yaml --model.position sinusoidal --train.steps 500
    python train.py --resume runs/small-rope-s1
    python train.py --init-from runs/small-rope-s1 --data.files book.txt
    python train.py --branch-from runs/small-rope-s1 --train.steps 2000
    torchrun --nproc-per-node 2 train.py --config small.yaml
    torchrun --nproc-per-node 8 --max-restarts 3 train.py --config small.yaml --train.shard full \\
        --name big --resume auto

In a new run, YAML files override the defaults, and the command line overrides both. What can change
where another run is given:

    --init-from     all but the tokenizer and the model. Of the model, the command line can change
                    options on which no weight depends, such as the dropout; YAML files can change
                    the dropout only.
    --resume        log.*, except log.runs, and train.*, except the batch size
    --branch-from   these, and the name, log.runs, and optim.*, except the optimizer

A run is written to runs/NAME.
"""

import interrupts  # first: from here on, Ctrl-C shows no traceback

import atexit
import math
import shlex
import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NoReturn

from errors import (
    UserError,
    bar_interval,
    find_script,
    hide_controls,
    importing,
    report_errors,
    say,
)

with importing(__name__):
    import torch
    from tqdm import tqdm

    from data.prompt import TOKENS_FOR_PROMPT, first_plain_words
    from gyre.announce import print_setup
    from gyre.auto import resolve_auto
    from gyre.build import build
    from gyre.checkpoint import STATES, WEIGHTS, write_tensors
    from gyre.compute import keep_freed_memory
    from gyre.load import default_new_tokens, trained_length
    from gyre.parallel import World
    from gyre.rundir import RunDir, claim_name, locked_run
    from gyre.signals import StopSignal
    from gyre.start import Resolved, Start, resolve
    from gyre.step import GIVE_UP_AFTER, Setup, StepQueue, StepResult, token_losses
    from model.generation import generate
    from model.sampling import Sampling


@dataclass(frozen=True)
class Outcome:
    """How a training has ended."""

    path: Path
    """Folder of the run."""
    signal: int = 0
    """Number of the signal that stopped it; 0: it has taken all its steps."""


def main(argv: list[str] | None = None) -> None:
    """Exit with 0, with 2 for bad input, or with 128 plus the number of a signal."""
    argv = sys.argv[1:] if argv is None else argv
    with report_errors():
        outcome = run_training(resolve(argv, __doc__), StopSignal())
    if outcome.signal:
        # All is saved. Another Ctrl-C while Python ends would only print a traceback.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    sys.exit(128 + outcome.signal if outcome.signal else 0)


def run_training(start: Start, stop: StopSignal) -> Outcome:
    """Train what `start` asks for: choose what it leaves open, then train."""
    world = World.from_env(start.config.train.device, start.config.train.timeout)
    if world.device.type == "cpu":
        keep_freed_memory()
    try:
        with world.explain_lost_ranks():
            return train(resolve_auto(start, world), world, stop)
    finally:
        world.disconnect()


def train(resolved: Resolved, world: World, stop: StopSignal) -> Outcome:
    """Train to the last step, or until `stop` asks to stop."""
    start = resolved.start
    with ExitStack() as contexts:
        contexts.enter_context(resolved.compute.active())
        if start.resumed and world.is_main:
            contexts.enter_context(locked_run(start.resumed.path))
        setup = build(resolved, world, stop)
        progress = setup.progress
        if start.resumed and progress.step >= setup.config.train.steps:
            # Only --resume auto comes here: else `build` has refused a finished run.
            print_end(start, setup, start.resumed, "nothing to do:")
            return Outcome(start.resumed.path)
        # A training that starts from another run saves after its first step, because the other run
        # can change. Without a checkpoint, a branch cannot be resumed, and a fine-tuning can begin
        # again only if its base still has the same weights.
        starts_from_run = start.trunk is not None or setup.base_sha256 != ""
        first_save = progress.step + 1 if starts_from_run else None
        run, steps, bar = begin_run(resolved, setup, contexts)
        try:
            take_steps(setup, run, steps, bar, first_save)
        except KeyboardInterrupt:  # by a second Ctrl-C, see StopSignal
            print_end_at_once(start, setup, run)
            raise
        bar.close()
        if progress.step < setup.config.train.steps:
            print_stop(start, setup, run, f"stopped after step {progress.step}, saved")
            # If only another rank got a signal, its number is not known here: say SIGTERM.
            return Outcome(run.path, stop.number if stop.number != 0 else signal.SIGTERM)
        print_end(start, setup, run, "done")
        note_better_base(setup, run)
        return Outcome(run.path)


def begin_run(
    resolved: Resolved, setup: Setup, contexts: ExitStack
) -> tuple[RunDir, StepQueue, tqdm]:
    """Do all that comes before the loop over steps.

    In this order: print what is trained, validate the checkpoint of a resumed run if that was not
    done, validate the base of a fine-tuning, finish the first step, and open the folder of the run.

    Returns the run, the queue that has the step, and the progress bar. The step is neither counted
    nor logged yet. From the end of the first step on, a signal only asks to stop after a step.

    A new run has no folder before its first step. So if the step fails, or if Ctrl-C comes before
    it is finished, the training leaves nothing behind. A run whose checkpoint is validated has its
    folder open before that.
    """
    start = resolved.start
    validates_checkpoint = lacks_validation(start, setup)
    print_setup(resolved, setup, validates_checkpoint)
    run = None
    # Contexts are closed in reverse order. This one holds a run that is opened early. It is entered
    # again after `setup.stop`, so that at the end the run is closed before `setup.stop`, while
    # SIGTERM and SIGHUP are still only remembered.
    opened = contexts.enter_context(ExitStack())
    if validates_checkpoint:
        run = open_run(start, setup, opened)  # now, because the result is written there
        validate_checkpoint(setup, run)
    base = measure_base(start, setup)
    bar = contexts.enter_context(make_bar(setup))
    steps = take_first_step(setup)
    contexts.enter_context(setup.stop)
    contexts.enter_context(opened.pop_all())
    if run is None:
        run = open_run(start, setup, contexts)
    # This is called first of all when the contexts close. All is saved then, so that from there on
    # Ctrl-C is no longer remembered, but acts at once, and can end the wait for wandb.
    contexts.callback(setup.stop.end_steps)
    if base is not None:
        run.log({**setup.progress.axes, **base})  # at step 0: the first step is not counted yet
    return run, steps, bar


def make_bar(setup: Setup) -> tqdm:
    """Return the progress bar of the training, which rank 0 shows."""
    return tqdm(
        total=setup.config.train.steps, initial=setup.progress.step, desc="train", unit="step",
        disable=not setup.world.is_main, mininterval=bar_interval(),
    )


def take_first_step(setup: Setup) -> StepQueue:
    """Return a queue with the first step, finished. If Ctrl-C ends it, say that it is not saved."""
    steps = StepQueue(setup)
    # Steps are numbered from 0: after `step` steps, the next one has the number `step`.
    step = setup.progress.step
    try:
        steps.start(step).wait()
    except KeyboardInterrupt:
        if setup.world.is_main:
            say(f"\nended in step {step + 1}, which is not saved")
        raise
    return steps


def lacks_validation(start: Start, setup: Setup) -> bool:
    """Return whether the checkpoint that a run is resumed from still has to be validated.

    A signal can end a validation early. Then the checkpoint is saved, but nothing is logged. Or the
    command gives another train.eval_interval, by which this step is one that is validated.
    """
    step = setup.progress.step
    if not start.resumed or step == 0 or not validates_after(setup, step):
        return False
    return not was_validated(start.resumed, setup.world, step)


def was_validated(run: RunDir, world: World, step: int) -> bool:
    """Return whether a run has a validation loss of this step. All ranks call this together."""
    # No warning of damaged lines here: `RunDir.resume` reads the points again, and warns.
    points = run.metrics(warns=False) if world.is_main else []
    was_logged = any("val/loss" in point and point["step"] == step for point in points)
    return world.all_gather(was_logged)[0]  # rank 0's: only it has read the points


def measure_base(start: Start, setup: Setup) -> dict[str, float] | None:
    """Validate the model of --init-from before the first step, to show what the training gains.

    Returns None for any other training, also if a fine-tuning is resumed from a checkpoint or
    branched off. One that begins again has usually done this before.
    """
    starts_from_base = setup.base_sha256 != ""
    if not starts_from_base:
        return None
    if start.resumed is not None and was_validated(start.resumed, setup.world, 0):
        return None
    return measure_validation(setup)


def take_steps(
    setup: Setup, run: RunDir, steps: StepQueue, bar: tqdm, first_save: int | None
) -> None:
    """Take steps until the last one, or until any rank is asked to stop.

    `first_save` is the step after which a branch or a fine-tuning saves for the first time. None
    for other runs.
    With `setup.reads_late`, the next step is started before the results of the current one are
    read. Before a validation or a save it is not, because they need the weights of the current one.

    Raises UserError if GIVE_UP_AFTER steps in a row were not finite, where overflows of float16 do
    not count.
    """
    config = setup.config
    progress = setup.progress
    # The logged rate is a mean over these times. With `reads_late` single times are uneven: the
    # first step after a validation takes longer than those that are launched while another runs.
    # Without it, each time is exact, and one is enough.
    recent_seconds: deque[float] = deque(maxlen=10 if setup.reads_late else 1)
    is_asked_to_stop = False  # whether all ranks know that one of them is
    while True:
        # Steps are numbered from 0: after `step` steps, the next one has the number `step`.
        step = progress.step
        steps_with_this = step + 1  # how many are taken once this one is
        # The last step is always due, so no step is started after it.
        may_start_next = not is_asked_to_stop and not is_due(setup, steps_with_this, first_save)
        next_step = step + 1 if may_start_next else None
        result = steps.take(step, next_step)
        is_asked_to_stop = result.is_asked_to_stop
        recent_seconds.append(result.seconds)
        rate = config.step_tokens / (sum(recent_seconds) / len(recent_seconds))
        can_go_on = progress.advance(result, config.step_tokens)
        log_step(setup, run, result, rate)
        if not can_go_on:
            give_up(f"{GIVE_UP_AFTER} steps in a row were not finite, up to step {progress.step}",
                    setup, run)
        show_step(bar, result.loss, rate)
        # Without `reads_late`, as on a CPU, no step is started early. Then `validate_and_save` is
        # called after every step, and mostly finds that nothing is due.
        next_is_running = steps.started is not None
        if next_is_running:  # it was started because nothing is due after this step
            continue
        is_saved_for_stop = validate_and_save(setup, run, first_save)
        if is_saved_for_stop or progress.step == config.train.steps:
            return


def is_due(setup: Setup, step: int, first_save: int | None) -> bool:
    """Return whether `validate_and_save` validates or saves after this step, by its number alone.

    After any other step it saves only if a rank was asked to stop.
    """
    train = setup.config.train
    return validates_after(setup, step) or step in train.keep or step == first_save


def validates_after(setup: Setup, step: int) -> bool:
    """Return whether the weights after this step are validated."""
    train = setup.config.train
    return step == train.steps or step % train.eval_interval == 0


def log_step(setup: Setup, run: RunDir, result: StepResult, rate: float) -> None:
    """Log the result of a step, and `rate`, the tokens per second of the latest steps."""
    progress = setup.progress
    point: dict[str, float | int | str] = {
        **progress.axes, "train/loss": result.loss, "train/lr": result.lr,
        "train/grad_norm": result.grad_norm, "train/skipped": progress.skipped,
        "train/tokens_per_second": rate,
    }
    if setup.scaler.is_enabled():
        point["train/loss_scale"] = result.loss_scale
    run.log(point)


def show_step(bar: tqdm, loss: float, rate: float) -> None:
    """Move the bar by a step, and show its loss and the rate in tokens per second."""
    bar.set_postfix_str(f"loss {loss:.3f}, {rate:,.0f} tok/s", refresh=False)
    bar.update()  # draws both


def validate_and_save(setup: Setup, run: RunDir, first_save: int | None) -> bool:
    """Validate, sample and save if it is time to. All ranks call this together.

    Returns whether any rank was asked to stop: then this has saved. Raises UserError, after saving,
    if a file of the run is gone.
    """
    train = setup.config.train
    step = setup.progress.step
    validates = validates_after(setup, step)
    # A kept step is saved even if its validation fails: a branch from it does not use the loss.
    if step in train.keep:
        save(setup, run, step)
    # Validate before saving `last`. If the training is killed in between, it resumes from an older
    # checkpoint, and comes to this validation again.
    if validates:
        # Only a single process may end a validation early: several would have to agree on the batch
        # after which they end. The last validation never does: no resumed run would repeat it.
        may_stop_early = setup.world.size == 1 and step < train.steps
        validate_and_sample(setup, run, may_stop_early)
    is_asked_to_stop = setup.world.sum(float(setup.stop.number))[0] > 0
    if validates or is_asked_to_stop or step == first_save:
        save(setup, run, "last")
        if setup.world.is_main:
            run.check_files()  # without one of them, nothing can be done with the weights
    return is_asked_to_stop


def print_end(start: Start, setup: Setup, run: RunDir, label: str) -> None:
    """Print which weights are the best, the time of all training steps, and what to do next.

    `label` begins the line with the time.
    """
    if setup.world.is_main:
        best_step = run.checkpoints.saved_step("best")
        if 0 < best_step < setup.progress.step:
            say(f"best    the weights of step {best_step}, with {setup.progress.best_loss:.4f} "
                "nats/token. generate.py takes them, because later validation losses were not "
                "lower; with --checkpoint last, it takes those of the last step")
        time_taken = tqdm.format_interval(setup.progress.seconds)
        # The time includes the steps before a run was resumed, or branched off from another.
        since = " since step 0" if start.source is not None else ""
        say(f"{label:7} {time_taken} of training steps{since}; {run.path}\n"
            f"next    python {find_script('generate.py')} "
            f"{shlex.join(options_for_generate(setup, run))}")


def options_for_generate(setup: Setup, run: RunDir) -> list[str]:
    """Return options with which generate.py continues the sample prompt.

    A prompt that fills the context, which generate.py would refuse, becomes ''. Of others, spaces
    and line breaks at the end are left out, because nobody sees them in a command. If the prompt
    leaves room within the trained length, the continuation ends there, because generate.py warns of
    longer texts.
    """
    prompt = choose_prompt(setup).rstrip()
    context = setup.config.model.max_positions
    length = len(setup.data.tokenizer.encode_prompt(prompt))
    if length >= context:  # no room for a new token
        prompt = ""
        length = len(setup.data.tokenizer.encode_prompt(prompt))
    # A prompt such as --help would else be read as an option.
    words = [f"--prompt={prompt}"] if prompt.startswith("-") else ["--prompt", prompt]
    options = ["--run", str(run.path), *words]
    room = trained_length(setup.config) - length
    if 0 < room < default_new_tokens(context, length):
        options += ["--max-new-tokens", str(room)]
    return options


def note_better_base(setup: Setup, run: RunDir) -> None:
    """Print a note if a fine-tuning has not lowered the validation loss of the model it began with.

    That loss was logged at step 0 (`measure_base`), perhaps by an earlier command.
    """
    config = setup.config
    if config.init_from is None or not setup.world.is_main:
        return
    at_start = [point for point in run.metrics(warns=False) if point["step"] == 0]
    base_losses = [point["val/loss"] for point in at_start if point.get("val/loss") is not None]
    if base_losses and setup.progress.best_loss > base_losses[0]:
        say(f"note    {config.init_from} is still the better model of this text, with "
            f"{base_losses[0]:.4f} nats/token: try a smaller {config.optim.describe_rates()}, or "
            "more text")


def print_stop(start: Start, setup: Setup, run: RunDir, how: str) -> None:
    """Print how a training was stopped, and how it can go on."""
    again = start.argv if start.resumed else ["--resume", str(run.path)]
    print_how_to_go_on(setup, how, again)


def print_how_to_go_on(setup: Setup, how: str, again: list[str]) -> None:
    """Print how a training was stopped, and the command of train.py with the words `again`."""
    if setup.world.is_main:
        launcher = "python" if setup.world.size == 1 else "torchrun ..."
        say(f"{how}. To go on:\n"
            f"    {launcher} {find_script('train.py')} {shlex.join(again)}")


def print_end_at_once(start: Start, setup: Setup, run: RunDir) -> None:
    """Print what a second Ctrl-C has left of a run. A branch cannot go on without a checkpoint."""
    saved = run.checkpoints.saved_step("last")
    kept = run.checkpoints.kept_steps()
    if kept and not saved:  # --resume would begin at step 0, or refuse a branch
        again = ["--branch-from", str(run.path), "--at", str(kept[-1])]
        what = f"Only step {kept[-1]} was saved, by train.keep"
        print_how_to_go_on(setup, f"ended at once. {what}", again)
    elif start.trunk is None or run.checkpoints.can_resume:
        what = f"Saved was step {saved}" if saved else "Nothing was saved yet"
        print_stop(start, setup, run, f"ended at once. {what}")
    elif setup.world.is_main:
        say(f"ended at once, before the first checkpoint of {run.path}: remove it, and branch "
            "again")


def open_run(start: Start, setup: Setup, contexts: ExitStack) -> RunDir:
    """Make and lock the folder of a new run, or cut a resumed run's metrics off at its checkpoint.

    Its mirror in wandb is open until `contexts` is closed. All ranks call this before the first
    `Progress.advance`, while `progress.step` is still the step of the checkpoint.
    """
    world = setup.world
    step = setup.progress.step
    if start.resumed:
        run = start.resumed
        run.is_main = world.is_main
        if world.is_main:
            run.resume(step, setup.config)
    else:
        run = create_run(start, setup, contexts)
    contexts.enter_context(closing_mirror(run))
    if world.is_main:
        say(f"run     {run.path}")
    return run


@contextmanager
def closing_mirror(run: RunDir) -> Iterator[None]:
    """Close the mirror of a run at the end, as failed if there was an error."""
    try:
        yield
    except BaseException:
        run.finish(exit_code=1)
        raise
    run.finish(exit_code=0)


def create_run(start: Start, setup: Setup, contexts: ExitStack) -> RunDir:
    """Make and lock the folder of a new run. All ranks call this, and rank 0 makes it."""
    config = setup.config
    world = setup.world
    name = config.name
    if world.is_main:
        name = claim_name(config.log.runs, config.name, start.default_name, contexts)
    name = world.all_gather(name)[0]
    if not world.is_main:  # other ranks need the path only, and write nothing
        return RunDir(Path(config.log.runs, name), {}, is_main=False)
    branched_at = None
    inherited_points: list[dict[str, Any]] = []
    if start.trunk is not None:
        branched_at = setup.progress.step
        inherited_points = start.trunk.points_until(branched_at)
    return RunDir.create(
        replace(config, name=name), tokenizer=setup.data.tokenizer_files,
        manifest=setup.data.manifest, command=["python", "train.py", *start.argv],
        branched_at=branched_at, points=inherited_points, base_sha256=setup.base_sha256)


def choose_prompt(setup: Setup) -> str:
    """Return the sample prompt, or else the first plain words of the text that was trained on."""
    if setup.config.train.sample_prompt.strip():
        return setup.config.train.sample_prompt
    ids = setup.train_data.read(slice(0, TOKENS_FOR_PROMPT)).tolist()
    # Half of a row is left for what follows.
    return first_plain_words(setup.data.tokenizer, ids, setup.config.data.seq_len // 2)


def validate_and_sample(setup: Setup, run: RunDir, may_stop_early: bool) -> None:
    """Log what is measured on the validation split, and a sample. Save the weights as `best` if
    their loss is the lowest of the run.

    With `may_stop_early`, a signal that asks to stop also ends the validation. Then nothing is
    logged, and the run validates this step when it is resumed (`lacks_validation`).
    """
    values = measure_validation(setup, may_stop_early)
    if values is None:  # a signal has ended it
        return
    check_validation(setup, run, values["val/loss"])
    # `last` is saved after this. If the training is killed before that, it takes this step again,
    # and `RunDir.resume` removes these points.
    run.log({**setup.progress.axes, **values})
    save_if_best(setup, run, values["val/loss"])
    if setup.config.train.sample_tokens:
        sample = draw_sample(setup)
        run.log({**setup.progress.axes, "sample": sample})
        show_sample(setup, sample)


def validate_checkpoint(setup: Setup, run: RunDir) -> None:
    """Do what `validate_and_sample` does, for the checkpoint that a run is resumed from.

    Here `best`, if the loss is the lowest, and `last` are saved first. `last` is saved because it
    holds `progress.best_loss`, the lowest loss so far. Values and sample are logged after that, as
    one point. So if the training ends before, the point is missing, and the next command validates
    once more.
    """
    values = measure_validation(setup)
    assert values is not None, "only a validation that may stop early is ended"
    check_validation(setup, run, values["val/loss"])
    save_if_best(setup, run, values["val/loss"])
    save(setup, run, "last")
    point: dict[str, float | int | str] = {**setup.progress.axes, **values}
    if setup.config.train.sample_tokens:
        sample = draw_sample(setup)
        show_sample(setup, sample)
        point["sample"] = sample
    run.log(point)


def check_validation(setup: Setup, run: RunDir, loss: float) -> None:
    """Give the training up if its validation loss is not finite."""
    if not math.isfinite(loss):
        give_up(f"the validation loss is not finite after step {setup.progress.step}", setup, run)


def save_if_best(setup: Setup, run: RunDir, loss: float) -> None:
    """Save the weights as `best` if their validation loss is the lowest of the run."""
    if loss < setup.progress.best_loss:
        setup.progress.best_loss = loss
        save(setup, run, "best")


def measure_validation(setup: Setup, may_stop_early: bool = False) -> dict[str, float] | None:
    """Return the mean loss and the bits per byte of the whole validation split, and print them.

    With `may_stop_early`, returns None as soon as the training is asked to stop.

    The loss is that of all tokens. Bits per byte leave out EOS and an imported tokenizer's prefix,
    which stand for no text; `val/eos_share` is their share of the nats.
    """
    separators = torch.tensor(setup.data.separators)  # EOS, and a prefix
    nats = 0.0
    separator_nats = 0.0
    for losses, targets in token_losses(
        setup.model, setup.val_data, setup.rows_per_pass, setup.compute
    ):
        if may_stop_early and setup.stop.number:
            return None
        nats += losses.sum().item()
        separator_nats += losses[torch.isin(targets, separators)].sum().item()
    nats, separator_nats = setup.world.sum(nats, separator_nats)
    loss = nats / (setup.val_data.n_tokens - 1)
    bpb = (nats - separator_nats) / math.log(2) / setup.data.manifest["val"]["bytes"]
    if setup.world.is_main and math.isfinite(loss):
        say(f"step {setup.progress.step}: val loss {loss:.4f} nats/token, {bpb:.4f} bits/byte")
    # The loss of a text that repeats itself can be 0.
    eos_share = separator_nats / nats if nats != 0 else 0.0
    return {"val/loss": loss, "val/bpb": bpb, "val/eos_share": eos_share}


def draw_sample(setup: Setup) -> str:
    """Return the sample prompt and its continuation, drawn with the same random numbers every time.
    """
    train = setup.config.train
    tokenizer = setup.data.tokenizer
    # If the prompt is too long for the context, keep its last tokens only. The room is at least 1,
    # since Config.check wants fewer sample_tokens than positions.
    room = setup.config.model.max_positions - train.sample_tokens
    prompt = tokenizer.encode_prompt(choose_prompt(setup))[-room:]
    with setup.parallelism.unsharded(setup.model):
        # `unsharded` makes only the weights outside of the blocks whole: for each token, ranks
        # gather those of each block together. So all must take the same number of steps, even if
        # rounding lets them draw different tokens. Therefore no `eos_ids` here.
        (new,) = generate(setup.model, [prompt], Sampling(), seed=setup.config.seed,
                          max_new_tokens=train.sample_tokens)
    new = list(takewhile(lambda token: token not in tokenizer.eos_ids, new))
    return tokenizer.decode(prompt + new)


def show_sample(setup: Setup, sample: str) -> None:
    """Print a sample on rank 0, without control characters, under the number of its step."""
    if setup.world.is_main:
        say(f"--- sample at step {setup.progress.step}\n{hide_controls(sample)}\n---")


def save(setup: Setup, run: RunDir, name: Literal["last", "best"] | int) -> None:
    """Write a checkpoint: `last`, or that of a step to keep, or `best`, which has weights only.

    Gives the training up, with a UserError, if a weight is not finite.
    """
    progress = setup.progress
    if not setup.parallelism.is_finite(setup.model):
        give_up(f"a weight is not finite after step {progress.step}", setup, run)
    files = {WEIGHTS: setup.model.state_dict()}
    training: dict[str, Any]
    if name == "best":
        training = {"step": progress.step}
    else:
        files[STATES] = setup.optimizers.tensors()
        training = {"progress": progress.to_saved(), "steps": setup.config.train.steps}
        if setup.scaler.is_enabled():
            training["scaler"] = setup.scaler.state_dict()
    run.save(name, lambda folder: write_tensors(folder, files, setup.world), training, setup.world)


def give_up(problem: str, setup: Setup, run: RunDir) -> NoReturn:
    """Log that the training diverged, and raise a UserError that begins with `problem`.

    For example: "a weight is not finite after step 7, in float32: try a smaller optim.lr (now 3).
    runs/a has a checkpoint of step 5".
    """
    run.log({**setup.progress.axes, "diverged": 1})
    advice = f"try a smaller {setup.config.optim.describe_rates()}"
    no_step_was_finite = setup.progress.skipped == setup.progress.step
    if no_step_was_finite:
        advice = ("no step has changed a weight yet, so the cause is not optim.lr: look in the "
                  "model, such as its position encoding, for values that are not finite")
    # Checkpoints of the last step that changed a weight, and of later ones, have the same weights,
    # and would fail in the same way. Only earlier ones help.
    last_change = setup.progress.step - setup.progress.steps_unchanged
    saved = run.checkpoints.saved_step("last")
    kept = [step for step in run.checkpoints.kept_steps() if step < last_change]
    checkpoint = "no good checkpoint: remove the run, or give the next one another --name"
    if 0 < saved < last_change:
        checkpoint = f"a checkpoint of step {saved}"
    elif kept:
        checkpoint = (f"a checkpoint of step {kept[-1]}: branch from it with --branch-from "
                      f"{shlex.quote(str(run.path))} --at {kept[-1]}")
    raise UserError(f"{problem}, in {setup.config.train.dtype}: {advice}. {run.path} has "
                    f"{checkpoint}")


if __name__ == "__main__":
    main()
