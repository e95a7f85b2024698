"""Measure speed: training, prefill and decoding, beside what the machine could do.

    python bench.py
    python bench.py --config bench.yaml --model.dim 768 --data.seq_len 1024 --json bench.json

The model has random weights, which take as long as trained ones. Where transformers is installed
(requirements-dev.txt), its LlamaForCausalLM runs the same weights, in float32 and in bfloat16
unless --train.dtype says which or one of them multiplies at less than a tenth of the other's rate.
Both train with AdamW and without dropout, whatever the configuration says. Every subject has a
process of its own, and they take turns, so that all share the machine's slower minutes; figures are
medians. Compilation starts with an empty cache on the disk.
"""

from errors import UserError, exit_in_words, say  # first: Ctrl-C has no traceback

# isort: split
import dataclasses
import gc
import json
import multiprocessing
import os
import resource
import signal
import statistics
import sys
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

from files import write_file
from formats import hf
from formats.names import refuse_without_counterpart, tensor_names, to_hf
from gyre.device import (
    DTYPE_NAMES,
    autocast,
    processor,
    product_rates,
    resolve_compile,
    resolve_device,
    resolve_dtype,
    synchronize,
)
from gyre.optim import OptimConfig, Optimizers
from gyre.options import Config, config_parser, load_config
from gyre.step import summed_loss
from model.config import ModelConfig
from model.generation import generate, next_logits
from model.kernels import rotate_in_reals
from model.rope import apply_rotary_emb, precompute_freqs_cis
from model.sampling import Sampling
from model.transformer import KVCache, Transformer, linear

Run = Callable[[], object]
K = TypeVar("K")


def main(argv: list[str] | None = None) -> None:
    with exit_in_words():
        argv = sys.argv[1:] if argv is None else argv
        if not any(word.startswith("--config") for word in argv):
            argv = ["--config", "bench.yaml", *argv]
        parser = config_parser(__doc__ or "")
        add = parser.add_argument
        add("--json", metavar="FILE", help="Write the figures here too.")
        add("--repeats", type=int, default=8, help="Measurements of every training subject.")
        add("--new-tokens", type=int, default=500, help="Tokens to decode after a prompt of one.")
        config, options = load_config(parser, argv)
        for option in ("repeats", "new_tokens"):
            if (value := getattr(options, option)) < 1:
                raise UserError(f"--{option.replace('_', '-')} must be at least 1, not {value}")
        if config.train.dtype == "float16":
            raise UserError("train.dtype float16 is not measured: use bfloat16 or float32")
        if config.train.micro_batch_size is not None:
            raise UserError("train.micro_batch_size is not measured: set train.batch_size to it")
        target = Path(options.json or "")
        if options.json and (target.is_dir() or not os.access(target.parent, os.W_OK)):
            raise UserError(f"--json {target} cannot be written: name a file in a folder that is "
                            "there")
        config.model.dropout = 0.0
        line = json.dumps(Bench(config, options.repeats, options.new_tokens).run())
        print(line, flush=True)
        if options.json:
            write_file(target, f"{line}\n".encode())


# --- timing ---------------------------------------------------------------------------------------


def timed(device: torch.device, run: Run) -> float:
    """Seconds of one call of `run`, the queue of a GPU emptied before and after."""
    synchronize(device)
    started = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - started


def alternate(clocks: Mapping[K, Callable[[], float]], repeats: int, what: str) -> dict[K, float]:
    """Median seconds of each, one after the other in every round."""
    times: dict[K, list[float]] = {name: [] for name in clocks}
    for _ in tqdm(range(repeats), what, leave=False, delay=2):
        for name, seconds in clocks.items():
            times[name].append(seconds())
    return {name: statistics.median(values) for name, values in times.items()}


def machine(device: torch.device) -> dict[str, float]:
    """FLOP/s of a large matrix product in float32 and bfloat16, bytes/s of reading and writing in a
    large copy."""
    resolve_device(str(device))  # for what it sets in this process
    gpu = device.type == "cuda"
    n = 8192 if gpu else 2048
    source = torch.ones(2**30 if gpu else 2**27, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    clocks = {"copy": partial(timed, device, partial(target.copy_, source))}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        clocks[str(dtype)] = partial(timed, device, partial(linear, a, b))
    first = alternate(clocks, 1, "the machine")
    # The first call is not counted, except where products are emulated and it took many seconds.
    quick = {name: clock for name, clock in clocks.items() if first[name] < 2}
    times = first | alternate(quick, 8, "the machine")
    copied = 2 * source.nbytes / times.pop("copy")
    return {"copy": copied, **{dtype: 2 * n**3 / seconds for dtype, seconds in times.items()}}


@contextmanager
def subject(device: torch.device) -> Iterator[Callable[..., Any]]:
    """What calls a function in a process of its own, which Ctrl-C ends at once and without a
    traceback, and which compiles into a cache that is empty.

    The process separates what a subject sets for all of it (such as how memory is kept, which
    `resolve_device` sets for ours), and its peak memory, from the others.
    """
    with TemporaryDirectory(ignore_cleanup_errors=True) as cache, ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=begin, initargs=(device, cache)
    ) as process:
        yield lambda function, *arguments: process.submit(function, *arguments).result()


# What a subject's process keeps between its calls.
_device: torch.device
_run: Run


def begin(device: torch.device, cache: str) -> None:
    global _device
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _device = device
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache


def build(make: Callable[..., Run], *arguments: object) -> None:
    """Measure from now on the call that `make` returns."""
    global _run
    _run = make(*arguments)


def release() -> None:
    """Free what is measured."""
    global _run
    del _run
    gc.collect()  # a compiled model is part of a cycle
    if _device.type == "cuda":
        torch.cuda.empty_cache()


def once() -> float:
    """Seconds of one call of what is measured."""
    seconds = timed(_device, _run)
    time.sleep(0.25)  # OpenMP's threads spin for up to 0.2 s before they sleep
    return seconds


def peak_bytes() -> int:
    """The most memory so far: of the GPU's allocator, or of this whole process, libraries
    included."""
    if _device.type == "cuda":
        return torch.cuda.max_memory_allocated(_device)
    if sys.platform == "linux":  # whose getrusage tells a process its parent's peak
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


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


def ours(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Transformer:
    """Our model with the weights of seed 0."""
    resolve_device(str(device))  # for what it sets in this process
    model = Transformer(config)
    model.init_weights(0)
    return model.to(device, dtype)


def theirs(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Any:
    """transformers' LlamaForCausalLM with the same weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    no_ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    model: Any = LlamaForCausalLM(LlamaConfig(**hf.to_config(config), **no_ids))
    source = Transformer(config)
    source.init_weights(0)
    state = source.state_dict()
    weights = {theirs: to_hf(ours, state[ours], config.head_dim)
               for ours, theirs in tensor_names(config, "hf").items()}
    if config.tie_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    return model.to(device, dtype)


def training_step(setting: Setting, config: ModelConfig, rows: int, length: int,
                  device: torch.device) -> Run:
    """One step of training; transformers computes its own loss."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(config.vocab_size, (rows, length + 1), generator=generator)
    x, y = (t.contiguous().to(device) for t in (tokens[:, :-1], tokens[:, 1:]))
    peer, compiled = setting.program == "transformers", setting.compiled
    model = (theirs if peer else ours)(config, device, torch.float32)
    if peer:
        optimizers = [torch.optim.AdamW(model.train().parameters(), fused=True)]
    else:
        optimizers = Optimizers(model, OptimConfig()).optimizers
    loss_of = torch.compile(summed_loss) if compiled else summed_loss
    if compiled:
        model.compile()

    def step() -> float:
        with autocast(device, setting.dtype):
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


def prefill(setting: Setting, config: ModelConfig, length: int, device: torch.device) -> Run:
    """The logits of the last position of a prompt, PREFILLS times."""
    prompt, dtype = torch.zeros(1, length, dtype=torch.long, device=device), setting.dtype
    if setting.program == "transformers":
        peer = theirs(config, device, dtype).eval()

        def once() -> object:
            return peer(prompt, logits_to_keep=1).logits
    else:
        model, reach = ours(config, device, dtype).eval(), config.max_positions

        def once() -> object:
            return next_logits(model, prompt, KVCache(config, 1, reach, device, dtype))

    return torch.inference_mode()(lambda: [once() for _ in range(PREFILLS)])


def decoding(setting: Setting, config: ModelConfig, rows: int, new: int,
             device: torch.device) -> Run:
    """`new` tokens after a prompt of one, for every row."""
    if setting.program == "transformers":
        peer = theirs(config, device, setting.dtype).eval()
        prompt = torch.ones(rows, 1, dtype=torch.long, device=device)
        settings = {"attention_mask": torch.ones_like(prompt), "do_sample": False,
                    "use_cache": True, "min_new_tokens": new, "max_new_tokens": new,
                    "pad_token_id": 0}
        return torch.inference_mode()(lambda: peer.generate(prompt, **settings))
    model = ours(config, device, setting.dtype).eval()
    return lambda: generate(model, [[1]], Sampling(temperature=0), max_new_tokens=new,
                            num_samples=rows, compile=setting.compiled)


Rotate = Callable[[torch.Tensor, torch.Tensor], object]


def rotations(head_dim: int, length: int, device: torch.device) -> dict[str, Rotate]:
    """RoPE of queries and keys (B, T, H, D) in four forms, those of docs/positions.md."""
    table = precompute_freqs_cis(head_dim, length).to(device)
    pairs = torch.view_as_real(table)
    cos, sin = (torch.cat((x, x), dim=-1)[:, None] for x in pairs.unbind(-1))  # (T, 1, D)
    units = torch.eye(head_dim, device=device).expand(1, length, -1, -1)
    matrices = apply_rotary_emb(units, units, table)[0][0]  # (T, D, D): x @ them is R x

    def halves(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    return {"complex": lambda q, k: apply_rotary_emb(q, k, table),
            "reals": lambda q, k: rotate_in_reals(q, k, pairs),
            "halves": lambda q, k: (halves(q), halves(k)),
            "matrices": lambda q, k: (q @ matrices, k @ matrices)}


def rotation_seconds(config: ModelConfig, rows: int, length: int,
                     device: torch.device) -> dict[str, float]:
    """Seconds of each form in one layer, in float32 and not compiled; empty for odd heads."""
    if config.head_dim % 2:
        return {}
    forms = rotations(config.head_dim, length, device)
    q, k = (torch.randn(rows, length, heads, config.head_dim, device=device)
            for heads in (config.n_heads, config.n_kv_heads))
    clocks = {name: partial(timed, device, partial(form, q, k)) for name, form in forms.items()}
    alternate(clocks, 1, "rotations")  # not counted
    return alternate(clocks, 20, "rotations")


# --- the table ------------------------------------------------------------------------------------


class Bench:
    """Measures every subject in training, prefill and decoding, and prints a table for each."""

    def __init__(self, config: Config, repeats: int, new_tokens: int):
        self.config, self.repeats, self.new_tokens = config, repeats, new_tokens
        self.device = resolve_device(config.train.device)
        # Decoding may be longer than the rows are.
        reach = max(config.model.max_positions or 0, config.data.seq_len, new_tokens + 1)
        self.model = dataclasses.replace(config.model, max_positions=reach)
        self.settings = self._settings()
        self.figures: dict[str, Any] = {
            "processor": processor(), "device": str(self.device), "dtype": str(self.dtype),
            "torch": torch.__version__, "threads": torch.get_num_threads(),
            "model": dataclasses.asdict(self.model), "compile_seconds": {},
        }

    def _settings(self) -> list[Setting]:
        """Ours in the dtype that training would choose, transformers in all that it may have."""
        model, asked, rows = self.model, self.config.train.dtype, self.config.train.batch_size
        both, tokens = [torch.float32, torch.bfloat16], rows * self.config.data.seq_len
        rates = product_rates(self.device, model, tokens, training=True)
        self.dtype, why = resolve_dtype(asked, self.device, lambda: rates)
        say(f"{self.device}; {why}; {torch.get_num_threads()} threads")
        allowed = self.config.train.compile is not False
        compiles = allowed and resolve_compile(True, self.device, self.dtype, 0)[0]
        kinds = [True, False] if compiles else [False]
        settings = [Setting("gyre", compiled, self.dtype) for compiled in kinds]
        if find_spec("transformers"):
            # Some processors emulate bfloat16 at a hundredth of float32's rate, and one step would
            # take minutes.
            dtypes = [d for d, rate in zip(both, rates, strict=True) if rate >= max(rates) / 10]
            dtypes = dtypes if asked == "auto" else [self.dtype]
            try:
                refuse_without_counterpart(model, "hf")
                settings += [Setting("transformers", c, d) for c in kinds for d in dtypes]
            except ValueError as error:
                say(f"note: without transformers: {error}")
        return settings

    def run(self) -> dict[str, Any]:
        """Print all tables; returns the figures in them."""
        rows, length = self.config.train.batch_size, self.config.data.seq_len
        with subject(self.device) as call:
            rates = call(machine, self.device)
            turns = call(rotation_seconds, self.model, rows, length, self.device)
        self.flops_per_second, self.bytes_per_second = rates[str(self.dtype)], rates["copy"]
        self.figures["matmul_flops_per_second"] = {d: rates[d] for d in rates if d != "copy"}
        self.figures["copy_bytes_per_second"] = self.bytes_per_second
        print(f"machine: {self.figures['processor']}; matrix products: "
              f"{rates['torch.float32'] / 1e9:,.0f} GFLOP/s in float32, "
              f"{rates['torch.bfloat16'] / 1e9:,.0f} in bfloat16; copies: "
              f"{self.bytes_per_second / 1e9:.1f} GB/s")
        self.figures["rotation_seconds"] = turns
        each = ", ".join(f"{name} {1e3 * seconds:.2f} ms" for name, seconds in turns.items())
        print(f"rotating {rows} x {length} in one layer, float32, eager: {each or 'odd heads'}")
        with ExitStack() as stack:
            self.subjects = {setting: stack.enter_context(subject(self.device))
                             for setting in self.settings}
            self.training()
            self.prefill()
            for rows in (1, 8, 32):
                self.decoding(rows)
        return self.figures

    def training(self) -> None:
        """One optimizer step on a batch of the configuration's size."""
        rows, length = self.config.train.batch_size, self.config.data.seq_len
        limit = self.flops_per_second / self.model.flops_per_token(length)
        figures = self._measure(f"training, {rows} x {length}", self.settings, rows * length, limit,
                                self.repeats, training_step, self.model, rows, length)
        figures["peak_bytes"] = {str(of): call(peak_bytes) for of, call in self.subjects.items()}
        for name, peak in figures["peak_bytes"].items():
            print(f"  peak memory of {name}: {peak / 2**20:,.0f} MiB", flush=True)
        self.figures["training"] = figures

    def prefill(self) -> None:
        """One prompt as long as the configuration's rows."""
        length = self.config.data.seq_len
        eager = [setting for setting in self.settings if not setting.compiled]
        # A forward pass is a third of a training step. Only the last token needs logits, and of the
        # last block wo, feed-forward and what its query finds.
        model, heads = self.model, self.model.n_heads * self.model.head_dim
        flops = model.flops_per_token(length) / 3 * length
        last = (heads + 3 * model.hidden_dim + model.vocab_size) * model.dim + 2 * length * heads
        flops -= (length - 1) * 2 * last
        limit = length * self.flops_per_second / flops
        self.figures["prefill"] = self._measure(
            f"prefill, one prompt of {length}", eager, PREFILLS * length, limit,
            self.repeats, prefill, self.model, length)

    def decoding(self, rows: int) -> None:
        """`rows` samples of one prompt."""
        settings = [s for s in self.settings if s.program == "gyre" or not s.compiled]
        read = decode_bytes(self.model, rows, self.new_tokens / 2, self.dtype)
        self.figures[f"decoding_{rows}"] = self._measure(
            f"decoding, batch {rows}, {self.new_tokens} new", settings, rows * self.new_tokens,
            rows * self.bytes_per_second / read, 3, decoding, self.model, rows, self.new_tokens)

    def _measure(self, title: str, settings: list[Setting], tokens: int, limit: float, repeats: int,
                 make: Callable[..., Run], *arguments: object) -> dict[str, Any]:
        """Print and return tokens/s of these subjects beside the machine's limit, and what the
        first call of a compiled one took longer than the others."""
        first_calls = {}
        for setting in tqdm(settings, f"{title}: first calls", leave=False, delay=2):
            self.subjects[setting](build, make, setting, *arguments, self.device)
            first_calls[setting] = self.subjects[setting](once)
        clocks = {setting: partial(self.subjects[setting], once) for setting in settings}
        alternate(clocks, 1, title)  # not counted
        times = alternate(clocks, repeats, title)
        for setting in settings:
            self.subjects[setting](release)
        rates = {str(setting): tokens / seconds for setting, seconds in times.items()}
        print(f"\n{title}\n  {'tokens/s':>43} {'of the limit':>14}")
        for name, rate in rates.items():
            print(f"  {name:<33} {rate:>9,.0f} {100 * rate / limit:>12.0f} %")
        print(f"  {'limit':<33} {limit:>9,.0f}")
        for setting in settings:
            if setting.compiled:
                # None where the graph of an earlier measurement serves.
                seconds = max(0.0, first_calls[setting] - times[setting])
                self.figures["compile_seconds"][f"{title}: {setting}"] = seconds
                print(f"  compiling {setting}: {seconds:.1f} s")
        sys.stdout.flush()
        return {"tokens_per_second": rates, "limit": limit}


def decode_bytes(config: ModelConfig, rows: int, length: float, dtype: torch.dtype) -> float:
    """Bytes that one decoding step has to read: every weight that is in a product once, and a cache
    of `length` tokens for every row."""
    with torch.device("meta"):
        read = dict(Transformer(config).named_parameters())
    if not config.tie_embeddings:
        read.pop("tok_embeddings.weight")  # one row of it per token
    weights = sum(p.numel() for p in read.values())
    cache = rows * length * 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return dtype.itemsize * (weights + cache)


if __name__ == "__main__":
    main()
