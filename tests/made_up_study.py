"""A study on disk whose numbers are made up, for the tests of what reads one."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from files import read_json

T = 32
TOKENS = 200_000
# Δ of the final loss from sin, and what the loss gains by position past T.
EFFECT = {"rope": -0.06, "sin": 0.0, "sin_naive": 0.25, "learned": 0.03, "alibi": -0.03,
          "nope": 0.1}
BEYOND = {"rope": 0.1, "sin": 0.6, "sin_naive": 0.7, "learned": None, "alibi": -0.01, "nope": 0.3}
SCALINGS = {"raw": 0.1, "linear": 0.2, "ntk": 0.02, "dynamic": 0.02, "yarn": 0.01, "llama3": 0.05}


def record(arm: str, seed: int, effect: float, noise: float = 0.004) -> dict[str, Any]:
    """One run; arms of a seed share most of what the seed does to them."""
    rng = np.random.default_rng([seed, sum(map(ord, arm))])
    final = 2.0 + effect + 0.03 * math.sin(9 * seed) + noise * float(rng.standard_normal())
    at = np.linspace(0, TOKENS, 11)
    edges = [1, 2, 5, 9, 17, 33, 46, 65, 129]
    beyond = BEYOND[arm]
    past = None if beyond is None else final + beyond
    contexts = {T // 2: final + 0.1, T: final}
    contexts |= {k * T: None if beyond is None else final + beyond * k / 2 for k in (2, 4, 8)}
    slope = {"rope": 1e-6, "alibi": 0.0, "nope": 0.0}.get(arm, 0.5)
    shifts = {d: None if arm == "learned" and d else slope * d / T
              for d in (0, T // 4, T // 2, T, 2 * T, 4 * T, 16 * T)}
    naive, added = arm == "sin_naive", arm.startswith("sin")
    return {
        "arm": arm, "seed": seed, "lr": 2e-3, "parameters": 820_001 if arm == "sin" else 820_000,
        "tokens": TOKENS, "tokens_per_second": 15_000.0, "seq_len": T,
        "init_sha256": f"init{seed}" + "0" * 59, "batches_sha256": f"batch{seed}" + "0" * 58,
        "data_sha256": "d" * 64, "tokenizer_sha256": "e" * 64,
        "config": {"model": {"head_dim": 32, "theta": 10000.0}, "log": {"group": arm}},
        "position_rms": (0.7071 if naive else 0.02) if added else None,
        "embedding_rms": 0.02, "rms_ratio": (35.4 if naive else 1.0) if added else None,
        "curve": [[int(x), final + 2.5 * (math.exp(-x / 40_000) - math.exp(-5))] for x in at],
        "loss": final, "bpb": final / math.log(2) / 3,
        "by_position": {"position": edges,
                        "loss": [final + 1 / low if low <= T else past for low in edges]},
        "context": [{"context": c, "mode": mode, "loss": loss}
                    for mode in ("nonoverlapping", "sliding") for c, loss in contexts.items()],
        "shift": [{"delta": d, "dloss": dloss, "dlogit_max": dloss}
                  for d, dloss in shifts.items()],
        "attention_distance": [[1.0, 5.5, 9.0, 14.0], [2.0, 3.0, 8.0, 15.5]],
        "rope_scaling": [{"scaling": name, "context": k * T, "loss": final + bump * k}
                         for name, bump in SCALINGS.items() for k in (2, 4, 8)]
        if arm == "rope" else None,
    }


def probe(name: str, arm: str, seed: int) -> dict[str, Any]:
    excess = {"rope": 0.01, "sin": 0.05, "alibi": 0.08, "nope": 0.9}[arm] + 0.001 * seed
    grows = {"rope": 1.0, "sin": 20.0, "alibi": 1.2, "nope": 1.0}[arm]
    return {
        "probe": name, "arm": arm, "seed": seed, "entropy_floor": 1.9606 if name == "P1" else 0.0,
        "curve": [[step, excess + 0.8 * math.exp(-step / 90)] for step in range(0, 501, 50)],
        "excess": {"T": excess, "2T": excess * (1 + grows) / 2, "4T": excess * grows},
        "steps_to_90": None if arm == "nope" else 150 + 10 * seed,
    }


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def make_study(path: Path, seeds=None, effect=EFFECT, probes=("rope", "sin", "alibi", "nope"),
               noise: float = 0.004) -> Path:
    """A study with the seeds of each arm in `seeds`; three probes of each of the arms `probes`."""
    seeds = seeds or {arm: range(6 if arm in ("rope", "sin") else 3) for arm in effect}
    write(path / "plan.json", {
        "name": path.name, "command": "python ablate.py --config ablation.yaml", "tier": "cpu",
        "arms": {a: {"overrides": {}, "seeds": list(s), "lr": 2e-3} for a, s in seeds.items()},
        "tokens": TOKENS, "steps": 98, "seq_len": T, "budget_minutes": 45.0,
        "expected_minutes": 41.0, "minutes": 43.21, "baseline": "sin",
        "headline": ["rope", "sin"], "machine": {"processor": "Example CPU", "cores": 2},
        "versions": {"torch": "2.13.0", "python": "3.11.9"},
        "git": {"revision": "0123abcd", "dirty": False},
        "tuning": {"rope": {"0.001": 2.2, "0.002": 2.1, "0.004": 2.15},
                   "sin": {"0.001": 2.3, "0.002": 2.25, "0.004": 2.2001}},
    })
    for arm, each in seeds.items():
        for seed in each:
            write(path / "results" / f"{arm}-s{seed}.json", record(arm, seed, effect[arm], noise))
    for name in ("P1", "P2"):
        for arm in probes:
            for seed in range(3):
                write(path / "probes" / f"{name}-{arm}-s{seed}.json", probe(name, arm, seed))
    return path


def change(study: Path, run: str, **fields: Any) -> None:
    """Say something else in the record of a run."""
    file = study / "results" / f"{run}.json"
    write(file, read_json(file) | fields)


def make_pair(path: Path, rope: int = 1, sin: int = 1, **options: Any) -> Path:
    """A study of that many seeds of rope and sin, without probes."""
    return make_study(path, {"rope": range(rope), "sin": range(sin)}, probes=(), **options)


def losses(arm: str, seeds) -> np.ndarray:
    return np.array([record(arm, seed, EFFECT[arm])["loss"] for seed in seeds])
