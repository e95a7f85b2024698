"""A sharded model: every rank has a part of every weight, gradient and moment (FSDP2, DCP).

Tensors are sharded along their first dimension, over all ranks (FSDP) or over the ranks of a group,
so that each group has a whole copy (HSDP). The imports of this module are slow, so it is imported
only to shard a model.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from gyre.checkpoint import WEIGHTS, explained, read_shards, read_whole, write_safetensors
from gyre.device import uncompiled
from gyre.optim import Optimizers, gather_tensor, shard_like
from gyre.parallel import World
from gyre.replicated import Initial, Replicated, recompute_activations
from model.config import ModelConfig
from model.transformer import Transformer


class Sharded(Replicated):
    """Every rank has a part of the model, of which FSDP2 gathers one block at a time."""

    pads_micro_batches = True

    def __init__(self, world: World, shards: int):
        super().__init__(world)
        shape, names = (world.size // shards, shards), ("replicate", "shard")
        if shards == world.size:
            shape, names = shape[1:], names[1:]
        self.mesh = init_device_mesh(world.device.type, shape, mesh_dim_names=names)
        for name in names:  # else their groups have torch's own timeout
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=world.timeout),
                                                  self.mesh.get_group(name))

    def wrap(
        self, config: ModelConfig, initial: Initial | None, compiled: bool,
        checkpoint_activations: bool,
    ) -> tuple[Transformer, nn.Module]:
        """Shard each block, and then the rest of the model, before any weight takes memory.

        There is no precision policy: it would round ALiBi's bias and RoPE's table to bfloat16.
        Autocast does the rounding, as everywhere.
        """
        with torch.device("meta"):
            model = Transformer(config)
        vectors = {}  # norms and scalars keep the values of the constructor
        for prefix, module in model.named_modules():
            for name, parameter in module.named_parameters(prefix, recurse=False):
                if parameter.ndim < 2:
                    vectors[name] = parameter.detach()
                if parameter.ndim == 0:  # cannot be divided
                    setattr(module, name.rpartition(".")[2], nn.Parameter(parameter.reshape(1)))
        model.to("meta")
        for layer in model.layers:
            fully_shard(layer, mesh=self.mesh)
        fully_shard(model, mesh=self.mesh)
        model.to_empty(device=self.world.device)
        parameters = dict(model.named_parameters())
        for name, value in (*vectors.items(), *(initial(model) if initial else ())):
            copy_shard(parameters[name], value)
        if checkpoint_activations:
            recompute_activations(model)
        if compiled:
            for layer in model.layers:  # alone: FSDP gathers and frees weights between them
                layer.compile()
        return model, model

    def averaging(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Average gradients between the groups with the last micro-batch only.

        Within a group they are averaged and scattered after every micro-batch, because a rank has
        no room for whole gradients.
        """
        cast(FSDPModule, module).set_requires_all_reduce(last)
        return nullcontext()

    @contextmanager
    def gather(self, model: nn.Module) -> Iterator[None]:
        cast(FSDPModule, model).unshard()
        with uncompiled():
            yield
        cast(FSDPModule, model).reshard()

    def save(
        self, folder: Path, model: Transformer, optimizers: Optimizers | None
    ) -> list[Path]:
        """Write this rank's part of everything; without optimizers, rank 0 writes whole weights."""
        if optimizers is None:
            weights = model.state_dict()
            whole = (gather_tensor(weight.detach()).cpu() for weight in weights.values())
            if not self.world.is_main:
                for _ in whole:  # one at a time, together with rank 0
                    pass
                return []
            write_safetensors(folder / WEIGHTS, weights, whole)
            return [folder / WEIGHTS]
        # Safetensors, because DCP's own format has a pickle, and reading a pickle can execute code.
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        with explained(f"cannot write {folder}"):
            dcp.save(state_tensors(model, optimizers), storage_writer=writer)
        return [*folder.glob(f"shard-{self.world.rank + 1:05d}-*")]

    def load(self, folder: Path, model: Transformer, optimizers: Optimizers) -> None:
        """Read this rank's part, whatever number of ranks wrote the checkpoint."""
        tensors = state_tensors(model, optimizers)
        if not (folder / WEIGHTS).exists():
            read_shards(folder, tensors, self.world)
            return
        stored = {f"model.{name}": t for name, t in read_whole(folder, "model.").items()}
        stored |= read_whole(folder, "state.")
        for name, tensor in tensors.items():
            copy_shard(tensor, stored[name])


@torch.no_grad()
def copy_shard(target: Tensor, source: Tensor) -> None:
    """Copy a whole tensor into one that may be sharded."""
    target.copy_(shard_like(source.view(1) if source.ndim == 0 else source, target))


def state_tensors(model: Transformer, optimizers: Optimizers) -> dict[str, Tensor]:
    """Return every weight, `model.NAME`, and optimizer state, such as `state.NAME.exp_avg`.

    They are the tensors themselves, to write or to read into; the model is sharded again before, if
    it was gathered. A scalar has the shape (1,), as in a sharded model.
    """
    cast(FSDPModule, model).reshard()  # an evaluation leaves the weights outside blocks gathered
    options = StateDictOptions(flatten_optimizer_state_dict=True)  # also makes missing ones
    states = get_optimizer_state_dict(model, optimizers.optimizers, options=options)
    tensors = {f"model.{name}": p.detach() for name, p in model.named_parameters()}
    tensors |= {name: value for name, value in states.items() if isinstance(value, Tensor)}
    return {name: t.view(1) if t.ndim == 0 else t for name, t in tensors.items()}
