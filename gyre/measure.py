"""What is measured of a trained run: loss by position and by length, shift invariance, and more.

T is the length of the rows that a run was trained on (data.seq_len), and V the vocabulary. All
losses are mean nats per token, in float64 sums of float32 losses, and null where they have no
meaning: a learned position past the end of its table. Nothing here draws a random number.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from data.prepare import Prepared, prepare
from errors import UserError
from gyre.checkpoint import as_whole
from gyre.device import autocast
from gyre.load import initial_model, load, load_model
from gyre.options import Config, read_config
from gyre.rundir import METRICS, RunDir
from model.config import RopeScaling, ScalingType
from model.position import POSITIONS
from model.transformer import Transformer

CONTEXTS = (0.5, 1, 2, 4, 8)  # in units of T, as are the next two
SHIFTS = (0, 0.25, 0.5, 1, 2, 4, 16)
SCALED_CONTEXTS = (2, 4, 8)
Checkpoint = Literal["best", "last"]
ScalingName = ScalingType | Literal["raw"]
SCALINGS: tuple[ScalingName, ...] = ("raw", "linear", "ntk", "yarn", "llama3")
SPAN = 8  # length of the windows by which losses by position are measured, in units of T
WINDOWS = 32
STRETCHES = 20  # of the validation text, over which a standard error is taken
THIN = 2  # contexts use one window in so many: a target takes forwards over 72 tokens there
FORWARD = 2048  # tokens in one forward: what it computes stays in the processor's cache
Blocks = list[tuple[int, Tensor]]
"""Targets, T for each start: at distance d from a start s they are s + d + 1 .. s + d + T."""
Windows = Iterator[tuple[Tensor, int, int]]
"""Batches of windows: (starts, tokens in a window, how many of its last targets are scored)."""


def check_length(tokens: int, seq_len: int) -> None:
    """UserError where a validation split of so many tokens is too short, or T cannot be cut into
    halves and quarters."""
    if seq_len % 4:
        raise UserError(f"data.seq_len {seq_len} is not divisible by 4: it cannot be cut into "
                        "contexts of half of it and strides of a quarter")
    needed = 2 * SPAN * seq_len + 1
    if tokens < needed:
        raise UserError(f"the validation split has {tokens} tokens, and contexts of {SPAN} times "
                        f"data.seq_len {seq_len} need {needed}: raise --data.val_fraction or give "
                        "more text")


def in_lengths(multiple: float) -> str:
    """A length that is so many times T: T/2, T, 2T."""
    return {0.5: "T/2", 1: "T"}.get(multiple, f"{multiple:g}T")


class Scorer:
    """A model that can be rebuilt for any length, and the stream of tokens it is measured on."""

    def __init__(
        self, model: Transformer, stream: Tensor, seq_len: int, dtype: torch.dtype = torch.float32
    ) -> None:
        """`stream` holds int64 ids, in order, on the CPU; `dtype` is that of matrix products."""
        self.trained, self.stream, self.seq_len, self.dtype = model, stream, seq_len, dtype
        self.device = model.tok_embeddings.weight.device

    def model(self, positions: int, scaling: RopeScaling | None = None) -> Transformer | None:
        """The model with tables for so many positions; None where the encoding has no such."""
        config = self.trained.config
        if positions > config.max_positions and not POSITIONS[config.position].extrapolates:
            return None
        if positions <= config.max_positions and scaling is None:
            return self.trained
        longest, scaling = max(positions, config.max_positions), scaling or config.rope_scaling
        config = dataclasses.replace(config, max_positions=longest, rope_scaling=scaling)
        return load_model(config, self.trained.state_dict()).to(self.device).eval()

    def spans(self, windows: int) -> Tensor:
        """Starts of at most `windows` disjoint spans of 8T targets, spread evenly over the stream.

        A span that starts at s has the targets s+1 .. s+8T, each with 8T predecessors or more.
        Raises UserError as `check_length` does.
        """
        check_length(len(self.stream), self.seq_len)
        span = SPAN * self.seq_len
        room = len(self.stream) - 1 - 2 * span  # of the last start, behind the first possible one
        count = min(windows, room // span + 1)
        return span + torch.arange(count) * room // max(1, count - 1)

    def rows(self, starts: Tensor, context: int) -> Iterator[Tensor]:
        """The windows of `context` tokens at `starts` and the target after each: ids
        (B, context + 1), as many at a time as one forward takes."""
        for at in starts.split(max(1, FORWARD // context)):
            yield self.stream[at[:, None] + torch.arange(context + 1)].to(self.device)

    @torch.inference_mode()
    def nats(
        self, model: Transformer, starts: Tensor, context: int, scored: int, start: int = 0
    ) -> Tensor:
        """Losses (windows, scored), in float64 on the CPU, of the last targets of the windows of
        `context` tokens at `starts`."""
        found = []
        for rows in self.rows(starts, context):
            with autocast(self.device, self.dtype):
                hidden_states = model.hidden_states(rows[:, :-1], start=start)[:, -scored:]
                logits, targets = model.logits(hidden_states).float(), rows[:, -scored:]
            nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            found.append(nats.view(targets.shape).cpu().double())
        return torch.cat(found)

    def loss(self, model: Transformer | None, windows: Windows) -> dict[str, float | None]:
        """`loss`, the mean over all that the windows score, and `se`, its standard error; both None
        without a model, and `se` with one window."""
        if model is None:
            return {"loss": None, "se": None}
        batches = [batch for batch in windows if len(batch[0])]
        means = torch.cat([self.nats(model, *batch).mean(1) for batch in batches])
        ends = torch.cat([starts + context for starts, context, _ in batches])
        return {"loss": means.mean().item(), "se": standard_error(means[ends.argsort()])}


def stretches(values: Tensor) -> Tensor:
    """The means (STRETCHES,) over as many equal stretches of the values (N,), or, of fewer values,
    these."""
    parts = values.tensor_split(min(STRETCHES, len(values)))
    return torch.stack([part.mean() for part in parts])


def standard_error(values: Tensor) -> float | None:
    """Of the mean of values (N,) in the order of the text: what another text of this kind would
    change. Neighbours are no independent sample, long stretches nearly are. None for one value."""
    means = stretches(values)
    return (means.std() / math.sqrt(len(means))).item() if len(means) > 1 else None


# --- which tokens are scored ----------------------------------------------------------------------


def blocks(spans: Tensor, seq_len: int, all_blocks: bool = False) -> Blocks:
    """The targets that all contexts share: a block of T out of the 8T of each span, or all of them.

    One: from the i-th span the (i mod 8)-th, so that places all over the stream and all positions
    in windows of 8T take part alike.
    """
    return [(i * seq_len, spans if all_blocks else spans[i::SPAN]) for i in range(SPAN)]


def cut(blocks: Blocks, seq_len: int, context: int) -> Windows:
    """Spans cut into windows of `context` tokens end to end, each up to the block it holds.

    A target sees from 1 to `context` tokens, as its position in the window has it. What follows the
    block cannot change its losses, and is left out.
    """
    scored = min(context, seq_len)
    for distance, starts in blocks:
        for first in range(distance, distance + seq_len, scored):
            inside = first % context
            yield starts + first - inside, inside + scored, scored


def slide(blocks: Blocks, seq_len: int, context: int, stride: int) -> Windows:
    """Windows of `context` tokens that move on by `stride`, of which the last targets are scored.

    A target sees more than `context` - `stride` tokens.
    """
    for distance, starts in blocks:
        ends = distance + torch.arange(stride, seq_len + 1, stride)
        yield (starts[:, None] + ends - context).flatten(), context, stride


def bucket_edges(length: int, seq_len: int) -> list[int]:
    """Edges of ranges of positions 0 .. length-1, two to an octave, one of them at T."""
    edges = {round(seq_len * 2 ** (k / 2)) for k in range(-40, 41)}
    return sorted({0, length} | {edge for edge in edges if edge < length})


# --- what is measured -----------------------------------------------------------------------------


def loss_by_position(scorer: Scorer, spans: Tensor) -> dict[str, list]:
    """Mean loss against what a prediction sees, in windows of 8T tokens.

    `position` is the number of tokens the first target of each bucket is predicted from: 1 for the
    first of a window, T + 1 for the first that training rows never had.
    """
    length = SPAN * scorer.seq_len
    edges = bucket_edges(length, scorer.seq_len)
    model, reach = scorer.model(length), length
    if model is None:
        model, reach = scorer.trained, scorer.trained.config.max_positions
    nats = scorer.nats(model, spans, reach, reach).mean(0)
    losses = [nats[start:stop].mean().item() if stop <= reach else None
              for start, stop in pairwise(edges)]
    return {"position": [edge + 1 for edge in edges[:-1]], "loss": losses}


def loss_by_context(scorer: Scorer, blocks: Blocks) -> list[dict[str, Any]]:
    """The same targets, predicted from windows of T/2 .. 8T tokens.

    Non-overlapping: the stream is cut into windows, so a target sees from 1 to C tokens. Sliding:
    windows move on by T/2, so every target sees more than C - T/2.
    """
    seq_len, found = scorer.seq_len, []
    for context in (int(multiple * seq_len) for multiple in CONTEXTS):
        model = scorer.model(context)
        for mode, windows in (
            ("nonoverlapping", cut(blocks, seq_len, context)),
            ("sliding", slide(blocks, seq_len, context, seq_len // 2)),
        ):
            found.append({"context": context, "mode": mode, **scorer.loss(model, windows)})
    return found


def target_losses(scorer: Scorer) -> Tensor:
    """Nats of all tokens of the split but the first, in windows of T end to end, the last of which
    is shorter: float64 (N,)."""
    seq_len, targets = scorer.seq_len, len(scorer.stream) - 1
    starts, rest = torch.arange(0, targets - seq_len + 1, seq_len), targets % seq_len
    nats = [scorer.nats(scorer.trained, starts, seq_len, seq_len).flatten()]
    if rest:
        nats.append(scorer.nats(scorer.trained, starts[-1:] + seq_len, rest, rest).flatten())
    return torch.cat(nats)


def whole_split(scorer: Scorer) -> dict[str, Any]:
    """`loss` over all tokens of the split but the first, `se`, its standard error, and the losses
    of the `stretches` that this is taken over."""
    nats = target_losses(scorer)
    return {"loss": nats.mean().item(), "se": standard_error(nats),
            "stretches": stretches(nats).tolist()}


def shift(
    scorer: Scorer, spans: Tensor, shifts: Sequence[float] = SHIFTS
) -> list[dict[str, Any]]:
    """How the loss changes when the same windows of T tokens stand delta positions further on:
    nothing, up to rounding, where the encoding is relative. `shifts` are in units of T."""
    seq_len, found = scorer.seq_len, []
    still = scorer.nats(scorer.trained, spans, seq_len, seq_len)
    for delta in (int(multiple * seq_len) for multiple in shifts):
        model, change = scorer.model(seq_len + delta), None
        if model is not None:
            moved = scorer.nats(model, spans, seq_len, seq_len, start=delta)
            change = (moved - still).mean().item()
        found.append({"delta": delta, "dloss": change})
    return found


@torch.inference_mode()
def attention_to_previous(scorer: Scorer, spans: Tensor) -> list[list[float]]:
    """Share of attention on the token before, mean over queries, for each head of each layer, in
    windows of T tokens."""
    config = scorer.trained.config
    total = torch.zeros(config.n_layers, config.n_heads, dtype=torch.float64)
    for rows in scorer.rows(spans, scorer.seq_len):
        for layer, weights in enumerate(scorer.trained.attention_weights(rows[:, :-1])):
            previous = weights.diagonal(-1, dim1=-2, dim2=-1)  # (B, H, T - 1)
            total[layer] += previous.cpu().double().mean(-1).sum(0)
    return (total / len(spans)).tolist()


def loss_by_scaling(
    scorer: Scorer, blocks: Blocks, names: Sequence[ScalingName]
) -> list[dict[str, Any]] | None:
    """RoPE past its training length, without further training; None where nothing turns.

    Windows of C = 2T, 4T, 8T tokens that slide by T/2, so that every target stands past T. Raw is
    the model as it is; the others are scaled by C / T.
    """
    if "rope_scaling" not in POSITIONS[scorer.trained.config.position].options:
        return None
    seq_len, found = scorer.seq_len, []
    for name in names:
        for multiple in SCALED_CONTEXTS:
            context = multiple * seq_len
            model = scorer.model(context, scaling(name, multiple, seq_len))
            windows = slide(blocks, seq_len, context, seq_len // 2)
            found.append({"scaling": name, "context": context, **scorer.loss(model, windows)})
    return found


def scaling(name: ScalingName, factor: float, seq_len: int) -> RopeScaling | None:
    """The scaling of this name for a context of `factor` T; None is raw.

    YaRN's beta_fast of 32 turns is meant for thousands of positions; within a short T hardly a pair
    turns so often, and T / 16 takes its place. There is no dynamic NTK, which takes its factor from
    the length of the text: ntk is told that length here.
    """
    if name == "raw":
        return None
    extra = {"beta_fast": min(32.0, max(2.0, seq_len / 16))} if name == "yarn" else {}
    return RopeScaling(type=name, factor=factor, original_positions=seq_len, **extra)


# --- what a run is --------------------------------------------------------------------------------


def origin(run: RunDir) -> dict[str, str]:
    """Hashes of what a run was trained from and on: `initial`, and all batches."""
    config = read_config(run.path / "config.yaml")
    data = prepare(config.data, run.manifest.get("settings"))
    return {**initial(config), "batches_sha256": batches_sha256(config, data)}


def initial(config: Config) -> dict[str, str]:
    """Hashes of what training started from: the token embeddings, and all other weights but those
    of the position encoding; and for each a hash of what has to be equal for these to be, the
    shapes, and of the embeddings the scale, too."""
    model = initial_model(config)
    weights = model.state_dict()
    embeddings = weights.pop("tok_embeddings.weight")
    digest, shapes = hashlib.sha256(), {}
    for name, value in sorted(weights.items()):
        if not name.startswith("position."):
            digest.update(name.encode() + value.numpy().tobytes())
            shapes[name] = list(value.shape)
    scale = [*embeddings.shape, model.position.embedding_std]
    return {
        "init_sha256": digest.hexdigest(),
        "init_kind": hashlib.sha256(repr(shapes).encode()).hexdigest(),
        "embeddings_sha256": hashlib.sha256(embeddings.numpy().tobytes()).hexdigest(),
        "embeddings_kind": hashlib.sha256(repr(scale).encode()).hexdigest(),
    }


def batches_sha256(config: Config, data: Prepared) -> str:
    """Over every training batch, in order."""
    dataset = data.dataset("train", seq_len=config.data.seq_len, seed=config.seed,
                           batch_size=config.train.batch_size)
    digest = hashlib.sha256()
    for step in range(config.train.steps):
        for part in dataset.batch(step):
            digest.update(part.numpy().tobytes())
    return digest.hexdigest()


def data_of(manifest: dict[str, Any], folder: Path) -> dict[str, str]:
    """What two runs must share for their losses to be about the same tokens, from the manifest in a
    folder. UserError for a run without a text."""
    if "imported" in manifest:
        raise UserError(f"{folder} was imported and has no validation text of its own: start a run "
                        "from it with --init-from and evaluate that")
    tokenizer = {n: f["sha256"] for n, f in manifest["files"].items() if n.startswith("tokenizer")}
    return {
        "text": manifest["text"]["sha256"],
        "tokenizer": " ".join(tokenizer[name] for name in sorted(tokenizer)),
        "split": str(manifest["settings"]["val_fraction"]),
    }


@torch.random.fork_rng(devices=[])  # building a model draws numbers that are then replaced
def opened(
    run: RunDir, checkpoint: Checkpoint, device: str, dtype: str = "float32"
) -> tuple[Config, Prepared, Scorer]:
    """The configuration of a run, its prepared data, and its model on the validation split.
    UserError where the data is not what it was trained on."""
    trained = load(run, checkpoint, device)  # weights in float32: `dtype` is for autocast
    config, data = trained.config, prepare(trained.config.data, run.manifest.get("settings"))
    if data_of(data.manifest, data.folder) != data_of(run.manifest, run.path):
        raise UserError(f"the data in {data.folder} is not what {run.path} was trained on: restore "
                        "the text")
    ids = np.fromfile(data.folder / "val.bin", dtype=data.manifest["dtype"]).astype(np.int64)
    stream = torch.from_numpy(ids)
    return config, data, Scorer(trained.model, stream, config.data.seq_len, getattr(torch, dtype))


def ending(run: RunDir, windows: int, device: str = "auto") -> dict[str, Any]:
    """Of the last checkpoint of a run: tokens, `whole_split`, and the cost of a shift by T."""
    _, _, scorer = opened(run, "last", device)
    (moved,) = shift(scorer, scorer.spans(windows), [1])
    return {"tokens": trained_tokens(run, "last"), **whole_split(scorer), "shift": moved["dloss"]}


def follow(run: RunDir, windows: int, device: str = "auto") -> list[dict[str, Any]]:
    """At each checkpoint that a run kept: loss over the whole validation split, the cost of a shift
    by T, and the attention to the previous token of each head, the last two on at most so many
    windows."""
    _, _, scorer = opened(run, "last", device)
    spans, points = scorer.spans(windows), []
    for step in tqdm(run.kept_steps(), desc=run.path.name, dynamic_ncols=True, leave=False):
        weights, state = run.load_training(step)
        scorer.trained.load_state_dict(as_whole(weights))
        (moved,) = shift(scorer, spans, [1])
        points.append({"tokens": state["count"]["tokens"],
                       "loss": target_losses(scorer).mean().item(), "shift": moved["dloss"],
                       "previous": attention_to_previous(scorer, spans)})
    return points


def compare(
    runs: Sequence[RunDir], checkpoint: Checkpoint = "best", device: str = "auto",
    dtype: str = "float32",
) -> list[dict[str, Any]]:
    """Of each run, which have one text, split and tokenizer: `loss` and `bpb` over the whole
    validation split; of all but the first `difference`, its loss minus that of the first over the
    same targets. `se` and `difference_se` are their standard errors."""
    found, losses = [], []
    for run in tqdm(runs, "losses", unit="run", dynamic_ncols=True, leave=False):
        _, data, scorer = opened(run, checkpoint, device, dtype)
        losses.append(target_losses(scorer))
        loss = losses[-1].mean().item()
        if not math.isfinite(loss):
            raise UserError(f"the {checkpoint} weights of {run.path} have no loss: they hold "
                            "numbers that are not finite")
        found.append({"run": str(run.path), "checkpoint": checkpoint, "loss": loss,
                      "se": standard_error(losses[-1]),
                      "bpb": bits_per_byte(loss, len(losses[-1]), data),
                      "seq_len": scorer.seq_len})
        if len(losses) > 1:
            differences = losses[-1] - losses[0]
            found[-1] |= {"difference": differences.mean().item(),
                          "difference_se": standard_error(differences)}
    return found


def bits_per_byte(loss: float, targets: int, data: Prepared) -> float:
    """Of a mean loss, in nats, over the validation split."""
    return loss * targets / math.log(2) / data.manifest["val"]["bytes"]


def trained_tokens(run: RunDir, checkpoint: Checkpoint) -> int:
    """On how many tokens the checkpoint was trained."""
    points = [point for point in run.metrics() if "tokens" in point]
    if not points:
        raise UserError(f"{run.path / METRICS} holds no point that says how far the run was "
                        "trained: restore it")
    best = run.best_point() if checkpoint == "best" else None
    return (best or points[-1])["tokens"]


@torch.random.fork_rng(devices=[])  # as in `opened`: longer contexts have models of their own
def measure(
    run: RunDir, checkpoint: Checkpoint = "best", windows: int = WINDOWS, device: str = "auto",
    dtype: str = "float32", scalings: Sequence[ScalingName] = (), all_blocks: bool = False,
) -> dict[str, Any]:
    """All that can be said about a run from its folder and its prepared data, ready for JSON.

    `windows` bounds the windows of 8T tokens by which losses by position, the contexts and the
    shift are measured; contexts are measured on an eighth of their targets in every other window,
    or with `all_blocks` on all of them. `loss` and `bpb` are over the whole validation split,
    always.
    """
    config, data, scorer = opened(run, checkpoint, device, dtype)
    spans = scorer.spans(windows)
    shared = blocks(spans if all_blocks else spans[::THIN], scorer.seq_len, all_blocks)
    whole = whole_split(scorer)
    return {
        "run": str(run.path), "seed": config.seed, "lr": config.optim.lr, "checkpoint": checkpoint,
        "seq_len": scorer.seq_len, "config": dataclasses.asdict(config),
        "parameters": sum(p.numel() for p in scorer.trained.parameters()),
        "tokens": trained_tokens(run, checkpoint),
        "data_sha256": data.manifest["text"]["sha256"], "tokenizer_sha256": run.tokenizer_sha256,
        **whole, "bpb": bits_per_byte(whole["loss"], len(scorer.stream) - 1, data),
        "by_position": loss_by_position(scorer, spans),
        "context": loss_by_context(scorer, shared),
        "targets": sum(len(starts) for _, starts in shared) * scorer.seq_len,
        "shift": shift(scorer, spans),
        "rope_scaling": loss_by_scaling(scorer, shared, scalings) if scalings else None,
    }
