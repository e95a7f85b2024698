"""A replicated model, with DDP: every rank has all of it. gyre/sharding.py has the sharded one."""

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gyre.device import uncompiled
from gyre.parallel import World, gather_tensor, shard_like
from model.config import ModelConfig
from model.transformer import Transformer

Initial = Callable[[Transformer], Iterable[tuple[str, Tensor]]]


@dataclass
class Replicated:
    """Every rank has the whole model, and DDP averages the gradients.

    `gyre.sharding.Sharded` has the same methods.
    """

    world: World
    pads_micro_batches = False
    """Whether all ranks need equally many forward passes, because they gather weights together."""

    def wrap(
        self, config: ModelConfig, initial: Initial | None, compiled: bool
    ) -> tuple[Transformer, nn.Module]:
        """Return the model on its device, and the module that training calls.

        `initial(model)` yields the first values of weights by name. None: they are loaded next.
        """
        model = Transformer(config)
        copy_weights(model, initial(model) if initial else ())
        model.to(self.world.device)
        if compiled:
            model.compile()  # in place, so that the state dict keeps its names
        if self.world.size == 1:
            return model, model
        ids = [self.world.device.index] if self.world.device.type == "cuda" else None
        return model, DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)

    def averaging(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Return the context for one of several micro-batches.

        Gradients add up, and are averaged over the ranks with the `last` one only.
        """
        if last or not isinstance(module, DistributedDataParallel):
            return nullcontext()
        return module.no_sync()

    def clip_grad(self, model: nn.Module, limit: float) -> float:
        """Scale the whole gradient down to the norm `limit`, and return the norm it had."""
        return gather_tensor(nn.utils.clip_grad_norm_(model.parameters(), limit)).item()

    def is_finite(self, model: nn.Module) -> bool:
        """Return whether the sum of the weights' magnitudes is finite."""
        size = nn.utils.get_total_norm(model.state_dict().values(), 1)
        return math.isfinite(gather_tensor(size).item())

    def gather(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return the context in which methods other than `forward` can be called."""
        return uncompiled()


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Copy whole weights, by name, into a model that may be sharded."""
    parameters = dict(model.named_parameters())
    for name, value in weights:
        parameters[name].copy_(shard_like(value, parameters[name]))
