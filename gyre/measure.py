"""What is measured of a trained run: loss by length of the context, shift invariance, and more.

T is the length of the rows that a run was trained on (data.seq_len), and V the vocabulary. All
losses are mean nats per token, in float64 sums of float32 losses. They are None where they have no
meaning: for a learned position past the end of its table. Nothing here draws a random number.
"""

import dataclasses
import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from data.dataset import Prepared, TokenDataset, find_prepared
from data.prepare import prepare
from errors import UserError
from gyre.load import load
from gyre.options import Config
from gyre.rundir import RunDir
from gyre.step import token_losses
from model import kernels
from model.position import POSITIONS
from model.transformer import Transformer

CONTEXTS = (0.5, 1, 2, 4, 8)  # in units of T
Checkpoint = Literal["best", "last"]
SPAN = 8  # length of the windows that contexts are cut from, in units of T
WINDOWS = 32
STRETCHES = 20  # parts of the validation text over which a standard error is taken
THIN = 2  # contexts use every second window: a target costs over 72 tokens of forward passes there
FORWARD = 2048  # tokens in a forward pass: what it computes stays in the processor's cache
Blocks = list[tuple[int, Tensor]]
"""Pairs (d, starts): the targets of each start s are s + d + 1 .. s + d + T."""
Windows = Iterator[tuple[Tensor, int, int]]
"""Batches of windows: (starts, tokens in a window, how many of its last targets are scored)."""


def check_length(tokens: int, seq_len: int) -> None:
    """Raise UserError if a split of so many tokens has no room for contexts of 8T, or if T cannot
    be halved."""
    needed = 2 * SPAN * seq_len + 1
    if seq_len % 2:
        raise UserError(f"data.seq_len {seq_len} is odd: contexts of half of it would be no whole "
                        "tokens")
    if tokens < needed:
        raise UserError(f"the validation split has {tokens} tokens, and contexts of {SPAN} times "
                        f"data.seq_len {seq_len} need {needed}: raise --data.val_fraction or give "
                        "more text")


def in_lengths(multiple: float) -> str:
    """Return a length in units of T as text: T/2, T, 2T."""
    return {0.5: "T/2", 1: "T"}.get(multiple, f"{multiple:g}T")


@dataclasses.dataclass
class Scorer:
    """A model that can be rebuilt for any length, and the tokens that it is measured on."""

    trained: Transformer
    split: TokenDataset

    @property
    def seq_len(self) -> int:
        return self.split.seq_len

    @cached_property
    def stream(self) -> Tensor:
        """The int64 ids of the split, in order, on the CPU."""
        return torch.from_numpy(self.split.read(slice(None)))

    def model(self, positions: int) -> Transformer | None:
        """Return the model for so many positions; None if its encoding ends before."""
        config = self.trained.config
        if positions > config.max_positions and not POSITIONS[config.position].extrapolates:
            return None
        if positions <= config.max_positions:
            return self.trained
        with torch.device("meta"):
            model = Transformer(dataclasses.replace(config, max_positions=positions))
        model.load_state_dict(self.trained.state_dict(), assign=True)  # without a copy
        return model.to(self.trained.tok_embeddings.weight.device).eval()

    def spans(self, windows: int) -> Tensor:
        """Return starts of at most `windows` disjoint spans of 8T targets, spread over the stream.

        A span that starts at s has the targets s+1 .. s+8T, each with 8T predecessors or more. The
        stream has to be as long as `check_length` asks for.
        """
        span = SPAN * self.seq_len
        room = len(self.stream) - 1 - 2 * span  # of the last start, behind the first possible one
        count = min(windows, room // span + 1)
        return span + torch.arange(count) * room // max(1, count - 1)

    def rows(self, starts: Tensor, context: int) -> Iterator[Tensor]:
        """Yield the windows of `context` tokens at `starts` and the target after each: ids
        (B, context + 1), as many at a time as a forward pass takes."""
        for batch in starts.split(max(1, FORWARD // context)):
            ids = self.stream[batch[:, None] + torch.arange(context + 1)]
            yield ids.to(self.trained.tok_embeddings.weight.device)

    @torch.inference_mode()
    def nats(
        self, model: Transformer, starts: Tensor, context: int, scored: int, start: int = 0
    ) -> Tensor:
        """Return the losses (windows, scored), in float64 on the CPU, of the last targets of the
        windows of `context` tokens at `starts`. The first token stands at position `start`."""
        losses = []
        for rows in self.rows(starts, context):
            hidden_states = model.hidden_states(rows[:, :-1], start=start)[:, -scored:]
            logits, targets = model.logits(hidden_states), rows[:, -scored:]
            nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            losses.append(nats.view(targets.shape).cpu().double())
        return torch.cat(losses)

    def loss(self, model: Transformer | None, windows: Windows) -> dict[str, float | None]:
        """Return `loss`, the mean over the targets of all windows, and `se`, its standard error.

        Both are None without a model; `se` is None for a single window.
        """
        if model is None:
            return {"loss": None, "se": None}
        batches = [batch for batch in windows if len(batch[0])]
        means = torch.cat([self.nats(model, *batch).mean(1) for batch in batches])
        ends = torch.cat([starts + context for starts, context, _ in batches])
        return {"loss": means.mean().item(), "se": standard_error(means[ends.argsort()])}


def stretches(values: Tensor) -> Tensor:
    """Return the means over STRETCHES equal parts of values (N,); fewer values are their own
    means."""
    parts = values.tensor_split(min(STRETCHES, len(values)))
    return torch.stack([part.mean() for part in parts])


def standard_error(values: Tensor) -> float | None:
    """Return the standard error of the mean of values (N,) in the order of the text.

    It tells how much another text of this kind would change the mean. Neighbours are not
    independent, but long stretches nearly are. None for one value.
    """
    means = stretches(values)
    return (means.std() / math.sqrt(len(means))).item() if len(means) > 1 else None


# --- which tokens are scored ----------------------------------------------------------------------


def blocks(spans: Tensor, seq_len: int, all_blocks: bool = False) -> Blocks:
    """Return the targets that all contexts share: all eight blocks of T targets of each span, or
    one.

    That is block i mod 8 of span i. This samples every part of the stream and every position in
    windows of 8T equally often.
    """
    return [(i * seq_len, spans if all_blocks else spans[i::SPAN]) for i in range(SPAN)]


def cut(blocks: Blocks, seq_len: int, context: int) -> Windows:
    """Cut spans into windows of `context` tokens end to end, each up to the block that it holds.

    A target sees from 1 to `context` tokens, depending on its position in the window. Tokens after
    the block cannot change its losses, and are left out.
    """
    scored = min(context, seq_len)
    for distance, starts in blocks:
        for first in range(distance, distance + seq_len, scored):
            inside = first % context
            yield starts + first - inside, inside + scored, scored


def slide(blocks: Blocks, seq_len: int, context: int, stride: int) -> Windows:
    """Move windows of `context` tokens on by `stride`, and score the last `stride` targets of each.

    A target sees more than `context` - `stride` tokens.
    """
    for distance, starts in blocks:
        ends = distance + torch.arange(stride, seq_len + 1, stride)
        yield (starts[:, None] + ends - context).flatten(), context, stride


# --- what is measured -----------------------------------------------------------------------------


def loss_by_context(scorer: Scorer, blocks: Blocks) -> list[dict[str, Any]]:
    """Return the loss of the same targets, predicted from windows of T/2 .. 8T tokens.

    nonoverlapping: the stream is cut into windows, so a target sees from 1 to C tokens. sliding:
    windows move on by T/2, so every target sees more than C - T/2.
    """
    seq_len, rows = scorer.seq_len, []
    for context in (int(multiple * seq_len) for multiple in CONTEXTS):
        model = scorer.model(context)
        for mode, windows in (("nonoverlapping", cut(blocks, seq_len, context)),
                              ("sliding", slide(blocks, seq_len, context, seq_len // 2))):
            rows.append({"context": context, "mode": mode, **scorer.loss(model, windows)})
    return rows


def whole_split(scorer: Scorer) -> dict[str, Any]:
    """Return the `loss` over the whole split, `se`, its standard error, and the losses of its
    `stretches`.

    All tokens but the first are predicted, in windows of T end to end. The last one is shorter.
    """
    device = scorer.trained.tok_embeddings.weight.device
    rows = max(1, FORWARD // scorer.seq_len)
    nats = torch.cat([*token_losses(scorer.trained, scorer.split, rows, device, torch.float32)])
    return {"loss": nats.mean().item(), "se": standard_error(nats),
            "stretches": stretches(nats).tolist()}


def shift(scorer: Scorer, spans: Tensor) -> float | None:
    """Return by how much the loss of windows of T tokens rises when they stand T positions further
    on: not at all, up to rounding, if the encoding is relative."""
    seq_len, further = scorer.seq_len, scorer.model(2 * scorer.seq_len)
    if further is None:
        return None
    still = scorer.nats(scorer.trained, spans, seq_len, seq_len)
    moved = scorer.nats(further, spans, seq_len, seq_len, start=seq_len)
    return (moved - still).mean().item()


@torch.inference_mode()
def permute(scorer: Scorer, spans: Tensor) -> float:
    """Return by how much the loss of the token after each window of T tokens rises when all tokens
    of the window but its last are permuted, in all windows alike: not at all without a sense of
    order."""
    seq_len, model, change = scorer.seq_len, scorer.trained, 0.0
    starts = (spans[:, None] + torch.arange(SPAN) * seq_len).flatten()
    order = torch.randperm(seq_len - 1, generator=torch.Generator().manual_seed(0))
    for rows in scorer.rows(starts, seq_len):
        for sign, kept in ((1, order), (-1, torch.arange(seq_len - 1))):
            hidden_states = model.hidden_states(rows[:, [*kept.tolist(), seq_len - 1]])
            logits = model.logits(hidden_states[:, -1])
            change += sign * F.cross_entropy(logits, rows[:, -1], reduction="sum").item()
    return change / len(starts)


def loss_of_32(scorer: Scorer) -> float:
    """Return the loss of targets 17 to 32 in windows of 32 tokens, every fourth one of the stream:
    one that does not depend on T. Where T is below 32, it is the second half of windows of T."""
    context = min(32, scorer.seq_len)
    starts = torch.arange(0, len(scorer.stream) - context, 4 * context)
    return scorer.nats(scorer.trained, starts, context, context // 2).mean().item()


# --- what a run is --------------------------------------------------------------------------------


def open_data(run: RunDir, config: Config) -> Prepared:
    """Return the data of a run, prepared again if it is gone. UserError if it is not the same."""
    data = find_prepared(config.data, run.manifest.get("settings")) or prepare(config.data)
    if data_of(data.manifest, data.folder) != data_of(run.manifest, run.path):
        raise UserError(f"the data in {data.folder} is not what {run.path} was trained on: restore "
                        "the text")
    return data


def data_of(manifest: dict[str, Any], folder: Path) -> dict[str, str]:
    """Return what two runs must share for their losses to be about the same tokens, from the
    manifest in a folder. Raises UserError for a run without a text."""
    if "imported" in manifest:
        raise UserError(f"{folder} was imported and has no validation text of its own: start a run "
                        "from it with --init-from and evaluate that")
    tokenizer = [file["sha256"] for name, file in sorted(manifest["files"].items())
                 if name.startswith("tokenizer")]
    # Versions of gyre have split few documents differently, which the settings do not show.
    split = [manifest["settings"].get(key) for key in ("val_fraction", "second_val")]
    split.append(manifest.get("val", {}).get("bytes"))
    return {"text": manifest["text"]["sha256"], "tokenizer": " ".join(tokenizer),
            "split": str(split)}


def open_run(
    run: RunDir, checkpoint: Checkpoint, device: str
) -> tuple[Config, Prepared, Scorer]:
    """Return the configuration of a run, its data, and its model on the validation split."""
    trained = load(run, checkpoint, device)
    config, data = trained.config, open_data(run, trained.config)
    if isinstance(config.train.onednn, bool) and trained.device.type == "cpu":
        kernels.uses_onednn = config.train.onednn  # as trained: two measurements can differ
    return config, data, Scorer(trained.model, data.dataset("val", seq_len=config.data.seq_len))


def trained_tokens(run: RunDir, checkpoint: Checkpoint | int, config: Config) -> int:
    """Return on how many tokens a checkpoint, or that of a kept step, was trained."""
    step = checkpoint
    if not isinstance(step, int):  # before the first validation, the best weights are the last
        step = run.checkpoints.saved_step(step) or run.checkpoints.saved_step("last")
    return step * config.train.batch_size * config.data.seq_len


def measure(
    run: RunDir, checkpoint: Checkpoint = "best", windows: int | None = None, device: str = "auto",
    all_blocks: bool = False,
) -> dict[str, Any]:
    """Return what a run is, and its losses, ready for JSON.

    `loss` and `bpb`, bits per byte, are over the whole validation split. With `windows`, contexts
    and a shift by T are measured in at most so many windows of 8T tokens: contexts on an eighth of
    the targets of every other window, or with `all_blocks` on all targets of all.
    """
    config, data, scorer = open_run(run, checkpoint, device)
    whole, hashes = whole_split(scorer), run.record["sha256"]
    if not math.isfinite(whole["loss"]):
        raise UserError(f"the {checkpoint} weights of {run.path} have no finite loss")
    nats = whole["loss"] * (len(scorer.stream) - 1)
    record = {
        "run": str(run.path), "seed": config.seed, "lr": config.optim.lr, "checkpoint": checkpoint,
        "seq_len": scorer.seq_len, "config": dataclasses.asdict(config),
        "parameters": sum(p.numel() for p in scorer.trained.parameters()),
        "tokens": trained_tokens(run, checkpoint, config),
        "data_sha256": data.manifest["text"]["sha256"],
        "tokenizer_sha256": hashes.get("tokenizer.json") or hashes["tokenizer.model"],
        **whole, "bpb": nats / math.log(2) / data.manifest["val"]["bytes"],
    }
    if windows is None:
        return record
    spans = scorer.spans(windows)
    shared = blocks(spans if all_blocks else spans[::THIN], scorer.seq_len, all_blocks)
    return record | {
        "context": loss_by_context(scorer, shared),
        "targets": sum(len(starts) for _, starts in shared) * scorer.seq_len,
        "shift": shift(scorer, spans),
    }


def compare(records: list[dict[str, Any]]) -> None:
    """Add to all records but the first, which are of one validation split, their `difference`: the
    loss minus that of the first over the same targets, and `difference_se`, its standard error."""
    first, *others = records
    for record in others:
        changes = np.subtract(record["stretches"], first["stretches"])
        record["difference"] = record["loss"] - first["loss"]
        record["difference_se"] = standard_error(torch.from_numpy(changes))
