"""The training loop: a configuration in, a run folder out."""

import dataclasses
import json
import math
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from tqdm import tqdm

from data.prepare import prepare
from data.tokenizer import tokenizer_files
from errors import UserError, say
from gyre.checkpoint import Checkpoints
from gyre.cli import load_file
from gyre.config import Config
from gyre.device import (
    DTYPE_NAMES,
    autocast,
    check_dtype,
    product_rates,
    require_memory,
    resolve_compile,
    resolve_dtype,
    uncompiled,
)
from gyre.flops import matrix_parameters
from gyre.loss import evaluate, summed_loss
from gyre.optim import Optimizers, lr_factor
from gyre.parallel import WHOLE, World, whole
from gyre.rundir import RunDir
from gyre.trained import continued, initial_model, initial_weights, prompt_ids
from model import kernels
from model.sampling import Sampling
from model.seeds import derive_seed
from model.transformer import Transformer

MAX_SKIPPED_IN_A_ROW = 3
TIMED_STEPS = 20  # by which the length of a run is foreseen


class Finished(UserError):
    """There is no step left to take."""


class Stopped(BaseException):
    """A signal came before the first step; the argument is the exit code it asks for."""


class StopSignal:
    """Within `with`, Ctrl-C, SIGTERM or SIGHUP, of a terminal that is closed, is remembered in
    `number`, so that the step that runs can be finished and saved. After the first of them Ctrl-C
    acts as it would have outside; a second SIGTERM does nothing, as a scheduler and torchrun each
    send one. Where SIGHUP is ignored, as nohup has it, it is."""

    number = 0

    def __init__(self, at_once: bool = False):
        """`at_once`: there is nothing to finish and save yet, and a signal raises Stopped."""
        self.at_once = at_once

    def __enter__(self) -> "StopSignal":
        signals = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signals.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._remember) for number in signals}
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, self._before[signal.SIGINT])
        if self.at_once:
            raise Stopped(128 + number)
        if self.number == 0:
            self.number = number
            with suppress(OSError):  # the terminal may be gone
                # os.write, as a handler may interrupt a print, which cannot be entered twice.
                os.write(2, b"\nstopping after this step; Ctrl-C once more to stop at once\n")

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def checkpoint_activations(model: Transformer) -> None:
    """Let each block keep its input only, and compute the rest again in the backward pass."""
    for layer in model.layers:
        # Nothing random is in it: dropout is addressed.
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False,
                                preserve_rng_state=False)


@dataclasses.dataclass
class Progress:
    """What a run has done so far; saved with every checkpoint."""

    step: int = 0  # optimizer steps taken, skipped ones included
    tokens: int = 0  # trained on, over all processes
    seconds: float = 0.0  # of training steps: without validation, samples and saving
    skipped: int = 0  # steps whose loss or gradient was not finite
    skipped_in_a_row: int = 0
    best: float = math.inf  # lowest validation loss, nats per token


def keep_alive(bar: tqdm, done: threading.Event) -> None:
    """Show every second, on a terminal, that a compilation is still at work, until it is `done`."""
    while sys.stderr.isatty() and not done.wait(1):
        bar.set_postfix_str("compiling")


class Trainer:
    """Everything that one process holds of a training run.

    Making one prepares the data, builds the model, and creates the run folder or reopens the one of
    `resumed`; `run` trains. A new run may be the branch of another: (run, step), or (run, None) for
    its last checkpoint. Raises UserError for whatever stands in the way, before any training.
    """

    def __init__(
        self, config: Config, world: World, resumed: RunDir | None = None,
        branch: tuple[RunDir, int | None] | None = None,
    ):
        self.config, self.world, self.device = config, world, world.device
        self.say = say if world.is_main else lambda text: None
        self.tokens_per_step = config.train.batch_size * config.data.seq_len
        share = math.ceil(config.train.batch_size / world.size)  # rows of any process, at most
        self.rows = min(config.train.micro_batch_size or share, share)  # of a forward pass
        if config.train.batch_size < world.size:
            raise UserError(f"train.batch_size {config.train.batch_size} cannot be shared by "
                            f"{world.size} processes")
        check_dtype(config.train.dtype, self.device)
        self._refuse_what_no_memory_holds()
        source, step = branch or (resumed, None)
        known = None if source is None else source.manifest.get("settings")
        self.data = prepare(config.data, known)  # of several processes one does it, others wait
        world.join()
        assert config.name is not None, "train.py names every run"
        name = config.name
        if world.size > 1:  # the first process chose it
            name = world.collect({"name": name} if world.is_main else {})["name"]
        self.path = Path(config.log.runs) / name if resumed is None else resumed.path
        if world.shards > 1 and branch is not None:
            raise UserError("--branch-from is for models that fit one process: leave out "
                            "train.shard")
        arithmetic = self._choose_arithmetic()
        share = {"seq_len": config.data.seq_len, "rank": world.rank, "size": world.size}
        self.train_data = self.data.dataset(
            "train", batch_size=config.train.batch_size, seed=config.seed, **share
        )
        self.val_data = self.data.dataset("val", **share)
        self.sample_ids = self._sample_ids()

        # Where weights are loaded below, the run that init_from names is no longer needed.
        new = branch is None and (resumed is None or not resumed.has_training)
        self.resumed = resumed is not None
        self.module = self._make_model(new)
        self.parameters = sum(p.numel() for p in self.module.parameters())
        muon_dtype = torch.float32 if self.dtype == torch.float32 else torch.bfloat16
        self.optimizers = Optimizers(self.module, config.optim, muon_dtype)
        # Loss scaling is for float16. Where it is disabled, every call hands its argument through.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.progress = Progress()
        self.resume_options: list[str] = []
        self.validation = ""  # the latest, in words
        logged, points = None, []  # what a checkpoint says of the points, and those of a branch
        if source is not None:
            self._refuse_other_text(source)
        last_steps = config.train.steps
        if source is not None and not new:
            state = self._load(source, step)
            logged, last_steps = state.get("metrics"), state["steps"]
        if resumed is not None:
            self.resume_options = self._judge_steps(resumed, last_steps)
        if resumed is not None and new:
            self.say(f"{resumed.path} has no checkpoint yet: starting at step 0")
        if branch is not None:
            self._branch_off(branch[0])
            points = branch[0].points_until(self.progress.step, logged) if world.is_main else []

        self.loss: Callable[[Tensor, Tensor], Tensor] = summed_loss
        if self.compiled:
            # In place, so that the state dict keeps its names. Between the blocks of a divided
            # model, weights come and go.
            for module in self.module.layers if world.shards > 1 else [self.module]:
                module.compile()
            self.loss = torch.compile(summed_loss)
        self.model = world.wrap(self.module)
        self.writing: tuple[Future[None], Literal["last"] | int, dict[str, Any]] | None = None
        # Last, so that what fails before leaves no folder.
        self.run_dir = self._open_folder(resumed, logged, points, branched=branch is not None)
        self.checkpoints = self.run_dir or Checkpoints(self.path)
        self._say_what_runs(arithmetic)

    # --- setting up -------------------------------------------------------------------------------

    def _make_model(self, new: bool) -> Transformer:
        """The bare model on its device; of a `new` run with the weights that it starts from."""
        config, world = self.config, self.world
        if world.shards == 1:
            module = initial_model(config) if new else Transformer(config.model)
            module = module.to(self.device)
        else:
            from gyre.sharding import copy_part, divide  # slow to import

            with torch.device("meta"):
                module = Transformer(config.model)
            divide(module, world)
            parameters = dict(module.named_parameters())
            for name, value in initial_weights(config, module) if new else ():
                copy_part(parameters[name], value)
        if config.train.checkpoint_activations:
            checkpoint_activations(module)
        return module

    def _refuse_what_no_memory_holds(self) -> None:
        """UserError for sizes that cannot be, before a model is built or text is prepared."""
        model = self.config.model
        # 12 bytes a parameter: itself, its gradient, and one moment at least; rotations of every
        # position; and the logits of one micro-batch.
        size = 12 * matrix_parameters(model) // self.world.shards
        size += 4 * model.max_positions * model.head_dim
        require_memory(self.device, size, "this model", "choose a smaller model.dim, "
                       "model.n_layers, model.hidden_dim or model.max_positions")
        require_memory(self.device, 4 * self.rows * self.config.data.seq_len * model.vocab_size,
                       f"a batch of {self.rows}x{self.config.data.seq_len} tokens",
                       "choose a smaller train.micro_batch_size or data.seq_len")

    def _choose_arithmetic(self) -> str:
        """Put what `auto` stands for here, device, dtype and compilation, into the configuration,
        so that a resumed run keeps it, on another machine too. Returns the reasons in words."""
        config, device = self.config, self.device
        model, train = config.model, config.train
        tokens = self.rows * config.data.seq_len

        def rates() -> list[float]:
            """Summed over the processes, which must not decide differently."""
            return self.world.sum(*product_rates(device, model, tokens, training=True))

        if self.world.size > 1:  # all as process 0, whose choice is saved
            first = self.world.sum(float(self.world.is_main and kernels.onednn_is_faster))[0]
            kernels.prefer_onednn(first > 0)
        self.dtype, why = resolve_dtype(train.dtype, device, rates)
        # 6 for every weight in a matrix product, per token: what all encodings have in common, so
        # that of an ablation's arms none is compiled alone.
        flops = 6.0 * matrix_parameters(model) * (self.tokens_per_step * train.steps)
        self.compiled, why_compiled = resolve_compile(train.compile, device, self.dtype, flops)
        chosen = dataclasses.replace(
            train, device=device.type if train.device == "auto" else train.device,
            dtype=DTYPE_NAMES[self.dtype],
            compile=self.compiled if train.compile == "auto" else train.compile,
        )
        self.config = dataclasses.replace(config, train=chosen)
        return f"{why}; {why_compiled}"

    def _sample_ids(self) -> list[int]:
        """The prompt of the samples during training. UserError where they would not fit."""
        train = self.config.train
        ids = prompt_ids(self.data.tokenizer, train.sample_prompt)
        longest = self.config.model.max_positions
        if len(ids) + train.sample_tokens > longest:
            raise UserError(f"train.sample_prompt has {len(ids)} tokens, and with "
                            f"train.sample_tokens {train.sample_tokens} that passes "
                            f"model.max_positions {longest}")
        return ids

    def _refuse_other_text(self, run: RunDir) -> None:
        now, then = self.data.manifest, run.manifest
        if now["files"] == then["files"]:
            return
        what = f"the text of {run.path} has changed since it was started"
        if now["text"]["sha256"] == then["text"]["sha256"]:
            why = ", as data.bpe_dropout does every time" if self.config.data.bpe_dropout else ""
            what = (f"{self.data.folder} was prepared again since {run.path} was started, and "
                    f"spells the same text otherwise{why}")
        raise UserError(f"{what}: restore it, or start a new run")

    def _load(self, run: RunDir, step: int | None) -> dict[str, Any]:
        """Weights, optimizers and progress of the last checkpoint of a run, or of a step that it
        kept. Returns the training state of the checkpoint; UserError where it does not fit."""
        weights, state = run.load_training(step, self.world)
        try:
            if isinstance(weights, Path) or self.world.shards > 1:
                self._load_parts(weights, state)
            else:
                self.module.load_state_dict(weights)
                self.optimizers.load_state_dict(state["optimizers"])
            if state["scaler"]:
                self.scaler.load_state_dict(state["scaler"])
            self.progress = Progress(**state["count"])
            # Measured at every start, on a busy machine not always with the same result.
            kernels.prefer_onednn(state.get("onednn", kernels.onednn_is_faster))
            numbers = [state["steps"], *dataclasses.astuple(self.progress)]
            if not all(isinstance(number, int | float) for number in numbers):
                raise TypeError("what should be a number is none")
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            if self.world.is_disconnect(error) or isinstance(error, torch.OutOfMemoryError):
                raise
            words = " ".join(str(error).split())
            raise UserError(f"the checkpoint of {run.path} does not fit its configuration: "
                            f"{words}") from error
        return state

    def _load_parts(self, weights: dict[str, Tensor] | Path, state: dict[str, Any]) -> None:
        """What this process has of weights and moments, from the parts that other processes wrote
        or from whole ones."""
        from gyre.sharding import copy_part, read_parts, state_tensors  # slow to import

        tensors = state_tensors(self.module, self.optimizers.optimizers)
        if isinstance(weights, Path):
            read_parts(weights, tensors, self.world)
            return
        stored = {f"model.{name}": weight for name, weight in weights.items()}
        stored |= self.optimizers.named(self.module, state["optimizers"])
        if stored.keys() != tensors.keys():
            raise KeyError(", ".join(sorted(stored.keys() ^ tensors.keys())))
        for name, tensor in tensors.items():
            copy_part(tensor, stored[name])

    def _branch_off(self, run: RunDir) -> None:
        """Make what was loaded of `run` the start of a run of its own. UserError where no step is
        left."""
        step, steps = self.progress.step, self.config.train.steps
        if step >= steps:
            raise UserError(f"the branch starts after step {step} of {run.path}, and train.steps "
                            f"is {steps}: give a larger number, or an earlier step with --at")
        self.progress.best = math.inf  # `best` has to be weights that this run has saved

    def _judge_steps(self, run: RunDir, last_steps: int) -> list[str]:
        """The options to resume `run` with once more: what is not as in the run's own config.yaml.

        `last_steps` is train.steps of the checkpoint. It decides the learning rates, so it must not
        fall back to the run's own unnoticed. Raises UserError where it would, and where no step is
        left.
        """
        steps, done = self.config.train.steps, self.progress.step
        if done >= steps:
            raise Finished(f"{run.path} has finished its {done} steps: give --train.steps a "
                            "larger number to go on")
        own = load_file(run.path / "config.yaml")
        if last_steps != steps == own.train.steps:
            raise UserError(f"{run.path} was last resumed with --train.steps {last_steps}, which "
                            "decides its learning rates: say so again, or choose another number")
        options = []
        for part in ("train", "log"):
            for name, value in vars(getattr(self.config, part)).items():
                if name != "runs" and value != getattr(getattr(own, part), name):
                    words = value if isinstance(value, str) else json.dumps(value)
                    option = f"--{part}.{name}"  # with =, where a value looks like an option
                    options += [f"{option}={words}"] if words[:1] == "-" else [option, words]
        return options

    def _open_folder(
        self, resumed: RunDir | None, logged: dict[str, Any] | None, points: list[dict[str, Any]],
        branched: bool,
    ) -> RunDir | None:
        """The folder of a new run, or of the resumed one from its checkpoint on, which was saved
        with the points `logged`. A branch has its `points` and a checkpoint from the start. Only
        the main process has one."""
        config = self.config
        if not self.world.is_main:
            return None
        if resumed is not None:
            resumed.resume(self.progress.step, config.log, dataclasses.asdict(config), logged)
            return resumed
        saved = config
        if config.data.tokenizer is not None:  # from now on the run's copy of it
            data = dataclasses.replace(config.data, tokenizer=str(self.path))
            saved = dataclasses.replace(config, data=data)
        # Bytes a parameter: 12 (its weight and Adam's two moments) in `last`, in `previous`, in
        # what is being written and in each that is kept, and 4 in `best`.
        return RunDir.create(
            config.log, self.path.name, config_yaml=saved.to_yaml(),
            config=dataclasses.asdict(config), tokenizer=tokenizer_files(self.data.folder),
            manifest=self.data.manifest, points=points,
            last=(self.module.state_dict(), self._state()) if branched else None,
            need_bytes=(40 + 12 * len(config.train.keep)) * self.parameters,
        )

    def _say_what_runs(self, arithmetic: str) -> None:
        config, train = self.config, self.train_data
        passes = f" in {train.passes} passes" if train.passes > 1 else ""
        epochs = self.tokens_per_step * config.train.steps / train.n_tokens * train.passes
        processes = f" x {self.world.size}" if self.world.size > 1 else ""
        if self.world.shards > 1:
            processes += f", each with 1/{self.world.shards} of the model"
        elif self.world.size == 1 and config.train.shard != WHOLE:
            processes = f"; one process, so train.shard {config.train.shard} has no effect"
        self.say(
            f"run     {self.path}\n"
            f"data    {self.data.folder}: {train.n_tokens:,} training tokens{passes} and "
            f"{self.val_data.n_tokens:,} for validation, vocabulary "
            f"{self.data.manifest['vocab_size']}\n"
            f"model   {self.parameters:,} parameters, positions: {config.model.position}; "
            f"{config.train.steps} steps of {config.train.batch_size}x{config.data.seq_len} tokens "
            f"({epochs:.1f} epochs)\n"
            f"device  {self.device}{processes}; {arithmetic}"
        )
        if self.loss is not summed_loss:
            self.say("        the first step compiles, which takes up to a minute")

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> int:
        """Train to the end, or until a signal. Returns the exit code of the process: 0, or 128 and
        the number of the signal."""
        steps, interval = self.config.train.steps, self.config.train.eval_interval
        code = 1  # of an error, for wandb
        first, before, compiling = self.progress.step, 0.0, threading.Event()
        try:
            with StopSignal(at_once=self.compiled) as stop, tqdm(
                total=steps, initial=first, desc="train", unit="step", dynamic_ncols=True,
                disable=not self.world.is_main, mininterval=0.1 if sys.stderr.isatty() else 10,
            ) as bar:
                if self.compiled:  # in the first step
                    threading.Thread(target=keep_alive, args=(bar, compiling), daemon=True).start()
                while self.progress.step < steps:
                    stopping = self.step(bar, stop)
                    stop.at_once = False
                    compiling.set()
                    if self.progress.step == first + 1:  # which may have been a compilation
                        before = self.progress.seconds
                    elif self.progress.step == first + 1 + TIMED_STEPS:
                        self._say_when_done((self.progress.seconds - before) / TIMED_STEPS)
                    if self.progress.step in self.config.train.keep:
                        self.save(self.progress.step)
                    at_end = self.progress.step == steps
                    if at_end or self.progress.step % interval == 0:
                        self.validate()
                        self.sample()  # before saving: what comes after is not taken again
                        self.save("last")
                        stopping = self.world.sum(float(stop.number))[0] > 0
                    elif stopping:
                        self.save("last")
                    if stopping and not at_end:
                        self.finish_writing()
                        bar.close()
                        self._say_how_to_resume()
                        code = 128 + (stop.number or signal.SIGTERM)  # 0: another process was told
                        return code
                self.finish_writing()
                bar.close()
                if self.run_dir:
                    self.run_dir.draw_losses()
            code = 0
            self._say_what_next()
            return code
        except (Stopped, KeyboardInterrupt):
            saved = self.checkpoints.has_weights or self.checkpoints.kept_steps()
            if self.run_dir and not saved and not self.resumed:
                self.run_dir.discard()
            raise
        finally:
            compiling.set()
            if self.run_dir:
                self.run_dir.finish(code)

    def step(self, bar: tqdm, stop: StopSignal) -> bool:
        """One optimizer step on one global batch. Returns whether any process was told to stop."""
        config, progress, started = self.config, self.progress, time.perf_counter()
        tokens = self.tokens_per_step
        factor = lr_factor(config.optim, progress.step, config.train.steps)
        self.optimizers.set_lr(factor)
        loss_sum = self._accumulate_gradients()
        for optimizer in self.optimizers.optimizers:
            self.scaler.unscale_(optimizer)
        limit = config.optim.grad_clip or math.inf
        grad_norm = self.world.clip(self.module, limit)
        written = float(self.writing is not None and self.writing[0].done())
        total_loss, signals, written = self.world.sum(
            loss_sum.item(), float(stop.number), written
        )
        loss = total_loss / tokens
        finite = math.isfinite(loss) and math.isfinite(grad_norm)
        if finite:
            for optimizer in self.optimizers.optimizers:
                self.scaler.step(optimizer)
        self.scaler.update()
        self.optimizers.zero_grad()

        seconds = time.perf_counter() - started
        progress.step += 1
        progress.tokens += tokens
        progress.seconds += seconds
        if written == self.world.size:
            self.finish_writing()
        self._count_skipped(finite, loss)
        self.log({
            "train/loss": loss, "train/lr": factor * config.optim.lr, "train/grad_norm": grad_norm,
            "train/tokens_per_second": tokens / seconds, "train/skipped": progress.skipped,
        })
        bar.update()
        bar.set_postfix_str(f"loss {loss:.3f}, {tokens / seconds:,.0f} tok/s", refresh=False)
        return signals > 0

    def _accumulate_gradients(self) -> Tensor:
        """Forward and backward over this process's rows, a micro-batch at a time. Returns the sum
        of their losses, a scalar on the device."""
        x, y = self.train_data.batch(self.progress.step)
        arguments = self._row_arguments(self.rows)
        micro_batches = list(zip(x.split(self.rows), y.split(self.rows), strict=True))
        most = math.ceil(self.config.train.batch_size / self.world.size / self.rows)
        if self.world.shards > 1 and len(micro_batches) < most:
            # Weights are gathered by all processes together, so all need equally many passes; this
            # one has no targets.
            micro_batches.append((x[:1], torch.full_like(y[:1], -100)))
            arguments = chain(arguments, self._row_arguments(1))
        loss_sum = torch.zeros((), device=self.device)
        for i, (x, y) in enumerate(micro_batches, 1):
            x, y = x.to(self.device), y.to(self.device)
            with self.world.averaging(self.model, i == len(micro_batches)):
                with autocast(self.device, self.dtype):
                    logits = self.model(x, **next(arguments))
                loss = self.loss(logits, y)
                # Divided by the tokens of the whole batch, so that unequal parts weigh every token
                # alike; times the processes, as DDP divides by them again.
                self.scaler.scale(loss * (self.world.size / self.tokens_per_step)).backward()
            loss_sum += loss.detach()
        return loss_sum

    def _row_arguments(self, size: int) -> Iterator[dict[str, Tensor]]:
        """For each micro-batch of `size` rows what the model draws for its rows: the keys of
        dropout, and where rows start that do not start at 0. Addressed by (seed, step, row)."""
        config, step = self.config, self.progress.step
        reach = config.model.random_offset
        share = self.train_data.share(config.train.batch_size)
        for first in range(share.start, share.stop, size):
            rows = range(first, min(first + size, share.stop))
            drawn = {}
            if config.model.dropout:
                drawn["keys"] = [derive_seed(config.seed, "dropout", step, row) for row in rows]
            if reach:
                drawn["offset"] = [derive_seed(config.seed, "offset", step, row) % (reach + 1)
                                   for row in rows]
            yield {name: torch.tensor(of, device=self.device) for name, of in drawn.items()}

    def log(self, values: dict[str, float | str]) -> None:
        """A point of metrics.jsonl, with what it can be drawn against."""
        if self.run_dir:
            axes = ("step", "tokens", "seconds")
            self.run_dir.log({name: getattr(self.progress, name) for name in axes} | values)

    def _count_skipped(self, finite: bool, loss: float) -> None:
        """Count a step whose loss or gradient was not finite. UserError after several in a row.

        Where the loss is finite and the gradient overflows float16, the scaler is only looking for
        its scale.
        """
        progress, config = self.progress, self.config
        progress.skipped += not finite
        searching = self.scaler.is_enabled() and self.scaler.get_scale() > 1
        diverged = not finite and not (searching and math.isfinite(loss))
        progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if diverged else 0
        if progress.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            self.finish_writing()
            kept = "There was no checkpoint yet"
            if self.checkpoints.has_weights or self.checkpoints.kept_steps():
                kept = f"The last good checkpoint is kept in {self.path}"
            raise UserError(f"the loss or its gradient was not finite {MAX_SKIPPED_IN_A_ROW} steps "
                            f"in a row, up to step {progress.step}, in {self.dtype}: try a smaller "
                            f"optim.lr (now {config.optim.lr}). {kept}")

    def validate(self) -> None:
        """Mean loss per token, and bits per byte, over every token of the validation split; the
        weights become `best` where no loss was lower."""
        nats, tokens = self.world.sum(*evaluate(
            self.module, self.val_data, self.rows, self.device, self.dtype
        ))
        loss, bpb = nats / tokens, nats / math.log(2) / self.data.manifest["val"]["bytes"]
        self.validation = f"validation loss {loss:.4f} nats per token, {bpb:.4f} bits per byte"
        self.log({"val/loss": loss, "val/bpb": bpb})
        self.say(f"step {self.progress.step}: {self.validation}")
        if loss < self.progress.best:
            self.progress.best = loss
            self.save("best")

    def save(self, name: Literal["last", "best"] | int) -> None:
        """Write a checkpoint: `last`, or that of a step to keep, with all that a resumed run needs,
        `best` the weights only."""
        self.finish_writing()  # which has the place where the next one is written
        if self.world.shards > 1 and name != "best":
            self._save_parts(name)
            return
        if self.run_dir is None:
            if self.world.shards > 1:
                for weight in self.module.state_dict().values():
                    whole(weight)
            return
        training = None if name == "best" else self._state()
        self.run_dir.save(name, self.module.state_dict(), training)

    def _save_parts(self, name: Literal["last"] | int) -> None:
        """Write a checkpoint of which every process writes its part."""
        from gyre.sharding import start_writing, state_tensors, write_parts  # slow to import

        training = self._state()
        if self.run_dir is not None:
            training = self.run_dir.noting_points(training)
        folder = self.checkpoints.begin_parts(self.world)
        tensors = state_tensors(self.module, self.optimizers.optimizers)
        if self.config.train.async_save:
            self.writing = start_writing(folder, tensors, self.world), name, training
        else:
            write_parts(folder, tensors)
            self.checkpoints.finish_parts(name, training, self.world)

    def finish_writing(self) -> None:
        """Let what is being written in the background become a checkpoint."""
        if self.writing is not None:
            from gyre.sharding import written  # slow to import

            future, name, training = self.writing
            self.writing = None
            written(future)
            self.checkpoints.finish_parts(name, training, self.world)

    def _state(self) -> dict[str, Any]:
        """What a resumed run needs beside the weights, and beside the moments where every process
        has a part of them."""
        return {
            "optimizers": self.optimizers.state_dict() if self.world.shards == 1 else None,
            "scaler": self.scaler.state_dict(),
            "count": dataclasses.asdict(self.progress),
            "steps": self.config.train.steps,
            "onednn": kernels.onednn_is_faster,
        }

    def sample(self) -> None:
        """Continue the sample prompt, with the same random numbers every time, in every process."""
        length, tokenizer = self.config.train.sample_tokens, self.data.tokenizer
        if length == 0 or not (self.world.is_main or self.world.shards > 1):
            return
        context: AbstractContextManager[None] = nullcontext()
        if self.world.shards > 1:  # weights are gathered by all processes together
            from gyre.sharding import gathered  # slow to import

            context = gathered(self.module)
        with context, uncompiled():
            # Past the end of the text, as all processes have to take equally many steps, and may
            # differ in the last bits.
            (new,) = continued(
                self.module, tokenizer, [self.sample_ids], Sampling(), max_new_tokens=length,
                seed=self.config.seed, eos_ids=(),
            )
        new = list(takewhile(lambda token: token not in tokenizer.eos_ids, new))
        text = tokenizer.decode(self.sample_ids + new)
        self.log({"sample": text})
        self.say(f"--- sample at step {self.progress.step}\n{text}\n---")

    def _say_when_done(self, step_seconds: float) -> None:
        """How long the rest takes, where that is more than a minute."""
        steps = self.config.train.steps - self.progress.step
        rest = timedelta(seconds=round(steps * step_seconds))
        if rest > timedelta(minutes=1):
            self.say(f"time    {rest} to go, until {datetime.now() + rest:%H:%M}, at "
                     f"{step_seconds:.2f} s a step and without validation")

    def _say_how_to_resume(self) -> None:
        command = [*self.world.launcher, "train.py", "--resume", str(self.path),
                   *self.resume_options]
        self.say(f"stopped after step {self.progress.step}, saved. To go on:\n"
                 f"    {shlex.join(command)}")

    def _say_what_next(self) -> None:
        minutes, seconds = divmod(round(self.progress.seconds), 60)
        prompt = self.config.train.sample_prompt or "Once"
        run = self.path.name if self.path.parent == Path("runs") else str(self.path)
        command = ["python", "generate.py", "--run", run, "--prompt", prompt]
        self.say(f"done    {self.validation}; {minutes} min {seconds} s of training steps; "
                 f"{self.path}\nnext    {shlex.join(command)}")
