"""A model of which every process has a part: dividing it (FSDP2), and its checkpoints (DCP).

Every weight, gradient and moment is divided, along its first dimension, over all processes (FSDP),
or over those of a group, so that each group has a whole copy (HSDP). A block's weights are gathered
for as long as they are needed. What is imported here takes as long as all else until the first
step, so only who divides a model, or reads the checkpoint of one, imports this module.
"""

import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate

from errors import UserError
from files import first_line
from gyre.parallel import World
from model.transformer import Transformer


@cache
def mesh_of(world: World) -> DeviceMesh:
    """The processes as a table: a row, or all of them, has the parts of one copy; a column has the
    same part of every copy."""
    shape, names = (world.size // world.shards, world.shards), ("replicate", "shard")
    if world.shards == world.size:
        shape, names = shape[1:], names[1:]
    mesh = init_device_mesh(world.device.type, shape, mesh_dim_names=names)
    for name in names:  # their groups would wait as long as torch has it
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=world.timeout),
                                              mesh.get_group(name))
    return mesh


def divide(model: Transformer, world: World) -> None:
    """Divide a model on the device "meta" into parts on this one: each block, and what is in none
    of them, is gathered on its own. Matrices are undefined afterwards; see `copy_part`.

    There is no precision policy, which would hand blocks ALiBi's bias and RoPE's table in bfloat16;
    autocast does the same everywhere.
    """
    mesh = mesh_of(world)
    vectors = {}  # which are not drawn: they have their values already
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix, recurse=False):
            if parameter.ndim < 2:
                vectors[name] = parameter.detach()
            if parameter.ndim == 0:  # which cannot be divided
                setattr(module, name.rpartition(".")[2], nn.Parameter(parameter.reshape(1)))
    model.to("meta")
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device=world.device)
    parameters = dict(model.named_parameters())
    for name, value in vectors.items():
        copy_part(parameters[name], value)


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Within, methods of a divided model can be called that are not its `forward`."""
    assert isinstance(model, FSDPModule)
    model.unshard()
    yield
    model.reshard()


def part(tensor: Tensor, like: Tensor) -> Tensor:
    """Of a whole tensor, which every process has, what this one has of `like`. No process waits for
    another."""
    if not isinstance(like, DTensor):
        return tensor
    everywhere = [Replicate()] * like.device_mesh.ndim
    replicated = DTensor.from_local(tensor.to(like.device), like.device_mesh, everywhere,
                                    run_check=False)
    return replicated.redistribute(placements=like.placements)


@torch.no_grad()
def copy_part(target: Tensor, source: Tensor) -> None:
    """Copy a whole tensor into one of which this process may have a part only."""
    target.copy_(part(source.view(1) if source.ndim == 0 else source, target))


# --- checkpoints ----------------------------------------------------------------------------------


def state_tensors(
    model: nn.Module, optimizers: list[torch.optim.Optimizer]
) -> dict[str, Tensor]:
    """Every weight, `model.NAME`, and everything that the optimizers keep of it, such as
    `state.NAME.exp_avg`: the tensors themselves, to write or to read into. A scalar has the shape
    (1,), as in a divided model.
    """
    if isinstance(model, FSDPModule):
        model.reshard()  # after a forward pass without gradients, what is in no block is gathered
    fresh = [optimizer for optimizer in optimizers if not optimizer.state]
    options = StateDictOptions(flatten_optimizer_state_dict=True)  # makes what is not there yet
    kept = get_optimizer_state_dict(model, optimizers, options=options)
    for kept_of in (of for optimizer in fresh for of in optimizer.state.values()):
        if "step" in kept_of:  # made by a step with a gradient of zero
            kept_of["step"].zero_()
    tensors = {f"model.{name}": p.detach() for name, p in model.named_parameters()}
    tensors |= {name: value for name, value in kept.items() if isinstance(value, Tensor)}
    return {name: t.view(1) if t.ndim == 0 else t for name, t in tensors.items()}


def write_parts(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write what each process has of these into one file of its own, in the format of safetensors:
    DCP's own has a pickle, which whoever reads it executes. UserError where a disk refuses."""
    with _in_words(f"cannot write {folder}"):
        dcp.save(tensors, storage_writer=_writer(folder))


def start_writing(folder: Path, tensors: dict[str, Tensor], world: World) -> Future[None]:
    """`write_parts` in the background, of a copy that is made before this returns; `written` waits
    for it."""
    with _in_words(f"cannot write {folder}"):
        future = dcp.async_save(tensors, storage_writer=_writer(folder),
                                process_group=_group(world.timeout))
    assert isinstance(future, Future)
    return future


def written(future: Future[None]) -> None:
    """Wait for the end of `start_writing`. UserError where a disk has refused."""
    with _in_words("cannot write a checkpoint"):
        future.result()


@cache
def _group(timeout: float) -> dist.ProcessGroup:
    """The processes, as they talk to each other beside the training."""
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
    assert isinstance(group, dist.ProcessGroup)
    return group


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    """Turn what went wrong in any process into a UserError, in all of them."""
    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        raise UserError(f"{what}: {first_line(cause)} (in process {rank})") from error


def _writer(folder: Path) -> HuggingFaceStorageWriter:
    return HuggingFaceStorageWriter(str(folder), save_distributed=True)


def read_parts(folder: Path, tensors: dict[str, Tensor], world: World) -> None:
    """Read what this process has of `tensors`, whatever number of processes wrote the parts.

    Raises UserError where a name is missing or a shape is another.
    """
    with warnings.catch_warnings(), _in_words(f"cannot read {folder}"):
        warnings.simplefilter("ignore")  # it takes one process for a mistake
        reader = HuggingFaceStorageReader(str(folder))
        dcp.load(tensors, storage_reader=reader, no_dist=world.size == 1)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All weights that the parts hold, whole, on the CPU."""
    stored = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    weights = {name: torch.empty(of.size, dtype=of.properties.dtype)
               for name, of in stored.items()
               if name.startswith("model.") and isinstance(of, TensorStorageMetadata)}
    read_parts(folder, weights, World(0, 1, torch.device("cpu")))
    return {name.removeprefix("model."): weight for name, weight in weights.items()}
