"""One process or many: who this process is, how all exchange values, and a replicated model."""

import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from errors import UserError
from files import first_line
from gyre.compute import resolve_device, uncompiled
from model.config import ModelConfig
from model.transformer import Transformer

Shard = Literal["none", "full"] | int
# What gloo says when a process is gone or does not answer; nccl raises a DistError.
LOST = re.compile(r"gloo|onnection (closed|reset|refused)|[Tt]imed out|[Bb]roken pipe")


@dataclass(frozen=True)
class World:
    """The processes that train together, and which of them this one is.

    Without torchrun there is one process, and no method waits.
    """

    rank: int
    size: int
    device: torch.device
    is_main: bool = True
    """Whether this process is rank 0, which writes and speaks."""
    timeout: float = 600.0
    """Seconds that a process waits for the others at most."""

    @classmethod
    def from_env(cls, device: str = "auto", timeout: float = 600.0) -> "World":
        """Return the world of torchrun's environment variables; `connect` connects the processes.

        Raises UserError for variables that do not fit together, where this machine does not have
        the device, and where several processes would share one card.
        """
        rank = read_count("RANK", 0)
        size = read_count("WORLD_SIZE", 1)
        local_rank = read_count("LOCAL_RANK", 0)
        if rank >= size:
            raise UserError(f"RANK is {rank} and WORLD_SIZE is {size}: unset both, or start with "
                            "torchrun, which sets them")
        if size > 1 and device.startswith("cuda:"):
            raise UserError(f"device {device} is one card for {size} processes: use cuda")
        resolved = resolve_device(device, local_rank)
        if size > 1 and resolved.type == "mps":
            # A machine has one MPS device, and no backend connects processes that share it.
            resolved = torch.device("cpu")
        return cls(rank, size, resolved, rank == 0, timeout)

    def connect(self) -> None:
        """Connect the processes: by nccl between GPUs, by gloo otherwise."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.size == 1:
            return
        timeout = timedelta(seconds=self.timeout)
        try:
            store, _, _ = next(dist.rendezvous("env://", timeout=timeout))
            # torchrun keeps its store when it restarts the processes, with the addresses of the
            # old ones. So the keys of each start have a prefix: the count of restarts, the number
            # of processes, and how often so many have joined. A machine that comes or goes does not
            # count as a restart.
            prefix = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{self.size}"
            n_joined = store.add(prefix, 1)  # processes with this prefix, and this one
            # How often all of them have joined before. No start is left half joined: a process goes
            # on only when all have joined, and torchrun restarts all together.
            start = (n_joined - 1) // self.size
            dist.init_process_group(
                "nccl" if self.device.type == "cuda" else "gloo",
                store=dist.PrefixStore(f"{prefix}/{start}", store), rank=self.rank,
                world_size=self.size, timeout=timeout,
                # Else nccl would connect in the first step, and guess the card of this process.
                device_id=self.device if self.device.type == "cuda" else None,
            )
        except (ValueError, dist.DistError) as error:
            address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            raise UserError(f"process {self.rank} of {self.size} cannot connect to the others at "
                            f"{address}: {first_line(error)}") from error

    def disconnect(self) -> None:
        """Disconnect the processes."""
        if self.size > 1 and dist.is_initialized():
            # A thread of gloo takes Python's lock to free its last tensor, and aborts the process
            # if Python is exiting then. This sleep lets it finish.
            time.sleep(0.1)
            dist.destroy_process_group()

    def sum(self, *values: float) -> list[float]:
        """Return each value summed over all processes, in float64: token counts stay exact."""
        if self.size == 1:
            return list(values)
        local = torch.tensor(values, dtype=torch.float64, device=self.device)
        return self.sum_tensor(local).tolist()

    def sum_tensor(self, values: Tensor) -> Tensor:
        """Return a tensor on the device summed over all processes, in float64.

        The CPU does not wait for a GPU. One process returns the tensor as it is.
        """
        if self.size == 1:
            return values
        total = values.double()
        dist.all_reduce(total)
        return total

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    @contextmanager
    def explain_lost_ranks(self) -> Iterator[None]:
        """Turn the loss of another process into a UserError."""
        try:
            yield
        except RuntimeError as error:
            is_lost = LOST.search(str(error)) is not None
            if isinstance(error, dist.DistError):
                is_lost = True
            if self.size == 1 or not is_lost:
                raise
            raise UserError(f"process {self.rank} of {self.size} has lost the others: one of them "
                            f"ended or gave no answer for {self.timeout:g} s (train.timeout), or "
                            f"all were suspended for longer. {first_line(error)}") from error


def read_count(variable: str, default: int) -> int:
    """Return the number in an environment variable of torchrun, or a default if it is not set."""
    text = os.environ.get(variable, "")
    if text == "":
        return default
    if not re.fullmatch("[0-9]+", text):
        raise UserError(f"{variable} is {text!r}, which is no number of a process: unset it, or "
                        "start with torchrun, which sets it")
    return int(text)


ALONE = World(0, 1, torch.device("cpu"))


def is_sharded(tensor: Tensor) -> bool:
    """Whether this rank has a part of the tensor only: a DTensor, whose import is slow."""
    return hasattr(tensor, "full_tensor")


def gather_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that may be sharded. All ranks call it."""
    return getattr(tensor, "full_tensor", lambda: tensor)()


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor that may be sharded. No rank waits for another."""
    return getattr(tensor, "to_local", lambda: tensor)()


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this rank's part of a whole tensor that every rank has, as `like` is sharded.

    A scalar, such as a step count, is not sharded. No rank waits for another.
    """
    if not is_sharded(like) or tensor.ndim == 0:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor  # slow to import

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements,
                             src_data_rank=None)


# --- a replicated model; gyre/sharding.py has the sharded one -------------------------------------


@dataclass
class Replicated:
    """Every rank has the whole model, and DDP averages the gradients.

    `gyre.sharding.Sharded` has the same methods.
    """

    world: World
    pads_micro_batches = False
    """Whether all ranks need equally many forward passes, because they gather weights together."""

    def build_model(self, config: ModelConfig, compiled: bool) -> tuple[Transformer, nn.Module]:
        """Return the model on its device, and the module that training calls.

        Its matrices have no values yet: what is computed here with them is thrown away.
        `copy_weights` gives them some, and `share_weights` comes after it.
        """
        model = Transformer(config)
        model.to(self.world.device)
        if compiled:
            model.compile()  # in place, so that the state dict keeps its names
        if self.world.size == 1:
            return model, model
        devices = [self.world.device.index] if self.world.device.type == "cuda" else None
        module = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
        # DDP sorts its buckets anew after its first backward pass. With three processes or more,
        # the place of a gradient in a bucket decides how its sum is rounded. So take such a pass
        # now. Otherwise the first step of a resumed training would be rounded differently.
        tokens = torch.zeros(1, 1, dtype=torch.int64, device=self.world.device)
        model.eval()
        with uncompiled():
            module(tokens).sum().backward()
        model.train()
        model.zero_grad()
        return model, module

    def share_weights(self, model: nn.Module) -> None:
        """Give all ranks the weights of rank 0.

        Others may have drawn them on another kind of processor, or read a newer file. Nothing later
        would make them equal: DDP averages gradients only.
        """
        if self.world.size > 1:
            for parameter in model.parameters():
                dist.broadcast(parameter.detach(), src=0)

    def averaging(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Return the context for one of several micro-batches.

        Gradients add up, and are averaged over the ranks with the `last` one only.
        """
        if last or not isinstance(module, DistributedDataParallel):
            return nullcontext()
        return module.no_sync()

    def clip_grad(self, model: nn.Module, limit: float) -> Tensor:
        """Scale the whole gradient down to the norm `limit`.

        Returns the norm that it had, a scalar on the device.
        """
        return gather_tensor(nn.utils.clip_grad_norm_(model.parameters(), limit))

    def is_finite(self, model: nn.Module) -> bool:
        """Return whether the sum of the weights' magnitudes is finite."""
        size = nn.utils.get_total_norm(model.state_dict().values(), 1)
        return math.isfinite(gather_tensor(size).item())

    def unsharded(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return a context in which methods other than `forward` can be called.

        A compiled model runs eagerly in it. A sharded one has the weights outside of its blocks,
        and each block gathers its own when it is called.
        """
        return uncompiled()


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Copy whole weights, by name, into a model that may be sharded."""
    parameters = dict(model.named_parameters())
    for name, value in weights:
        parameters[name].copy_(shard_like(value, parameters[name]))
