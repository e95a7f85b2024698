"""Train a model on text.

    python train.py --config small.yaml
    python train.py --config small.yaml --model.position sinusoidal --train.steps 500
    python train.py --resume runs/small-rope-s1
    python train.py --init-from runs/small-rope-s1 --optim.lr 1e-4
    python train.py --branch-from runs/small-rope-s1 --train.steps 2000
    torchrun --nproc-per-node 2 train.py --config small.yaml
    torchrun --nproc-per-node 8 --max-restarts 3 train.py --config small.yaml --train.shard full \\
        --name big --resume auto

Later sources override earlier ones: the defaults, YAML files, the run of --init-from, --branch-from
or --resume, the command line. The run is in runs/NAME.
"""

import math
import shlex
import signal
import sys
import textwrap
import time
from contextlib import ExitStack
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from errors import UserError, report_errors, say, starting

with starting(__name__):
    import torch
    from tqdm import tqdm

    from gyre.build import build
    from gyre.checkpoint import STATES, WEIGHTS, write_tensors
    from gyre.parallel import World
    from gyre.rundir import RunDir, claim_name, locked_run
    from gyre.signals import StopSignal
    from gyre.start import Start, resolve
    from gyre.step import Setup, token_losses, train_step
    from model.generation import generate
    from model.sampling import Sampling


def main(argv: list[str] | None = None) -> None:
    """Exit with 0, with 2 for bad input, or with 128 plus the number of a signal."""
    argv = sys.argv[1:] if argv is None else argv
    with report_errors():
        start = resolve(argv, __doc__)
        world = World.from_env(start.config.train.device, start.config.train.timeout)
        try:
            with world.explain_lost_ranks():
                number = train(start, world)
        finally:
            world.disconnect()
    sys.exit(128 + number if number else 0)


def train(start: Start, world: World) -> int:
    """Train to the last step, or until a signal. Returns the number of the signal, or 0."""
    with ExitStack() as held:
        if start.resumed and world.is_main:
            held.enter_context(locked_run(start.resumed.path))
        setup = build(start, world)
        config, progress = setup.config, setup.progress
        tokens = config.train.batch_size * config.data.seq_len
        bar = held.enter_context(tqdm(
            total=config.train.steps, initial=progress.step, desc="train", unit="step",
            disable=not world.is_main, mininterval=0.1 if sys.stderr.isatty() else 10,
        ))
        base: dict[str, float] = {}
        if config.init_from is not None and start.source is None:
            base = measure_validation(setup)  # so that one sees what the training gains
        stop = StopSignal()
        run = None  # made after the first step: a training that fails in it leaves no folder
        while progress.step < config.train.steps:
            started = time.perf_counter()
            result = train_step(setup, progress.step)
            seconds = time.perf_counter() - started
            first_of_branch = run is None and start.is_branch
            if run is None:
                run = open_run(start, setup, held)
                held.enter_context(stop)
                if base:
                    run.log({**progress.axes, **base})
            can_go_on = progress.advance(result, tokens, seconds)
            run.log({
                **progress.axes, "train/loss": result.loss, "train/lr": result.lr,
                "train/grad_norm": result.grad_norm, "train/skipped": progress.skipped,
                "train/tokens_per_second": tokens / seconds,
            })
            stop_unless(can_go_on, "3 steps in a row were not finite, up to", setup, run)
            bar.update()
            bar.set_postfix_str(f"loss {result.loss:.3f}, {tokens / seconds:,.0f} tok/s",
                                refresh=False)

            at_end = progress.step == config.train.steps
            due = at_end or progress.step % config.train.eval_interval == 0
            if progress.step in config.train.keep:
                save(setup, run, progress.step)
            if due:  # before `last` is saved: if killed in between, a resumed run validates again
                validate(setup, run)
            if due and config.train.sample_tokens:
                sample(setup, run)
            stopping = world.sum(float(stop.number))[0] > 0  # whether any rank got a signal
            # A branch saves after its first step: it cannot be resumed without a checkpoint.
            if due or stopping or first_of_branch:
                save(setup, run, "last")
            if stopping and not at_end:
                bar.close()
                again = start.argv if start.resumed else ["--resume", str(run.path)]
                launcher = "python" if world.size == 1 else "torchrun ..."
                if world.is_main:
                    say(f"stopped after step {progress.step}, saved. To go on:\n"
                        f"    {launcher} train.py {shlex.join(again)}")
                return stop.number or signal.SIGTERM  # number is 0 if only another rank got one
        bar.close()
        trained = run or start.resumed
        if world.is_main and trained:
            prompt = shlex.quote(choose_prompt(setup).strip())
            state = "done   " if run else "nothing to do:"  # --resume auto found it finished
            say(f"{state} {tqdm.format_interval(progress.seconds)} spent in steps; {trained.path}\n"
                f"next    python generate.py --run {shlex.quote(str(trained.path))} "
                f"--prompt {prompt}")
    return 0


def open_run(start: Start, setup: Setup, held: ExitStack) -> RunDir:
    """Make and lock the folder of a new run, or cut a resumed run's metrics off at its checkpoint.

    Its mirror in wandb is open until `held` is closed. All ranks call this, before
    `Progress.advance`.
    """
    config, world, step = setup.config, setup.world, setup.progress.step
    if world.is_main and not start.resumed:
        config.name = claim_name(config.log.runs, config.name, start.stem, held)
    config.name = world.collect(config.name)[0]
    # For a new run this is a stand-in with the path, which is all that ranks other than 0 need.
    run = start.resumed or RunDir(Path(config.log.runs, str(config.name)), {})
    run.is_main = world.is_main
    if world.is_main and start.resumed:
        run.resume(step, config)
    elif world.is_main:
        run = RunDir.create(
            config, tokenizer=setup.data.tokenizer_files, manifest=setup.data.manifest,
            command=["python", "train.py", *start.argv],
            points=start.source.points_until(step) if start.source else (),
        )
    held.push(lambda error, *_: run.finish(exit_code=1 if error else 0))
    if world.is_main:
        say(f"run     {run.path}")
    return run


def choose_prompt(setup: Setup) -> str:
    """Return the sample prompt, or else the first words of the text that was trained on."""
    if setup.config.train.sample_prompt.strip():
        return setup.config.train.sample_prompt
    ids = setup.train_data.read(slice(0, 200)).tolist()
    return first_words(setup.data.tokenizer.decode(ids))


def first_words(text: str) -> str:
    """Return the first words of the first line that has any, at most 30 characters."""
    for line in map(str.strip, text.splitlines()):
        if line.isprintable() and any(map(str.isalpha, line)):
            return textwrap.wrap(line, 30)[0]
    return ""


def validate(setup: Setup, run: RunDir) -> None:
    """Log what is measured on the validation split, and save the weights as `best` if their loss is
    the lowest of the run."""
    values = measure_validation(setup)
    loss = values["val/loss"]
    stop_unless(math.isfinite(loss), "the validation loss is not finite after", setup, run)
    run.log({**setup.progress.axes, **values})
    if loss < setup.progress.best:
        setup.progress.best = loss
        save(setup, run, "best")


def measure_validation(setup: Setup) -> dict[str, float]:
    """Return the mean loss and the bits per byte of the whole validation split, and print them.

    The loss is that of all tokens. Bits per byte leave out EOS and an imported tokenizer's prefix,
    which stand for no text; `val/eos_share` is their share of the nats.
    """
    separators = torch.tensor(setup.data.separators)
    nats = 0.0
    eos_nats = 0.0
    for losses, targets in token_losses(setup.model, setup.val_data, setup.rows,
                                        setup.world.device, setup.dtype):
        nats += losses.sum().item()
        eos_nats += losses[torch.isin(targets, separators)].sum().item()
    nats, eos_nats = setup.world.sum(nats, eos_nats)
    loss = nats / (setup.val_data.n_tokens - 1)
    bpb = (nats - eos_nats) / math.log(2) / setup.data.manifest["val"]["bytes"]
    if setup.world.is_main and math.isfinite(loss):
        say(f"step {setup.progress.step}: val loss {loss:.4f} nats/token, {bpb:.4f} bits/byte")
    return {"val/loss": loss, "val/bpb": bpb, "val/eos_share": eos_nats / nats}


def sample(setup: Setup, run: RunDir) -> None:
    """Log a continuation of the sample prompt, drawn with the same random numbers every time."""
    train, tokenizer = setup.config.train, setup.data.tokenizer
    # If the prompt is too long for the context, keep its last tokens only.
    room = setup.config.model.max_positions - train.sample_tokens
    prompt = tokenizer.encode_prompt(choose_prompt(setup))[-room:]
    with setup.parallelism.gather(setup.model):
        # Without `eos_ids`: ranks gather weights together, so all must take the same number of
        # steps, even if rounding lets them draw different tokens.
        (new,) = generate(setup.model, [prompt], Sampling(), seed=setup.config.seed,
                          max_new_tokens=train.sample_tokens)
    new = list(takewhile(lambda token: token not in tokenizer.eos_ids, new))
    text = tokenizer.decode(prompt + new)
    run.log({**setup.progress.axes, "sample": text})
    if setup.world.is_main:
        say(f"--- sample at step {setup.progress.step}\n{text}\n---")


def save(setup: Setup, run: RunDir, name: Literal["last", "best"] | int) -> None:
    """Write a checkpoint: `last`, or that of a step to keep, or `best`, which has weights only."""
    finite = setup.parallelism.is_finite(setup.model)
    stop_unless(finite, "a weight is not finite after", setup, run)
    files = {WEIGHTS: setup.model.state_dict()}
    training: dict[str, Any] = {"step": setup.progress.step}  # all that `best` has
    if name != "best":
        files[STATES] = setup.optimizers.tensors()
        training = {"progress": asdict(setup.progress), "steps": setup.config.train.steps}
    run.save(name, lambda folder: write_tensors(folder, files, setup.world), training, setup.world)


def stop_unless(ok: bool, problem: str, setup: Setup, run: RunDir) -> None:
    """Unless `ok`, log that the training diverged, and raise a UserError.

    Its message is `problem`, the number of the step, and what to do.
    """
    if not ok:
        run.log({**setup.progress.axes, "diverged": 1})
        saved = run.checkpoints.saved_step("last")
        raise UserError(f"{problem} step {setup.progress.step}, in {setup.config.train.dtype}: try "
                        f"a smaller optim.lr (now {setup.config.optim.lr}). {run.path} has "
                        f"{f'a checkpoint of step {saved}' if saved else 'no checkpoint'}")


if __name__ == "__main__":
    main()
