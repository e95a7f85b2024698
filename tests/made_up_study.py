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


def final(arm: str, seed: int, effect: float) -> float:
    """The loss after the last length; arms of a seed share most of what the seed does to them."""
    rng = np.random.default_rng([seed, sum(map(ord, arm))])
    return 2.0 + effect + 0.03 * math.sin(9 * seed) + 0.004 * float(rng.standard_normal())


def record(arm: str, seed: int, effect: float) -> dict[str, Any]:
    """One arm and seed. The gap to sin halves with every doubling of the tokens."""
    end = final(arm, seed, effect)
    base = end - effect
    relative, used_at = arm in ("rope", "nope", "alibi"), USED.get(arm, 60_000)
    steepness = 1.2 / math.log(4)  # nats for each factor e of the tokens
    points = [
        {"tokens": int(tokens), "previous": [[0.1, 0.2], [0.05, 0.9 if used else 0.1]],
         "loss": NGRAMS[1] - 0.3 - steepness * math.log(tokens / used_at),
         "shift": None if arm == "learned" else 0.0 if relative else 0.5 * used}
        for tokens in np.geomspace(20_000, HORIZONS[-1], 13) for used in (tokens >= used_at,)]
    grows = {"rope": 0.1, "alibi": 0.0, "nope": 0.3, "sin": 0.6}.get(arm)
    scale = "large" if arm == "sin" else "small"
    contexts = {T // 2: end + 0.1, T: end}
    contexts |= {k * T: None if grows is None else end + grows * k / 2 for k in (2, 4, 8)}
    return {
        "arm": arm, "seed": seed, "lr": 2e-3, "targets": 50_176 + seed,
        "data_sha256": "text", "tokenizer_sha256": "pieces", "batches_sha256": f"batch{seed}",
        "init_sha256": f"init{seed}", "init_kind": "k",
        "embeddings_sha256": f"{scale}{seed}", "embeddings_kind": scale,
        "machine": {"processor": "Example CPU"}, "trained_by": {"torch": "2.13.0"},
        "trajectory": points, "horizons": [
            {"tokens": tokens, "loss": base + effect * 2**k + 0.4 * k, "se": 0.01,
             "stretches": [base + effect * 2**k * f for f in 10 * (0.8, 1.2)],
             "shift": 0.0 if relative else 0.5 / 2**k}
            for k, tokens in zip((2, 1, 0), HORIZONS, strict=True)],
        "context": [{"context": c, "mode": mode, "loss": loss and loss - lower,
                     "se": loss and 0.02} for c, loss in contexts.items()
                    for mode, lower in (("nonoverlapping", 0.0), ("sliding", 0.05))]}


def make_study(path: Path, seeds: int = 6, effect=EFFECT) -> Path:
    """A study of so many seeds of each arm of `effect`."""
    baseline = "sin" if "sin" in effect else next(iter(effect))
    write_sealed(path / "plan.json", {
        "name": path.name, "command": "python ablate.py --tier full", "tier": "full",
        "arms": {arm: {} for arm in effect}, "seeds": list(range(seeds)), "baseline": baseline,
        "steps": {"horizons": list(STEPS), "tuning": 800}, "step_tokens": STEP_TOKENS, "seq_len": T,
        "ngrams": NGRAMS, "tuning_seeds": [1000, 1001], "grid": [2e-3], "dtype": "float32",
        "config": {baseline: {"optim": {"warmup_steps": 50}}}, "git": {"revision": "0123abcd"},
        "versions": {"torch": "2.13.0"},
        "tuned": {"arms": {"rope": {"0.001": {"1000": 2.2}, "0.002": {"1000": 2.1, "1001": 2.12},
                                    "0.004": {"1000": 2.15, "1001": 2.16}}}}})
    for arm in effect:
        for seed in range(seeds):
            write_sealed(path / "results" / f"{arm}-s{seed}.json", record(arm, seed, effect[arm]))
    return path


def change(study: Path, run: str, **fields: Any) -> None:
    """Say something else in the record of a run."""
    file = study / "results" / f"{run}.json"
    write_sealed(file, read_sealed(file, "") | fields)


def make_pair(path: Path, seeds: int = 1) -> Path:
    """A study of that many seeds of rope and sin."""
    return make_study(path, seeds, {"rope": -0.06, "sin": 0.0})
