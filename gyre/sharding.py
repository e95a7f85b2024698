"""A sharded model: every rank has a part of every weight, gradient and moment (FSDP2).

Tensors are sharded along their first dimension, over all ranks (FSDP) or over the ranks of a group,
so that each group has a whole copy (HSDP). The imports of this module are slow, so it is imported
only to shard a model.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from gyre.compute import uncompiled
from gyre.parallel import Replicated, World, copy_weights
from model.config import ModelConfig
from model.transformer import Transformer


def set_timeout(group: dist.ProcessGroup, seconds: float) -> None:
    """Give a group its timeout: publicly from torch 2.14 on, which warns of the private name."""
    set_publicly = getattr(dist, "set_timeout", None)
    if set_publicly is None:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)
    else:
        set_publicly(timedelta(seconds=seconds), group)


class Sharded(Replicated):
    """Every rank has a part of the model, of which FSDP2 gathers one block at a time."""

    pads_micro_batches = True

    def __init__(self, world: World, shards: int):
        super().__init__(world)
        shape: tuple[int, ...] = (world.size // shards, shards)
        names: tuple[str, ...] = ("replicate", "shard")
        if shards == world.size:
            shape = (shards,)
            names = ("shard",)
        self.mesh = init_device_mesh(world.device.type, shape, mesh_dim_names=names)
        for name in names:  # else their groups have torch's own timeout
            set_timeout(self.mesh.get_group(name), world.timeout)

    def build_model(self, config: ModelConfig, compiled: bool) -> tuple[Transformer, nn.Module]:
        """Shard each block, and then the rest of the model, before any weight takes memory.

        There is no precision policy: it would round ALiBi's bias and RoPE's table to bfloat16.
        Autocast does the rounding, as everywhere.
        """
        with torch.device("meta"):
            model = Transformer(config)
        vectors = [(name, parameter.detach()) for name, parameter in model.named_parameters()
                   if parameter.ndim < 2]  # they keep the values of the constructor
        model.to("meta")
        for layer in model.layers:
            fully_shard(layer, mesh=self.mesh)
        fully_shard(model, mesh=self.mesh)
        model.to_empty(device=self.world.device)
        copy_weights(model, vectors)
        if compiled:
            for layer in model.layers:  # alone: FSDP gathers and frees weights between them
                layer.compile()
        return model, model

    def share_weights(self, model: nn.Module) -> None:
        """Do nothing: every rank has another part."""

    def averaging(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Average gradients between the groups with the last micro-batch only.

        Within a group they are averaged and scattered after every micro-batch, because a rank has
        no room for whole gradients.
        """
        cast(FSDPModule, module).set_requires_all_reduce(last)
        return nullcontext()

    @contextmanager
    def unsharded(self, model: nn.Module) -> Iterator[None]:
        cast(FSDPModule, model).unshard()
        with uncompiled():
            yield
        cast(FSDPModule, model).reshard()
