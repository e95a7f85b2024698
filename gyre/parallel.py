"""One process or many: the only place that reads torchrun's environment."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from errors import UserError, say
from files import first_line
from gyre.device import resolve_device


def _variable(name: str, default: int, low: int, high: int) -> int:
    """A number that torchrun sets. UserError where it is none, or cannot be."""
    text = os.environ.get(name, str(default))
    if not text.strip().isdecimal() or not low <= int(text) <= high:
        raise UserError(f"{name} must be a whole number from {low} to {high}, not {text!r}: it is "
                        "torchrun's variable, so start with torchrun, or unset it")
    return int(text)


@dataclass(frozen=True)
class World:
    """The processes that train together, and which of them this one is. Without torchrun there is
    one, and no method waits for another."""

    rank: int
    size: int
    device: torch.device

    @classmethod
    def read(cls, device: str = "auto") -> World:
        """What torchrun's environment says; `join` connects the processes.

        `device` is train.device. Raises UserError where this machine does not have it, or where
        several processes would share one card.
        """
        size = _variable("WORLD_SIZE", 1, 1, 1 << 20)
        if size > 1 and "RANK" not in os.environ:
            raise UserError(f"WORLD_SIZE is {size} and RANK is not set: start with torchrun, which "
                            "sets both, or unset WORLD_SIZE")
        rank, local = _variable("RANK", 0, 0, size - 1), _variable("LOCAL_RANK", 0, 0, size - 1)
        if size > 1 and device.startswith("cuda:"):
            raise UserError(f"device {device} is one card, and there are {size} processes: "
                            "use cuda")
        resolved = resolve_device(device, local)
        if size > 1 and resolved.type == "mps":
            # A machine has one MPS device, and no backend connects processes that share it.
            resolved = torch.device("cpu")
        return cls(rank, size, resolved)

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def join(self) -> None:
        """Connect the processes: by nccl between GPUs, by gloo otherwise."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.size == 1:
            return
        if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
            # torchrun's own processes would train on without it: they are told to save and stop.
            PR_SET_PDEATHSIG = 1  # from sys/prctl.h
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        waiting = threading.Timer(20, say, [
            f"process {self.rank} is waiting for all {self.size} to connect at {address} "
            "(MASTER_ADDR, MASTER_PORT)"
        ])
        waiting.daemon = True
        waiting.start()
        try:
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        except (ValueError, dist.DistError) as error:
            raise UserError(f"process {self.rank} of {self.size} cannot connect to the others at "
                            f"{address}: {first_line(error)}") from error
        finally:
            waiting.cancel()

    def leave(self) -> None:
        """Disconnect them again."""
        if self.size > 1 and dist.is_initialized():
            # DDP keeps gloo's threads to the end, and one of them may be waiting for Python's lock
            # to free its last tensor. If it gets the lock while Python exits, it aborts the
            # process; while this one sleeps, it gets it in time.
            time.sleep(0.1)
            dist.destroy_process_group()

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in training: `model`, its gradients averaged over the processes."""
        if self.size == 1:
            return model
        ids = [self.device.index] if self.device.type == "cuda" else None
        # Buffers need no exchange, as every process computes the same ones. The option's name
        # changed in torch 2.13.
        known = signature(DistributedDataParallel).parameters
        sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options: dict[str, Any] = {sync: False}
        return DistributedDataParallel(
            model, device_ids=ids, gradient_as_bucket_view=True, **options
        )

    def averaging(self, model: nn.Module, last: bool) -> AbstractContextManager[None]:
        """The context for forward and backward of one of several micro-batches, of a module from
        `wrap`: gradients are added up, and averaged over the processes with the `last` one only."""
        if last or not isinstance(model, DistributedDataParallel):
            return nullcontext()
        return model.no_sync()

    def sum(self, *values: float) -> list[float]:
        """Each value summed over all processes; in float64, so that token counts stay exact."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()
