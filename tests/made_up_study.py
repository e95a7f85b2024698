"""A study on disk whose numbers are made up, for the tests of what reads one."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from files import read_sealed, write_sealed

T = 32
STEP_TOKENS = 256
STEPS = (400, 800, 1600)
HORIZONS = [steps * STEP_TOKENS for steps in STEPS]
NGRAMS = [5.0, 3.5, 2.9]
# Δ from sin after the last length, and tokens at which the loss is 0.3 below the bigrams'.
EFFECT = {"rope": -0.06, "sin": 0.0, "nope": 0.1, "learned": 0.03, "alibi": -0.03}
USED = {"rope": 60_000, "sin": 150_000, "nope": 200_000, "learned": 170_000, "alibi": 70_000}

RELATIVE = ("rope", "nope", "alibi")  # a shift of all positions costs these nothing
# Nats by which the loss at 2T is higher than at T; learned positions end at T.
GROWTH = {"rope": 0.1, "alibi": 0.0, "nope": 0.3, "sin": 0.6}


def final(arm: str, seed: int, effect: float) -> float:
    """The loss after the last length; arms of a seed share most of what the seed does to them."""
    rng = np.random.default_rng([seed, sum(map(ord, arm))])
    return 2.0 + effect + 0.03 * math.sin(9 * seed) + 0.004 * float(rng.standard_normal())


def make_record(arm: str, seed: int, effect: float) -> dict[str, Any]:
    """One arm and seed. The gap to sin halves with every doubling of the tokens."""
    scale = "large" if arm == "sin" else "small"
    return {
        "arm": arm, "seed": seed, "lr": 2e-3, "targets": 50_176 + seed,
        "data_sha256": "text", "tokenizer_sha256": "pieces", "batches_sha256": f"batch{seed}",
        "init_sha256": f"init{seed}", "init_kind": "k",
        "embeddings_sha256": f"{scale}{seed}", "embeddings_kind": scale,
        "machine": {"processor": "Example CPU"}, "trained_by": {"torch": "2.13.0"}, "config": {},
        "trajectory": make_trajectory(arm), "horizons": make_ends(arm, seed, effect),
        "context": make_contexts(arm, final(arm, seed, effect)),
    }


def make_trajectory(arm: str) -> list[dict[str, Any]]:
    """13 points at which the loss falls in the logarithm of the tokens."""
    used_at = USED.get(arm, 60_000)
    steepness = 1.2 / math.log(4)  # nats for each factor e of the tokens
    points = []
    for tokens in np.geomspace(20_000, HORIZONS[-1], 13):
        used = tokens >= used_at
        shift = 0.5 if used else 0.0
        if arm in RELATIVE:
            shift = 0.0
        if arm == "learned":
            shift = None
        loss = NGRAMS[1] - 0.3 - steepness * math.log(tokens / used_at)
        points.append({"tokens": int(tokens), "loss": loss, "shift": shift,
                       "previous": [[0.1, 0.2], [0.05, 0.9 if used else 0.1]]})
    return points


def make_ends(arm: str, seed: int, effect: float) -> list[dict[str, Any]]:
    """After each length, the shortest first."""
    base = final(arm, seed, effect) - effect
    ends = []
    for doublings, tokens in zip((2, 1, 0), HORIZONS, strict=True):
        gap = effect * 2**doublings
        ends.append({
            "tokens": tokens, "loss": base + gap + 0.4 * doublings, "se": 0.01,
            "stretches": [base + 0.8 * gap, base + 1.2 * gap] * 10,
            "shift": 0.0 if arm in RELATIVE else 0.5 / 2**doublings})
    return ends


def make_contexts(arm: str, end: float) -> list[dict[str, Any]]:
    """Windows that slide are 0.05 better; past T the loss grows, or is undefined."""
    losses: dict[int, float | None] = {T // 2: end + 0.1, T: end}
    for lengths in (2, 4, 8):
        growth = GROWTH.get(arm)
        losses[lengths * T] = None if growth is None else end + growth * lengths / 2
    rows = []
    for context, loss in losses.items():
        for mode, lower in (("nonoverlapping", 0.0), ("sliding", 0.05)):
            rows.append({"context": context, "mode": mode,
                         "loss": None if loss is None else loss - lower,
                         "se": None if loss is None else 0.02})
    return rows


def make_study(path: Path, seeds: int = 6, effect=EFFECT) -> Path:
    """A study of so many seeds of each arm of `effect`."""
    baseline = "sin" if "sin" in effect else next(iter(effect))
    write_sealed(path / "plan.json", {
        "name": path.name, "command": "python ablate.py --tier full", "tier": "full",
        "arms": {arm: {} for arm in effect}, "seeds": list(range(seeds)), "baseline": baseline,
        "steps": {"horizons": list(STEPS), "tuning": 800}, "step_tokens": STEP_TOKENS, "seq_len": T,
        "ngrams": NGRAMS, "tuning_seeds": [1000, 1001], "grid": [2e-3], "dtype": "float32",
        "config": {arm: {
            "optim": {"warmup_steps": 50, "final_lr": 0.0},
            "model": {"position": arm, "n_layers": 4, "dim": 128, "n_heads": 4},
            "data": {"source": "stdlib", "vocab_size": 512}} for arm in effect},
        "git": {"revision": "0123abcd"},
        "data_sha256": {"train.bin": "text"}, "machine": {"processor": "Example CPU"},
        "versions": {"torch": "2.13.0"},
        "tuned": {"arms": {"rope": {"0.001": {"1000": 2.2}, "0.002": {"1000": 2.1, "1001": 2.12},
                                    "0.004": {"1000": 2.15, "1001": 2.16}}}}})
    for arm in effect:
        for seed in range(seeds):
            file = path / "results" / f"{arm}-s{seed}.json"
            write_sealed(file, make_record(arm, seed, effect[arm]))
    return path


def change(study: Path, run: str, **fields: Any) -> None:
    """Say something else in the record of a run."""
    file = study / "results" / f"{run}.json"
    write_sealed(file, read_sealed(file, "") | fields)


def make_pair(path: Path, seeds: int = 1) -> Path:
    """A study of that many seeds of rope and sin."""
    return make_study(path, seeds, {"rope": -0.06, "sin": 0.0})
