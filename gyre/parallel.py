"""One process or many: the only place that reads torchrun's environment."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from inspect import signature

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from errors import UserError
from gyre.device import resolve_device


@dataclass(frozen=True)
class World:
    """The processes that train together. Without torchrun: a world of one, in which nothing
    waits."""

    rank: int
    size: int
    device: torch.device

    @classmethod
    def read(cls, device: str = "auto") -> World:
        """The world that torchrun's environment describes. Nobody is met yet; see `join`."""
        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if size > 1 and device.startswith("cuda:"):
            raise UserError(
                f"device {device} is one card, and there are {size} processes: use cuda"
            )
        resolved = resolve_device(device, int(os.environ.get("LOCAL_RANK", 0)))
        if size > 1 and resolved.type == "mps":
            resolved = torch.device(
                "cpu"
            )  # there is one MPS, and no backend that joins it to itself
        return cls(rank, size, resolved)

    def join(self) -> None:
        """Meet the others: nccl between GPUs, gloo otherwise."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.size > 1:
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in training: it averages gradients over the world."""
        if self.size == 1:
            return model
        ids = [self.device.index] if self.device.type == "cuda" else None
        # Every process computes the same buffers. The option's name changed in torch 2.13.
        known = signature(DistributedDataParallel).parameters
        sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        return DistributedDataParallel(
            model, device_ids=ids, gradient_as_bucket_view=True, **{sync: False}
        )

    def sum(self, *values: float) -> list[float]:
        """Each value summed over all processes; in float64, so that token counts stay exact."""
        if self.size == 1:
            return list(values)
        total: Tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def leave(self) -> None:
        if self.size > 1 and dist.is_initialized():
            # gloo's threads, which DDP keeps alive to the end, may still be waiting for Python's
            # lock to drop their last tensor; a thread that gets it while Python exits aborts the
            # process. Sleeping hands it over.
            time.sleep(0.1)
            dist.destroy_process_group()
