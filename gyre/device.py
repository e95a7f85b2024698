"""Which device and which arithmetic to use, and why: what `auto` stands for."""

import ctypes
import os
import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from errors import UserError
from files import first_line

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


def resolve_device(device: str, local_rank: int = 0) -> torch.device:
    """What `device` names: auto is CUDA, else Apple's MPS, else the CPU.

    cuda is the card of number `local_rank`, so that every process of a machine has its own. Where
    it is the CPU, this process keeps freed memory from now on (`keep_freed_memory`). Raises
    UserError for a device that this machine does not have.
    """
    if device == "auto":
        if torch.cuda.is_available():
            device = "cuda"
        else:
            device = "mps" if torch.backends.mps.is_available() else "cpu"
    known = "use auto, cpu, cuda, cuda:N or mps"
    try:
        resolved = torch.device(device)
    except RuntimeError:
        raise UserError(f"device {device!r} is not known: {known}") from None
    if resolved.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = local_rank if resolved.index is None else resolved.index
        if index >= count:
            raise UserError(f"device {device} was asked for, but this machine has {count} CUDA "
                            "devices")
        return torch.device("cuda", index)
    if resolved.type == "mps" and not torch.backends.mps.is_available():
        raise UserError("device mps was asked for, but this machine has no MPS")
    if resolved.type not in ("cpu", "mps"):
        raise UserError(f"device {device!r} is not supported: {known}")
    if resolved.type == "cpu":
        keep_freed_memory()
    return resolved


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next tensors instead of returning it at once.

    By default glibc maps every large block from the system anew and unmaps it when it is freed. A
    training step frees and allocates all its activations, and the page faults are a good part of
    its time (docs/benchmarks.md). The allocators of GPUs keep what is freed in the same way. No
    effect where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # from malloc.h
        mallopt(M_MMAP_MAX, 0)  # no block has a mapping of its own
        mallopt(M_TRIM_THRESHOLD, -1)  # and the heap never shrinks


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware, rather than by emulation."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        # avx512_bf16 and amx_bf16 on x86, bf16 on Arm. Older releases of torch do not tell.
        flags = getattr(torch.cpu, "get_capabilities", dict)()
        return any(flags.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return False


def resolve_dtype(dtype: Dtype, device: torch.device) -> tuple[torch.dtype, str]:
    """The dtype of matrix products under autocast, and the reason in words.

    Raises UserError for float16 off CUDA: it needs loss scaling and has no fast kernels there.
    """
    if dtype == "auto":
        if has_bfloat16(device):
            return torch.bfloat16, f"bfloat16 autocast: this {device.type} has it in hardware"
        return torch.float32, f"float32: no bfloat16 in hardware on this {device.type}"
    if dtype == "float16" and device.type != "cuda":
        raise UserError(f"dtype float16 needs a CUDA device, not {device.type}: use bfloat16 or "
                        "float32")
    return getattr(torch, dtype), f"{dtype}, as asked"


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager:
    """Autocast to `dtype`; float32 needs none."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype)


# A first compilation takes 30 to 45 s on two CPU cores, and one from the cache a few seconds; every
# step is then a fifth or a quarter shorter. Less work than this gains little even from a cached one
# (docs/benchmarks.md; the number for cuda is a guess).
COMPILE_PAYS_FLOPS = {"cpu": 3e13, "cuda": 1e15}


def resolve_compile(
    choice: bool | Literal["auto"], device: torch.device, training_flops: float
) -> tuple[bool, str]:
    """Whether to compile, and the reason in words; no where there is no working compiler.

    auto depends on the work ahead and never on timing, so that a run is the same every time.
    """
    if choice is False:
        return False, "eager, as asked"
    if choice == "auto":
        threshold = COMPILE_PAYS_FLOPS.get(device.type)
        if threshold is None:
            return False, f"eager: compilation is not tried on {device.type}"
        if training_flops < threshold:
            return False, f"eager: {training_flops:.1e} FLOPs are too few to repay a compilation"
    trouble = _compiler_trouble(device)
    if trouble is not None:
        return False, f"eager: torch.compile does not work here ({trouble})"
    return True, "compiled, as asked" if choice is True else "compiled: enough work to repay it"


def _compiler_trouble(device: torch.device) -> str | None:
    """Why torch.compile does not work on this machine; None where it does."""
    compilers = [os.environ.get("CXX"), "g++", "clang++", "cl"]
    if device.type == "cpu" and not any(shutil.which(name) for name in compilers if name):
        return "no C++ compiler found"
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(3, device=device))
    except Exception as error:  # whatever the compiler raises, training goes on without it
        return first_line(error)
    return None
