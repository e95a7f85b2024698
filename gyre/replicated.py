"""A replicated model, with DDP: every rank has all of it. gyre/sharding.py has the sharded one."""

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from gyre.checkpoint import STATES, WEIGHTS, read_whole
from gyre.device import uncompiled
from gyre.optim import Optimizers, gather_tensor
from gyre.parallel import World
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
        self, config: ModelConfig, initial: Initial | None, compiled: bool,
        checkpoint_activations: bool,
    ) -> tuple[Transformer, nn.Module]:
        """Return the bare model on its device, and the module that training calls.

        `initial(model)` yields the first values of weights by name. None: they are loaded next.
        """
        model = Transformer(config)
        with torch.no_grad():
            weights = dict(model.named_parameters())
            for name, value in initial(model) if initial else ():
                weights[name].copy_(value)
        model.to(self.world.device)
        if checkpoint_activations:
            recompute_activations(model)
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

    def norm(self, model: nn.Module, limit: float) -> float:
        """Return the norm of the whole gradient, and scale the gradient down to `limit`."""
        return gather_tensor(nn.utils.clip_grad_norm_(model.parameters(), limit)).item()

    def is_finite(self, model: nn.Module) -> bool:
        """Return whether the sum of the weights' magnitudes is finite."""
        size = nn.utils.get_total_norm(model.state_dict().values(), 1)
        return math.isfinite(gather_tensor(size).item())

    def gather(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return the context in which methods other than `forward` can be called."""
        return uncompiled()

    def save(
        self, folder: Path, model: Transformer, optimizers: Optimizers | None
    ) -> list[Path]:
        """Write weights and optimizer states into a folder. Returns the files of this rank.

        Without optimizers, rank 0 writes the weights whole.
        """
        if not self.world.is_main:
            return []
        files = {WEIGHTS: model.state_dict()}
        if optimizers is not None:
            files[STATES] = optimizers.tensors()
        for name, tensors in files.items():
            save_file({key: tensor.detach().contiguous() for key, tensor in tensors.items()},
                      folder / name, {"format": "pt"})
        return [folder / name for name in files]

    def load(self, folder: Path, model: Transformer, optimizers: Optimizers) -> None:
        """Read what any number of ranks has saved. KeyError or RuntimeError if it does not fit."""
        model.load_state_dict(read_whole(folder, "model."))
        optimizers.load_tensors(read_whole(folder, "state."))


def recompute_activations(model: Transformer) -> None:
    """Let each block keep its input only, and compute the rest again in the backward pass."""
    for layer in model.layers:
        # No random state to keep: masks of dropout are a function of (seed, step, row).
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False,
                                preserve_rng_state=False)
