"""The rows and shards of one process, and the memory that these take at least."""

import torch

from gyre.compute import check_memory
from gyre.options import Config, TrainConfig
from gyre.parallel import World
from model.config import ModelConfig
from model.encodings import POSITIONS, key_dim, overrides
from model.position import table_positions


def check_fits(config: Config, world: World, dtype: torch.dtype, compiled: bool) -> None:
    """Raise UserError for a training that the memory of these processes cannot hold.

    `dtype` is that of matrix products.
    """
    rows = count_rows(config.train, world)
    check_memory(world.device, count_least_bytes(config, world, dtype, compiled),
                 f"this model with {rows} rows of {config.data.seq_len} tokens",
                 "choose a smaller model, data.seq_len or train.micro_batch_size")


def check_batch(config: Config, world: World) -> None:
    """Raise UserError if no memory holds the rows that a process reads for a step.

    train.micro_batch_size makes no difference: the rows are read together (`TokenDataset.batch`).
    """
    rows = count_share(config.train, world)
    # At their peak, four arrays of 8-byte integers: the places of the tokens in the file, the
    # tokens there, x and y. The keys of dropout come after the first two are freed, and take less.
    size = 4 * 8 * rows * (config.data.seq_len + 1)
    check_memory(torch.device("cpu"), size,
                 f"reading {rows} rows of {config.data.seq_len} tokens for each step",
                 "choose a smaller train.batch_size or data.seq_len")


def check_table(model: ModelConfig, origin: str, advice: str) -> None:
    """Raise UserError if no memory holds the table of rotations of a model. `origin` says where its
    length is from."""
    positions = table_positions(model)
    # A pair of channels takes 8 bytes in the table. While that is made, it also has an angle in
    # double precision, 8 bytes, and a rotation, 16.
    size = (8 + 8 + 16) * positions * key_dim(model) // 2
    check_memory(torch.device("cpu"), size, f"the table of {positions} positions {origin}", advice)


def count_least_bytes(
    config: Config, world: World, dtype: torch.dtype, compiled: bool
) -> int:
    """Return how many bytes one process of a training takes at least.

    `dtype` is that of matrix products. The activations of the blocks are not counted.
    """
    rows = count_rows(config.train, world)
    shards = count_shards(config.train, world)
    logits = rows * config.data.seq_len * config.model.vocab_size
    # At least 4 bytes for each parameter, its gradient and one moment.
    size = 12 * config.model.matrix_parameters // shards
    size += logits * count_logit_bytes(world.device, dtype, compiled)
    if overrides(POSITIONS[config.model.position], "freqs_cis"):  # it has a table of rotations
        size += 4 * table_positions(config.model) * key_dim(config.model)
    return size


def count_logit_bytes(device: torch.device, dtype: torch.dtype, compiled: bool) -> int:
    """Return how many bytes a logit takes at the peak of a step: the backward pass of the loss.

    `dtype` is that of matrix products, and of the logits.
    """
    if compiled:  # the pass is one kernel, which reads a logit and writes its gradient
        return 2 * dtype.itemsize
    if device.type == "cpu":  # the gradient overwrites the logit (`loss_by_chunks`)
        return dtype.itemsize
    # The log-probability, its gradient and the gradient of the logit, in float32.
    return 3 * torch.float32.itemsize


def count_rows(train: TrainConfig, world: World) -> int:
    """Return the largest number of rows in one forward pass of one process."""
    share = count_share(train, world)
    if train.micro_batch_size is None:
        return share
    return min(train.micro_batch_size, share)


def count_share(train: TrainConfig, world: World) -> int:
    """Return the largest number of rows of a step in one process."""
    return (train.batch_size + world.size - 1) // world.size


def count_shards(train: TrainConfig, world: World) -> int:
    """Return over how many processes the model is sharded."""
    if train.shard == "full":
        return world.size
    # One process is never sharded, so a cluster's configuration with shard 4 also runs on one GPU.
    if world.size > 1 and isinstance(train.shard, int):
        return train.shard
    return 1
