"""What is measured of a trained run: loss by length of the context, shift invariance, and more.

T is the length of the rows that a run was trained on (data.seq_len). All losses are mean nats per
token, in float64 sums of float32 losses. They are None where they have no meaning: for a learned
position past the end of its table. The only random numbers are those of `permute`, which draws them
from a fixed seed.

A span is a part of a stream with 8T targets, a block is an eighth of a span, and a window is what a
model reads at once.

A loss is over all tokens of a stream but the first, EOS between documents included, because that is
what a model is trained on. Bits per byte (`bpb`) are the nats of the text alone, in bits, over the
bytes of the text: they do not depend on the tokenizer, nor on the number of documents. `eos_share`
is the share of all nats that was left out: that of EOS and of a tokenizer's prefix. Records without
an `eos_share` are older, and their `bpb` counts it in.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from data.dataset import Prepared, find_data_of
from data.text import Encoded, Text
from data.tokenizer import Tokenizer
from errors import UserError
from gyre.compute import Compute
from gyre.load import Trained, load
from gyre.options import Config
from gyre.rundir import RunDir
from model.encodings import POSITIONS
from model.transformer import Transformer

Checkpoint = Literal["best", "last"]
CONTEXTS = (0.5, 1, 2, 4, 8)  # in units of T
BLOCKS_PER_SPAN = 8  # so a span is as long as the longest context
MAX_SPANS = 32  # that are measured, if nothing else is asked for
# Losses by context are measured in every second span only, unless `every_target` is asked for. They
# take long: a target has ten of them, two for each context, and their forward passes read 41.5
# tokens for each target.
EVERY_NTH_SPAN = 2
STRETCHES = 20  # parts of a text over which a standard error is taken
LARGEST_LOSS = 700  # the exponential of one above 709 overflows a float
# What a forward pass of so many tokens computes stays in a processor's cache. A card needs many.
TOKENS_PER_PASS = 2048
CUDA_TOKENS_PER_PASS = 65_536
# 64 MB of logits, and 1 GB on a card.
LOGITS_AT_ONCE = 1 << 24
CUDA_LOGITS_AT_ONCE = 1 << 28
Blocks = list[tuple[int, Tensor]]
"""Pairs (offset, starts): the block that begins at `offset` in each span of `starts`. For a span
that starts at s, it has the targets s + offset + 1 .. s + offset + T."""


class ScoredWindows(NamedTuple):
    """Windows of one length, and which of their targets are scored."""

    starts: Tensor
    """The place in the stream of the first token of each."""
    context: int
    """Tokens in a window."""
    scored: int
    """How many of its targets are scored."""
    behind: int = 0
    """How many of its targets come after those."""


def check_length(tokens: int, seq_len: int, text: str = "the text") -> None:
    """Raise UserError if `text`, of so many tokens, has no room for contexts of 8T, or if T cannot
    be halved."""
    needed = 2 * BLOCKS_PER_SPAN * seq_len + 1
    length = f"T = {seq_len} (data.seq_len, or --context)"
    if seq_len % 2:
        raise UserError(f"{length} is odd: contexts of half of it would be no whole tokens")
    if tokens < needed:
        raise UserError(f"{text} has {tokens} tokens, and contexts of {BLOCKS_PER_SPAN}T with "
                        f"{length} need {needed}: give a longer text with --data.files, or train "
                        "with a larger data.val_fraction")


def in_lengths(multiple: float) -> str:
    """Return a length in units of T as text: T/2, T, 2T."""
    return {0.5: "T/2", 1: "T"}.get(multiple, f"{multiple:g}T")


@dataclasses.dataclass
class Scorer:
    """A model that can be rebuilt for any length, and the text that it is measured on."""

    model: Transformer
    """As it was trained."""
    text: Encoded
    seq_len: int
    """T."""
    compute: Compute
    """Active while anything is measured."""

    @property
    def stream(self) -> Tensor:
        """The int64 ids of the text, in order, on the CPU."""
        return self.text.ids

    @property
    def tokens_per_pass(self) -> int:
        """The number of tokens in a forward pass."""
        return CUDA_TOKENS_PER_PASS if self.compute.device.type == "cuda" else TOKENS_PER_PASS

    @property
    def logits_at_once(self) -> int:
        """The number of logits that are computed at a time."""
        return CUDA_LOGITS_AT_ONCE if self.compute.device.type == "cuda" else LOGITS_AT_ONCE

    def model_for(self, positions: int) -> Transformer | None:
        """Return the model for so many positions; None if its encoding ends before."""
        config = self.model.config
        if positions > config.max_positions and not POSITIONS[config.position].extrapolates:
            return None
        if positions <= config.max_positions:
            return self.model
        with torch.device("meta"):
            model = Transformer(dataclasses.replace(config, max_positions=positions))
        model.load_state_dict(self.model.state_dict(), assign=True)  # without a copy
        return model.to(self.model.tok_embeddings.weight.device).eval()

    def spans(self, max_spans: int) -> Tensor:
        """Return starts of at most `max_spans` disjoint spans, spread over the stream.

        A span that starts at s has the targets s+1 .. s+8T, each with 8T predecessors or more. The
        stream has to be as long as `check_length` asks for.
        """
        length = BLOCKS_PER_SPAN * self.seq_len
        first = length
        last = len(self.stream) - 1 - length
        count = min(max_spans, (last - first) // length + 1)
        offsets = torch.arange(count) * (last - first) // max(1, count - 1)
        return first + offsets

    def rows(self, starts: Tensor, context: int) -> Iterator[Tensor]:
        """Yield the windows of `context` tokens at `starts` and the target after each: ids
        (B, context + 1), as many at a time as a forward pass takes."""
        for batch in starts.split(max(1, self.tokens_per_pass // context)):
            ids = self.stream[batch[:, None] + torch.arange(context + 1)]
            yield ids.to(self.model.tok_embeddings.weight.device)

    @torch.inference_mode()
    def nats(
        self, model: Transformer, windows: ScoredWindows, *, first_position: int = 0
    ) -> Tensor:
        """Return losses of targets in windows, (windows, scored), in float64 on the CPU.

        The first token of a window has the position `first_position`.
        """
        starts, context, scored, behind = windows
        losses = []
        at_once = max(1, self.logits_at_once // model.config.vocab_size)
        end = context - behind
        for rows in self.rows(starts, context):
            hidden_states = model.hidden_states(rows[:, :-1], start=first_position)
            hidden_states = hidden_states[:, end - scored : end]
            targets = rows[:, end - scored + 1 : end + 1].flatten()
            states_at_once = hidden_states.flatten(0, 1).split(at_once)
            for states, ids in zip(states_at_once, targets.split(at_once), strict=True):
                nats = F.cross_entropy(model.logits(states), ids, reduction="none")
                losses.append(nats.cpu().double())
        return torch.cat(losses).view(-1, scored)

    def loss(
        self, model: Transformer | None, windows: Iterable[ScoredWindows]
    ) -> dict[str, float | None]:
        """Return `loss`, the mean over the targets of all windows, and `se`, its standard error.

        Both are None without a model; `se` is None for a single window.
        """
        if model is None:
            return {"loss": None, "se": None}
        groups = [group for group in windows if len(group.starts)]
        means = torch.cat([self.nats(model, group).mean(1) for group in groups])
        # In the order of the text, as `standard_error` takes them.
        ends = torch.cat([group.starts + group.context - group.behind for group in groups])
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
    return standard_error_of_means(stretches(values))


def standard_error_of_means(means: Tensor) -> float | None:
    """Do what `standard_error` does, given the means over the stretches."""
    if len(means) < 2:
        return None
    return (means.std() / math.sqrt(len(means))).item()


# --- which tokens are scored ----------------------------------------------------------------------


def choose_blocks(spans: Tensor, seq_len: int, every_target: bool = False) -> Blocks:
    """Return the targets that all contexts share: a block of each span, or all of its blocks if
    `every_target` is true.

    Span number n gives block n mod 8. This samples every part of the stream and every position in
    windows of 8T equally often.
    """
    blocks = []
    for block in range(BLOCKS_PER_SPAN):
        starts = spans if every_target else spans[block::BLOCKS_PER_SPAN]
        blocks.append((block * seq_len, starts))
    return blocks


def cut(blocks: Blocks, seq_len: int, context: int, whole: bool = False) -> Iterator[ScoredWindows]:
    """Cut spans into windows of `context` tokens end to end, and yield what scores a block: each
    window that has targets of it, up to the last of these.

    A target sees from 1 to `context` tokens, depending on its position in the window. Later tokens
    would change none of its losses, so they are left out. Dynamic scaling of RoPE is the
    exception: the length of the text changes the rotations, so windows have to be `whole`.

    With `seq_len` 128 and `context` 512, the block at offset 256 is scored in the window from 0 to
    512: 256 tokens of it are before the block, and 128 behind it.
    """
    scored = min(context, seq_len)
    for offset, starts in blocks:
        for first in range(offset, offset + seq_len, scored):
            before = first % context  # tokens of the window before the scored part
            behind = context - before - scored if whole else 0
            yield ScoredWindows(starts + first - before, before + scored + behind, scored, behind)


def slide(blocks: Blocks, seq_len: int, context: int, stride: int) -> Iterator[ScoredWindows]:
    """Move windows of `context` tokens on by `stride`, and score the last `stride` targets of each.

    A target sees more than `context` - `stride` tokens.
    """
    for offset, starts in blocks:
        ends = offset + torch.arange(stride, seq_len + 1, stride)
        yield ScoredWindows((starts[:, None] + ends - context).flatten(), context, stride)


def roll(tokens: int, context: int, stride: int) -> Iterator[ScoredWindows]:
    """Move windows of `context` tokens on by `stride`, over a whole stream of so many tokens.

    Every token but the first is a target once: all targets of the first window are scored, and the
    last `stride` of the others. The last window is shorter. (transformers, "Perplexity of
    fixed-length models")
    """
    targets = tokens - 1
    first = min(context, targets)
    yield ScoredWindows(torch.zeros(1, dtype=torch.int64), first, first)
    whole = (targets - first) // stride
    if whole:
        yield ScoredWindows(stride * torch.arange(1, whole + 1), context, stride)
    rest = targets - first - whole * stride
    if rest:
        start = stride * (whole + 1)
        yield ScoredWindows(torch.tensor([start]), targets - start, rest)


def context_range(tokens: int, context: int, stride: int) -> tuple[int, int]:
    """Return how many tokens a target of `roll` sees, at least and at most.

    The contexts of the first window, which grow from one token, do not count unless it is the only
    window.
    """
    targets = tokens - 1
    if targets <= context:
        return 1, targets
    return context - stride + 1, context


# --- what is measured -----------------------------------------------------------------------------


def loss_by_context(scorer: Scorer, blocks: Blocks) -> list[dict[str, Any]]:
    """Return the loss of the same targets, predicted from windows of T/2 .. 8T tokens.

    nonoverlapping: the stream is cut into windows, so a target sees from 1 to C tokens. sliding:
    windows move on by T/2, so every target sees more than C - T/2.
    """
    seq_len = scorer.seq_len
    rows = []
    for multiple in CONTEXTS:
        context = int(multiple * seq_len)
        model = scorer.model_for(context)
        # Dynamic scaling of RoPE rotates a text past this limit by its length.
        whole = model is not None and context > model.position.cache_limit
        # What `cut` and `slide` make is called so in records that exist.
        modes = {"nonoverlapping": cut(blocks, seq_len, context, whole),
                 "sliding": slide(blocks, seq_len, context, stride=seq_len // 2)}
        for mode, windows in modes.items():
            rows.append({"context": context, "mode": mode, **scorer.loss(model, windows)})
    return rows


def stream_losses(scorer: Scorer, context: int, stride: int) -> Tensor:
    """Return the loss of every token of the stream but the first, in order: float64 (N - 1,).

    They are those of `roll`. Raises UserError for windows that are too long for the encoding.
    """
    model = require_model(scorer, context)
    losses = []
    tokens = len(scorer.stream)
    with tqdm(desc="scoring", total=tokens - 1, unit="token", unit_scale=True, delay=2,
              leave=False) as bar:
        for windows in roll(tokens, context, stride):
            # A forward pass at a time, for the bar.
            for starts in windows.starts.split(max(1, scorer.tokens_per_pass // windows.context)):
                part = ScoredWindows(starts, windows.context, windows.scored)
                nats = scorer.nats(model, part).flatten()
                losses.append(nats)
                bar.update(len(nats))
    return torch.cat(losses)


def require_model(scorer: Scorer, context: int) -> Transformer:
    """Return the model for windows of so many tokens. UserError if its encoding ends before."""
    model = scorer.model_for(context)
    if model is None:
        raise UserError(f"windows of {context} tokens are longer than the table of positions, "
                        f"{scorer.model.config.max_positions}: give a shorter --context")
    return model


def mean_loss(nats: Tensor) -> dict[str, Any]:
    """Return the `loss` of a stream, `se`, its standard error, and the losses of its `stretches`.
    """
    means = stretches(nats)
    return {"loss": nats.mean().item(), "se": standard_error_of_means(means),
            "stretches": means.tolist()}


def bits_per_byte(nats: Tensor, text: Encoded, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the bits per byte of a text, from the loss of each of its tokens but the first.

    `bpb` divides the nats of the text by all its bytes, `bpb_se` is its standard error, and
    `bpb_stretches` has the bits per byte of equal parts of the text, which models with different
    tokenizers can be compared on. A text of fewer tokens than parts is one part, whose error is
    unknown. `eos_share` is the share of the nats that is left out.
    """
    is_text = text.is_text[1:]
    left_out = nats[~is_text].sum().item()
    total = nats.sum().item()
    bits = nats[is_text] / math.log(2)
    ids = text.ids[1:][is_text]
    piece_sizes = [len(tokenizer.piece(i)) for i in range(int(ids.max()) + 1)]
    sizes = torch.tensor(piece_sizes)[ids]
    # A token belongs to the part that has the middle of its piece. Parts are equal in bytes of
    # pieces. Pieces can have more bytes than the text, because tokenizers add spaces in front.
    middles = sizes.cumsum(0) - sizes / 2
    n_parts = STRETCHES if len(bits) >= STRETCHES else 1
    parts = (middles * n_parts / max(1, int(sizes.sum()))).long().clamp(max=n_parts - 1)
    by_part = bits.new_zeros(n_parts).index_add_(0, parts, bits) * n_parts / text.n_bytes
    return {"bpb": (total - left_out) / math.log(2) / text.n_bytes,
            "bpb_se": standard_error_of_means(by_part), "bpb_stretches": by_part.tolist(),
            "eos_share": left_out / total if total != 0 else 0.0}


def whole_split(scorer: Scorer) -> dict[str, Any]:
    """Return `mean_loss` of the whole stream, in windows of T end to end."""
    return mean_loss(stream_losses(scorer, scorer.seq_len, scorer.seq_len))


def shift(scorer: Scorer, spans: Tensor) -> float | None:
    """Return by how much the loss of windows of T tokens rises when they stand T positions further
    on: not at all, up to rounding, if the encoding is relative and its scaling not dynamic."""
    seq_len = scorer.seq_len
    # An imported model may be measured at a length past its own.
    model = scorer.model_for(seq_len)
    longer = scorer.model_for(2 * seq_len)
    if model is None or longer is None:
        return None
    windows = ScoredWindows(spans, context=seq_len, scored=seq_len)
    still = scorer.nats(model, windows)
    moved = scorer.nats(longer, windows, first_position=seq_len)
    return (moved - still).mean().item()


@torch.inference_mode()
def permute(scorer: Scorer, spans: Tensor) -> float:
    """Return what permuted tokens cost: the rise of the loss of the token after each window of T.

    All tokens of a window but its last are permuted, in all windows alike. The cost is 0 for a
    model without a sense of order.
    """
    seq_len = scorer.seq_len
    model = require_model(scorer, seq_len)
    starts = (spans[:, None] + torch.arange(BLOCKS_PER_SPAN) * seq_len).flatten()
    generator = torch.Generator().manual_seed(0)
    permuted = torch.arange(seq_len)
    permuted[:-1] = torch.randperm(seq_len - 1, generator=generator)

    def sum_losses(tokens: Tensor, targets: Tensor) -> float:
        """Return the loss of the target after each row of tokens, summed."""
        logits = model.logits(model.hidden_states(tokens)[:, -1])
        return F.cross_entropy(logits, targets, reduction="sum").item()

    change = 0.0
    for rows in scorer.rows(starts, seq_len):
        targets = rows[:, -1]
        change += sum_losses(rows[:, permuted.to(rows.device)], targets)
        change -= sum_losses(rows[:, :-1], targets)
    return change / len(starts)


def loss_of_32(scorer: Scorer) -> float:
    """Return the loss of targets 17 to 32 in every fourth window of 32 tokens of the stream.

    It does not depend on T. If T is below 32, it is the loss of the second half of windows of T.
    """
    context = min(32, scorer.seq_len)
    starts = torch.arange(0, len(scorer.stream) - context, 4 * context)
    windows = ScoredWindows(starts, context=context, scored=context // 2)
    return scorer.nats(scorer.model, windows).mean().item()


# --- what a run is --------------------------------------------------------------------------------


def open_prepared_of_run(run: RunDir, config: Config) -> Prepared:
    """Return the data of a run, prepared again if it is gone. UserError if it is not the same."""
    settings = run.manifest.get("settings")
    data = find_data_of(run.path, run.resolve_data_paths(config.data), settings)
    if identify_data(data.manifest, data.folder) != identify_data(run.manifest, run.path):
        raise UserError(f"the data in {data.folder} is not what {run.path} was trained on: restore "
                        "the text")
    return data


def identify_data(manifest: dict[str, Any], folder: Path) -> dict[str, str]:
    """Return what two runs must share for their losses to be about the same tokens, from the
    manifest in a folder. Raises UserError for a run without a text."""
    if "imported" in manifest:
        raise UserError(f"{folder} was imported and has no validation text of its own: give a text "
                        "with --data.files")
    hashes = {name: file["sha256"] for name, file in manifest["files"].items()}
    settings = manifest["settings"]
    # The share that was chosen for a text, where the settings have "auto".
    val_fraction = manifest.get("val_fraction", settings.get("val_fraction"))
    split = [val_fraction, settings.get("second_val")]
    # Versions of gyre have split few documents differently, which the settings do not show.
    held_out = manifest.get("val", {})
    split += [held_out.get(key) for key in ("documents", "bytes")]
    return {"text": manifest["text"]["sha256"], "tokenizer": hash_tokenizer(hashes),
            "split": str(split)}


def hash_tokenizer(hashes: Mapping[str, str]) -> str:
    """Return the hashes of the files that make up a tokenizer, from those of all files by name."""
    return " ".join(hashes[name] for name in sorted(hashes) if name.startswith("tokenizer"))


def open_scorer(
    run: RunDir, checkpoint: Checkpoint, device: str
) -> tuple[Trained, Prepared, Scorer]:
    """Return a run, ready to use, its data, and its model on the validation split."""
    trained = load(run, checkpoint, device)
    data = open_prepared_of_run(run, trained.config)
    ids = torch.from_numpy(data.dataset("val", seq_len=1).read(slice(None)))
    # A text that spells an imported tokenizer's EOS has its id too, which is then left out.
    is_text = ~torch.isin(ids, torch.tensor(data.separators))
    text = Encoded(ids, is_text, data.manifest["val"]["bytes"])
    seq_len = trained.config.data.seq_len
    return trained, data, Scorer(trained.model, text, seq_len, compute_as_trained(trained))


def compute_as_trained(trained: Trained) -> Compute:
    """Return how to compute. On a CPU, oneDNN is used if it was in training: otherwise two
    measurements of one run could differ."""
    onednn = trained.config.train.onednn
    if isinstance(onednn, bool) and trained.compute.device.type == "cpu":
        return dataclasses.replace(trained.compute, onednn=onednn)
    return trained.compute


def measure(
    run: RunDir, checkpoint: Checkpoint = "best", max_spans: int | None = None,
    device: str = "auto", every_target: bool = False, context: int | None = None,
    stride: int | None = None,
) -> dict[str, Any]:
    """Return what a run is, and its losses, ready for JSON.

    `loss` and `bpb`, bits per byte, are over the whole validation split, in windows of `context`
    tokens (unset: T) that move on by `stride` (unset: `context`).

    With `max_spans`, losses by context and the cost of a shift by T are measured too, in at most so
    many spans. Losses by context are those of one block of every second span, or with
    `every_target` those of all blocks of all spans.
    """
    trained, data, scorer = open_scorer(run, checkpoint, device)
    with scorer.compute.active():
        return {
            "run": str(run.path), **describe_training(trained, checkpoint),
            **describe_model(run, scorer), "data_sha256": data.manifest["text"]["sha256"],
            **measure_losses(scorer, data.tokenizer, f"{checkpoint} weights of {run.path}",
                             context, stride),
            **measure_lengths(scorer, max_spans, every_target),
        }


def measure_text(
    trained: Trained, name: Path, checkpoint: Checkpoint, text: Text, *, seq_len: int, context: int,
    stride: int | None = None, max_spans: int | None = None,
) -> dict[str, Any]:
    """Return what `measure` returns, of a model on any text.

    `seq_len` is T. For an imported model, what describes a training is left out.
    """
    run = trained.run
    config = trained.config
    if run.is_imported:
        training: dict[str, Any] = {"config": {"model": dataclasses.asdict(config.model)}}
    else:
        training = describe_training(trained, checkpoint)
    encoded = text.encode(trained.tokenizer)
    scorer = Scorer(trained.model, encoded, seq_len, compute_as_trained(trained))
    with scorer.compute.active():
        return {
            "run": str(name), **training,
            **describe_model(run, scorer), "data_sha256": text.counts["sha256"],
            **measure_losses(scorer, trained.tokenizer, f"weights of {name}", context, stride),
            **measure_lengths(scorer, max_spans),
        }


def describe_training(trained: Trained, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what a record says of the training of a run."""
    config = trained.config
    return {"seed": config.seed, "lr": config.optim.lr, "checkpoint": checkpoint,
            "config": dataclasses.asdict(config),
            "tokens": trained.step * config.step_tokens}


def describe_model(run: RunDir, scorer: Scorer) -> dict[str, Any]:
    """Return what a record says of a model, its tokenizer, and the ids that it is measured on."""
    hashes = run.record["sha256"]
    # Records have the hash of one file; `hash_tokenizer` has those of all.
    tokenizer = "tokenizer.json" if "tokenizer.json" in hashes else "tokenizer.model"
    return {"seq_len": scorer.seq_len,
            "parameters": sum(p.numel() for p in scorer.model.parameters()),
            "tokenizer_sha256": hashes[tokenizer],
            "ids_sha256": hashlib.sha256(scorer.stream.numpy().data).hexdigest(),
            "text_bytes": scorer.text.n_bytes, "text_tokens": len(scorer.stream)}


def measure_losses(
    scorer: Scorer, tokenizer: Tokenizer, weights: str, context: int | None, stride: int | None
) -> dict[str, Any]:
    """Return the losses over a whole text, and how much context they were taken with.

    UserError if they are not finite, which names the `weights`.
    """
    if context is None:
        context = scorer.seq_len
    if stride is None:
        stride = context
    nats = stream_losses(scorer, context, stride)
    whole = mean_loss(nats)
    if not math.isfinite(whole["loss"]):
        raise UserError(f"the {weights} have no finite loss")
    perplexity = None
    if whole["loss"] < LARGEST_LOSS:
        perplexity = math.exp(whole["loss"])
    least, most = context_range(len(scorer.stream), context, stride)
    return {"window": context, "stride": stride, "least_context": least, "most_context": most,
            **whole, "perplexity": perplexity,
            **bits_per_byte(nats, scorer.text, tokenizer)}


def measure_lengths(
    scorer: Scorer, max_spans: int | None, every_target: bool = False
) -> dict[str, Any]:
    """Return the losses by context and the cost of a shift, see `measure`; {} without `max_spans`.
    """
    if max_spans is None:
        return {}
    check_length(len(scorer.stream), scorer.seq_len)
    spans = scorer.spans(max_spans)
    chosen = spans if every_target else spans[::EVERY_NTH_SPAN]
    shared = choose_blocks(chosen, scorer.seq_len, every_target)
    return {
        "context": loss_by_context(scorer, shared),
        "targets": sum(len(starts) for _, starts in shared) * scorer.seq_len,
        "shift": shift(scorer, spans),
    }


def add_differences(records: list[dict[str, Any]]) -> None:
    """Add to all records but the first their differences from the first. All are of one text.

    `bpb_difference` is that of the bits per byte, and `difference` that of the losses, if both are
    of the same ids; `bpb_difference_se` and `difference_se` are their standard errors.
    """
    first, *others = records
    for record in others:
        add_difference(record, first, "bpb", "bpb_")
        if record["ids_sha256"] == first["ids_sha256"]:
            add_difference(record, first, "loss", "")


def add_difference(record: dict[str, Any], first: dict[str, Any], key: str, prefix: str) -> None:
    """Add the difference of one number, and its standard error over the stretches of the text.

    The error is None if one model has too few tokens for the stretches of the other.
    """
    means = record[f"{prefix}stretches"]
    first_means = first[f"{prefix}stretches"]
    record[f"{prefix}difference"] = record[key] - first[key]
    record[f"{prefix}difference_se"] = None
    if len(means) == len(first_means):
        changes = np.subtract(means, first_means)
        record[f"{prefix}difference_se"] = standard_error_of_means(torch.from_numpy(changes))
