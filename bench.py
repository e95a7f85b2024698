"""Measure speed: training, prefill and decoding, beside what the machine could do.

    python bench.py
    python bench.py --config bench.yaml --model.dim 768 --data.seq_len 1024 --json bench.json
    python bench.py --peer llama.cpp
    python bench.py --config bench-gpu.yaml --repeats 4 --new-tokens 500

The model has random weights, which take as long as trained ones. If transformers is installed
(requirements-dev.txt), its LlamaForCausalLM of the same sizes runs too: in the dtype of
--train.dtype, or, for auto, in float32 and in bfloat16 unless one of them multiplies at less than a
tenth of the other's rate. Both train with AdamW, without dropout, micro-batches and a scaled loss,
whatever the configuration says. With --peer llama.cpp, prefill and decoding of 1 and 8 rows (its
parallel sequences) are measured of both programs in these dtypes and in int8 (its q8_0). It is
llama-cpp-python if that is installed, or else what npm brings. Every subject has a process of its
own, and they take turns, so that all share the machine's slower minutes. Figures are medians.
Compilation starts with an empty cache on the disk. On Linux, the peak memory of each process after
training is printed too, with its imports.

On CUDA a turn of training is 10 steps in a row, which clip the gradient as train.py does and read
no loss. Events on the card's queue tell their time. The limit is the rate of 10 matrix products in
a row, so the share of it is the model FLOPs utilization (MFU). The card's memory need not hold the
activations of all subjects at once: after its turn a subject returns what it has cached, and before
the next one it takes an untimed step, which allocates it again. transformers runs in our dtype
only, and its best decoding is measured too: compiled, with a static cache. What a subject compiled
is forgotten after each part, so that no batch runs a graph made for several sizes. A setting that
does not fit into the memory is left out with a note, and so is one in which the peer fails.
"""

import interrupts  # first: from here on, Ctrl-C shows no traceback

import functools
import gc
import itertools
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from errors import Range, UserError, importing, report_errors, say

if __name__ == "__mp_main__":  # the process of a subject, before it imports PyTorch
    interrupts.end_on_interrupt()

with importing(__name__):
    import torch
    from tqdm import tqdm

    from files import (
        first_line,
        refuse_folder,
        refuse_other_file,
        refuse_stdout,
        refuse_unwritable,
        write_json,
    )
    from formats import gguf, hf, names
    from gyre import compute as computing
    from gyre.compiled import compile_step, make_decoding_step
    from gyre.optim import OptimConfig, Optimizers
    from gyre.options import Config, make_config
    from gyre.parser import Parser
    from gyre.step import summed_loss
    from gyre.yaml_files import read_yaml
    from model import kernels
    from model.config import ModelConfig
    from model.encodings import key_dim
    from model.generation import Batch, NextLogits, next_logits
    from model.int8 import int8_tensors, to_int8
    from model.packed_forms import join_matrices
    from model.sampling import Sampling
    from model.transformer import KVCache, Transformer, linear
    from tools import llama_cpp

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
        refuse_stdout("--json", options.json)
        refuse_folder("--json", options.json)
        refuse_unwritable("--json", options.json)
        refuse_other_file("--json", options.json, rb'{\s*"processor"')
        config = make_config(*map(read_yaml, options.config or ["bench.yaml"]), options.given)
        figures = measure_all(config, options.peer, options.repeats, options.new_tokens)
        if options.json:
            write_json(Path(options.json), figures)


# --- timing ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pace:
    """How the subjects take turns."""

    burst: int = 1
    """Calls in a row, which are timed together."""
    pause: float = 0.0
    """Seconds between two turns."""
    frees: bool = False
    """Whether a subject leaves its cached GPU memory to the others after its turn. It then begins
    the next turn with an untimed call, which allocates it again."""


def choose_paces(device: torch.device) -> tuple[Pace, Pace]:
    """Return how subjects take turns in training, and in prefill and decoding."""
    if device.type == "cuda":
        return Pace(burst=10, frees=True), Pace()
    # OpenMP's threads spin before they sleep: libgomp's for milliseconds, others' for up to 0.2 s.
    pace = Pace(pause=0.25)
    return pace, pace


def measure_seconds(device: torch.device, call: Call, burst: int = 1) -> float:
    """Return the seconds of one call, the mean of `burst` in a row.

    The queue of a GPU is emptied before and after them.
    """
    if device.type == "cuda":
        return measure_by_events(device, call, burst)
    _wait(device)
    started = time.perf_counter()
    for _ in range(burst):
        call()
    _wait(device)
    return (time.perf_counter() - started) / burst


def measure_by_events(device: torch.device, call: Call, burst: int) -> float:
    """Return the seconds of one of `burst` calls, between two events in the queue of a GPU."""
    stream = torch.cuda.current_stream(device)
    started = torch.cuda.Event(enable_timing=True)
    ended = torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    started.record(stream)
    for _ in range(burst):
        call()
    ended.record(stream)
    ended.synchronize()
    milliseconds = started.elapsed_time(ended)
    return milliseconds / 1000 / burst


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


def measure_machine(
    device: torch.device, dtypes: tuple[torch.dtype, ...], burst: int
) -> tuple[float, dict[str, float]]:
    """Return the rates of large copies and matrix products, `burst` in a row.

    Bytes/s that a copy reads and writes, and FLOP/s of a product of random matrices by dtype.
    """
    n = 2048
    size = 2**27
    if device.type == "cuda":
        n = 8192
        size = 2**30
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    copy = partial(target.copy_, source)
    clocks = {"copy": partial(measure_seconds, device, copy, burst)}
    for dtype in dict.fromkeys(dtypes):
        a = torch.randn(n, n, device=device).to(dtype)
        b = torch.randn(n, n, device=device).to(dtype)
        product = partial(linear, a, b)
        clocks[str(dtype)] = partial(measure_seconds, device, product, burst)
    times = alternate(clocks, 8, "the machine")
    copied = 2 * size / times.pop("copy")
    flops = {dtype: 2 * n**3 / seconds for dtype, seconds in times.items()}
    return copied, flops


def start_subject(contexts: ExitStack) -> Callable[..., Any]:
    """Return a function that calls others in a process of its own, with an empty compile cache, as
    long as `contexts` is open.

    So no subject changes how another one keeps memory. UserError if the system kills the process.
    """
    cache = contexts.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
    process = contexts.enter_context(ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=prepare_process, initargs=(cache,)))

    def call(function: Callable[..., Any], *arguments: object) -> Any:
        try:
            with blocking_interrupts():  # the first call starts the process
                future = process.submit(function, *arguments)
            return future.result()
        except BrokenProcessPool:
            raise UserError("a subject's process was killed, perhaps for lack of memory: choose a "
                            "smaller model, train.batch_size or data.seq_len") from None

    return call


@contextmanager
def blocking_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait for the end of this context.

    In a process that is started within, it waits for `interrupts.end_on_interrupt`: while Python
    starts, it would print a traceback. Windows blocks nothing.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def prepare_process(cache: str) -> None:
    """Prepare the process of a subject."""
    interrupts.end_on_interrupt()  # where bench.py is not the command
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    os.environ["XDG_CACHE_HOME"] = cache


_calls: list[Call] = []  # what the process of a subject measures


def measure_first(
    device: torch.device, pace: Pace, make: Callable[..., Call], setting: "Setting",
    *arguments: object,
) -> float | str:
    """Return the seconds of the first call of what `make` returns; in words, why there is none.

    Later turns in this process are calls of the same.
    """
    drop_subject(device)
    # Errors of ours are raised, unless the GPU is too small.
    expected = torch.OutOfMemoryError if setting.program == "gyre" else Exception
    with fastest_products(device):
        try:
            _calls.append(make(setting, *arguments))
            outcome: float | str = measure_seconds(device, _calls[0])
        except expected as error:
            outcome = first_line(error)
    if isinstance(outcome, str):
        drop_subject(device)
    end_turn(pace)
    return outcome


def measure_turn(device: torch.device, pace: Pace) -> float:
    """Return the seconds of one call in a turn of the subject that this process measures."""
    call = _calls[0]
    with fastest_products(device):
        if pace.frees:
            call()
        seconds = measure_seconds(device, call, pace.burst)
    end_turn(pace)
    return seconds


def peak_resident_bytes() -> int:
    """Return the most memory that this process has had so far, imports included; 0 if unknown."""
    if sys.platform != "linux":
        return 0
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            kibibytes = int(line.split()[1])
            return 1024 * kibibytes
    return 0


def end_turn(pace: Pace) -> None:
    """Leave the memory of the GPU, or the processor, to the next subject."""
    if pace.frees:
        torch.cuda.empty_cache()
    time.sleep(pace.pause)


def drop_subject(device: torch.device) -> None:
    """Free what this process has measured so far, and on a GPU all that it compiled."""
    _calls.clear()
    if device.type == "cuda":
        torch.compiler.reset()
    gc.collect()  # a compiled model is part of a cycle
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # sets CUDA up, without which there are no statistics
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


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
    model.to(device, dtype).eval()
    if device.type == "cpu":
        join_matrices(model)
    return model


def open_in_llama_cpp(model: Transformer, dtype: torch.dtype) -> llama_cpp.Model:
    """Return llama.cpp's form of a model, of a GGUF file that it has read into memory."""
    config = model.config
    weights = model.state_dict()
    tensor_names = names.tensor_names(config, "gguf")
    tensors = {gguf_name: weights[name] for name, gguf_name in tensor_names.items()}
    fields = {**gguf.model_fields(config), "tokenizer.ggml.model": "no_vocab"}
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.gguf")
        gguf.write_weights(file, "random", tensors, GGUF_DTYPES[dtype], fields)
        return llama_cpp.Model(file)


def open_decoder(model: llama_cpp.Model, config: ModelConfig, rows: int) -> llama_cpp.Decoder:
    """Return llama.cpp with a cache of so many rows, and with as many threads as PyTorch has."""
    return llama_cpp.Decoder(model, config.max_positions, rows, torch.get_num_threads())


def training_step(setting: Setting, config: ModelConfig, device: torch.device, rows: int,
                  length: int, clips: bool) -> Call:
    """Return a step of training, which returns its loss. transformers computes its own loss.

    With `clips`, the gradient is clipped, as train.py and transformers' trainer do it.
    """
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

    def step() -> torch.Tensor:
        loss = mean_loss()
        loss.backward()
        if clips:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()
        return loss.detach()  # its reader waits for a GPU

    return step


PREFILLS = 8  # in a row, each of some milliseconds


def prefill(setting: Setting, config: ModelConfig, device: torch.device, length: int) -> Call:
    """Return what computes the logits of the last position of a prompt, PREFILLS times."""
    prompt = torch.zeros(1, length, dtype=torch.long, device=device)
    dtype = torch.float32 if setting.dtype == torch.int8 else setting.dtype  # of the cache
    model = build_model(setting.program, config, device, setting.dtype)
    capacity = max(config.max_positions, length + 1)  # compiled steps leave room for a token
    new_cache = partial(KVCache, config, 1, capacity, device, dtype)
    step = compile_step(model, new_cache()) if setting.compiled else next_logits
    if setting.program == "llama.cpp":
        decoder = open_decoder(model, config, 1)

    def by_llama_cpp() -> None:
        decoder.clear()
        decoder.read([[0] * length])

    def by_transformers() -> None:
        model(prompt, logits_to_keep=1)

    def by_gyre() -> None:
        step(model, prompt, new_cache())

    programs = {"llama.cpp": by_llama_cpp, "transformers": by_transformers, "gyre": by_gyre}
    read_prompt = programs[setting.program]

    @torch.inference_mode()
    def call() -> None:
        for _ in range(PREFILLS):
            read_prompt()

    return call


def decoding(setting: Setting, config: ModelConfig, device: torch.device, rows: int,
             new: int) -> Call:
    """Return what decodes `new` tokens after a prompt of one, for every row.

    transformers is compiled by a static cache: on CUDA, `generate` then makes CUDA graphs.
    """
    model = build_model(setting.program, config, device, setting.dtype)
    prompt = torch.ones(rows, 1, dtype=torch.long, device=device)
    cache = "static" if setting.compiled else None
    if setting.program == "transformers" and device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every length
    if setting.program == "llama.cpp":
        decoder = open_decoder(model, config, rows)

    def by_llama_cpp() -> list[list[int]]:
        return decoder.generate([[1]] * rows, new)

    @torch.inference_mode(not setting.compiled)  # `generate` itself turns gradients off
    def by_transformers() -> torch.Tensor:
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                              max_new_tokens=new, cache_implementation=cache)

    recorded: list[NextLogits] = []  # on CUDA, each text uses what was recorded for the first

    def by_gyre() -> list[list[int]]:
        batch = Batch(model, [[1]], Sampling(temperature=0), max_new_tokens=new, num_samples=rows)
        previous = recorded[0] if recorded else None
        step = make_decoding_step(batch, previous, compiled=setting.compiled)
        recorded[:] = [step]
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
    if peer == "llama.cpp":
        check_llama_cpp(device)
    tokens = config.step_tokens
    measure_rates = partial(computing.matmul_rates, device, config.model, tokens, training=True)
    rates = functools.cache(measure_rates)
    dtype, reason = computing.resolve_dtype(config.train.dtype, device, rates)
    say(f"{device}; {reason}; {torch.get_num_threads()} threads")
    wanted = config.train.compile is not False
    can_compile, _ = computing.resolve_compile(wanted, device, dtype, 0)
    kinds = [True, False] if can_compile else [False]
    dtypes = [dtype]
    if config.train.dtype == "auto" and device.type != "cuda":
        dtypes = choose_dtypes(*rates())
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


def check_llama_cpp(device: torch.device) -> None:
    """Raise UserError if llama.cpp cannot be measured, before anything is."""
    if device.type != "cpu":
        raise UserError(f"--peer llama.cpp runs on the CPU, and --train.device is {device.type}: "
                        "choose cpu")
    llama_cpp.load_library()


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
    on_cuda = device.type == "cuda"
    training_pace, generating_pace = choose_paces(device)
    rows = config.train.batch_size
    length = config.data.seq_len
    # Decoding may be longer than the rows are.
    reach = max(config.model.max_positions, new_tokens + 1)
    model = replace(config.model, max_positions=reach, dropout=0.0)
    config = replace(config, model=model)
    with fastest_products(device):
        dtype, settings = choose_settings(config, device, peer)
        dtypes = (dtype,) if on_cuda else (torch.float32, torch.bfloat16, dtype)
        copy, flops = measure_machine(device, dtypes, training_pace.burst)
    torch.cuda.empty_cache()  # the subjects need the memory
    processor = torch.cuda.get_device_name(device) if on_cuda else computing.processor_name()
    rates = ", ".join(f"{rate / 1e9:,.0f} in {name}" for name, rate in flops.items())
    print(f"machine: {processor}; GFLOP/s: {rates}; copies: {copy / 1e9:.1f} GB/s")
    figures: dict[str, Any] = {
        "processor": processor, "device": str(device), "dtype": str(dtype),
        "torch": torch.__version__, "threads": torch.get_num_threads(), "model": asdict(model),
        "matmul_flops_per_second": flops, "copy_bytes_per_second": copy,
    }
    if peer == "llama.cpp":
        figures["llama.cpp"] = llama_cpp.describe_library()
        print(f"llama.cpp: {figures['llama.cpp']}")
    # The peer compiles no prefill, and decoding on CUDA only.
    prefilling = [setting for setting in settings
                  if setting.program == "gyre" or not setting.compiled]
    generating = settings if on_cuda else prefilling
    with ExitStack() as stack:
        calls = {setting: start_subject(stack) for setting in settings}
        measure = partial(measure_part, calls, model, device)
        if peer != "llama.cpp":
            limits = {"limit": flops[str(dtype)] / model.flops_per_token(length, key_dim(model))}
            title = f"training, {rows} x {length}"
            figures["training"] = measure(training_pace, title, settings, rows * length, limits,
                                          repeats, training_step, rows, length, on_cuda)
            if not on_cuda:  # of a card, the part has its own
                figures["training"]["peak_memory_bytes"] = measure_peaks(calls)
        limits = {"limit": length * flops[str(dtype)] / count_prefill_flops(model, length)}
        title = f"prefill, one prompt of {length}"
        figures["prefill"] = measure(generating_pace, title, prefilling, PREFILLS * length, limits,
                                     repeats, prefill, length)
        batches = (1, 8) if peer == "llama.cpp" else (1, 8, 32)
        for batch in batches:
            limits = find_decoding_limits(
                model, batch, new_tokens / 2, dtype, copy, flops[str(dtype)])
            title = f"decoding, batch {batch}, {new_tokens} new"
            figures[f"decoding_{batch}"] = measure(
                generating_pace, title, generating, batch * new_tokens, limits, min(3, repeats),
                decoding, batch, new_tokens)
    return figures


def measure_part(
    calls: Mapping[Setting, Callable[..., Any]], model: ModelConfig, device: torch.device,
    pace: Pace, title: str, settings: list[Setting], tokens: int, limits: dict[str, float],
    repeats: int, make: Callable[..., Call], *arguments: object,
) -> dict[str, Any]:
    """Print and return tokens/s of these settings beside the machine's limits, and by how much the
    first call of a compiled one took longer; where subjects free their memory, its peak too."""
    first: dict[Setting, float] = {}
    for setting in tqdm(settings, f"{title}: first calls", leave=False, delay=2):
        outcome = calls[setting](measure_first, device, pace, make, setting, model, device,
                                 *arguments)
        if isinstance(outcome, str):
            say(f"note: {title}: without {setting}: {outcome}")
        else:
            first[setting] = outcome
    clocks = {setting: partial(calls[setting], measure_turn, device, pace) for setting in first}
    times = alternate(clocks, repeats, title)
    rates = {str(setting): tokens / seconds for setting, seconds in times.items()}
    # 0 if the graph of an earlier measurement serves.
    compiling = {str(setting): max(0.0, first[setting] - times[setting])
                 for setting in first if setting.compiled}
    figures = {"tokens_per_second": rates, "limit": min(limits.values()), "limits": limits,
               "compile_seconds": compiling}
    if pace.frees:
        figures["peak_memory_bytes"] = {
            str(setting): calls[setting](torch.cuda.max_memory_allocated, device)
            for setting in first}
    print_part(title, figures)
    return figures


def print_part(title: str, figures: Mapping[str, Any]) -> None:
    """Print the table of one part. Shares are those of the smallest limit."""
    limit = figures["limit"]
    print(f"\n{title}\n  {'tokens/s':>43} {'of the limit':>14}")
    for name, rate in (*figures["tokens_per_second"].items(), *figures["limits"].items()):
        print(f"  {name:<33} {rate:>9,.0f} {100 * rate / limit:>12.0f} %")
    for name, seconds in figures["compile_seconds"].items():
        print(f"  compiling {name}: {seconds:.1f} s", flush=True)
    for name, peak in figures.get("peak_memory_bytes", {}).items():
        print(f"  peak memory of {name}: {peak / 1e9:.1f} GB", flush=True)


def measure_peaks(calls: Mapping[Setting, Callable[..., Any]]) -> dict[str, int]:
    """Print and return the peak memory of each subject's process, in bytes."""
    peaks: dict[str, int] = {}
    for setting, call in calls.items():
        peak = call(peak_resident_bytes)
        if peak:
            peaks[str(setting)] = peak
            print(f"  peak memory of {setting}: {peak / 2**20:,.0f} MiB, imports included")
    return peaks


def count_prefill_flops(config: ModelConfig, length: int) -> float:
    """Return the FLOP of the prefill of a prompt: a forward pass, which is a third of a training
    step. Only the last token needs logits, and wo, the feed-forward and the scores of the last
    block."""
    forward = config.flops_per_token(length, key_dim(config)) / 3 * length
    heads = config.n_heads * config.head_dim
    weights = (heads + 3 * config.hidden_dim + config.vocab_size) * config.dim
    compared = config.n_heads * key_dim(config)
    not_needed = 2 * weights + 2 * length * (compared + heads)  # for each token but the last
    return forward - (length - 1) * not_needed


def find_decoding_limits(
    config: ModelConfig, rows: int, length: float, dtype: torch.dtype, copy: float, flops: float
) -> dict[str, float]:
    """Return the tokens/s that reading allows, and those that products allow.

    `length` tokens are in the cache of every row. The machine copies so many bytes/s, and
    multiplies matrices at so many FLOP/s. A few rows wait for reading, many for products.
    """
    width = key_dim(config) + config.head_dim
    scores_and_values = 2 * length * config.n_layers * config.n_heads * width
    token_flops = 2 * config.matrix_parameters + scores_and_values
    return {
        "limit of bandwidth": rows * copy / count_bytes(config, rows, length, dtype),
        "limit of products": flops / token_flops,
    }


def count_bytes(config: ModelConfig, rows: int, length: float, dtype: torch.dtype) -> float:
    """Return the bytes that a decoding step has to read: every matrix that is in a product once,
    and a cache of `length` tokens for every row."""
    width = key_dim(config) + config.head_dim
    cache = rows * length * config.n_layers * config.n_kv_heads * width
    return dtype.itemsize * (config.matrix_parameters + cache)


if __name__ == "__main__":
    main()
