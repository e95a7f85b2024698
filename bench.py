"""Measure speed: training, prefill and decoding, beside what the machine could do.

    python bench.py
    python bench.py --config bench.yaml --model.dim 768 --data.seq_len 1024 --json bench.json
    python bench.py --growth growth --repeats 2     # how cost grows with size, context and batch

The model has random weights, which take as long as trained ones. Where transformers is installed
(requirements-dev.txt), its LlamaForCausalLM runs the same weights. Both train with AdamW and
without dropout, whatever the configuration says. Every subject has a process of its own, and all
take turns, so that what else the machine does meets them alike; figures are medians. Compilation
starts with an empty cache on the disk.
"""

import dataclasses
import gc
import json
import multiprocessing
import os
import re
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import torch
from torch import nn
from tqdm import tqdm

from errors import UserError, exit_in_words, say
from formats.names import refuse_without_counterpart, to_hf, to_hf_config
from gyre.cli import config_parser, parse
from gyre.config import Config
from gyre.device import autocast, resolve_compile, resolve_device, resolve_dtype
from gyre.loss import summed_loss
from gyre.measure import flops_per_token
from gyre.optim import OptimConfig, Optimizers
from model.cache import KVCache
from model.config import ModelConfig
from model.generation import compiled_next_logits, generate, next_logits
from model.sampling import Sampling
from model.transformer import Transformer

Run = Callable[[], object]
T = TypeVar("T")


def main(argv: list[str] | None = None) -> None:
    try:
        _main(argv)
    except KeyboardInterrupt:
        say("interrupted: nothing was written")
        sys.exit(130)


def _main(argv: list[str] | None) -> None:
    with exit_in_words():
        argv = sys.argv[1:] if argv is None else argv
        if not any(word.startswith("--config") for word in argv):
            argv = ["--config", "bench.yaml", *argv]
        parser = config_parser(__doc__)
        parser.add_argument("--json", metavar="FILE", help="Write the figures here too.")
        parser.add_argument(
            "--repeats", type=int, default=8, help="Measurements of every training subject."
        )
        parser.add_argument(
            "--new-tokens", type=int, help="Tokens to decode after a prompt of one. Default: 500."
        )
        parser.add_argument(
            "--growth", metavar="FOLDER", help="Measure how cost grows instead, and draw it there."
        )
        config, options = parse(parser, argv)
        for name in ("repeats", "new_tokens"):
            if options[name] is not None and options[name] < 1:
                raise UserError(f"--{name.replace('_', '-')} must be at least 1")
        if config.train.micro_batch_size is not None:
            raise UserError("train.micro_batch_size is not measured: set train.batch_size to it")
        config.model.dropout = 0.0
        if options["growth"]:
            if options["new_tokens"] is not None:
                raise UserError(f"--new-tokens has no effect with --growth: they are {GROWTH_NEW}")
            figures = growth(config, Path(options["growth"]), options["repeats"])
        else:
            figures = Bench(config, options["repeats"], options["new_tokens"] or 500).run()
        line = json.dumps(figures)
        if options["json"]:
            Path(options["json"]).write_text(line + "\n", encoding="utf-8")
        print(line)


# --- timing ---------------------------------------------------------------------------------------


class Clock:
    """Seconds of calls on a device, the queue of a GPU emptied before and after."""

    def __init__(self, device: torch.device):
        self.device = device

    def seconds(self, run: Run) -> float:
        self._wait()
        started = time.perf_counter()
        run()
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()


def alternate(clocks: dict[str, Callable[[], float]], repeats: int, what: str) -> dict[str, float]:
    """Median seconds of each, one after the other in every round."""
    times: dict[str, list[float]] = {name: [] for name in clocks}
    for _ in tqdm(range(repeats), what, leave=False, delay=2):
        for name, seconds in clocks.items():
            times[name].append(seconds())
    return {name: statistics.median(values) for name, values in times.items()}


def machine(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """(FLOP/s of a large matrix product, bytes/s of reading and writing in a large copy)."""
    clock, gpu = Clock(device), device.type == "cuda"
    n = 8192 if gpu else 2048
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    source = torch.ones(2**30 if gpu else 2**27, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    clocks = {
        "product": lambda: clock.seconds(lambda: a @ b),
        "copy": lambda: clock.seconds(lambda: target.copy_(source)),
    }
    for seconds in clocks.values():
        seconds()
    times = alternate(clocks, 8, "the machine")
    return 2 * n**3 / times["product"], 2 * source.nbytes / times["copy"]


def alone(measure: Callable[..., T], *arguments: object) -> T:
    """What `measure` returns from a process of its own."""
    with _process() as process:
        return process.submit(measure, *arguments).result()


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_DFL),  # Ctrl-C ends it at once, without a traceback
    )  # fmt: skip


class Subject:
    """A process that measures one subject after the other's turn.

    What a subject sets for its process, as ours does for the memory that tensors free, is not lent
    to the others; and the process's peak memory is the subject's.
    """

    def __init__(self, process: ProcessPoolExecutor, device: torch.device, cache: str):
        self.process = process
        self.process.submit(_begin, device, cache).result()

    def build(self, build: Callable[..., Run], *arguments: object) -> None:
        """Measure from now on the call that `build` returns."""
        self.process.submit(_build, build, arguments).result()

    def release(self) -> None:
        self.process.submit(_release).result()

    def seconds(self) -> float:
        return self.process.submit(_seconds).result()

    def peak_bytes(self) -> int:
        return self.process.submit(_peak_bytes).result()


# What a Subject's process keeps between its calls.
_clock: Clock
_run: Run | None


def _begin(device: torch.device, cache: str) -> None:
    global _clock
    _clock = Clock(device)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache


def _build(build: Callable[..., Run], arguments: tuple) -> None:
    global _run
    _run = build(*arguments)


def _release() -> None:
    global _run
    _run = None
    gc.collect()  # a compiled model is part of a cycle
    if _clock.device.type == "cuda":
        torch.cuda.empty_cache()


def _seconds() -> float:
    seconds = _clock.seconds(_run)
    time.sleep(0.25)  # OpenMP's threads spin for up to 0.2 s before they sleep
    return seconds


def _peak_bytes() -> int:
    return peak_bytes(_clock.device)


# --- the subjects ---------------------------------------------------------------------------------


def ours(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Transformer:
    resolve_device(str(device))  # what that sets, this process has not set yet
    model = Transformer(config)
    model.init_weights(0)
    return model.to(device, dtype)


def theirs(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """transformers' model with the same weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    no_ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    model = LlamaForCausalLM(LlamaConfig(**to_hf_config(config), **no_ids))
    source = Transformer(config)
    source.init_weights(0)
    weights = dict(to_hf(source.state_dict(), config))
    if config.tie_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    return model.to(device, dtype)


def training_step(
    name: str, config: ModelConfig, rows: int, length: int, device: torch.device, dtype: torch.dtype
) -> Run:
    """One step of training; transformers computes its own loss."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(config.vocab_size, (rows, length + 1), generator=generator)
    x, y = (t.contiguous().to(device) for t in (tokens[:, :-1], tokens[:, 1:]))
    peer, compiled = name.startswith("transformers"), name.endswith("compiled")
    if peer:
        model = theirs(config, device, torch.float32).train()
        optimizers = [torch.optim.AdamW(model.parameters(), fused=True)]
    else:
        model = ours(config, device, torch.float32)
        optimizers = Optimizers(model, OptimConfig()).optimizers
    loss_of = torch.compile(summed_loss) if compiled else summed_loss
    if compiled:
        model.compile()

    def step() -> float:
        with autocast(device, dtype):
            # Without the cache, as transformers' own trainer does it.
            out = model(x, labels=y, shift_labels=y, use_cache=False) if peer else model(x)
        loss = out.loss if peer else loss_of(out, y) / y.numel()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    return step


PREFILLS = 8  # in a row, each of some milliseconds


def prefill(
    name: str, config: ModelConfig, length: int, device: torch.device, dtype: torch.dtype
) -> Run:
    prompt = torch.zeros(1, length, dtype=torch.long, device=device)
    if name.startswith("transformers"):
        peer = theirs(config, device, dtype).eval()

        def once() -> object:
            return peer(prompt, logits_to_keep=1).logits
    else:
        model, reach = ours(config, device, dtype).eval(), config.max_positions

        def once() -> object:
            return next_logits(model, prompt, KVCache(config, 1, reach, device, dtype))

    return torch.inference_mode()(lambda: [once() for _ in range(PREFILLS)])


def decoding(
    name: str, config: ModelConfig, rows: int, new: int, device: torch.device, dtype: torch.dtype
) -> Run:
    """`new` tokens after a prompt of one, for every row."""
    if name.startswith("transformers"):
        peer = theirs(config, device, dtype).eval()
        prompt = torch.ones(rows, 1, dtype=torch.long, device=device)
        return torch.inference_mode()(lambda: peer.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, use_cache=True,
            min_new_tokens=new, max_new_tokens=new, pad_token_id=0,
        ))  # fmt: skip
    model = ours(config, device, dtype).eval()
    return lambda: generate(
        model, [[1]], Sampling(temperature=0), max_new_tokens=new, num_samples=rows,
        compile=name.endswith("compiled"),
    )  # fmt: skip


# --- the table ------------------------------------------------------------------------------------


class Bench:
    def __init__(self, config: Config, repeats: int, new_tokens: int):
        self.config, self.repeats, self.new_tokens = config, repeats, new_tokens
        self.device = resolve_device(config.train.device)
        self.dtype, why = resolve_dtype(config.train.dtype, self.device)
        # Decoding may be longer than the rows are.
        reach = max(config.model.max_positions or 0, config.data.seq_len, new_tokens + 1)
        self.model: ModelConfig = dataclasses.replace(config.model, max_positions=reach)
        compiles = config.train.compile is not False
        self.kinds = ["eager"]
        if compiles and resolve_compile(True, self.device, 0)[0]:
            self.kinds.insert(0, "compiled")
        names = ["gyre"]
        if find_spec("transformers"):
            try:
                refuse_without_counterpart(self.model, "hf")
                names.append("transformers")
            except ValueError as error:
                say(f"note: without transformers: {error}")
        self.names = [f"{name}, {kind}" for name in names for kind in self.kinds]
        self.figures: dict = {
            "device": str(self.device), "dtype": str(self.dtype), "torch": torch.__version__,
            "threads": torch.get_num_threads(), "model": dataclasses.asdict(self.model),
            "compile_seconds": {},
        }  # fmt: skip
        say(f"{self.device}; {why}; {torch.get_num_threads()} threads")

    def run(self) -> dict:
        self.product_rate, self.bandwidth = alone(machine, self.device, self.dtype)
        self.figures["matmul_flops_per_second"] = self.product_rate
        self.figures["copy_bytes_per_second"] = self.bandwidth
        print(f"machine: {self.product_rate / 1e9:,.0f} GFLOP/s in matrix products, "
              f"{self.bandwidth / 1e9:.1f} GB/s in copies")  # fmt: skip
        with ExitStack() as stack:
            self.subjects = {}
            for name in self.names:
                cache = stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
                process = stack.enter_context(_process())
                self.subjects[name] = Subject(process, self.device, cache)
            self.training()
            self.prefill()
            for rows in (1, 8, 32):
                self.decoding(rows)
        return self.figures

    def _measure(
        self, title: str, names: list[str], tokens: int, limit: float, repeats: int,
        build: Callable[..., Run], *arguments: object,
    ) -> dict:  # fmt: skip
        """Print and return tokens/s of these subjects beside the machine's limit, and apart from
        that what the first call took longer where it compiles."""
        firsts = {}
        for name in tqdm(names, f"{title}: first calls", leave=False, delay=2):
            self.subjects[name].build(build, name, *arguments, self.device, self.dtype)
            firsts[name] = self.subjects[name].seconds()
        clocks = {name: self.subjects[name].seconds for name in names}
        alternate(clocks, 1, title)
        times = alternate(clocks, repeats, title)
        for name in names:
            self.subjects[name].release()
        rates = {name: tokens / seconds for name, seconds in times.items()}
        print(f"\n{title}\n  {'tokens/s':>31} {'of the limit':>14}")
        for name, rate in rates.items():
            print(f"  {name:<21} {rate:>9,.0f} {100 * rate / limit:>12.0f} %")
        print(f"  {'limit':<21} {limit:>9,.0f}")
        for name in names:
            if name.endswith("compiled"):
                seconds = max(0.0, firsts[name] - times[name])  # none where an earlier one serves
                self.figures["compile_seconds"][f"{title}: {name}"] = seconds
                print(f"  compiling {name}: {seconds:.1f} s")
        sys.stdout.flush()
        return {"tokens_per_second": rates, "limit": limit}

    def training(self) -> None:
        rows, length = self.config.train.batch_size, self.config.data.seq_len
        limit = self.product_rate / flops_per_token(self.model, length)
        figures = self._measure(
            f"training, {rows} x {length}", self.names, rows * length, limit, self.repeats,
            training_step, self.model, rows, length,
        )  # fmt: skip
        figures["peak_bytes"] = {name: s.peak_bytes() for name, s in self.subjects.items()}
        for name, peak in figures["peak_bytes"].items():
            print(f"  peak memory of {name}: {peak / 2**20:,.0f} MiB", flush=True)
        self.figures["training"] = figures

    def prefill(self) -> None:
        length = self.config.data.seq_len
        flops = flops_per_token(self.model, length) / 3 * length
        # The logits of the last position alone.
        flops -= (length - 1) * 2 * self.model.vocab_size * self.model.dim
        self.figures["prefill"] = self._measure(
            f"prefill, one prompt of {length}", [n for n in self.names if n.endswith("eager")],
            PREFILLS * length, length * self.product_rate / flops, self.repeats,
            prefill, self.model, length,
        )  # fmt: skip

    def decoding(self, rows: int) -> None:
        names = [name for name in self.names if name != "transformers, compiled"]
        read = decode_bytes(self.model, rows, self.new_tokens / 2, self.dtype)
        self.figures[f"decoding_{rows}"] = self._measure(
            f"decoding, batch {rows}, {self.new_tokens} new", names, rows * self.new_tokens,
            rows * self.bandwidth / read, 3,
            decoding, self.model, rows, self.new_tokens,
        )  # fmt: skip


def peak_bytes(device: torch.device) -> int:
    """Of the GPU's allocator, or of this whole process, libraries included."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "linux":  # whose getrusage tells a process its parent's peak
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def decode_bytes(config: ModelConfig, rows: int, length: float, dtype: torch.dtype) -> float:
    """What one decoding step has to read: every weight that is in a product once, and a cache of
    `length` tokens."""
    with torch.device("meta"):
        read = dict(Transformer(config).named_parameters())
    if not config.tie_embeddings:
        read.pop("tok_embeddings.weight")  # one row of it per token
    weights = sum(p.numel() for p in read.values())
    cache = rows * length * 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return dtype.itemsize * (weights + cache)


# --- how cost grows -------------------------------------------------------------------------------

# (dim, n_layers) of 1, 3, 10, 30 and 100 million parameters with heads of 32 and 4096 pieces.
GROWTH_SIZES = [(128, 3), (192, 6), (320, 8), (512, 10), (768, 15)]
GROWTH_CONTEXTS = [256, 512, 1024, 2048, 4096, 8192]
GROWTH_ROWS = [1, 4, 16, 64]
GROWTH_NEW = 64  # tokens decoded, the last of which fills the context


def growth(config: Config, folder: Path, repeats: int) -> dict:
    """Measure one thing growing at a time, and the rest as in `config`; print a table for each and
    draw them. Every point has a process of its own, whose peak memory is the point's."""
    if config.data.seq_len <= GROWTH_NEW:
        raise UserError(f"data.seq_len must be above {GROWTH_NEW}, which is how many are decoded")
    folder.mkdir(parents=True, exist_ok=True)
    device = resolve_device(config.train.device)
    dtype, why = resolve_dtype(config.train.dtype, device)
    compiles = config.train.compile is not False and resolve_compile(True, device, 0)[0]
    say(f"{device}; {why}; training eager, decoding {'compiled' if compiles else 'eager'}")
    base, context = config.model, config.data.seq_len
    sizes = [
        dataclasses.replace(base, dim=dim, n_layers=n_layers, n_heads=dim // 32,
                            n_kv_heads=dim // 64, head_dim=32, hidden_dim=None)
        for dim, n_layers in GROWTH_SIZES
    ]  # fmt: skip
    # A step of all contexts has as many tokens as a row of the longest.
    points = [
        *(("model size", size, config.train.batch_size, 1, context) for size in sizes),
        *(("context", base, max(GROWTH_CONTEXTS) // n, 1, n) for n in GROWTH_CONTEXTS),
        *(("batch", base, n, n, context) for n in GROWTH_ROWS),
    ]
    table: list[dict] = []
    for axis, model, train_rows, rows, length in tqdm(points, "growth"):
        model = dataclasses.replace(model, max_positions=length)
        row = {"axis": axis, "parameters": None, "context": length, "rows": rows,
               "train_rows": train_rows}  # fmt: skip
        row |= alone(training_point, model, train_rows, length, device, dtype, repeats)
        row |= alone(decoding_point, model, rows, length, device, dtype, compiles, repeats)
        table.append(row)
    for axis in dict.fromkeys(row["axis"] for row in table):
        print(f"\n| {axis} | training tokens/s | training MiB | first token ms "
              "| decoding ms/step | tokens/s | GB/s read | MiB |\n" + "|---" * 8 + "|")  # fmt: skip
        for row in (row for row in table if row["axis"] == axis):
            print(
                f"| {_growing(row):,} | {row['train_tokens_per_second']:,.0f} "
                f"| {row['train_peak_bytes'] / 2**20:,.0f} "
                f"| {1e3 * row['first_token_seconds']:,.1f} "
                f"| {1e3 * row['step_seconds']:,.2f} | {row['rows'] / row['step_seconds']:,.0f} "
                f"| {row['step_bytes'] / row['step_seconds'] / 1e9:,.1f} "
                f"| {row['decode_peak_bytes'] / 2**20:,.0f} |"
            )
    _draw_growth(table, folder / "growth.png")
    return {"device": str(device), "dtype": str(dtype), "torch": torch.__version__,
            "threads": torch.get_num_threads(), "points": table}  # fmt: skip


def _growing(row: dict) -> int:
    return row[{"model size": "parameters", "context": "context", "batch": "rows"}[row["axis"]]]


def training_point(
    config: ModelConfig, rows: int, length: int, device: torch.device, dtype: torch.dtype,
    repeats: int,
) -> dict:  # fmt: skip
    step, clock = training_step("gyre, eager", config, rows, length, device, dtype), Clock(device)
    clock.seconds(step)
    seconds = statistics.median(clock.seconds(step) for _ in range(repeats))
    return {
        "train_tokens_per_second": rows * length / seconds,
        "train_peak_bytes": peak_bytes(device),
    }


@torch.inference_mode()
def decoding_point(
    config: ModelConfig, rows: int, length: int, device: torch.device, dtype: torch.dtype,
    compiles: bool, repeats: int,
) -> dict:  # fmt: skip
    model = ours(config, device, dtype).eval()
    prompt = torch.zeros(rows, length - GROWTH_NEW, dtype=torch.long, device=device)
    token = prompt[:, :1]
    clock, decode = Clock(device), compiled_next_logits(device.type) if compiles else next_logits
    firsts, steps = [], []
    for repeat in range(repeats + 1):
        cache = KVCache(config, rows, length, device, dtype)
        first = clock.seconds(lambda cache=cache: next_logits(model, prompt, cache))
        times = [clock.seconds(lambda cache=cache: decode(model, token, cache))
                 for _ in range(GROWTH_NEW)]  # fmt: skip
        if repeat:  # the first one compiles
            firsts.append(first)
            steps += times
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "first_token_seconds": statistics.median(firsts),
        "step_seconds": statistics.median(steps),
        "step_bytes": decode_bytes(config, rows, length - GROWTH_NEW / 2, dtype),
        "decode_peak_bytes": peak_bytes(device),
    }


def _draw_growth(table: list[dict], file: Path) -> None:
    # Half a second, that other benches need not wait.
    from matplotlib import ticker
    from matplotlib.figure import Figure

    panels = {
        "tokens/s": {
            "training": lambda row: row["train_tokens_per_second"],
            "decoding": lambda row: row["rows"] / row["step_seconds"],
        },
        "milliseconds": {
            "to the first token": lambda row: 1e3 * row["first_token_seconds"],
            "per decoding step": lambda row: 1e3 * row["step_seconds"],
            "step, if like its bytes": None,
        },
        "peak MiB": {
            "training": lambda row: row["train_peak_bytes"] / 2**20,
            "decoding": lambda row: row["decode_peak_bytes"] / 2**20,
        },
    }
    axes = list(dict.fromkeys(row["axis"] for row in table))
    figure = Figure((10, 8), layout="constrained")
    grid = figure.subplots(len(panels), len(axes), sharex="col", sharey="row")
    styles = (("black", "-", "o"), ("#0072b2", "--", "s"), ("0.6", ":", ""))
    for ax_row, (unit, lines) in zip(grid, panels.items(), strict=True):
        for ax, axis in zip(ax_row, axes, strict=True):
            rows = [row for row in table if row["axis"] == axis]
            x = [_growing(row) for row in rows]
            for (name, value), (color, line, marker) in zip(lines.items(), styles, strict=False):
                if value is None:  # the first step, grown as the bytes that a step reads
                    one = 1e3 * rows[0]["step_seconds"] / rows[0]["step_bytes"]
                    y = [one * row["step_bytes"] for row in rows]
                else:
                    y = [value(row) for row in rows]
                ax.loglog(x, y, color=color, linestyle=line, marker=marker, label=name)
            ax.grid(color="0.9")
            ax.set_xticks(x, [ticker.EngFormatter(places=0, sep="")(value) for value in x])
            ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,g}"))
            for each in (ax.xaxis, ax.yaxis):
                each.set_minor_formatter(ticker.NullFormatter())
            if unit == "peak MiB":
                ax.set_yticks([500, 1000, 2000, 4000, 8000])
                ax.set_xlabel({"model size": "parameters", "context": "context, tokens",
                               "batch": "rows"}[axis])  # fmt: skip
            if axis == axes[0]:
                ax.set_ylabel(unit)
                ax.legend(fontsize=8)
    figure.savefig(file, dpi=130)


if __name__ == "__main__":
    main()
