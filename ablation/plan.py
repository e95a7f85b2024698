"""The plan of an ablation study: arms, seeds, learning rates, tiers, tokens; and its hash.

An arm is an overlay of the study's config: what it does not name is equal in all arms. The
protocol and where its numbers come from: docs/positions.md and the report of any study.
"""

import difflib
import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from errors import UserError
from gyre.device import processor

ARMS: dict[str, dict[str, Any]] = {
    "rope": {"model.position": "rope"},
    "sin": {"model.position": "sinusoidal", "model.sinusoid": "matched"},
    "sin_naive": {"model.position": "sinusoidal", "model.sinusoid": "naive"},  # the trap, labelled
    "learned": {"model.position": "learned"},
    "alibi": {"model.position": "alibi"},
    "nope": {"model.position": "none"},
    "sin_t2t": {"model.position": "sinusoidal", "model.sinusoid": "vaswani"},
    "p_rope": {"model.position": "rope", "model.partial": 0.75},
    "rope_b100": {"model.position": "rope", "model.theta": 100.0},
    "rope_b1000": {"model.position": "rope", "model.theta": 1000.0},
    "rope_b500k": {"model.position": "rope", "model.theta": 500000.0},
}
CORE = ("rope", "sin", "sin_naive", "learned", "alibi", "nope")
HEADLINE = ("rope", "sin")
BASELINE = "sin"
PROBES = ("P1", "P2")
PROBED = ("rope", "sin", "alibi", "nope")
TUNING_SEED = 1000  # none of the seeds that are reported

# Of the time budget, the share that training may take; the rest is for everything below.
TRAINING_SHARE = 0.75
# What one measurement and one probe cost, as the training tokens that take as long.
MEASURE_TOKENS = 250_000
PROBE_TOKENS = 400_000


@dataclass(frozen=True)
class Tier:
    """A size of study. `overrides` change the config, and the command line changes both."""

    arms: tuple[str, ...] = CORE
    grid: tuple[float, ...] = ()
    """Learning rates to choose from for each arm; none: the config's optim.lr for all."""
    headline_seeds: int = 6
    seeds: int = 3
    """Of every other arm: the first ones of the headline's."""
    probe_seeds: int = 3
    probe_steps: int | None = None
    """None: as many as the probe asks for."""
    overrides: Mapping[str, Any] = field(default_factory=dict)


TIERS = {
    "cpu": Tier(grid=(1e-3, 2e-3, 4e-3)),
    "gpu": Tier(
        arms=tuple(ARMS),
        grid=(5e-4, 1e-3, 2e-3),
        overrides={
            "model.dim": 384, "model.n_layers": 6, "model.n_heads": 6, "model.hidden_dim": 1024,
            "data.vocab_size": 4096, "data.seq_len": 256, "optim.warmup_steps": 100,
            "train.steps": 1500, "train.batch_size": 128, "train.eval_interval": 150,
            "train.dtype": "auto", "train.compile": "auto",
        },
    ),
    "smoke": Tier(
        arms=HEADLINE, headline_seeds=1, probe_seeds=1, probe_steps=10,
        overrides={
            "model.dim": 48, "model.n_layers": 2, "model.n_heads": 2, "model.hidden_dim": 96,
            "data.seq_len": 32, "optim.warmup_steps": 5,
            "train.steps": 20, "train.batch_size": 8, "train.eval_interval": 10,
        },
    ),
}


def choose_tier(name: str, arms: str | None) -> tuple[Tier, tuple[str, ...]]:
    """A tier and the arms of it that are wanted, in the tier's order; `arms` is "rope,sin,...".

    Any arm can be asked for, also one that the tier leaves out. Raises UserError for a name that
    does not exist, and where the baseline is missing.
    """
    tier = TIERS[_known("tier", name, TIERS)]
    if arms is None:
        return tier, tier.arms
    wanted = {_known("arm", arm, ARMS) for arm in arms.split(",")}
    if BASELINE not in wanted or len(wanted) < 2:
        raise UserError(
            f"--arms {arms} must name {BASELINE}, to which every difference is taken, and another"
        )
    return tier, tuple(arm for arm in ARMS if arm in wanted)


def _known(what: str, name: str, names: Mapping[str, Any]) -> str:
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise UserError(f"unknown {what} {name!r}{hint}: there are {', '.join(names)}")


def seeds_of(tier: Tier, arm: str) -> list[int]:
    """The seeds of an arm: every arm but the headline's has the first ones of the headline's."""
    count = tier.headline_seeds if arm in HEADLINE else min(tier.seeds, tier.headline_seeds)
    return list(range(count))


@dataclass(frozen=True)
class Speed:
    """Measured with as many processes at a time as the study uses."""

    tokens_per_second: float  # of training, all processes together
    overhead: float  # seconds of a run that are not training steps: start-up, validation, saving
    jobs: int


def shrink(
    tier: Tier, arms: tuple[str, ...], steps: int, step_tokens: int, warmup: int,
    budget_minutes: float, speed: Speed,
) -> tuple[int, float]:
    """(steps of a run, expected minutes of the study) within the budget.

    Training gets at most TRAINING_SHARE of it, and no more than the rest leaves. Raises UserError
    where half the steps, a tuning run, would not reach past the warm-up.
    """
    runs = sum(len(seeds_of(tier, arm)) for arm in arms)
    probes = len(PROBES) * len(probed(arms)) * tier.probe_seeds if tier.probe_steps is None else 0
    rest = (runs * MEASURE_TOKENS + probes * PROBE_TOKENS) / speed.tokens_per_second
    rest += (runs + len(arms) * len(tier.grid)) * speed.overhead / speed.jobs
    # Seconds that one step more of every run takes.
    trained = runs + len(arms) * len(tier.grid) / 2  # a tuning run is half a run
    each = trained * step_tokens / speed.tokens_per_second
    budget = 60 * budget_minutes
    affordable = math.floor(min(TRAINING_SHARE * budget, budget - rest) / each)
    least = 2 * (warmup + 1)
    if affordable < min(least, steps):
        needed = max(least * each / TRAINING_SHARE, least * each + rest)
        raise UserError(
            f"--budget-minutes {budget_minutes:g} is too short for {runs} runs of at least {least} "
            f"steps (twice optim.warmup_steps): give {math.ceil(needed / 60)} or fewer --arms"
        )
    steps = min(steps, affordable)
    return steps, (steps * each + rest) / 60


def headline(arms: tuple[str, ...]) -> list[str]:
    """What the study is about: an arm, rope where it can be, and the baseline."""
    return [next(arm for arm in arms if arm != BASELINE), BASELINE]


def best_rate(losses: Mapping[str, float | None]) -> float:
    """Of {learning rate: loss}; a loss that is not finite is None, and loses."""
    known = {float(lr): math.inf if loss is None else loss for lr, loss in losses.items()}
    return min(known, key=known.__getitem__)


def probed(arms: tuple[str, ...]) -> list[str]:
    """Of these arms, those that the probes are run for."""
    return [arm for arm in PROBED if arm in arms]


# --- plan.json ------------------------------------------------------------------------------------

# What decides numbers, and so belongs to the hash. The rest says where and when, or is a result.
IDENTITY = ("tier", "arms", "grid", "tuning_seed", "probes", "budget_minutes", "config",
            "data_sha256", "tokens", "steps")


def fingerprint(plan: Mapping[str, Any]) -> dict[str, str]:
    """A sha256 of each part that decides numbers. A learning rate found by tuning is none."""
    arms = {name: {**arm, "lr": None} for name, arm in plan["arms"].items()}
    parts = {**{key: plan[key] for key in IDENTITY}, "arms": arms if plan["grid"] else plan["arms"]}
    if "dtype" in plan:  # studies from before it was noted go on
        parts["dtype"] = plan["dtype"]
    text = {key: json.dumps(value, sort_keys=True) for key, value in parts.items()}
    return {key: hashlib.sha256(value.encode()).hexdigest() for key, value in text.items()}


def check_same(study: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """UserError unless the plan in the folder is the one that is wanted now.

    Tokens, steps and dtype follow from speeds that were measured at the first start, so they are
    read back and not compared; the hash still notices when somebody edits them.
    """
    found = fingerprint(stored)
    measured = {key: stored[key] for key in ("tokens", "steps", "dtype") if key in stored}
    now = fingerprint({**wanted, **measured})
    for other, what in ((stored["sha256"], "was changed by hand"), (now, "is of another plan")):
        changed = [key for key in found if found[key] != other.get(key)]
        if changed:
            raise UserError(
                f"{study / 'plan.json'} {what} ({', '.join(changed)}), and plans do not mix: "
                f"choose another folder with --name, or remove {study}"
            )


def machine() -> dict[str, Any]:
    """What the study runs on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"system": platform.system(), "processor": processor(), "cores": cores(), "gpu": gpu}


def cores() -> int:
    """How many this process may use, which in a container can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide numbers."""
    packages = ("torch", "numpy", "scipy", "sentencepiece")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
