"""One process or many: PyTorch's process group, and what a way to share a model must do."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from errors import UserError
from files import first_line
from gyre.device import resolve_device
from gyre.optim import Optimizers
from model.config import ModelConfig
from model.transformer import Transformer

Shard = Literal["none", "full"] | int
REPLICATED: Shard = "none"
Initial = Callable[[Transformer], Iterable[tuple[str, Tensor]]]
# What gloo says when a process is gone or does not answer; nccl raises a DistError.
LOST = re.compile(r"gloo|onnection (closed|reset|refused)|[Tt]imed out|[Bb]roken pipe")


@dataclass(frozen=True)
class World:
    """The processes that train together, and which of them this one is. Without torchrun there is
    one, and no method waits for another."""

    rank: int
    size: int
    device: torch.device
    is_main: bool = True
    """Whether this process is rank 0, which writes and speaks."""
    timeout: float = 600.0
    """Seconds that a process waits for the others at most."""
    machines: int = 1

    @classmethod
    def read(cls, device: str = "auto", timeout: float = 600.0) -> "World":
        """Return what torchrun's environment says; `join` connects the processes.

        Raises UserError where this machine does not have the device, or where several processes
        would share one card.
        """
        try:
            rank, size, local_rank, local_size = (
                int(os.environ.get(name, default)) for name, default in
                (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
            )
        except ValueError as error:
            raise UserError(f"RANK, WORLD_SIZE, LOCAL_RANK or LOCAL_WORLD_SIZE is no number "
                            f"({error}): start with torchrun, or unset them") from None
        if not 0 <= rank < size or (size > 1 and "RANK" not in os.environ):
            raise UserError(f"WORLD_SIZE is {size} and RANK is {os.environ.get('RANK')}: start "
                            "with torchrun, which sets both, or unset WORLD_SIZE")
        if size > 1 and device.startswith("cuda:"):
            raise UserError(f"device {device} is one card, and there are {size} processes: "
                            "use cuda")
        resolved = resolve_device(device, local_rank)
        if size > 1 and resolved.type == "mps":
            # A machine has one MPS device, and no backend connects processes that share it.
            resolved = torch.device("cpu")
        return cls(rank, size, resolved, rank == 0, timeout, max(1, size // local_size))

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
        timeout = timedelta(seconds=self.timeout)
        try:
            store, _, _ = next(dist.rendezvous("env://", timeout=timeout))
            # torchrun keeps its store when it starts the processes again, and in it the addresses
            # at which the old ones listened. So each start has names of its own: by the count of
            # restarts, and by how often this many have joined, as a machine that comes or goes
            # counts as no restart.
            prefix = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{self.size}"
            start = (store.add(prefix, 1) - 1) // self.size
            dist.init_process_group(
                "nccl" if self.device.type == "cuda" else "gloo",
                store=dist.PrefixStore(f"{prefix}/{start}", store), rank=self.rank,
                world_size=self.size, timeout=timeout,
            )
        except (ValueError, dist.DistError) as error:
            address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            raise UserError(f"process {self.rank} of {self.size} cannot connect to the others at "
                            f"{address}: {first_line(error)}") from error

    def leave(self) -> None:
        """Disconnect them again."""
        if self.size > 1 and dist.is_initialized():
            # DDP keeps gloo's threads to the end. One that waits for Python's lock, to free its
            # last tensor, aborts the process if it gets the lock while Python exits. While this one
            # sleeps, it gets it in time.
            time.sleep(0.1)
            dist.destroy_process_group()

    def sum(self, *values: float) -> list[float]:
        """Return each value summed over all processes; in float64, so that token counts stay
        exact."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def collect(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def is_disconnect(self, error: Exception) -> bool:
        """Whether this is what torch raises where another process is gone or does not answer."""
        return self.size > 1 and bool(isinstance(error, dist.DistError) or LOST.search(str(error)))

    @contextmanager
    def in_contact(self) -> Iterator[None]:
        """Turn the loss of another process into a UserError."""
        try:
            yield
        except RuntimeError as error:
            if not self.is_disconnect(error):
                raise
            raise UserError(f"process {self.rank} of {self.size} has lost the others: one of them "
                            f"ended, or gave no answer for {self.timeout:g} s (train.timeout). "
                            f"{first_line(error)}") from error


ALONE = World(0, 1, torch.device("cpu"))


class Parallelism(Protocol):
    """How the processes share a model: `Replicated` (gyre/build.py) or `Sharded`
    (gyre/sharding.py). Nobody else asks which one it is."""

    pads_micro_batches: bool
    """Whether all ranks need equally many forward passes, because they gather weights together."""

    def wrap(
        self, config: ModelConfig, initial: Initial | None, compiled: bool,
        checkpoint_activations: bool,
    ) -> tuple[Transformer, nn.Module]:
        """Return the bare model on its device, and the module that training calls.

        `initial(model)` yields the first values of weights by name. None: they are loaded next.
        """
        ...

    def averaging(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Return the context for one of several micro-batches: gradients are added up, and averaged
        over the ranks with the `last` one."""
        ...

    def norm(self, model: nn.Module, limit: float) -> float:
        """Return the norm of the whole gradient, and scale the gradient down to `limit`."""
        ...

    def gather(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return the context in which methods other than `forward` can be called."""
        ...

    def save(
        self, folder: Path, model: Transformer, optimizers: Optimizers | None
    ) -> list[Path]:
        """Write weights and optimizer states into a folder. Returns the files of this rank.

        Without optimizers, rank 0 writes the weights whole.
        """
        ...

    def load(self, folder: Path, model: Transformer, optimizers: Optimizers) -> None:
        """Read what any number of ranks has saved. KeyError or RuntimeError where it does not
        fit."""
        ...


def recompute_activations(model: Transformer) -> None:
    """Let each block keep its input only, and compute the rest again in the backward pass."""
    for layer in model.layers:
        # Nothing random is in it: dropout is addressed.
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False,
                                preserve_rng_state=False)
