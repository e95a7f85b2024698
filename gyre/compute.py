"""How a process computes: its device, its dtype, oneDNN and compilation; what `auto` stands for.

`Compute` has what was chosen. TF32, oneDNN and the limit of the compiler take effect within
`with compute.active():`, and the dtype within `with compute.autocast():`.
"""

import ctypes
import math
import os
import platform
import re
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from errors import UserError
from files import first_line
from gyre.estimate import format_rate
from model import kernels
from model.config import ModelConfig
from model.int8 import Int8Linear
from model.transformer import linear

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
InferenceDtype = Literal["auto", "float32", "bfloat16", "int8"]
DTYPE_NAMES: dict[torch.dtype, Dtype] = {
    torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


# The most graphs that torch.compile makes of one function; its own default is 8. Each block of a
# sharded model with dropout has a graph of its own.
MAX_GRAPHS = 256


@dataclass(frozen=True)
class Compute:
    """How a training, or a model that was loaded, computes in this process."""

    device: torch.device
    dtype: torch.dtype
    """Of matrix products. Weights in training are float32."""
    compiled: bool = False
    """Whether training steps are compiled."""
    onednn: bool = False
    """Whether float32 products on a CPU are oneDNN's."""
    tf32: bool = False
    """Whether float32 products on CUDA run in TF32."""
    dtype_reason: str = ""
    """Why the dtype was chosen, in words."""
    compile_reason: str = ""
    """Why a training is compiled or not, in words."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Return a context that applies what was chosen to products and compilation.

        At its end the settings are as before. After a compiled training, all that was compiled in
        this process is forgotten, so that no training depends on an earlier one.
        """
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
        try:
            with kernels.products_by_onednn(self.onednn):
                if self.compiled:
                    with torch._dynamo.config.patch(recompile_limit=MAX_GRAPHS):
                        yield
                else:
                    yield
        finally:
            torch.set_float32_matmul_precision(precision)
            if self.compiled:
                torch._dynamo.reset()

    def autocast(self) -> AbstractContextManager:
        """Return the context in which `forward` computes products in `dtype`; float32 needs none.

        It does not cache rounded weights. A forward pass uses each of them once, and for a sharded
        model the cache would hold the whole of it.
        """
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype, cache_enabled=False)


def resolve_device(device: str, local_rank: int = 0) -> torch.device:
    """Return the device that `device` names: auto is CUDA, else Apple's MPS, else the CPU.

    cuda is the card of number `local_rank`, so that every process of a machine has its own. Raises
    UserError for a device that this machine does not have.
    """
    devices = [f"cuda:{card}" for card in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    devices.append("cpu")
    wanted = devices[0].partition(":")[0] if device == "auto" else device
    name = f"cuda:{local_rank}" if wanted == "cuda" else wanted
    if re.fullmatch(r"cpu|mps|cuda:\d+", name) is None:
        raise UserError(f"device must be auto, cpu, cuda, cuda:N or mps, not {device}")
    if name not in devices:
        known = ", ".join(devices)
        card = f" ({name})" if name != device else ""
        raise UserError(f"device {device}{card} was asked for, but this machine has {known}: say "
                        "one of these, or leave it out")
    return torch.device(name)


def processor_name() -> str:
    """Return the name of this machine's CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    names = re.findall(r"^model name\s*: (.+)$", text, re.MULTILINE)
    if names:
        return names[0]
    name = platform.processor()
    return name if name else platform.machine()


def keep_freed_memory() -> None:
    """Let this process keep memory that a tensor on the CPU has freed, for its next tensors.

    Commands call it before they compute. glibc returns every large block to the system when it is
    freed and maps it anew for the next step. The page faults are a good part of a step
    (docs/speed.md). Other systems have no such option.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library than glibc
        return
    M_TRIM_THRESHOLD = -1  # this and the next are from malloc.h
    M_MMAP_MAX = -4
    mallopt(M_MMAP_MAX, 0)  # no block has a mapping of its own
    mallopt(M_TRIM_THRESHOLD, -1)  # and the heap never shrinks


def memory_of(device: torch.device) -> float:
    """Return all the memory of the device in bytes; infinity on Windows, where it is not known."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return math.inf


def check_memory(device: torch.device, size: int, what: str, advice: str) -> None:
    """Raise UserError if `size` bytes are more than all the memory of the device."""
    available = memory_of(device)
    if size > available:
        raise UserError(f"{what} takes {size / 1e9:,.1f} GB or more, and {device} has "
                        f"{available / 1e9:,.1f}: {advice}")


BFLOAT16_CAPABILITY = (8, 0)  # of the first cards that multiply bfloat16 in tensor cores
BFLOAT16_GAIN = 1.2  # the least gain in matrix products for which bfloat16's 8 bits are accepted
# A measured call has no more FLOPs than about so many, which a slow processor, too, does in a
# fraction of a second.
MEASURED_FLOPS = 3e9  # of a product and its gradients
MEASURED_INT8_FLOPS = 1e8  # of a product in int8
# MEASURED_FLOPS takes no more tokens away than leave so many. A caller may ask for fewer.
LEAST_TOKENS = 16
# The most tokens of a measured product.
MOST_TOKENS = 2048


def matmul_rates(
    device: torch.device, model: ModelConfig, tokens: int, *, training: bool,
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.bfloat16),
) -> list[float]:
    """Measure FLOP/s of the product with a matrix of the feed-forward: a rate for each of `dtypes`.

    In training the two products for the gradients are measured too. Each rate is the best of two
    calls or more. The number of tokens is limited, so that all take a fraction of a second unless
    the processor only emulates bfloat16.
    """
    inputs = model.dim
    outputs = model.hidden_dim
    quick_tokens = max(LEAST_TOKENS, round(MEASURED_FLOPS / (6 * inputs * outputs)))
    tokens = min(tokens, MOST_TOKENS, quick_tokens)
    wait = torch.accelerator.synchronize if device.type != "cpu" else lambda: None

    def multiply(x: Tensor, weight: Tensor, gradient: Tensor) -> None:
        out = linear(x, weight)
        if training:
            GivenGradient.apply(out, gradient).backward()
        wait()

    calls = []
    for dtype in dtypes:
        x = torch.ones(tokens, inputs, dtype=dtype).to(device).requires_grad_(training)
        weight = torch.ones(outputs, inputs, dtype=dtype).to(device).requires_grad_(training)
        gradient = torch.ones(tokens, outputs, dtype=dtype).to(device)
        calls.append(partial(multiply, x, weight, gradient))
    flops = (6 if training else 2) * tokens * inputs * outputs
    times = kernels.shortest_times(calls, time.perf_counter, rounds=2, seconds=0.25)
    return [flops / best for best in times]


class GivenGradient(torch.autograd.Function):
    """Turn `out` into a scalar, whose `backward()` hands `gradient` on to `out`.

    `out.backward(gradient)` does the same, but imports sympy, which takes a third of a second.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return out.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor, None]:
        return ctx.gradient, None


@torch.inference_mode()
def int8_rates(model: ModelConfig, tokens: int) -> list[float]:
    """Measure FLOP/s of the product of so many tokens with a matrix, in float32 and in int8.

    Measures the processor time of one thread, because a busy machine hardly lengthens that. On a
    processor without instructions for int8, torch multiplies one number after the other. So sizes
    are limited to those that take a fraction of a second there.
    """
    inputs = model.dim
    outputs = min(model.hidden_dim, 1024)
    quick_tokens = max(1, round(MEASURED_INT8_FLOPS / (2 * inputs * outputs)))
    tokens = min(tokens, quick_tokens)
    x = torch.ones(tokens, inputs)
    weight = torch.ones(outputs, inputs)
    product = Int8Linear(outputs=outputs, inputs=inputs)
    product.load_state_dict({"weight": weight.to(torch.int8), "scale": torch.ones(outputs)})
    with kernels.one_thread():
        times = kernels.shortest_times([lambda: linear(x, weight), lambda: product(x)],
                                       time.thread_time, rounds=3, seconds=0.02)
    return [2 * tokens * inputs * outputs / best for best in times]


def resolve_dtype(
    dtype: Dtype, device: torch.device, rates: Callable[[], list[float]], *, training: bool = True
) -> tuple[torch.dtype, str]:
    """Return the dtype of matrix products, and the reason in words.

    On a CPU, auto is bfloat16 if its products are faster than float32's by BFLOAT16_GAIN or more.
    `rates()` returns the rates of float32 and bfloat16, as `matmul_rates` does. A processor's flags
    do not tell: some compute bfloat16 slower than float32. On CUDA, auto depends on the card and on
    `training`, which is False for a model that is loaded (`choose_cuda_dtype`).
    """
    if dtype != "auto":
        return getattr(torch, dtype), f"{dtype}, as configured"
    if device.type == "mps":
        return torch.float32, "float32: bfloat16 is not tried on mps"
    if device.type == "cuda":
        return choose_cuda_dtype(device, training)
    float32_rate, bfloat16_rate = rates()
    chosen = torch.float32
    if bfloat16_rate >= BFLOAT16_GAIN * float32_rate:
        chosen = torch.bfloat16
    return chosen, (f"{DTYPE_NAMES[chosen]}: matrix products have just run at "
                    f"{format_rate(float32_rate)} GFLOP/s in float32 and at "
                    f"{format_rate(bfloat16_rate)} in bfloat16")


def choose_cuda_dtype(device: torch.device, training: bool) -> tuple[torch.dtype, str]:
    """Return bfloat16 for a card that has it, and the reason in words.

    On an older card a training has float16, with a loss scaler. A model that is loaded has float32
    there, because float16 would cut off weights that are very large or very small.
    """
    capability = torch.cuda.get_device_capability(device)
    if capability >= BFLOAT16_CAPABILITY:
        chosen = torch.bfloat16
    elif training:
        chosen = torch.float16
    else:
        chosen = torch.float32
    major, minor = capability
    reason = f"{DTYPE_NAMES[chosen]}: the card's capability is {major}.{minor}"
    if chosen != torch.bfloat16:
        reason += ", and bfloat16 needs 8.0"
    return chosen, reason


# The FLOPs of a training that repay its compilation. The first compilation takes 30 to 60 s on two
# CPU cores, and one from the cache a few seconds. Every step is then 10 to 15 % shorter in
# bfloat16, and some 5 % in float32 (docs/speed.md). On an H200, 30 M tokens of a model of 124 M
# parameters in bfloat16 repaid 50 s of compiling; other dtypes were not measured there.
REPAYING_FLOPS = {"cpu": {torch.bfloat16: 5e13, torch.float32: 2e14},
                  "cuda": {torch.bfloat16: 2e16}}
UNKNOWN_REPAYING_FLOPS = 2e16  # of other dtypes
TRITON_CAPABILITY = (7, 0)  # of the oldest cards that torch.compile writes code for


def resolve_compile(
    choice: bool | Literal["auto"], device: torch.device, dtype: torch.dtype, flops: float
) -> tuple[bool, str]:
    """Return whether to compile, and the reason in words; false if no compiler works.

    auto depends on the dtype and on the work ahead, the `flops` of the training.
    """
    if choice is False:
        return False, "not compiled, as configured"
    if choice == "auto":
        if device.type not in REPAYING_FLOPS:
            return False, f"not compiled, which is not tried on {device.type}"
        if flops < REPAYING_FLOPS[device.type].get(dtype, UNKNOWN_REPAYING_FLOPS):
            return False, "not compiled, which takes longer than it saves in so short a training"
    missing = missing_for_compiling(device)
    if missing is not None:
        return False, f"not compiled: {missing}"
    # On CUDA, `missing_for_compiling` has looked for all that is needed. Elsewhere, try.
    if device.type != "cuda":
        try:
            torch.compile(lambda x: x.sin() + 1)(torch.ones(3, device=device))
        except Exception as error:  # whatever the compiler raises, training goes on without it
            return False, f"not compiled: torch.compile does not work here ({first_line(error)})"
    reason = "as configured" if choice is True else "which this much work repays"
    return True, f"compiled, {reason}: the first step takes up to a minute"


def missing_for_compiling(device: torch.device) -> str | None:
    """Return in words what torch.compile needs for a device and does not find here, or None.

    torch itself takes up to ten seconds to find that out.
    """
    if device.type == "cpu":
        compilers = [os.environ.get("CXX", ""), "g++", "clang++", "cl"]
        return None if any(map(shutil.which, compilers)) else "no C++ compiler found"
    return missing_for_compiling_on_cuda(device) if device.type == "cuda" else None


def missing_for_compiling_on_cuda(device: torch.device) -> str | None:
    """Return in words what torch.compile needs for a card and does not find here, or None."""
    if torch.cuda.get_device_capability(device) < TRITON_CAPABILITY:
        return "torch.compile needs a card of capability 7.0 or more"
    if find_spec("triton") is None:
        return "torch.compile needs the package triton"
    if sys.platform != "linux":
        return None
    # Triton compiles a small C program for each kernel, which starts it.
    if not any(map(shutil.which, (os.environ.get("CC", ""), "gcc", "clang"))):
        return "no C compiler found"
    if not Path(sysconfig.get_config_var("INCLUDEPY"), "Python.h").exists():
        return "Python.h was not found, which is in packages such as python3-dev"
    return None


def uncompiled() -> AbstractContextManager:
    """Return a context in which compiled functions run as they were written."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and the import takes a second
        return nullcontext()
    return torch.compiler.set_stance("force_eager")
