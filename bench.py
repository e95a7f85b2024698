"""Measure speed: training, prefill and decoding, beside what the machine could do.

    python bench.py
    python bench.py --config bench.yaml --model.dim 768 --data.seq_len 1024 --json bench.json
    python bench.py --peer llama.cpp

The model has random weights, which take as long as trained ones. If transformers is installed
(requirements-dev.txt), its LlamaForCausalLM of the same sizes runs too: in the dtype of
--train.dtype, or, for auto, in float32 and in bfloat16 unless one of them multiplies at less than a
tenth of the other's rate. Both train with AdamW, without dropout, micro-batches and a scaled loss,
whatever the configuration says. With --peer llama.cpp, prefill and decoding of one row are measured
of both programs in these dtypes and in int8 (its q8_0). Every subject has a process of its own, and
they take turns, so that all share the machine's slower minutes. Figures are medians. Compilation
starts with an empty cache on the disk.
"""

import gc
import itertools
import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from errors import Range, UserError, report_errors, say, starting

with starting(__name__):
    import torch
    from tqdm import tqdm

    from files import write_json
    from formats import gguf, hf, names
    from gyre import compute as computing
    from gyre.compiled import compile_batch, compile_step
    from gyre.optim import OptimConfig, Optimizers
    from gyre.options import Config, Parser, make_config, read_yaml
    from gyre.step import summed_loss
    from model import kernels
    from model.config import ModelConfig
    from model.generation import Batch, next_logits
    from model.int8 import int8_tensors, to_int8
    from model.sampling import Sampling
    from model.transformer import KVCache, Transformer, linear

Call = Callable[[], Any]
GGUF_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int8: "q8_0"}


@dataclass
class Options:
    """How often to measure, and where to write it."""

    json: str | None = None
    """Write the figures into this file too, as JSON."""
    repeats: Annotated[int, Range(ge=1)] = 8
    """Measurements of every subject in training and prefill."""
    new_tokens: Annotated[int, Range(ge=1)] = 500
    """Tokens to decode after a prompt of one."""
    peer: Literal["transformers", "llama.cpp"] = "transformers"
    """Which other program is measured too. llama.cpp does not train."""


def main(argv: list[str] | None = None) -> None:
    with report_errors():
        options = Parser(__doc__, Options, config=True).parse_args(argv)
        config = make_config(*map(read_yaml, options.config or ["bench.yaml"]), options.given)
        figures = measure_all(config, options.peer, options.repeats, options.new_tokens)
        if options.json:
            write_json(Path(options.json), figures)


# --- timing ---------------------------------------------------------------------------------------


def measure_seconds(device: torch.device, call: Call) -> float:
    """Return the seconds of one call, with the queue of a GPU emptied before and after."""
    _wait(device)
    started = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: torch.device) -> None:
    """Wait until a GPU has computed what was queued."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


def alternate(clocks: Mapping[Any, Call], repeats: int, what: str) -> dict[Any, float]:
    """Return the median seconds of each clock, read in turn. The first round is not counted."""
    seconds: dict[Any, list[float]] = {name: [] for name in clocks}
    for _ in tqdm(range(repeats + 1), what, leave=False, delay=2):
        for name, clock in clocks.items():
            seconds[name].append(clock())
    return {name: statistics.median(times[1:]) for name, times in seconds.items()}


def measure_machine(device: torch.device, chosen: torch.dtype) -> tuple[float, dict[str, float]]:
    """Return bytes/s of reading and writing in a large copy, and FLOP/s of a large matrix product
    in float32, in bfloat16 and in the dtype that was chosen."""
    n, size = (8192, 2**30) if device.type == "cuda" else (2048, 2**27)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    copy = partial(target.copy_, source)
    clocks = {"copy": partial(measure_seconds, device, copy)}
    for dtype in dict.fromkeys((torch.float32, torch.bfloat16, chosen)):
        a = torch.randn(n, n, device=device).to(dtype)
        b = torch.randn(n, n, device=device).to(dtype)
        product = partial(linear, a, b)
        clocks[str(dtype)] = partial(measure_seconds, device, product)
    times = alternate(clocks, 8, "the machine")
    copied = 2 * size / times.pop("copy")
    flops = {dtype: 2 * n**3 / seconds for dtype, seconds in times.items()}
    return copied, flops


def start_subject(held: ExitStack) -> Callable[..., Any]:
    """Return a function that calls others in a process of its own, with an empty compile cache, as
    long as `held` is open.

    So no subject changes how another one keeps memory.
    """
    cache = held.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
    process = held.enter_context(ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=begin, initargs=(cache,)))
    return lambda function, *arguments: process.submit(function, *arguments).result()


def begin(cache: str) -> None:
    """Prepare the process of a subject."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of each process
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    os.environ["XDG_CACHE_HOME"] = cache


_calls: list[Call] = []  # what the process of a subject measures


def measure_call(device: torch.device, make: Any = None, *arguments: object) -> float:
    """Return the seconds of one call of what `make` returns; without it, of the same once more."""
    with fastest_products(device):
        if make is not None:
            _calls[:] = [make(*arguments)]
            gc.collect()  # the model before is part of a cycle if it was compiled
        seconds = measure_seconds(device, _calls[0])
    time.sleep(0.25)  # OpenMP's threads spin for up to 0.2 s before they sleep
    return seconds


def fastest_products(device: torch.device) -> AbstractContextManager[None]:
    """Return the context in which our float32 products are those that training would choose."""
    return kernels.products_by_onednn(kernels.prefers_onednn(device))


# --- the subjects ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Which program runs, and how."""

    program: str
    compiled: bool
    dtype: torch.dtype

    def __str__(self) -> str:
        kind = "compiled" if self.compiled else "eager"
        return f"{self.program}, {kind}, {str(self.dtype).removeprefix('torch.')}"


def build_model(
    program: str, config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> Any:
    """Return the model of a program, of the same sizes and with random weights."""
    if program == "transformers":
        from transformers import LlamaConfig, LlamaForCausalLM

        # Without an id that ends texts, it decodes as many tokens as it is asked for.
        sizes = LlamaConfig(**hf.to_config(config), eos_token_id=None)
        theirs: Any = LlamaForCausalLM(sizes)
        return theirs.to(device, dtype).eval()
    computing.keep_freed_memory()
    model = Transformer(config)
    model.init_weights(0)
    if program == "llama.cpp":
        return open_in_llama_cpp(model, dtype)
    if dtype == torch.int8:
        weights = model.state_dict()
        to_int8(model)
        rounded = {}
        for name, weight in weights.items():
            rounded.update(int8_tensors(model, name, weight))
        model.load_state_dict(rounded, assign=True)
        return model.eval()
    return model.to(device, dtype).eval()


def open_in_llama_cpp(model: Transformer, dtype: torch.dtype) -> Any:
    """Return llama.cpp's form of a model, of a GGUF file that it has read into memory."""
    from llama_cpp import Llama  # pyrefly: ignore[missing-import]

    config = model.config
    weights = model.state_dict()
    tensor_names = names.tensor_names(config, "gguf")
    tensors = {gguf_name: weights[name] for name, gguf_name in tensor_names.items()}
    fields = {**gguf.model_fields(config), "tokenizer.ggml.model": "no_vocab"}
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.gguf")
        gguf.write_weights(file, "random", tensors, GGUF_DTYPES[dtype], fields)
        return Llama(str(file), n_ctx=config.max_positions, n_batch=config.max_positions,
                     n_threads=torch.get_num_threads(), verbose=False, use_mmap=False)


def training_step(setting: Setting, config: ModelConfig, device: torch.device, rows: int,
                  length: int) -> Call:
    """Return a step of training. transformers computes its own loss."""
    x, y = torch.randint(config.vocab_size, (2, rows, length), device=device)
    peer = setting.program != "gyre"
    model = build_model(setting.program, config, device, torch.float32).train()
    if peer:
        optimizers = [torch.optim.AdamW(model.parameters(), fused=True)]
    else:
        optimizers = Optimizers(model, OptimConfig()).optimizers
    sum_loss = summed_loss
    if setting.compiled:
        sum_loss = torch.compile(summed_loss)
        model.compile()

    def mean_loss() -> torch.Tensor:
        with computing.Compute(device, setting.dtype).autocast():
            if peer:
                # Without the cache, as transformers' own trainer does it.
                return model(x, labels=y, shift_labels=y, use_cache=False).loss
            logits = model(x)
        return sum_loss(logits, y) / y.numel()

    def step() -> float:
        loss = mean_loss()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    return step


PREFILLS = 8  # in a row, each of some milliseconds


def prefill(setting: Setting, config: ModelConfig, device: torch.device, length: int) -> Call:
    """Return what computes the logits of the last position of a prompt, PREFILLS times."""
    prompt = torch.zeros(1, length, dtype=torch.long, device=device)
    dtype = torch.float32 if setting.dtype == torch.int8 else setting.dtype  # of the cache
    model = build_model(setting.program, config, device, setting.dtype)
    new_cache = partial(KVCache, config, 1, config.max_positions, device, dtype)
    step = compile_step(next_logits, model, new_cache()) if setting.compiled else next_logits

    @torch.inference_mode()
    def call() -> None:
        for _ in range(PREFILLS):
            if setting.program == "transformers":
                model(prompt, logits_to_keep=1)
            elif setting.program == "llama.cpp":
                model.reset()
                model.eval([0] * length)
            else:
                step(model, prompt, new_cache())

    return call


def decoding(setting: Setting, config: ModelConfig, device: torch.device, rows: int,
             new: int) -> Call:
    """Return what decodes `new` tokens after a prompt of one, for every row."""
    model = build_model(setting.program, config, device, setting.dtype)
    prompt = torch.ones(rows, 1, dtype=torch.long, device=device)

    def by_llama_cpp() -> list[int]:
        return list(islice(model.generate([1], temp=0.0), new))

    @torch.inference_mode()
    def by_transformers() -> torch.Tensor:
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                              max_new_tokens=new)

    def by_gyre() -> list[list[int]]:
        batch = Batch(model, [[1]], Sampling(temperature=0), max_new_tokens=new, num_samples=rows)
        step = compile_batch(batch) if setting.compiled else next_logits
        for _ in batch.draw(step):
            pass
        return batch.new_tokens()

    programs = {"llama.cpp": by_llama_cpp, "transformers": by_transformers, "gyre": by_gyre}
    return programs[setting.program]


# --- the tables -----------------------------------------------------------------------------------


def choose_settings(
    config: Config, device: torch.device, peer: str
) -> tuple[torch.dtype, list[Setting]]:
    """Return the dtype that training would choose, and our settings, in it, and those of the peer.
    """
    tokens = config.train.batch_size * config.data.seq_len
    rates = computing.matmul_rates(device, config.model, tokens, training=True)
    dtype, reason = computing.resolve_dtype(config.train.dtype, device, lambda: rates)
    say(f"{device}; {reason}; {torch.get_num_threads()} threads")
    wanted = config.train.compile is not False
    can_compile, _ = computing.resolve_compile(wanted, device, dtype, 0)
    kinds = [True, False] if can_compile else [False]
    if peer == "llama.cpp" and (not find_spec("llama_cpp") or device.type != "cpu"):
        raise UserError("--peer llama.cpp needs `pip install llama-cpp-python` and "
                        "--train.device cpu")
    dtypes = choose_dtypes(*rates) if config.train.dtype == "auto" else [dtype]
    if peer == "llama.cpp":
        dtypes.append(torch.int8)
        ours = list_settings("gyre", kinds, dtypes)
        theirs = list_settings(peer, [False], dtypes)  # it has no other way to run
    else:
        ours = list_settings("gyre", kinds, [dtype])
        theirs = list_settings(peer, kinds, dtypes)
    if not runs_too(peer, config.model):
        return dtype, ours
    return dtype, ours + theirs


def choose_dtypes(float32_rate: float, bfloat16_rate: float) -> list[torch.dtype]:
    """Return float32 and bfloat16, but not one at less than a tenth of the other's FLOP/s.

    Some processors emulate bfloat16 at a hundredth of float32's rate, and one step would take
    minutes.
    """
    if bfloat16_rate < float32_rate / 10:
        return [torch.float32]
    if float32_rate < bfloat16_rate / 10:
        return [torch.bfloat16]
    return [torch.float32, torch.bfloat16]


def list_settings(program: str, kinds: list[bool], dtypes: list[torch.dtype]) -> list[Setting]:
    """Return the settings of a program in the order in which they are measured and printed."""
    return [Setting(program, compiled, dtype)
            for compiled, dtype in itertools.product(kinds, dtypes)]


def runs_too(peer: str, model: ModelConfig) -> bool:
    """Return whether the peer is installed and has this model. Print a note if it has not."""
    try:
        names.refuse_without_counterpart(model, "gguf" if peer == "llama.cpp" else "hf")
    except ValueError as error:
        say(f"note: without {peer}: {error}")
        return False
    return peer == "llama.cpp" or find_spec(peer) is not None


def measure_all(config: Config, peer: str, repeats: int, new_tokens: int) -> dict[str, Any]:
    """Print a table of training, of prefill and of decoding; return the figures in them."""
    device = computing.resolve_device(config.train.device)
    rows = config.train.batch_size
    length = config.data.seq_len
    # Decoding may be longer than the rows are.
    reach = max(config.model.max_positions, new_tokens + 1)
    model = replace(config.model, max_positions=reach, dropout=0.0)
    config = replace(config, model=model)
    with fastest_products(device):
        dtype, settings = choose_settings(config, device, peer)
        copy, flops = measure_machine(device, dtype)
    rates = ", ".join(f"{rate / 1e9:,.0f} in {name}" for name, rate in flops.items())
    print(f"machine: {computing.processor_name()}; GFLOP/s: {rates}; copies: {copy / 1e9:.1f} GB/s")
    figures: dict[str, Any] = {
        "processor": computing.processor_name(), "device": str(device), "dtype": str(dtype),
        "torch": torch.__version__, "threads": torch.get_num_threads(), "model": asdict(model),
        "matmul_flops_per_second": flops, "copy_bytes_per_second": copy,
    }
    # The peer is compiled for training only.
    generating = [setting for setting in settings
                  if setting.program == "gyre" or not setting.compiled]
    with ExitStack() as stack:
        calls = {setting: start_subject(stack) for setting in settings}
        measure = partial(measure_part, calls, model, device)
        if peer != "llama.cpp":
            limit = flops[str(dtype)] / model.flops_per_token(length)
            figures["training"] = measure(f"training, {rows} x {length}", settings, rows * length,
                                          limit, repeats, training_step, rows, length)
        limit = length * flops[str(dtype)] / count_prefill_flops(model, length)
        figures["prefill"] = measure(f"prefill, one prompt of {length}", generating,
                                     PREFILLS * length, limit, repeats, prefill, length)
        batches = (1,) if peer == "llama.cpp" else (1, 8, 32)
        for batch in batches:
            limit = batch * copy / count_bytes(model, batch, new_tokens / 2, dtype)
            title = f"decoding, batch {batch}, {new_tokens} new"
            figures[f"decoding_{batch}"] = measure(title, generating, batch * new_tokens, limit,
                                                   min(3, repeats), decoding, batch, new_tokens)
    return figures


def measure_part(
    calls: Mapping[Setting, Callable[..., Any]], model: ModelConfig, device: torch.device,
    title: str, settings: list[Setting], tokens: int, limit: float, repeats: int,
    make: Callable[..., Call], *sizes: int,
) -> dict[str, Any]:
    """Print and return tokens/s of these settings beside the machine's limit, and how much longer
    than the others the first call of a compiled one took."""
    first = {setting: calls[setting](measure_call, device, make, setting, model, device, *sizes)
             for setting in tqdm(settings, f"{title}: first calls", leave=False, delay=2)}
    clocks = {setting: partial(calls[setting], measure_call, device) for setting in settings}
    times = alternate(clocks, repeats, title)
    rates = {str(setting): tokens / seconds for setting, seconds in times.items()}
    # 0 if the graph of an earlier measurement serves.
    compiling = {str(setting): max(0.0, first[setting] - times[setting])
                 for setting in settings if setting.compiled}
    print(f"\n{title}\n  {'tokens/s':>43} {'of the limit':>14}")
    for name, rate in (*rates.items(), ("limit", limit)):
        print(f"  {name:<33} {rate:>9,.0f} {100 * rate / limit:>12.0f} %")
    for name, seconds in compiling.items():
        print(f"  compiling {name}: {seconds:.1f} s", flush=True)
    return {"tokens_per_second": rates, "limit": limit, "compile_seconds": compiling}


def count_prefill_flops(config: ModelConfig, length: int) -> float:
    """Return the FLOP of the prefill of a prompt: a forward pass, which is a third of a training
    step. Only the last token needs logits, and wo, the feed-forward and the scores of the last
    block."""
    forward = config.flops_per_token(length) / 3 * length
    heads = config.n_heads * config.head_dim
    weights = (heads + 3 * config.hidden_dim + config.vocab_size) * config.dim
    last = 2 * weights + 2 * 2 * length * heads  # of each token but the last
    return forward - (length - 1) * last


def count_bytes(config: ModelConfig, rows: int, length: float, dtype: torch.dtype) -> float:
    """Return the bytes that a decoding step has to read: every matrix that is in a product once,
    and a cache of `length` tokens for every row."""
    cache = rows * length * 2 * config.n_layers * config.n_kv_heads * config.head_dim
    return dtype.itemsize * (config.matrix_parameters + cache)


if __name__ == "__main__":
    main()
