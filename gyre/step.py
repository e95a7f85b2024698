"""One optimizer step, and the loss of a split.

Shapes: B rows, T tokens, V vocabulary.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from data.dataset import Prepared, TokenDataset
from gyre.compute import Compute, uncompiled
from gyre.optim import Optimizers, lr_factor
from gyre.options import Config
from gyre.parallel import Replicated, World
from model.dropout import derive_seed
from model.generation import evaluating
from model.transformer import Transformer


class StepResult(NamedTuple):
    """What a step has measured, over all processes."""

    loss: float
    """Mean cross entropy, nats per token."""
    grad_norm: float
    """Norm of the whole gradient before it is clipped."""
    lr: float
    """Learning rate of AdamW."""
    finite: bool
    """Whether loss and gradient were finite. If not, no weight has changed."""
    seconds: float
    """From the start of the step in this process until all but the last kernels of a GPU are done.
    """


@dataclass
class Progress:
    """What a run has done so far; saved with every checkpoint."""

    step: int = 0
    """Optimizer steps taken, skipped ones included."""
    tokens: int = 0
    """Tokens trained on, over all processes."""
    seconds: float = 0.0
    """Time of training steps, without validation, samples and saving."""
    skipped: int = 0
    """Steps whose loss or gradient was not finite."""
    skipped_in_a_row: int = 0
    """How many of the most recent steps were skipped, without a finite one between them."""
    best: float = math.inf
    """Lowest validation loss, nats per token."""

    @property
    def axes(self) -> dict[str, float]:
        """The x axes against which a logged point can be drawn."""
        return {"step": self.step, "tokens": self.tokens, "seconds": self.seconds}

    def advance(self, result: StepResult, tokens: int) -> bool:
        """Count a step. Returns whether training can go on: not after three skipped in a row."""
        self.step += 1
        self.tokens += tokens
        self.seconds += result.seconds
        if result.finite:
            self.skipped_in_a_row = 0
        else:
            self.skipped += 1
            self.skipped_in_a_row += 1
        return self.skipped_in_a_row < 3


@dataclass(frozen=True)
class Setup:
    """What each process needs for training. Made by `gyre.build.build`."""

    config: Config
    """With every `auto` resolved."""
    world: World
    compute: Compute
    parallelism: Replicated
    """Or its subclass `Sharded`."""
    data: Prepared
    train_data: TokenDataset
    val_data: TokenDataset
    model: Transformer
    """The model without DDP's wrapper, for evaluation and for checkpoints."""
    module: nn.Module
    """What training calls: `model`, inside DDP if several processes have the whole of it."""
    optimizers: Optimizers
    loss: Callable[[Tensor, Tensor], Tensor]
    """`summed_loss`, compiled or not."""
    rows: int
    """Largest number of rows in one forward pass of one process."""
    progress: Progress
    """Where the training stands. The one thing here that every step changes."""


def train_step(setup: Setup, step: int) -> StepResult:
    """Take optimizer step number `step` on its global batch."""
    started = time.perf_counter()
    config = setup.config
    world = setup.world
    optimizers = setup.optimizers
    factor = lr_factor(config.optim, step, config.train.steps)
    for group, peak in optimizers.peaks:
        group["lr"] = peak * factor
    tokens = config.train.batch_size * config.data.seq_len
    loss_sum = torch.zeros((), device=world.device)
    batches = micro_batches(setup, step)
    for number, (x, y, keys) in enumerate(batches, 1):
        with setup.parallelism.averaging(setup.module, last=number == len(batches)):
            with setup.compute.autocast():
                logits = setup.module(x.to(world.device), dropout_keys=keys)
            loss = setup.loss(logits, y.to(world.device))
            # Divided by the tokens of the whole batch, so that every token weighs the same; times
            # the number of processes, because DDP and FSDP average over them.
            (loss * (world.size / tokens)).backward()
        loss_sum += loss.detach()
    grad_norm = setup.parallelism.clip_grad(setup.model, config.optim.grad_clip or math.inf)
    mean_loss = world.sum(loss_sum.item())[0] / tokens
    finite = math.isfinite(mean_loss) and math.isfinite(grad_norm)
    if finite:
        for optimizer in optimizers.optimizers:
            optimizer.step()
    setup.model.zero_grad()
    seconds = time.perf_counter() - started
    return StepResult(mean_loss, grad_norm, factor * config.optim.lr, finite, seconds)


def micro_batches(setup: Setup, step: int) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """Return this rank's micro-batches of batch `step`: x and y (B, T), and the keys of dropout.

    The keys (B,) are hashes of (seed, step, row); None without dropout.
    """
    config = setup.config
    data = setup.train_data
    x, y = data.batch(step)
    keys: Tensor | None = None
    if config.model.dropout:
        seeds = [derive_seed(config.seed, "dropout", step, row)
                 for row in data.share(config.train.batch_size)]
        keys = torch.tensor(seeds, device=setup.world.device)
    cuts = [slice(first, first + setup.rows) for first in range(0, len(x), setup.rows)]
    batches = [(x[cut], y[cut], None if keys is None else keys[cut]) for cut in cuts]
    largest_share = math.ceil(config.train.batch_size / setup.world.size)
    most_batches = math.ceil(largest_share / setup.rows)
    if setup.parallelism.pads_micro_batches and len(batches) < most_batches:
        # Ranks gather weights together, so all need equally many forward passes. The targets of
        # this extra batch, -100, are ignored.
        batches.append((x[:1], torch.full_like(y[:1], -100), None if keys is None else keys[:1]))
    return batches


def summed_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Return the cross entropy of logits (B, T, V) and targets (B, T) in nats, a scalar in float32,
    summed over all targets but those that are -100."""
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten(), reduction="sum")


@torch.no_grad()
def token_losses(
    model: Transformer, data: TokenDataset, batch_size: int, compute: Compute
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the losses and the targets of this rank's share of a split, in order.

    One pair for each batch, on the CPU: the cross entropy in nats of each target, float64 (N,), and
    its id, int64 (N,).

    Dropout is off until the iterator ends or is closed, and no random number is drawn. A compiled
    model runs eagerly here, because other shapes and the lack of gradients would cost a second
    compilation. All ranks call the model equally often, because sharded weights are gathered.
    """
    n_windows = math.ceil((data.n_tokens - 1) / data.seq_len)
    batches = math.ceil(math.ceil(n_windows / data.world_size) / batch_size)
    with evaluating(model):
        for x, y in tqdm(data.windows(batch_size), "validate", batches, leave=False, delay=2,
                         disable=data.rank > 0):
            with compute.autocast(), uncompiled():
                logits = model(x.to(compute.device))
            targets = y.flatten()
            nats = F.cross_entropy(logits.float().flatten(0, 1), targets.to(compute.device),
                                   reduction="none")
            is_target = targets != -100
            yield nats.cpu().double()[is_target], targets[is_target]
