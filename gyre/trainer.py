"""The training loop."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch
from tqdm import tqdm

from data.prepare import prepare
from data.tokenizer import tokenizer_files
from errors import UserError, say
from gyre.cli import load_file
from gyre.config import Config
from gyre.device import autocast, resolve_compile, resolve_dtype
from gyre.loss import evaluate, summed_loss
from gyre.optim import Optimizers, lr_factor, parameter_groups
from gyre.parallel import World
from gyre.rundir import NullRun, RunDir
from gyre.trained import load_model
from model.generation import generate
from model.sampling import Sampling
from model.seeds import derive_seed
from model.transformer import Transformer

MAX_SKIPPED_IN_A_ROW = 3


class StopSignal:
    """Remembers Ctrl-C or SIGTERM so that what runs can be finished; a second one is not held."""

    def __enter__(self):
        self.number = 0
        self._before = {
            s: signal.signal(s, self._remember) for s in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def _remember(self, number, frame):
        self.number = number
        signal.signal(number, self._before[number])
        os.write(2, b"\nstopping after this step; once more to stop at once\n")  # print may be busy

    def __exit__(self, *exc):
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Trainer:
    def __init__(self, config: Config, world: World, resumed: RunDir | None):
        self.config, self.world, self.device = config, world, world.device
        if config.train.batch_size < world.size:
            raise UserError(
                f"train.batch_size {config.train.batch_size} cannot be shared by {world.size} "
                "processes"
            )
        self.dtype, dtype_why = resolve_dtype(config.train.dtype, self.device)
        self.data = prepare(config.data)  # of several processes one does it, and the others wait
        world.join()
        share = {"seq_len": config.data.seq_len, "rank": world.rank, "size": world.size}
        self.train_data = self.data.dataset(
            "train", batch_size=config.train.batch_size, seed=config.seed, **share
        )
        self.val_data = self.data.dataset("val", **share)
        self.sample_ids = self._sample_ids()

        if config.init_from is not None and resumed is None:
            self.module = load_model(config.model, RunDir.open(config.init_from).load_weights())
        else:
            self.module = Transformer(config.model)
            self.module.init_weights(config.seed)
        self.module.to(self.device)
        self.optimizers = Optimizers(self.module, config.optim)
        # Loss scaling for float16 only; disabled, it hands everything through.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.count = {"step": 0, "tokens": 0, "seconds": 0.0, "skipped": 0, "skipped_in_a_row": 0,
                      "best": math.inf}  # fmt: skip
        self.resume_options: list[str] = []
        self.log: RunDir | NullRun = self._open_run(resumed)

        compiled, compile_why = resolve_compile(
            config.train.compile, self.device, self._training_flops()
        )
        self.loss = summed_loss
        if compiled:
            # In place: the state dict keeps its names. Dropout as in eager mode, which on a CPU is
            # also drawn faster than by the compiler's own generator.
            random = {"fallback_random": self.device.type == "cpu"}
            self.module.compile(options=random)
            self.loss = torch.compile(summed_loss)
        self.model = world.wrap(self.module)
        self._say_what_runs(dtype_why, compile_why)

    # --- setting up ---

    def _sample_ids(self) -> list[int]:
        tokenizer = self.data.tokenizer
        prompt = self.config.train.sample_prompt
        ids = [*tokenizer.prefix_ids, *tokenizer.encode(prompt)]
        if not prompt:
            ids.insert(0, tokenizer.eos_id)
        room = self.config.model.max_positions - len(ids)
        if room < self.config.train.sample_tokens:
            raise UserError(
                f"train.sample_prompt has {len(ids)} tokens, and with train.sample_tokens "
                f"{self.config.train.sample_tokens} that passes model.max_positions "
                f"{self.config.model.max_positions}"
            )
        return ids

    def _open_run(self, resumed: RunDir | None) -> RunDir | NullRun:
        config = self.config
        if resumed is not None:
            if self.data.manifest["files"] != resumed.manifest["files"]:
                raise UserError(
                    f"the text of {resumed.path} has changed since it was started: restore it, or "
                    "start a new run"
                )
            weights, state = resumed.load_training()
            self.module.load_state_dict(weights)
            self.optimizers.load_state_dict(state["optimizers"])
            if state["scaler"]:
                self.scaler.load_state_dict(state["scaler"])
            self.count = state["count"]
            if self.count["step"] >= config.train.steps:
                raise UserError(
                    f"{resumed.path} has finished its {self.count['step']} steps: "
                    "give --train.steps a larger number to go on"
                )
            own_steps = load_file(resumed.path / "config.yaml").train.steps
            if state["steps"] != config.train.steps == own_steps:
                raise UserError(
                    f"{resumed.path} was last resumed with --train.steps {state['steps']}, which "
                    "decides its learning rates: say so again, or choose another number"
                )
            if config.train.steps != own_steps:
                self.resume_options = ["--train.steps", str(config.train.steps)]
        if not self.world.is_main:
            return NullRun()
        if resumed is not None:
            resumed.resume(self.count["step"], config.log, dataclasses.asdict(config))
            return resumed
        own = config
        if config.data.tokenizer is not None:  # from now on its copy, wherever it came from
            folder = str(RunDir.new_path(config.log.runs, config.name))
            own = dataclasses.replace(
                config, data=dataclasses.replace(config.data, tokenizer=folder)
            )
        return RunDir.create(
            config.log, config.name, config_yaml=own.to_yaml(),
            config=dataclasses.asdict(config), tokenizer=tokenizer_files(self.data.folder),
            manifest=self.data.manifest,
            need_bytes=40 * sum(p.numel() for p in self.module.parameters()),
        )  # fmt: skip

    def _training_flops(self) -> float:
        """6 per parameter and token; the same for every encoding, so that none compiles alone."""
        hidden, _ = parameter_groups(self.module)
        output = self.config.model.vocab_size * self.config.model.dim
        parameters = sum(p.numel() for p in hidden) + output
        return 6.0 * parameters * self._tokens_per_step() * self.config.train.steps

    def _tokens_per_step(self) -> int:
        return self.config.train.batch_size * self.config.data.seq_len

    def _say_what_runs(self, dtype_why: str, compile_why: str) -> None:
        if not self.world.is_main:
            return
        config, manifest = self.config, self.data.manifest
        parameters = sum(p.numel() for p in self.module.parameters())
        tokens = self._tokens_per_step() * config.train.steps
        passes = self.data.passes
        epochs = tokens / self.train_data.n_tokens * passes
        say(f"run     {self.log.path}")
        say(
            f"data    {self.data.folder}: {self.train_data.n_tokens:,} training tokens"
            f"{f' in {passes} passes' if passes > 1 else ''} and {self.val_data.n_tokens:,} for "
            f"validation, vocabulary {manifest['vocab_size']}"
        )
        say(
            f"model   {parameters:,} parameters, positions: {config.model.position}; "
            f"{config.train.steps} steps of {config.train.batch_size}x{config.data.seq_len} tokens "
            f"({epochs:.1f} epochs)"
        )
        world = f" x {self.world.size}" if self.world.size > 1 else ""
        say(f"device  {self.device}{world}; {dtype_why}; {compile_why}")
        if self.loss is not summed_loss:
            say("        the first step compiles, which takes up to a minute")

    # --- the loop ---

    def run(self) -> int:
        """Train to the end, or until a signal. Returns the exit code."""
        steps = self.config.train.steps
        bar = tqdm(
            total=steps, initial=self.count["step"], desc="train", unit="step", dynamic_ncols=True,
            disable=not self.world.is_main, mininterval=0.1 if sys.stderr.isatty() else 10,
        )  # fmt: skip
        code = 1
        try:
            with StopSignal() as stop, bar:
                while self.count["step"] < steps:
                    stopping = self.step(bar, stop)
                    at_end = self.count["step"] == steps
                    if at_end or self.count["step"] % self.config.train.eval_interval == 0:
                        self.validate(bar)
                        self.save("last")
                        self.sample(bar)
                        stopping = self.world.sum(float(stop.number))[0] > 0
                    elif stopping:
                        self.save("last")
                    if stopping and not at_end:
                        bar.close()
                        self._say_how_to_resume()
                        code = 128 + (stop.number or signal.SIGTERM)
                        return code
            code = 0
            self._say_what_next()
            return code
        finally:
            self.log.finish(code)

    def step(self, bar: tqdm, stop: StopSignal) -> bool:
        """One optimizer step on one global batch. Returns whether any process was told to stop."""
        config, count, started = self.config, self.count, time.perf_counter()
        step, tokens = count["step"], self._tokens_per_step()
        # Dropout's stream is addressed too: whatever else drew numbers before, this step draws
        # these.
        torch.manual_seed(derive_seed(config.seed, "dropout", step, self.world.rank))
        factor = lr_factor(config.optim, step, config.train.steps)
        self.optimizers.set_lr(factor)

        x, y = self.train_data.batch(step)
        size = config.train.micro_batch_size or len(x)
        micro_batches = list(zip(x.split(size), y.split(size), strict=True))
        loss_sum = torch.zeros((), device=self.device)
        for i, (x, y) in enumerate(micro_batches):
            x, y = x.to(self.device), y.to(self.device)
            more = self.world.size > 1 and i + 1 < len(micro_batches)
            with self.model.no_sync() if more else nullcontext():
                with autocast(self.device, self.dtype):
                    logits = self.model(x)
                loss = self.loss(logits, y)
                # Over the tokens of the whole batch, so that unequal splits weigh every token
                # alike; the world's size undoes DDP's average over processes.
                self.scaler.scale(loss * (self.world.size / tokens)).backward()
            loss_sum += loss.detach()

        for optimizer in self.optimizers.optimizers:
            self.scaler.unscale_(optimizer)
        limit = config.optim.grad_clip or math.inf
        grad_norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), limit).item()
        total, signals = self.world.sum(loss_sum.item(), float(stop.number))
        mean_loss = total / tokens
        finite = math.isfinite(mean_loss) and math.isfinite(grad_norm)
        if finite:
            for optimizer in self.optimizers.optimizers:
                self.scaler.step(optimizer)
        self.scaler.update()
        self.optimizers.zero_grad()

        seconds = time.perf_counter() - started
        count["step"] += 1
        count["tokens"] += tokens
        count["seconds"] += seconds
        self._count_skipped(finite, mean_loss)
        self.log.log({
            **self._axes(), "train/loss": mean_loss, "train/lr": factor * config.optim.lr,
            "train/grad_norm": grad_norm, "train/tokens_per_second": tokens / seconds,
            "train/skipped": count["skipped"],
        })  # fmt: skip
        bar.update()
        bar.set_postfix_str(f"loss {mean_loss:.3f}, {tokens / seconds:,.0f} tok/s", refresh=False)
        return signals > 0

    def _count_skipped(self, finite: bool, loss: float) -> None:
        """Skip a step whose loss or gradient is not finite; stop when it keeps happening.

        A float16 overflow with a finite loss is the scaler finding its scale, not a divergence.
        """
        count = self.count
        count["skipped"] += not finite
        searching = self.scaler.is_enabled() and self.scaler.get_scale() > 1
        diverged = not finite and not (searching and math.isfinite(loss))
        count["skipped_in_a_row"] = count["skipped_in_a_row"] + 1 if diverged else 0
        if count["skipped_in_a_row"] >= MAX_SKIPPED_IN_A_ROW:
            kept = "There was no checkpoint yet"
            if count["best"] < math.inf:
                path = Path(self.config.log.runs) / self.config.name
                kept = f"The last good checkpoint is kept in {path}"
            raise UserError(
                f"the loss or its gradient was not finite {MAX_SKIPPED_IN_A_ROW} steps in a row, "
                f"up to step {count['step']}, in {self.dtype}: try a smaller optim.lr (now "
                f"{self.config.optim.lr}). {kept}"
            )

    def _axes(self) -> dict[str, float]:
        return {key: self.count[key] for key in ("step", "tokens", "seconds")}

    def validate(self, bar: tqdm) -> None:
        """Mean loss per token, and bits per byte, over every token of the validation split."""
        nats, tokens = evaluate(self.module, self.val_data, self.config.train.batch_size,
                                self.device, self.dtype)  # fmt: skip
        nats, tokens = self.world.sum(nats, tokens)
        loss = nats / tokens
        bpb = nats / math.log(2) / self.data.manifest["val"]["bytes"]
        self.log.log({**self._axes(), "val/loss": loss, "val/bpb": bpb})
        self.validation = (loss, bpb)
        if self.world.is_main:
            bar.write(f"step {self.count['step']}: validation loss {loss:.4f} nats per token, "
                      f"{bpb:.4f} bits per byte", file=sys.stderr)  # fmt: skip
        if loss < self.count["best"]:
            self.count["best"] = loss
            self.save("best")

    def save(self, name: str) -> None:
        if not self.world.is_main:
            return
        training = None
        if name == "last":
            training = {
                "optimizers": self.optimizers.state_dict(),
                "scaler": self.scaler.state_dict(),
                "count": dict(self.count),
                "steps": self.config.train.steps,
            }
        self.log.save(name, self.module.state_dict(), training)

    def sample(self, bar: tqdm) -> None:
        """Continue the sample prompt, with the same random numbers every time."""
        length = self.config.train.sample_tokens
        if not self.world.is_main or not length:
            return
        new = generate(
            self.module,
            [self.sample_ids],
            Sampling(),
            max_new_tokens=length,
            eos_id=self.data.tokenizer.eos_id,
            seed=self.config.seed,
            use_cache=len(self.sample_ids) + length <= self.module.position.cache_limit,
        )
        text = self.data.tokenizer.decode(self.sample_ids + new[0])
        self.log.log({**self._axes(), "sample": text})
        bar.write(f"--- sample at step {self.count['step']}\n{text}\n---", sys.stderr)

    def _say_how_to_resume(self) -> None:
        if self.world.is_main:
            say(f"stopped after step {self.count['step']}, saved. To go on:")
            say("    " + shlex.join(["python", "train.py", "--resume", str(self.log.path),
                                     *self.resume_options]))  # fmt: skip

    def _say_what_next(self) -> None:
        if not self.world.is_main:
            return
        loss, bpb = self.validation
        minutes, seconds = divmod(round(self.count["seconds"]), 60)
        say(
            f"done    validation loss {loss:.4f} nats per token, {bpb:.4f} bits per byte; "
            f"{minutes} min {seconds} s of training steps; {self.log.path}"
        )
        prompt = self.config.train.sample_prompt or "Once"
        run = [] if self.config.log.runs == "runs" else ["--run", str(self.log.path)]
        say("next    " + shlex.join(["python", "generate.py", *run, "--prompt", prompt]))
