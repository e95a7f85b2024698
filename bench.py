"""Measure speed: training, prefill and decoding, beside what the machine could do.

    python bench.py
    python bench.py --config bench.yaml --model.dim 768 --data.seq_len 1024 --json bench.json

The model has random weights, which take as long as trained ones. If transformers is installed
(requirements-dev.txt), its LlamaForCausalLM of the same sizes runs too: in the dtype of
--train.dtype, or, for auto, in float32 and in bfloat16 unless one of them multiplies at less than a
tenth of the other's rate. Both train with AdamW and without dropout, whatever the configuration
says. Every subject has a process of its own, and they take turns, so that all share the machine's
slower minutes. Figures are medians. Compilation starts with an empty cache on the disk.
"""

import dataclasses
import gc
import json
import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

import torch
from tqdm import tqdm

from errors import UserError, check_ranges, exit_in_words, say
from files import write_file
from formats import hf
from formats.names import refuse_without_counterpart
from gyre.device import (
    DTYPE_NAMES,
    autocast,
    processor,
    product_rates,
    resolve_compile,
    resolve_device,
    resolve_dtype,
)
from gyre.optim import OptimConfig, Optimizers
from gyre.options import Config, Parser, make_config, read_yaml
from gyre.step import summed_loss
from model.config import ModelConfig
from model.generation import generate, next_logits
from model.sampling import Sampling
from model.transformer import KVCache, Transformer, linear

Call = Callable[[], object]
K = TypeVar("K")


@dataclass
class Options:
    """How often to measure, and where to write it."""

    json: str | None = None
    """Write the figures into this file too."""
    repeats: int = 8
    """Measurements of every subject in training and prefill."""
    new_tokens: int = 500
    """Tokens to decode after a prompt of one."""


def main(argv: list[str] | None = None) -> None:
    """Print tables, and the figures in them as a line of JSON."""
    with exit_in_words():
        options = Parser(__doc__, Options, config=True).parse_args(argv)
        check_ranges("bench", options, repeats="[1, inf)", new_tokens="[1, inf)")
        config = make_config(*map(read_yaml, options.config or ["bench.yaml"]), options.given)
        if config.train.dtype == "float16" or config.train.micro_batch_size is not None:
            raise UserError("train.dtype float16 and train.micro_batch_size are not measured: "
                            "leave them out")
        line = json.dumps(measure_all(config, options.repeats, options.new_tokens))
        print(line, flush=True)
        if options.json:
            write_file(Path(options.json), f"{line}\n".encode())


# --- timing ---------------------------------------------------------------------------------------


def measure_seconds(device: torch.device, call: Call) -> float:
    """Return the seconds of one call, with the queue of a GPU emptied before and after."""
    wait = torch.accelerator.synchronize if device.type != "cpu" else lambda: None
    wait()
    started = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - started


def alternate(clocks: Mapping[K, Callable[[], float]], repeats: int, what: str) -> dict[K, float]:
    """Return the median seconds of each clock, read in turn. The first round is not counted."""
    times: dict[K, list[float]] = {name: [] for name in clocks}
    for _ in tqdm(range(repeats + 1), what, leave=False, delay=2):
        for name, clock in clocks.items():
            times[name].append(clock())
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def measure_machine(device: torch.device) -> dict[str, float]:
    """Return FLOP/s of a large matrix product in float32 and bfloat16, and bytes/s of reading and
    writing in a large `copy`."""
    n, size = (8192, 2**30) if device.type == "cuda" else (2048, 2**27)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    clocks = {"copy": partial(measure_seconds, device, partial(target.copy_, source))}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        clocks[str(dtype)] = partial(measure_seconds, device, partial(linear, a, b))
    times = alternate(clocks, 8, "the machine")
    copied = 2 * size / times.pop("copy")
    return {"copy": copied, **{dtype: 2 * n**3 / seconds for dtype, seconds in times.items()}}


@contextmanager
def subject() -> Iterator[Callable[..., Any]]:
    """Yield a function that calls others in a process of its own, with an empty compile cache.

    So no subject changes how another one keeps memory, or adds to its peak.
    """
    with TemporaryDirectory(ignore_cleanup_errors=True) as cache, ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=begin, initargs=(cache,)
    ) as process:
        yield lambda function, *arguments: process.submit(function, *arguments).result()


_calls: list[Call] = []  # what the process of a subject measures


def begin(cache: str) -> None:
    """Prepare the process of a subject."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of each process
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache


def build(device: torch.device, make: Callable[..., Call], *arguments: object) -> float:
    """Measure from now on the call that `make` returns. Returns the seconds of the first one."""
    _calls[:] = [make(*arguments)]
    gc.collect()  # the model before is part of a cycle if it was compiled
    return measure_call(device)


def measure_call(device: torch.device) -> float:
    """Return the seconds of one call."""
    seconds = measure_seconds(device, _calls[0])
    time.sleep(0.25)  # OpenMP's threads spin for up to 0.2 s before they sleep
    return seconds


def peak_bytes(device: torch.device) -> int | None:
    """Return the peak memory of the GPU's allocator, or, on Linux, of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")  # getrusage would give the peak of the parent
    if not status.exists():
        return None
    return 1024 * int(status.read_text(encoding="ascii").partition("VmHWM:")[2].split()[0])


# --- the subjects ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Which program runs, and how."""

    program: Literal["gyre", "transformers"]
    compiled: bool
    dtype: torch.dtype

    def __str__(self) -> str:
        kind = "compiled" if self.compiled else "eager"
        return f"{self.program}, {kind}, {DTYPE_NAMES[self.dtype]}"


def our_model(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Transformer:
    """Return our model with the weights of seed 0."""
    resolve_device(str(device))  # for what it sets in this process
    model = Transformer(config)
    model.init_weights(0)
    return model.to(device, dtype)


def peer_model(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Any:
    """Return transformers' LlamaForCausalLM of the same sizes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    no_ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    model: Any = LlamaForCausalLM(LlamaConfig(**hf.to_config(config), **no_ids))
    return model.to(device, dtype)


def training_step(setting: Setting, config: ModelConfig, rows: int, length: int,
                  device: torch.device) -> Call:
    """Return a step of training. transformers computes its own loss."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(config.vocab_size, (rows, length + 1), generator=generator)
    x, y = (t.contiguous().to(device) for t in (tokens[:, :-1], tokens[:, 1:]))
    peer, compiled = setting.program == "transformers", setting.compiled
    model = (peer_model if peer else our_model)(config, device, torch.float32)
    if peer:
        optimizers = [torch.optim.AdamW(model.train().parameters(), fused=True)]
    else:
        optimizers = Optimizers(model, OptimConfig()).optimizers
    sum_loss = torch.compile(summed_loss) if compiled else summed_loss
    if compiled:
        model.compile()

    def step() -> float:
        with autocast(device, setting.dtype):
            # Without the cache, as transformers' own trainer does it.
            out = model(x, labels=y, shift_labels=y, use_cache=False) if peer else model(x)
        loss = out.loss if peer else sum_loss(out, y) / y.numel()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    return step


PREFILLS = 8  # in a row, each of some milliseconds


def prefill(setting: Setting, config: ModelConfig, length: int, device: torch.device) -> Call:
    """Return what computes the logits of the last position of a prompt, PREFILLS times."""
    prompt, dtype = torch.zeros(1, length, dtype=torch.long, device=device), setting.dtype
    peer = setting.program == "transformers"
    model = (peer_model if peer else our_model)(config, device, dtype).eval()

    @torch.inference_mode()
    def call() -> None:
        for _ in range(PREFILLS):
            if peer:
                model(prompt, logits_to_keep=1)
            else:
                next_logits(model, prompt, KVCache(config, 1, config.max_positions, device, dtype))

    return call


def decoding(setting: Setting, config: ModelConfig, rows: int, new: int,
             device: torch.device) -> Call:
    """Return what decodes `new` tokens after a prompt of one, for every row."""
    if setting.program == "transformers":
        peer = peer_model(config, device, setting.dtype).eval()
        prompt = torch.ones(rows, 1, dtype=torch.long, device=device)
        return torch.inference_mode()(lambda: peer.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, use_cache=True,
            min_new_tokens=new, max_new_tokens=new, pad_token_id=0))
    model = our_model(config, device, setting.dtype).eval()
    return lambda: generate(model, [[1]], Sampling(temperature=0), max_new_tokens=new,
                            num_samples=rows, compile=setting.compiled)


# --- the tables -----------------------------------------------------------------------------------


def choose_settings(config: Config, device: torch.device) -> list[Setting]:
    """Return ours, in the dtype that training would choose, and those of transformers."""
    tokens = config.train.batch_size * config.data.seq_len
    rates = product_rates(device, config.model, tokens, training=True)
    dtype, reason = resolve_dtype(config.train.dtype, device, lambda: rates)
    say(f"{device}; {reason}; {torch.get_num_threads()} threads")
    compiles = config.train.compile is not False and resolve_compile(True, device, dtype, 0)[0]
    kinds = [True, False] if compiles else [False]
    settings = [Setting("gyre", compiled, dtype) for compiled in kinds]
    if find_spec("transformers"):
        dtypes = [dtype]
        if config.train.dtype == "auto":
            # Some processors emulate bfloat16 at a hundredth of float32's rate, and one step would
            # take minutes.
            both = zip((torch.float32, torch.bfloat16), rates, strict=True)
            dtypes = [dtype for dtype, rate in both if rate >= max(rates) / 10]
        try:
            refuse_without_counterpart(config.model, "hf")
            settings += [Setting("transformers", c, dtype) for c in kinds for dtype in dtypes]
        except ValueError as error:
            say(f"note: without transformers: {error}")
    return settings


def measure_all(config: Config, repeats: int, new_tokens: int) -> dict[str, Any]:
    """Print a table of training, of prefill and of decoding; return the figures in them."""
    device, rows, length = (resolve_device(config.train.device), config.train.batch_size,
                            config.data.seq_len)
    # Decoding may be longer than the rows are.
    reach = max(config.model.max_positions or 0, length, new_tokens + 1)
    config.model = model = dataclasses.replace(config.model, max_positions=reach, dropout=0.0)
    settings = choose_settings(config, device)
    dtype, eager = settings[0].dtype, [setting for setting in settings if not setting.compiled]
    machine = measure_machine(device)
    copy, flops = machine.pop("copy"), machine[str(dtype)]
    print(f"machine: {processor()}; matrix products: {machine['torch.float32'] / 1e9:,.0f} GFLOP/s "
          f"in float32, {machine['torch.bfloat16'] / 1e9:,.0f} in bfloat16; copies: "
          f"{copy / 1e9:.1f} GB/s")
    figures: dict[str, Any] = {
        "processor": processor(), "device": str(device), "dtype": str(dtype),
        "torch": torch.__version__, "threads": torch.get_num_threads(),
        "model": dataclasses.asdict(model), "matmul_flops_per_second": machine,
        "copy_bytes_per_second": copy,
    }
    with ExitStack() as stack:
        calls = {setting: stack.enter_context(subject()) for setting in settings}
        figures["training"] = measure_part(
            f"training, {rows} x {length}", calls, settings, rows * length,
            flops / model.flops_per_token(length), repeats, training_step, model, rows, length,
            device,
        )
        peaks = {str(setting): call(peak_bytes, device) for setting, call in calls.items()}
        figures["training"]["peak_bytes"] = peaks
        for name, peak in peaks.items():
            if peak is not None:
                print(f"  peak memory of {name}: {peak / 2**20:,.0f} MiB", flush=True)
        # A forward pass is a third of a training step. Only the last token needs logits, and wo,
        # the feed-forward and the scores of the last block.
        heads = model.n_heads * model.head_dim
        last = (heads + 3 * model.hidden_dim + model.vocab_size) * model.dim + 2 * length * heads
        work = model.flops_per_token(length) / 3 * length - (length - 1) * 2 * last
        figures["prefill"] = measure_part(
            f"prefill, one prompt of {length}", calls, eager, PREFILLS * length,
            length * flops / work, repeats, prefill, model, length, device,
        )
        ours = [setting for setting in settings if setting.program == "gyre" or setting in eager]
        for rows in (1, 8, 32):
            read = count_bytes(model, rows, new_tokens / 2, dtype)
            figures[f"decoding_{rows}"] = measure_part(
                f"decoding, batch {rows}, {new_tokens} new", calls, ours, rows * new_tokens,
                rows * copy / read, min(3, repeats), decoding, model, rows, new_tokens, device,
            )
    return figures


def measure_part(
    title: str, calls: Mapping[Setting, Callable[..., Any]], settings: list[Setting], tokens: int,
    limit: float, repeats: int, make: Callable[..., Call], *arguments: Any,
) -> dict[str, Any]:
    """Print and return tokens/s of these settings beside the machine's limit, and how much longer
    than the others the first call of a compiled one took. The device is the last argument."""
    device = arguments[-1]
    first = {setting: calls[setting](build, device, make, setting, *arguments)
             for setting in tqdm(settings, f"{title}: first calls", leave=False, delay=2)}
    clocks = {setting: partial(calls[setting], measure_call, device) for setting in settings}
    times = alternate(clocks, repeats, title)
    rates = {str(setting): tokens / seconds for setting, seconds in times.items()}
    # 0 if the graph of an earlier measurement serves.
    compiling = {str(setting): max(0.0, first[setting] - times[setting])
                 for setting in settings if setting.compiled}
    lines = [f"\n{title}", f"  {'tokens/s':>43} {'of the limit':>14}"]
    lines += [f"  {name:<33} {rate:>9,.0f} {100 * rate / limit:>12.0f} %"
              for name, rate in (*rates.items(), ("limit", limit))]
    lines += [f"  compiling {name}: {seconds:.1f} s" for name, seconds in compiling.items()]
    print("\n".join(lines), flush=True)
    return {"tokens_per_second": rates, "limit": limit, "compile_seconds": compiling}


def count_bytes(config: ModelConfig, rows: int, length: float, dtype: torch.dtype) -> float:
    """Return the bytes that a decoding step has to read: every weight that is in a product once,
    and a cache of `length` tokens for every row."""
    with torch.device("meta"):
        weights = dict(Transformer(config).named_parameters())
    if not config.tie_embeddings:
        weights.pop("tok_embeddings.weight")  # one row of it per token
    cache = rows * length * 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return dtype.itemsize * (sum(weight.numel() for weight in weights.values()) + cache)


if __name__ == "__main__":
    main()
