"""The plan of a study: arms, learning rates, seeds, lengths; and its hash.

An arm is an overlay of the study's config: what it does not name is equal in all arms. A study
first chooses a learning rate for every arm, on seeds that are not reported (`next_rates`). Then
every arm and seed is one run at a constant rate, from which a run with a cooldown branches off for
each length (`horizons`), so that losses after 1, 2, 4 and 8 million tokens cost little more than
the last. (Hägele et al. 2024, arXiv:2405.18392)
"""

import difflib
import json
import math
import os
import platform
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

import torch

from errors import UserError
from files import read_sealed
from gyre.device import processor
from gyre.options import config_parser, load_config

Overlay = dict[str, Any]
ARMS: dict[str, Overlay] = {
    "rope": {"model.position": "rope"},
    "sin": {"model.position": "sinusoidal"},
    "nope": {"model.position": "none"},
    "learned": {"model.position": "learned"},
    "alibi": {"model.position": "alibi"},
    "sin_vaswani": {"model.position": "sinusoidal", "model.sinusoid": "vaswani"},
    "sin_offset": {"model.position": "sinusoidal", "model.random_offset": 384},
    "sin_naive": {"model.position": "sinusoidal", "model.sinusoid": "naive"},  # the trap, labelled
    "p_rope_50": {"model.position": "rope", "model.partial": 0.5},
    "p_rope_75": {"model.position": "rope", "model.partial": 0.75},
    "rope_b100": {"model.position": "rope", "model.theta": 100.0},
    "rope_b1k": {"model.position": "rope", "model.theta": 1000.0},
    "rope_b500k": {"model.position": "rope", "model.theta": 500000.0},
}
BASELINE = "sin"
PROBES = ("P1", "P2")
PROBED = ("rope", "sin", "alibi", "nope")
TUNING_SEEDS = (1000, 1001)  # none of those that are reported

MILLION = 2**20  # tokens: a whole number of steps
VALIDATIONS = 4  # of the longest run of an arm and a seed, and of one that tunes
KEPT_FREE = 0.1  # of a budget, for a machine that is slower later than when it was measured
# As training tokens that take as long: a probe, and a token in a forward that only measures. From
# what docs/benchmarks.md says of E, under "What compilation buys".
PROBE_TOKENS = 800_000
FORWARD = 0.45
# Tokens in forwards for each target that contexts and YaRN are measured on; see gyre/measure.py.
CONTEXT_FORWARDS = 70


@dataclass(frozen=True)
class Tier:
    """A size of study. `overrides` change the config, and the command line changes both."""

    arms: tuple[str, ...]
    horizons: tuple[int, ...]
    """Training tokens after which a run ends, in ascending order."""
    seeds: int
    """Of every arm: 0, 1, ..."""
    grid: tuple[float, ...] = ()
    """Learning rates to choose from for each arm, in ascending order, each about twice the one
    before; none: the config's optim.lr for all."""
    tuning_tokens: int = 0
    tuning_seeds: tuple[int, ...] = TUNING_SEEDS[:1]
    """The grid is run on the first, and the best two rates on the others too."""
    treatments: tuple[str, ...] = ()
    """Arms that are tried, at `treatment_tokens`, for the best to stand for the first of them."""
    treatment_tokens: int = 0
    windows: int = sys.maxsize
    """Of 8T tokens, on which a run is measured at most; see gyre/measure.py."""
    followed: int = 4
    """Checkpoints to an octave by which a run is followed."""
    probe_seeds: int = 3
    probe_steps: int | None = None
    """None: as many as the probe asks for."""
    budget_minutes: float | None = None
    """Lengths shrink to what can be trained in this time."""
    overrides: Mapping[str, Any] = field(default_factory=dict)

# On one thread, all runs of an arm share what the first of them compiled; docs/benchmarks.md.
COMPILED = {"train.compile": True}

TIERS = {
    "quick": Tier(
        arms=("rope", "sin", "nope"), horizons=(MILLION, 2 * MILLION), seeds=6,
        grid=(2e-3, 4e-3), tuning_tokens=MILLION // 2, windows=8, followed=2, probe_seeds=1,
        budget_minutes=45.0, overrides=COMPILED,
    ),
    "full": Tier(
        arms=("rope", "sin", "nope", "learned", "alibi"),
        horizons=(MILLION, 2 * MILLION, 4 * MILLION, 8 * MILLION), seeds=6,
        grid=(2e-3, 4e-3), tuning_tokens=4 * MILLION, tuning_seeds=TUNING_SEEDS,
        treatments=("sin", "sin_offset", "sin_vaswani"), treatment_tokens=2 * MILLION,
        overrides=COMPILED,
    ),
    "smoke": Tier(
        arms=("rope", "sin"), horizons=(10 * 256, 20 * 256), seeds=1, windows=4,
        probe_seeds=1, probe_steps=10,
        overrides={
            "model.dim": 48, "model.n_layers": 2, "model.n_heads": 2, "model.hidden_dim": 96,
            "data.seq_len": 32, "optim.warmup_steps": 5, "train.batch_size": 8,
        },
    ),
}


# --- arms -----------------------------------------------------------------------------------------


def choose_tier(name: str) -> Tier:
    """The tier of this name. UserError where there is none."""
    return TIERS[_known("tier", name, TIERS)]


def choose_arms(tier: Tier, names: str | None, added: Sequence[str]) -> dict[str, Overlay]:
    """Overlays of the arms that a study has, by name: those of `names`, "rope,sin,...", or the
    tier's, and those that are `added`, each "NAME=key=value,key=value".

    Raises UserError for a name that does not exist or exists already, and for fewer than two arms.
    """
    own = {name: overlay for name, overlay in map(_parse_arm, added)}
    if len(own) < len(added):
        raise UserError(f"--arm: two arms have one name, of {', '.join(own)}")
    for name in own:
        if name in ARMS:
            raise UserError(f"--arm {name}: there is an arm of this name already; choose another")
    known = {**ARMS, **own}
    wanted = tier.arms if names is None else tuple(names.split(","))
    chosen = {_known("arm", arm, known): known[arm] for arm in (*wanted, *own)}
    if len(chosen) < 2:
        raise UserError(f"a study compares at least two arms, and --arms {names} is one")
    return chosen


def choose_horizons(text: str) -> tuple[int, ...]:
    """(1048576, 4194304) from "1M,4M". UserError for what is no such list, in ascending order."""
    sizes = {"k": 1024, "M": MILLION}
    numbers = [re.fullmatch(r"(\d+)([kM]?)", part) for part in text.split(",")]
    tokens = tuple(int(n[1]) * sizes.get(n[2], 1) for n in numbers if n)
    if len(tokens) < len(numbers) or list(tokens) != sorted(set(tokens)) or not all(tokens):
        raise UserError(f"--tokens {text} must be lengths in ascending order, such as 1M,4M")
    return tokens


def _parse_arm(text: str) -> tuple[str, Overlay]:
    """("wide", {"model.dim": "256"}) from "wide=model.dim=256"."""
    name, _, rest = text.partition("=")
    pairs = [part.partition("=") for part in rest.split(",")]
    if not re.fullmatch(r"\w+", name) or not all(key and value for key, _, value in pairs):
        raise UserError(f"--arm {text} must be NAME=OPTION=VALUE,OPTION=VALUE, such as "
                        "b500=model.theta=500,optim.lr=2e-3")
    return name, {key: value for key, _, value in pairs}


def _known(what: str, name: str, names: Mapping[str, Any]) -> str:
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise UserError(f"unknown {what} {name!r}{hint}: there are {', '.join(names)}")


def choose_baseline(name: str | None, arms: Mapping[str, Overlay]) -> str:
    """What every difference is taken to: the arm of this name, else sin, else the last one."""
    if name is not None:
        return _known("arm", name, arms)
    return BASELINE if BASELINE in arms else list(arms)[-1]


# --- learning rates -------------------------------------------------------------------------------

Losses = Mapping[float, Mapping[int, float | None]]
"""Of one arm: loss by learning rate and seed; None where the run diverged."""
WIDEST = 8  # times below and above the grid, within which it is extended


def next_rates(
    grid: Sequence[float], seeds: Sequence[int], losses: Losses
) -> list[tuple[float, int]]:
    """The (learning rate, seed) that have to be run next; none: `best_rate` can tell.

    First the grid on the first seed; then, while the best rate is at an edge, half the lowest or
    twice the highest, so that on this seed the best has a worse neighbour on either side; then the
    best two on the other seeds. Where all seeds together prefer one at an edge, it goes on beyond
    that, and what is then no worse on the first seed is run on the others too.
    """
    first = {lr: _or_inf(of[seeds[0]]) for lr, of in losses.items() if seeds[0] in of}
    missing = [(lr, seeds[0]) for lr in grid if lr not in first]
    if missing:
        return missing
    ranked = sorted(first, key=lambda lr: (first[lr], lr))
    edges = {min(first): min(first) / 2, max(first): max(first) * 2}

    def beyond(best: float) -> list[tuple[float, int]]:
        lr = edges.get(best, math.inf)
        within = len(grid) > 1 and min(grid) / WIDEST <= lr <= max(grid) * WIDEST
        return [(lr, seeds[0])] if within else []

    def on_other_seeds(rates: Iterable[float]) -> list[tuple[float, int]]:
        return [(lr, seed) for lr in rates for seed in seeds[1:] if seed not in losses[lr]]

    if todo := beyond(ranked[0]) or on_other_seeds(ranked[:2]):
        return todo
    best = best_rate(losses)
    return beyond(best) or on_other_seeds(lr for lr in ranked if first[lr] <= first[best])


def best_rate(losses: Losses) -> float:
    """The rate of the lowest mean loss, of those that were run on the most seeds."""
    most = max(map(len, losses.values()))
    means = {lr: statistics.fmean(map(_or_inf, of.values()))
             for lr, of in losses.items() if len(of) == most}
    return min(means, key=means.__getitem__)


def lowest(losses: Losses) -> float:
    """The mean loss at `best_rate`."""
    return statistics.fmean(map(_or_inf, losses[best_rate(losses)].values()))


def _or_inf(loss: float | None) -> float:
    return math.inf if loss is None else loss


# --- lengths --------------------------------------------------------------------------------------


def kept_steps(horizons: Sequence[int], cooldown: float, followed: int) -> list[int]:
    """Steps of the longest run whose checkpoints are kept: those at which the shorter ones branch
    off, and, to follow the run, `followed` to an octave down from the last before its cooldown.

    `horizons` are in steps.
    """
    ends = [steps - round(cooldown * steps) for steps in horizons]
    on_the_way = [round(ends[-1] * 2 ** (-k / followed)) for k in range(10 * followed)]
    return sorted({step for step in (*on_the_way, *ends) if step >= min(16, ends[0])})


def measuring_tokens(
    tier: Tier, step_tokens: int, cooldown: float, validation_tokens: int, seq_len: int
) -> float:
    """What it takes to validate and measure a run, as the training tokens that take as long: the
    validation split in training, but for the once that `Speed.overhead` has, at every checkpoint
    and length; and contexts on some of it."""
    steps = [tokens // step_tokens for tokens in tier.horizons]
    passes = VALIDATIONS - 1 + len(kept_steps(steps, cooldown, tier.followed)) + len(steps)
    targets = min(validation_tokens, tier.windows * 8 * seq_len)
    return FORWARD * (passes * validation_tokens + CONTEXT_FORWARDS * targets)


class Speed(TypedDict):
    """Measured with as many processes at a time as the study uses."""

    tokens_per_second: float  # of training, all processes together
    overhead: float  # seconds of a run that are not training steps: start-up, validation, saving
    jobs: int


def shrink(
    tier: Tier, arms: int, probes: int, step_tokens: int, warmup: int, cooldown: float,
    measuring: float, budget_minutes: float | None, speed: Speed,
) -> tuple[float, float]:
    """(share of the tier's tokens, expected minutes of the study) within the budget, with so many
    runs of probes, and `measuring_tokens` of each run.

    Raises UserError where a run would not get past its warm-up.
    """
    rate = speed["tokens_per_second"]
    tuned = arms * (len(tier.grid) + 1 + 2 * (len(tier.tuning_seeds) - 1)) if tier.grid else 0
    treated = tuned // arms * len(tier.treatments)
    runs = arms * tier.seeds
    shortest = min(filter(None, (tier.horizons[0], tier.tuning_tokens, tier.treatment_tokens)))
    if (warmup + 1) * step_tokens > (1 - cooldown) * shortest:
        raise UserError(f"optim.warmup_steps {warmup} is longer than the shortest run of the study "
                        f"before its cooldown: {shortest} tokens are {shortest // step_tokens} "
                        f"steps, and optim.cooldown is {cooldown}")
    least = (warmup + 1) * step_tokens / (1 - cooldown) / shortest
    each = tier.horizons[-1] + cooldown * sum(tier.horizons[:-1])
    trained = runs * each + tuned * tier.tuning_tokens + treated * tier.treatment_tokens
    training = trained / rate
    fixed = (runs * measuring + probes * PROBE_TOKENS) / rate
    fixed += (tuned + treated + runs * len(tier.horizons)) * speed["overhead"] / speed["jobs"]
    if budget_minutes is None:
        return 1.0, (fixed + training) / 60
    share = min(1.0, (60 * (1 - KEPT_FREE) * budget_minutes - fixed) / training)
    if share < least:
        needed = math.ceil((fixed + least * training) / 60 / (1 - KEPT_FREE))
        raise UserError(
            f"--budget-minutes {budget_minutes:g} is too short for {runs} runs that get past their "
            f"warm-up of {warmup} steps: give {needed} minutes or fewer --arms"
        )
    return share, (fixed + share * training) / 60


# --- plan.json ------------------------------------------------------------------------------------

class Steps(TypedDict):
    horizons: list[int]
    tuning: int
    treatments: int


class Probed(TypedDict):
    arms: list[str]
    seeds: list[int]
    steps: int | None


class Plan(TypedDict):
    """What every plan.json has and is read; some have `lengths`, `diverged` and `in_wandb` too."""

    name: str
    command: str
    tier: str
    arms: dict[str, dict[str, Any]]
    baseline: str
    seeds: list[int]
    steps: Steps
    step_tokens: int
    seq_len: int
    ngrams: list[float]
    grid: list[float]
    tuning_seeds: list[int]
    treatments: list[str]
    treatment: str | None
    tuned: dict[str, dict[str, dict[str, dict[str, float | None]]]]
    probes: dict[str, Probed]
    config: dict[str, Any]
    data_sha256: dict[str, str]
    machine: dict[str, Any]
    versions: dict[str, str]
    git: dict[str, Any] | None
    dtype: str
    speed: Speed
    share: float
    expected_minutes: float
    minutes: float


def read_plan(path: Path) -> dict[str, Any]:
    """The plan of the study at `path`. UserError where it is damaged."""
    return read_sealed(path / "plan.json", "restore it, or start another study with --name: "
                       "nothing else says what this one compares", Plan)


def stage_steps(plan: Mapping[str, Any], stage: str) -> int:
    """How long the tuning runs of a stage are: "arms", or "treatments"."""
    return plan["steps"]["tuning" if stage == "arms" else stage]


def tuning_losses(plan: Mapping[str, Any], stage: str) -> dict[str, Losses]:
    """What those runs of a stage found, by arm; the keys of JSON are text."""
    return {
        arm: {float(lr): {int(seed): loss for seed, loss in of.items()} for lr, of in rates.items()}
        for arm, rates in plan["tuned"][stage].items()
    }


def check_same(study: object, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """UserError unless the plan in the folder is the one that is wanted now. What was measured at
    the first start, such as its steps, is not in `wanted`."""
    plain, _ = load_config(config_parser(), [])
    defaults = dict.fromkeys(wanted["config"], asdict(plain))
    wanted = {**wanted, "config": _known_to(stored["config"], wanted["config"], defaults)}
    as_stored = json.loads(json.dumps(wanted))
    stored = {"lengths": list(TIERS[stored["tier"]].horizons), **stored}  # not in older plans
    if changed := [key for key, value in as_stored.items() if stored[key] != value]:
        raise UserError(f"{study}/plan.json is of another plan ({', '.join(changed)}), and plans "
                        f"do not mix: choose another folder with --name, or remove {study}")


def _known_to(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """`wanted` without what a `stored` plan is too old to name, where that has its default: an
    option that came later does nothing until it is set."""
    return {
        key: _known_to(stored[key], value, defaults[key])
        if isinstance(value, dict) and isinstance(stored.get(key), dict)
        and isinstance(defaults.get(key), dict) else value
        for key, value in wanted.items() if key in stored or value != defaults.get(key)
    }


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
