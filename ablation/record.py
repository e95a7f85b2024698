"""What a study records of an arm and seed: losses, the way there, and what the run came from.

gyre/measure.py explains T and the contexts.
"""

import hashlib
from typing import Any

import torch

from ablation.attention import measure_attention
from ablation.plan import machine
from errors import UserError
from gyre import measure
from gyre.options import read_config
from gyre.rundir import RunDir
from model.transformer import Transformer


def measure_runs(job: dict[str, Any], trunk: RunDir, *branches: RunDir) -> dict[str, Any]:
    """Return the record of an arm and seed: of its longest run, and of the ends of the others."""
    if not trunk.checkpoints.kept_steps():
        raise UserError(f"{trunk.path} has lost the checkpoints that it kept: remove "
                        f"{', '.join(str(run.path) for run in (trunk, *branches))} to train them "
                        "again")
    device, most = job["device"], job["windows"]
    # `last`: the loss after all tokens, which was agreed on beforehand, and not the best one.
    record = measure.measure(trunk, "last", most, device, all_blocks=True)
    windows = min(most, measure.WINDOWS)
    ends = [measure_end(run, windows, device) for run in reversed(branches)]
    ends.append({key: record[key] for key in ("tokens", "loss", "se", "stretches", "shift")})
    return {
        "arm": job["arm"], **record, **hash_origin(trunk), "horizons": ends,
        "trajectory": follow(trunk, windows, device), "machine": machine(),
        "trained_by": {key: trunk.record[key] for key in ("git", "torch")},
    }


def measure_end(run: RunDir, windows: int, device: str) -> dict[str, Any]:
    """Return tokens, `whole_split`, and the cost of a shift by T, of the last checkpoint."""
    config, _, scorer = measure.open_scorer(run, "last", device)
    with scorer.compute.active():
        return {
            "tokens": measure.trained_tokens(run, "last", config), **measure.whole_split(scorer),
            "shift": measure.shift(scorer, scorer.spans(windows)),
        }


def follow(run: RunDir, windows: int, device: str) -> list[dict[str, Any]]:
    """Return what every kept checkpoint has: the loss over the whole split and in windows of 32
    tokens, and, on at most so many windows, the cost of a shift by T and of permuted tokens, and
    what attention does."""
    config, _, scorer = measure.open_scorer(run, "last", device)
    spans, points = scorer.spans(windows), []
    for step in run.checkpoints.kept_steps():
        scorer.trained.load_state_dict(run.checkpoints.load_weights(step))
        with scorer.compute.active():
            points.append({
                "tokens": measure.trained_tokens(run, step, config),
                "loss": measure.whole_split(scorer)["loss"],
                "loss_of_32": measure.loss_of_32(scorer),
                "shift": measure.shift(scorer, spans), "permuted": measure.permute(scorer, spans),
                **measure_attention(scorer, spans),
            })
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
    init, shapes, batches = hashlib.sha256(), {}, hashlib.sha256()
    for name, value in sorted(weights.items()):
        if not name.startswith(("position.", "tok_embeddings.")):
            init.update(name.encode() + value.numpy().tobytes())
            shapes[name] = [*value.shape, *model.drawn_as.get(name, ())]
    scale = [*embeddings.shape, model.position.embedding_std]
    dataset = measure.open_prepared(run, config).dataset(
        "train", seq_len=config.data.seq_len, batch_size=config.train.batch_size, seed=config.seed)
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
