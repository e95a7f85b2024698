"""One process or many: the only place that reads torchrun's environment.

Several processes train together in one of two ways. Each has a whole copy of the model, and their
gradients are averaged (DDP); or each has a part of every weight, gradient and moment
(gyre/sharding.py).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from errors import UserError, say
from files import first_line
from gyre.device import resolve_device

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

Shard = Literal["none", "full"] | int
WHOLE: Shard = "none"  # every process has a whole copy
# What gloo says when a process is gone or does not answer; nccl has a type of exception.
LOST = re.compile(r"gloo|onnection (closed|reset|refused)|[Tt]imed out|[Bb]roken pipe")
ROLL_CALL = 3  # seconds for the others to notice that a process is missing


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
    shards: int = 1
    """Into how many parts weights are divided; 1: each process has a whole copy."""
    timeout: float = 600.0
    """Seconds that a process waits for the others at most."""
    machines: int = 1
    """All processes divided by those of this machine."""

    @classmethod
    def read(cls, device: str = "auto", shard: Shard = "none", timeout: float = 600.0) -> World:
        """What torchrun's environment says; `join` connects the processes.

        `device`, `shard` and `timeout` are those of train. Raises UserError where this machine does
        not have the device, where several processes would share one card, and where they cannot be
        divided so.
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
        shards = {"none": 1, "full": size}[shard] if isinstance(shard, str) else shard
        if size % shards and size > 1:
            raise UserError(f"train.shard {shard} does not divide the {size} processes: choose a "
                            "number that does, or full")
        here = _variable("LOCAL_WORLD_SIZE", size, 1, size)
        return cls(rank, size, resolved, min(shards, size), timeout, size // here)

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    @property
    def launcher(self) -> list[str]:
        """The words before `train.py` in a command that starts these processes."""
        if self.size == 1:
            return ["python"]
        several = ["--nnodes", str(self.machines)] if self.machines > 1 else []
        return ["torchrun", *several, "--nproc-per-node", str(self.size // self.machines)]

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
            dist.init_process_group(
                "nccl" if self.device.type == "cuda" else "gloo", store=self._store,
                rank=self.rank, world_size=self.size, timeout=timedelta(seconds=self.timeout),
            )
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

    # --- the model ---

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in training: `model`, its gradients averaged over the processes. One
        that has been divided (gyre/sharding.py) does that itself."""
        if self.size == 1 or self.shards > 1:
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
        `wrap`: gradients are added up, and averaged over the processes with the `last` one only.

        Of a divided model, they are averaged within a group each time: a process has no room for
        whole gradients.
        """
        if self.shards > 1:
            cast("FSDPModule", model).set_requires_all_reduce(last)
        if last or not isinstance(model, DistributedDataParallel):
            return nullcontext()
        return model.no_sync()

    def clip(self, model: nn.Module, limit: float) -> float:
        """The norm of the whole gradient, which is scaled down to `limit` where that is less."""
        norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
        return whole(norm).item()

    # --- between the processes ---

    def sum(self, *values: float) -> list[float]:
        """Each value summed over all processes; in float64, so that token counts stay exact."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def collect(self, values: dict[str, str]) -> dict[str, str]:
        """The entries of all processes."""
        if self.size == 1:
            return values
        collected: list[Any] = [None] * self.size
        dist.all_gather_object(collected, values)
        return {name: value for one in collected for name, value in one.items()}

    @cached_property
    def _store(self) -> dist.Store:
        """What the processes know of each other: a table that torchrun keeps, or process 0."""
        table, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=self.timeout)))
        store = dist.PrefixStore(self._agree(table), table)
        store.set(f"place/{self.rank}", f"(pid {os.getpid()} on {platform.node()})")
        return store

    def _agree(self, table: dist.Store) -> str:
        """A word that the processes of this start have in common, and no earlier one had.

        torchrun keeps its table when it starts processes again, and in it the addresses at which
        the old ones listened. Process 0 collects what it finds under `id`, and the word is the hash
        of that; who is not in it has not been there yet, and process 0 looks again.
        """
        own, stop = uuid.uuid4().hex, time.monotonic() + self.timeout
        table.set(f"id/{self.rank}", own)
        word = ""
        while time.monotonic() < stop:
            if self.rank == 0:
                keys = [f"id/{rank}" for rank in range(self.size)]
                if table.check(keys):
                    table.set("ids", "-".join(one.decode() for one in table.multi_get(keys)))
            if table.check(["ids"]):
                found = table.get("ids")
                ids, before = found.decode().split("-"), word
                if len(ids) == self.size and ids[self.rank] == own:
                    word = hashlib.sha256(found).hexdigest()[:16]
                    if table.add(word, int(word != before)) == self.size:  # all have agreed
                        return word
            time.sleep(0.02)
        raise dist.DistError(f"not all {self.size} have come in {self.timeout:g} s")

    def is_disconnect(self, error: Exception) -> bool:
        """Whether this is what torch raises where another process is gone or does not answer."""
        lost = isinstance(error, dist.DistError) or LOST.search(str(error))
        return self.size > 1 and bool(lost)

    @contextmanager
    def in_contact(self) -> Iterator[None]:
        """Turn the loss of another process into a UserError that says which one it was."""
        try:
            yield
        except RuntimeError as error:
            if not self.is_disconnect(error):
                raise
            reason = re.sub(r"\[/\S+\] ", "", first_line(error)).partition(". ")[0]
            raise UserError(f"process {self.rank} of {self.size} has lost the others: "
                            f"{self._missing()} ({reason})") from error

    def _missing(self) -> str:
        """Which processes do not answer, of those that notice now that something is wrong."""
        try:
            self._store.set(f"here/{self.rank}", "")
            time.sleep(ROLL_CALL)
            silent = [rank for rank in range(self.size) if not self._store.check([f"here/{rank}"])]
            places = [self._store.get(f"place/{rank}").decode() for rank in silent]
        except (RuntimeError, dist.DistError):
            return "process 0 does not answer"
        missing = (f"process {rank} {place}" for rank, place in zip(silent, places, strict=True))
        return f"no answer from {', '.join(missing)}" if silent else "all are still there"


def is_divided(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether this process has a part of it only: it is a DTensor, whose import takes as long as
    all else until the first step."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which a process may have a part only; all of them ask for it together."""
    return tensor.full_tensor() if is_divided(tensor) else tensor


def times_restarted() -> int:
    """How often torchrun has started this process again."""
    return _variable("TORCHELASTIC_RESTART_COUNT", 0, 0, 1 << 20)
