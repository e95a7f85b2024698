"""One optimizer step, and the loss of a split.

Shapes: B rows, T tokens, V vocabulary.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from data.dataset import Prepared, TokenDataset
from gyre.compute import Compute, uncompiled
from gyre.gradient_graphs import GradientGraphs
from gyre.optim import Optimizers, lr_factor
from gyre.options import Config
from gyre.parallel import Replicated, World
from gyre.signals import StopSignal
from model.generation import evaluating
from model.kernels import or_faster
from model.transformer import Transformer, derive_seed


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
    is_asked_to_stop: bool
    """Whether any process had been asked to stop when the losses of this step were summed."""
    seconds: float
    """Time from its start, or from the end of the previous step if that was later, to its end."""
    finished_at: float
    """When `wait` found its results ready, by `time.perf_counter`."""
    loss_scale: float
    """Factor of the loss from which the gradient was computed, in float16; else 1."""

    @property
    def overflowed(self) -> bool:
        """Whether only the gradient was not finite, and a smaller `loss_scale` may mend that."""
        return math.isfinite(self.loss) and not self.finite and self.loss_scale > 1


GIVE_UP_AFTER = 3
"""So many steps in a row that are not finite end a training."""


class Measurements(NamedTuple):
    """What a step measures on the device. `gather_measurements` returns it as one tensor, so that
    one copy brings all of it to the CPU."""

    loss_sum: float
    """The loss in nats, summed over the tokens of all processes."""
    stop: float
    """More than 0 if any process was asked to stop."""
    grad_norm: float
    """Norm of the gradient."""
    loss_scale: float
    """Factor of the loss, in float16; else 1."""


@dataclass
class PendingStep:
    """A step that a GPU may still be computing."""

    measured: Tensor
    """`Measurements` as a tensor, with one value for each of its fields."""
    copied: torch.cuda.Event | None
    """Occurs when `measured` has come from CUDA to the CPU. On other devices None."""
    tokens: int
    """Number of tokens over which the loss is summed."""
    lr: float
    started_at: float
    finished_at: float | None = None
    """None before `wait`."""

    def wait(self) -> None:
        """Wait until the results are ready."""
        if self.finished_at is not None:
            return
        if self.copied is not None:
            self.copied.synchronize()
        elif self.measured.device.type == "mps":
            torch.mps.synchronize()
        self.finished_at = time.perf_counter()

    def read(self, since: float = -math.inf) -> StepResult:
        """Wait for the step, and return what it has measured.

        `since` is when the previous step was finished. Time before that belongs to that step.
        """
        self.wait()
        assert self.finished_at is not None
        measured = Measurements(*self.measured.tolist())
        loss = measured.loss_sum / self.tokens
        # The step was skipped if any measured number was not finite. These two are enough here:
        # `stop` and `loss_scale` are always finite.
        finite = math.isfinite(loss) and math.isfinite(measured.grad_norm)
        return StepResult(
            loss=loss, grad_norm=measured.grad_norm, lr=self.lr, finite=finite,
            is_asked_to_stop=measured.stop > 0,
            seconds=self.finished_at - max(self.started_at, since),
            finished_at=self.finished_at, loss_scale=measured.loss_scale,
        )


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
    """How many steps were skipped since the last finite one. Those that overflowed do not count,
    because the next step has a smaller `loss_scale`."""
    steps_unchanged: int = 0
    """How many steps there were since the last finite one, those that overflowed included. None of
    them has changed a weight."""
    best_loss: float = math.inf
    """Lowest validation loss, nats per token: that of the checkpoint `best`."""

    def to_saved(self) -> dict[str, Any]:
        """Return the fields as checkpoints have them. There, `best_loss` is called `best`."""
        saved = asdict(self)
        saved["best"] = saved.pop("best_loss")
        return saved

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Progress":
        """Return the progress that `to_saved` made this table of."""
        return cls(**{"best_loss" if name == "best" else name: value
                      for name, value in saved.items()})

    @property
    def axes(self) -> dict[str, float]:
        """The x axes against which a logged point can be drawn."""
        return {"step": self.step, "tokens": self.tokens, "seconds": self.seconds}

    def advance(self, result: StepResult, tokens: int) -> bool:
        """Count a step. Returns whether training can go on: not once GIVE_UP_AFTER steps in a row
        were skipped."""
        self.step += 1
        self.tokens += tokens
        self.seconds += result.seconds
        if result.finite:
            self.skipped_in_a_row = 0
            self.steps_unchanged = 0
        else:
            self.skipped += 1
            self.steps_unchanged += 1
            if not result.overflowed:
                self.skipped_in_a_row += 1
        return self.skipped_in_a_row < GIVE_UP_AFTER


@dataclass(frozen=True)
class Setup:
    """What each process needs for training. Made by `gyre.build.build`."""

    config: Config
    """With train.minutes, train.steps is a placeholder until the first steps are timed. All else is
    final."""
    world: World
    compute: Compute
    parallelism: Replicated
    """Or its subclass `Sharded`."""
    data: Prepared
    train_data: TokenDataset
    val_data: TokenDataset
    model: Transformer
    """The model without DDP's wrapper, for evaluation and for checkpoints."""
    wrapped: nn.Module
    """The model as training calls it: in DDP's wrapper if several processes have all weights."""
    optimizers: Optimizers
    loss_function: Callable[[Tensor, Tensor], Tensor]
    """`summed_loss`, compiled or not."""
    rows_per_pass: int
    """Largest number of rows in one forward pass of one process."""
    progress: Progress
    """Where the training stands. `advance` moves it."""
    scaler: torch.amp.GradScaler
    """Scales the loss in float16, so that small gradients are not rounded to 0. In other dtypes it
    does nothing."""
    stop: StopSignal
    """What asks this process to stop."""
    base_sha256: str = ""
    """The hash of the weights of --init-from, if the training starts from them."""
    reads_late: bool = False
    """Whether a step is started before the results of the previous one are read. It is so on CUDA,
    and keeps a GPU busy; on a CPU only tests set it. The optimizers themselves skip a step that is
    not finite, because the CPU does not know of it yet."""
    graphs: GradientGraphs | None = None
    """Runs `add_gradient` for this setup as CUDA graphs. None where they gain nothing."""


def train_step(setup: Setup, step: int) -> StepResult:
    """Take optimizer step number `step` on its global batch, and wait for what it measures."""
    return start_step(setup, step).read()


@dataclass
class StepQueue:
    """Optimizer steps that are taken one after the other.

    With `setup.reads_late`, a step is started before the results of the one before it are read, so
    that a GPU need not wait for the CPU.
    """

    setup: Setup
    started: PendingStep | None = None
    """The step that is started, and that `take` has not returned yet."""
    finished_at: float = -math.inf
    """When the last step that `take` has returned was finished. The time of the next step counts
    from then on, or from its own start if that is later."""

    def start(self, step: int) -> PendingStep:
        """Start step number `step`. The next call of `take` returns its results."""
        self.started = start_step(self.setup, step)
        return self.started

    def take(self, step: int, next_step: int | None) -> StepResult:
        """Start step number `step`, unless it is started already, and return its results.

        With `setup.reads_late`, starts step number `next_step` before it reads them. If that is
        None, starts none: the caller needs the results, or the weights, of this step first.
        """
        current = self.start(step) if self.started is None else self.started
        self.started = None
        if self.setup.reads_late and next_step is not None:
            self.start(next_step)
        result = current.read(since=self.finished_at)
        self.finished_at = result.finished_at
        return result


def start_step(setup: Setup, step: int) -> PendingStep:
    """Start optimizer step number `step` on its global batch.

    With `setup.reads_late` the CPU does not wait for the GPU here. The GPU decides whether loss and
    gradient are finite, and copies the results to the CPU when it has them. Meanwhile the caller
    can start the next step, and read its batch: so batches need no thread of their own.
    """
    started_at = time.perf_counter()
    config = setup.config
    optimizers = setup.optimizers
    factor = lr_factor(config.optim, step, config.train.steps)
    for group, peak in optimizers.peaks:
        group["lr"] = peak * factor
    loss_sum = compute_gradients(setup, step)
    for optimizer in optimizers.optimizers:
        setup.scaler.unscale_(optimizer)  # pyrefly: ignore[bad-argument-type]
    limit = config.optim.grad_clip if config.optim.grad_clip else math.inf
    grad_norm = setup.parallelism.clip_grad(setup.model, limit)
    measured = gather_measurements(setup, loss_sum, grad_norm)
    apply_gradients(setup, measured.isfinite().all())
    copied = None
    if setup.world.device.type == "cuda":
        measured = measured.to("cpu", non_blocking=True)  # into pinned memory
        copied = torch.cuda.Event()
        copied.record()
    lr = factor * config.optim.lr
    pending = PendingStep(measured, copied, config.step_tokens, lr, started_at)
    if not setup.reads_late:
        pending.wait()
    return pending


def gather_measurements(setup: Setup, loss_sum: Tensor, grad_norm: Tensor) -> Tensor:
    """Return the numbers of `Measurements`, in its order, as a tensor on the device."""
    stop = torch.full_like(loss_sum, setup.stop.number)
    sums = setup.world.sum_tensor(torch.stack([loss_sum, stop]))
    # Scaling a 1 gives the scale as a tensor on the device: `get_scale` would wait for a GPU.
    loss_scale = setup.scaler.scale(torch.ones_like(loss_sum))
    already_global = torch.stack([grad_norm, loss_scale])  # equal in all processes
    # `sums` is in float64 if there are several processes.
    return torch.cat([sums, already_global.to(sums.dtype)])


def apply_gradients(setup: Setup, finite: Tensor) -> None:
    """Change the weights by their gradients, unless `finite` is false, and clear the gradients.

    Not by `scaler.step`: each optimizer and process would decide for itself whether to skip the
    step. It is decided once, for all of them.
    """
    if setup.reads_late:
        setup.optimizers.step(found_inf=1 - finite.float())
    elif finite:
        setup.optimizers.step()
    # Changes the scale by what `unscale_` has found. That is equal in all ranks: DDP has averaged
    # the gradients, and DTensor reduces what was found over the shards.
    setup.scaler.update()
    setup.model.zero_grad()


def compute_gradients(setup: Setup, step: int) -> Tensor:
    """Compute the gradients of batch `step`, averaged over the processes.

    Returns the sum of this process's losses in nats, a scalar on the device.
    """
    world = setup.world
    loss_sum = torch.zeros((), device=world.device)
    batches = micro_batches(setup, step)
    for number, (x, y, keys) in enumerate(batches, 1):
        x = copy_to(world.device, x)
        y = copy_to(world.device, y)
        if keys is not None:
            keys = copy_to(world.device, keys)
        with setup.parallelism.averaging(setup.wrapped, last=number == len(batches)):
            if setup.graphs is None:
                loss_sum += add_gradient(setup, x, y, keys)
            else:
                loss_sum += setup.graphs.run(x, y, keys)
    return loss_sum


def add_gradient(setup: Setup, x: Tensor, y: Tensor, keys: Tensor | None) -> Tensor:
    """Add the gradient of a micro-batch, which is on the device, to the gradients of its batch.

    Returns the sum of its losses in nats, a scalar on the device. Copies no number from the device,
    because `GradientGraphs` may record this as a CUDA graph.
    """
    with setup.compute.autocast():
        logits = setup.wrapped(x, dropout_keys=keys)
    loss = setup.loss_function(logits, y)
    # The plain form of `summed_loss` keeps log-probabilities for its gradient, and not the logits.
    # The memory of the logits is then free before the backward pass needs as much again.
    del logits
    # Divided by the tokens of the whole batch, so that every token weighs the same; times the
    # number of processes, because DDP and FSDP average over them.
    setup.scaler.scale(loss * (setup.world.size / setup.config.step_tokens)).backward()
    return loss.detach()


def copy_to(device: torch.device, tensor: Tensor) -> Tensor:
    """Copy a tensor from the CPU to the device, without waiting for a GPU.

    A GPU copies from pinned memory, and torch keeps the pinned copy until the GPU has read it.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def micro_batches(setup: Setup, step: int) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """Return this rank's micro-batches of batch `step`: x and y (B, T), and the keys of dropout.

    All are on the CPU. The keys (B,) are hashes of (seed, "dropout", step, row); None without
    dropout.
    """
    config = setup.config
    data = setup.train_data
    x, y = data.batch(step)
    keys: Tensor | None = None
    if config.model.dropout:
        seeds = [derive_seed(config.seed, "dropout", step, row)
                 for row in data.share(config.train.batch_size)]
        keys = torch.tensor(seeds)
    rows = setup.rows_per_pass
    cuts = [slice(first, first + rows) for first in range(0, len(x), rows)]
    batches = [(x[cut], y[cut], None if keys is None else keys[cut]) for cut in cuts]
    largest_share = math.ceil(config.train.batch_size / setup.world.size)
    most_batches = math.ceil(largest_share / rows)
    # The shares of the ranks differ by one row at most, so this rank lacks one batch or none.
    lacks_one = len(batches) < most_batches
    if setup.parallelism.pads_micro_batches and lacks_one:
        # Ranks gather weights together, so all need equally many forward passes. The targets of
        # this one, -100, are ignored.
        batches.append((x[:1], torch.full_like(y[:1], -100), None if keys is None else keys[:1]))
    return batches


@or_faster
def summed_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Return the cross entropy of logits (B, T, V) and targets (B, T) in nats, a scalar in float32,
    summed over all targets but those that are -100.

    This is the plain form. model/kernels.py chooses between it and a faster one, whose backward
    pass may overwrite the logits.
    """
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten(), reduction="sum")


@torch.no_grad()
def token_losses(
    model: Transformer, data: TokenDataset, rows: int, compute: Compute
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the losses and the targets of this rank's share of a split, in order.

    One pair for each batch of `rows` windows, on the CPU: the cross entropy in nats of each target,
    float64 (N,), and its id, int64 (N,).

    Dropout is off until the iterator ends or is closed, and no random number is drawn. A compiled
    model runs eagerly here, because other shapes and the lack of gradients would cost a second
    compilation. All ranks call the model equally often, because they gather sharded weights
    together. So a rank with fewer rows gets an additional batch without targets from `windows`.
    """
    with evaluating(model):
        for x, y in tqdm(data.windows(rows), desc="validate", total=data.count_batches(rows),
                         unit="batch", leave=False, delay=2, disable=data.rank > 0):
            with compute.autocast(), uncompiled():
                logits = model(x.to(compute.device))
            targets = y.flatten()
            nats = F.cross_entropy(logits.float().flatten(0, 1), targets.to(compute.device),
                                   reduction="none")
            is_target = targets != -100
            yield nats.cpu().double()[is_target], targets[is_target]
