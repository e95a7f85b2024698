"""What is said before the first step of a training."""

import math
import os
import shlex

import torch

from data.dataset import Prepared
from data.sources import TEXT_ORIGIN
from errors import busy_load, find_script, note_backslash_n, place_scripts, say
from gyre.estimate import describe_load, format_estimate
from gyre.fit import FITTED_TO_STEPS
from gyre.memory import count_shards
from gyre.optim import OptimConfig, lr_factor
from gyre.rundir import RunDir
from gyre.start import Resolved
from gyre.step import Setup

# Fewer training tokens than this are called little text. 8,000 of them (30 kB) end at 2.1 bits per
# byte, 110,000 (400 kB) at 1.4 (docs/speed.md).
LITTLE_TEXT = 50_000
# The loss of fewer validation tokens is too uncertain to tell which weights are the best.
FEW_VAL_TOKENS = 500
# The warm-up of the learning rate alone takes 40 steps of small.yaml.
FEW_STEPS = 40
# A tokenizer does not fit a text that takes this many times more tokens per byte than its own text.
UNFIT_TOKENIZER = 2.0
# The estimate also names the time for validation if that is more than this fraction of the time for
# the steps.
LONG_VALIDATION = 0.3


def print_setup(resolved: Resolved, setup: Setup, validates_checkpoint: bool = False) -> None:
    """Print, on rank 0, the text, the model and the device of a training, and notes on them.

    `validates_checkpoint` says whether the checkpoint of a resumed run still has to be validated.
    """
    if not setup.world.is_main:
        return
    start = resolved.start
    config = setup.config
    n_tokens = setup.train_data.n_tokens
    epochs = config.step_tokens * config.train.steps / n_tokens
    if start.resumed and start.ignores_file:
        say(f"{start.resumed.path} goes on with the configuration that it has saved: --config is "
            "ignored")
    if start.resumed and setup.progress.step == 0:
        say(f"{start.resumed.path} has no checkpoint yet: starting at step 0"
            f"{warn_of_kept(start.resumed)}")
    if not setup.data.is_new:  # else they were printed just now
        for note in setup.data.notes:
            say(place_scripts(note))
    if resolved.chosen:
        choices = [f"{name} {number}" for name, number in resolved.chosen.items()]
        say(f"auto    {', '.join(choices)}: {explain_choice(resolved)}")
    say(f"data    {describe_data(setup)}")
    duration = describe_duration(resolved, setup, validates_checkpoint)
    parameters = sum(p.numel() for p in setup.model.parameters())
    say(f"model   {parameters:,} parameters, positions: {config.model.position}; "
        f"{format_steps(config.train.steps)} of {config.train.batch_size} rows of "
        f"{config.data.seq_len} tokens ({format_epochs(epochs)}{duration})")
    say(f"device  {describe_devices(setup)}")
    print_notes(resolved, setup)


def warn_of_kept(run: RunDir) -> str:
    """Return what becomes of the checkpoints in kept/ of a run that starts at step 0 again."""
    kept = run.checkpoints.kept_steps()
    if not kept:
        return ""
    again = shlex.join(["--branch-from", str(run.path), "--at", str(kept[-1])])
    steps = "step" if len(kept) == 1 else "steps"
    return (f". This removes what train.keep has kept of {steps} {', '.join(map(str, kept))}. To "
            "go on from there instead: stop this training now, and give python "
            f"{find_script('train.py')} {again}")


def print_notes(resolved: Resolved, setup: Setup) -> None:
    """Print notes on what the user may not expect, and can change."""
    start = resolved.start
    config = setup.config
    if start.has_default_sizes:
        say("note: without --config, a model has the default sizes, which are larger than those of "
            "--config small.yaml")
    note_few_steps(resolved, config.train.steps)
    if setup.compute.device.type == "cpu":
        note_busy_cores()
    note_final_lr(config.optim, config.train.steps)
    if start.is_fine_tuning:
        assert config.init_from is not None
        base = RunDir.open(config.init_from)
        base.note_missing_best()
        if start.ignored:
            say(f"note: the model is that of {base.path}, whatever the configuration file says of "
                f"{', '.join(start.ignored)}")
        if not any(name in start.given for name in TEXT_ORIGIN):
            note_same_text(base, setup.data)
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


def note_few_steps(resolved: Resolved, steps: int) -> None:
    """Print a note if train.minutes has room for so few steps that hardly anything is learned."""
    if resolved.timed and steps < FEW_STEPS:
        say(f"note: a model learns next to nothing in {format_steps(steps)}: give more "
            "train.minutes")


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


def note_same_text(base: RunDir, data: Prepared) -> None:
    """Print a note if a fine-tuning trains on the text that its base was trained on."""
    base_text = base.manifest.get("text", {})  # an imported run has none
    if base_text.get("sha256") == data.manifest["text"]["sha256"]:
        say(f"note: this is the text that {base.path} was trained on: to take another one, say "
            "--data.files FILE")


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
    if optim.schedule == "wsd" and optim.warmup_steps < steps:
        remedy = "a larger optim.cooldown"
    say(f"note: no step is left in which the learning rate falls to optim.final_lr "
        f"{optim.final_lr:g}: give more train.steps, or {remedy}")


def describe_duration(resolved: Resolved, setup: Setup, validates_checkpoint: bool) -> str:
    """Return after which step a training goes on, and how long the remaining steps will take.

    The time is left out if it was not estimated. That of validations is named if they are long.
    With `validates_checkpoint`, the first of them is that of the checkpoint.
    """
    taken = setup.progress.step
    begin = f", going on after step {taken}" if taken > 0 else ""
    seconds = resolved.expected_seconds
    if seconds is None:
        return begin
    train = setup.config.train
    remaining = seconds * (train.steps - taken) / train.steps
    duration = f", {format_estimate(remaining)}"
    if taken > 0:
        duration += " from here"
    n_validations = math.ceil(train.steps / train.eval_interval)
    n_validations -= taken // train.eval_interval  # done before the training was resumed
    if resolved.start.is_fine_tuning:
        n_validations += 1  # of the model that it begins with (`measure_base` of train.py)
    if validates_checkpoint:
        n_validations += 1  # of the checkpoint (`validate_checkpoint` of train.py)
    val_tokens = n_validations * setup.val_data.n_tokens
    train_tokens = train.steps * setup.config.step_tokens
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


def explain_choice(resolved: Resolved) -> str:
    """Return why numbers were chosen."""
    names = resolved.chosen.keys()
    # FITTED_TO_STEPS has train.steps and what follows from it. Only the text decides on the others.
    fits_text = bool(names - set(FITTED_TO_STEPS))
    if resolved.timed:
        return "chosen for this text and time" if fits_text else "chosen for this time"
    # Without train.minutes, the size of the text decides on train.steps, too.
    chose_steps = "train.steps" in names
    if fits_text or chose_steps:
        return "chosen for this text"
    return "chosen for these steps"
