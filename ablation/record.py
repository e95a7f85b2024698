"""What a study records of an arm and seed: losses, the way there, and what the run came from.

gyre/measure.py explains T and the contexts.
"""

import hashlib
from typing import Any

import msgspec
import torch

from ablation.attention import measure_attention
from ablation.plan import machine
from errors import UserError
from gyre import measure
from gyre.checkpoint import weight_shapes
from gyre.rundir import RunDir
from gyre.yaml_files import read_config
from model.transformer import Transformer


class End(msgspec.Struct):
    """The end of a run, after its cooldown."""

    tokens: int
    """Training tokens."""
    loss: float
    """Over the whole validation split."""
    se: float | None
    """Standard error of the loss over the text."""
    stretches: list[float]
    """Losses of equal parts of the validation split, in their order."""
    shift: float | None
    """Cost of a shift of all positions by T. None where the encoding has no such positions."""


class Point(msgspec.Struct, kw_only=True):
    """A kept checkpoint of the longest run. A field with a default is missing in old records."""

    tokens: int
    loss: float
    loss_of_32: float | None = None
    """In windows of 32 tokens."""
    shift: float | None
    permuted: float | None = None
    """Cost of permuted tokens."""
    previous: list[list[float]]
    """By layer and head, the share of attention on the token before."""
    by_distance: list[list[float]] | None = None
    """By layer and head, the share of the scores' variance that their distance explains."""


class ContextLoss(msgspec.Struct):
    """The loss of the longest run at a length of the context."""

    context: int
    """Tokens in a window."""
    mode: str
    """sliding or nonoverlapping."""
    loss: float | None
    """None where the encoding has no positions for windows of this length."""
    se: float | None


class Record(msgspec.Struct):
    """What the report reads of the record of an arm and seed, whose file has more."""

    arm: str
    seed: int
    lr: float
    targets: int
    """Tokens on which the contexts are measured."""
    data_sha256: str
    tokenizer_sha256: str
    init_sha256: str
    init_kind: str
    embeddings_sha256: str
    embeddings_kind: str
    batches_sha256: str
    machine: dict[str, Any]
    trained_by: dict[str, Any]
    config: dict[str, Any]
    """Of the longest run."""
    horizons: list[End]
    """One for each length of the study, the longest last."""
    trajectory: list[Point]
    """Of the longest run, at a constant rate."""
    context: list[ContextLoss]
    encoding_sha256: str = ""
    """Of the code of the position encoding (gyre/code.py). Old records do not have it."""


def measure_runs(
    arm: str, max_spans: int, device: str, trunk: RunDir, *branches: RunDir
) -> dict[str, Any]:
    """Return the record of an arm and seed, a dict of what JSON can hold.

    trunk: the longest run
    branches: the shorter runs, from long to short; of these only the ends are measured
    max_spans: at most so many spans of 8T tokens are measured in every context; fewer for the rest
    """
    if not trunk.checkpoints.kept_steps():
        paths = ", ".join(str(run.path) for run in (trunk, *branches))
        raise UserError(f"{trunk.path} has lost the checkpoints that it kept: remove {paths} to "
                        "train them again")
    # `last`: the loss after all tokens, which was agreed on beforehand, and not the best one.
    measured = measure.measure(trunk, "last", max_spans, device, every_target=True)
    # The contexts are measured once. To save time, the rest is measured at each end and each kept
    # checkpoint in fewer spans.
    capped_spans = min(max_spans, measure.MAX_SPANS)
    ends = [measure_end(run, capped_spans, device) for run in reversed(branches)]
    ends.append(msgspec.convert(measured, End))
    return msgspec.to_builtins({
        "arm": arm, **measured, **hash_origin(trunk), "horizons": ends,
        "trajectory": follow(trunk, capped_spans, device), "machine": machine(),
        "trained_by": {key: trunk.record[key] for key in ("git", "torch")},
        "encoding_sha256": trunk.record.get("encoding_sha256", ""),
    })


def measure_end(run: RunDir, max_spans: int, device: str) -> End:
    """Return what is measured of the last checkpoint, the shift in at most so many spans."""
    trained, _, scorer = measure.open_scorer(run, "last", device)
    with scorer.compute.active():
        return End(
            tokens=trained.step * trained.config.step_tokens, **measure.whole_split(scorer),
            shift=measure.shift(scorer, scorer.spans(max_spans)),
        )


def follow(run: RunDir, max_spans: int, device: str) -> list[Point]:
    """Return what every kept checkpoint has.

    The losses are over the whole split, and all else is measured in at most so many spans.
    """
    trained, _, scorer = measure.open_scorer(run, "last", device)
    spans = scorer.spans(max_spans)
    shapes = weight_shapes(scorer.model)
    points = []
    for step in run.checkpoints.kept_steps():
        scorer.model.load_state_dict(run.checkpoints.load_weights(step, shapes=shapes))
        with scorer.compute.active():
            points.append(Point(
                tokens=step * trained.config.step_tokens,
                loss=measure.whole_split(scorer)["loss"],
                loss_of_32=measure.loss_of_32(scorer),
                shift=measure.shift(scorer, spans),
                permuted=measure.permute(scorer, spans),
                **measure_attention(scorer, spans),
            ))
    return points


# --- what a run came from -------------------------------------------------------------------------


def hash_origin(run: RunDir) -> dict[str, str]:
    """Return hashes of what a run of a study was trained from and on.

    `embeddings` are the initial token embeddings, `init` all other initial weights but those of the
    position encoding. They can be compared between runs of equal `kind`, a hash of the shapes, of
    the scale of the embeddings, and of how an encoding starts other weights. `batches` are all
    training batches in order.
    """
    config = read_config(run.path / "config.yaml")
    with torch.device("meta"):
        model = Transformer(config.model)
    # Vectors are not drawn: the constructor has given them their values.
    weights = model.state_dict() | dict(model.draw_matrices(config.seed))
    embeddings = weights["tok_embeddings.weight"]
    init = hashlib.sha256()
    shapes = {}
    for name, value in sorted(weights.items()):
        if not name.startswith(("position.", "tok_embeddings.")):
            init.update(name.encode() + value.numpy().tobytes())
            shapes[name] = [*value.shape, *model.drawn_as.get(name, ())]
    scale = [*embeddings.shape, model.position.embedding_std]
    dataset = measure.open_prepared_of_run(run, config).dataset(
        "train", seq_len=config.data.seq_len, batch_size=config.train.batch_size, seed=config.seed)
    batches = hashlib.sha256()
    for step in range(config.train.steps):
        for part in dataset.batch(step):
            batches.update(part.numpy().tobytes())
    return {
        "init_sha256": init.hexdigest(),
        "init_kind": hashlib.sha256(repr(shapes).encode()).hexdigest(),
        "embeddings_sha256": hashlib.sha256(embeddings.numpy().tobytes()).hexdigest(),
        "embeddings_kind": hashlib.sha256(repr(scale).encode()).hexdigest(),
        "batches_sha256": batches.hexdigest(),
    }
