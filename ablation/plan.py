"""The plan of a study: arms, learning rates, seeds and lengths.

An arm is an overlay of the study's config: what it does not name is equal in all arms. A study
first chooses a learning rate for every arm, on seeds that are not reported (`next_rates`). Then
every arm and seed is one run at a constant rate, from which a run with a cooldown branches off for
each length, so that losses after 1, 2, 4 and 8 million tokens cost little more than the last.
(Hägele et al. 2024, arXiv:2405.18392)
"""

import itertools
import math
import os
import platform
import re
import statistics
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import torch

from errors import Range, UserError, check_range
from files import read_sealed, write_sealed
from gyre.compute import processor_name
from gyre.optim import OptimConfig
from gyre.options import OPTIONS, make_config
from gyre.suggest import suggest_name
from model.encodings import POSITIONS

Overlay = dict[str, Any]
ARMS: dict[str, Overlay] = {
    **{name: {"model.position": name} for name in (
       "rope", "learned", "alibi", "sin_qk", "sin_qk_first", "sin_qkv", "sin_qk_aligned",
       "learned_qk", "rope_first", "rope_nope", "rope_sinscale", "pope", "pope_nophase",
       "partial_25", "partial_10", "rope_sin_qk", "sin_qk_rope_last")},
    "sin": {"model.position": "sinusoidal"},
    "nope": {"model.position": "none"},
    "sin_vaswani": {"model.position": "sinusoidal", "model.sinusoid": "vaswani"},
    "p_rope_50": {"model.position": "rope", "model.partial": 0.5},
    "p_rope_75": {"model.position": "rope", "model.partial": 0.75},
    "rope_b100": {"model.position": "rope", "model.theta": 100.0},
    "rope_b1k": {"model.position": "rope", "model.theta": 1000.0},
    "rope_b500k": {"model.position": "rope", "model.theta": 500000.0},
    **{name: {"model.position": name, "model.sinusoid": "vaswani"}
       for name in ("sin_residual", "sin_aligned")},
}

# plan.json is the one file of a study that cannot be made again.
ADVICE = ("restore it, or start another study with --name: nothing else says what this one "
          "compares")
MILLION = 2**20  # tokens: a whole number of steps
VALIDATIONS = 4  # during the longest run of an arm and a seed, and during a tuning run


@dataclass(frozen=True)
class Tier:
    """A size of study."""

    arms: tuple[str, ...]
    horizons: tuple[int, ...]
    """Training tokens after which a run ends, in ascending order."""
    seeds: int
    """Of every arm: 0, 1, ..."""
    grid: tuple[float, ...] = ()
    """Learning rates to choose from for each arm, in ascending order, each about twice the one
    before; none: the config's optim.lr for all."""
    tuning_tokens: int = 0
    """Of the runs that choose the rate. If the longest run is shorter, they are as long as that."""
    tuning_seeds: tuple[int, ...] = (1000,)
    """Of the runs that choose the rate, none of which is reported."""
    max_spans: int = sys.maxsize
    """Most spans of 8T tokens on which a run is measured; see gyre/measure.py."""
    followed: int = 4
    """Checkpoints that are kept for each doubling of the steps."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Options that a YAML file overrides."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Options that override those of a YAML file. The command line overrides both."""


# Compiling pays, because all runs of an arm share what the first of them has compiled: each worker
# has one thread.
COMPILED = {"train": {"compile": True}}

TIERS = {
    "quick": Tier(
        arms=("rope", "sin", "nope"), horizons=(MILLION // 2, MILLION), seeds=6,
        grid=(2e-3, 4e-3), tuning_tokens=MILLION // 2, max_spans=8, followed=2,
        defaults=COMPILED,
    ),
    "full": Tier(
        arms=("rope", "sin_vaswani", "nope", "learned", "alibi"),
        horizons=(MILLION, 2 * MILLION, 4 * MILLION, 8 * MILLION), seeds=6,
        grid=(2e-3, 4e-3), tuning_tokens=4 * MILLION, tuning_seeds=(1000, 1001),
        defaults=COMPILED,
    ),
    "smoke": Tier(
        arms=("rope", "sin"), horizons=(10 * 256, 20 * 256), seeds=1, max_spans=4,
        overrides={
            "model": {"dim": 48, "n_layers": 2, "n_heads": 2, "hidden_dim": 96},
            "data": {"seq_len": 32}, "optim": {"warmup_steps": 5},
            "train": {"batch_size": 8, "compile": False},
        },
    ),
}


# --- plan.json ------------------------------------------------------------------------------------


class Steps(msgspec.Struct, omit_defaults=True):
    """The optimizer steps of the runs of a study."""

    horizons: list[int]
    """Of the runs of each arm and seed, in ascending order."""
    tuning: int
    """Of the runs that choose a learning rate; 0: none."""
    treatments: int | None = None
    """In studies of older versions only."""


class Tuned(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the tuning runs ended with."""

    treatments: Any = None
    """In studies of older versions only."""
    arms: dict[str, dict[str, dict[str, float | None]]]
    """Loss by arm, learning rate and seed, the latter two as text; None where a run diverged."""


class Calibration(msgspec.Struct):
    """A committed run that was trained again."""

    name: str
    committed: float
    """Its loss in the record."""
    here: float | None
    """Its loss when it was trained again; None: it diverged."""


class Plan(msgspec.Struct, kw_only=True, omit_defaults=True):
    """plan.json, its fields in the order in which they are written.

    It is fixed when it is made, except for `tuned`, `diverged` and `calibration`, and for `seeds`,
    `grown_from` and `command` when seeds are added (`add_seeds`). With --beside,
    `committed_grown_from` follows the `grown_from` of the other study.
    A field with a default is not in the plans of older versions, or not in those of every study.
    """

    name: str
    command: str
    tier: str
    arms: dict[str, Overlay]
    grid: list[float]
    """Learning rates to choose from for each arm; empty: they are not tuned."""
    tuning_seeds: list[int]
    steps: Steps
    seeds: list[int]
    grown_from: list[int] | None = None
    """The numbers of seeds that the study had before seeds were added, in ascending order."""
    baseline: str
    """The arm that every difference is taken to."""
    seq_len: int
    step_tokens: int
    """Training tokens of an optimizer step."""
    config: dict[str, dict[str, Any]]
    """By arm, the part of the configuration that decides numbers and is the same for all seeds."""
    data_sha256: dict[str, str]
    """Hashes of the files of the prepared data."""
    committed: list[str] | None = None
    """The arms whose records are from the study that this one is beside."""
    committed_grown_from: list[int] | None = None
    """The `grown_from` of that study."""
    dtype: str
    onednn: bool | str = "auto"
    """Decided once, or runs could differ."""
    ngrams: list[float]
    """Losses of unigrams, bigrams and trigrams, in nats per token."""
    machine: dict[str, Any]
    versions: dict[str, str]
    git: dict[str, Any] | None
    tuned: Tuned
    diverged: list[str] | None = None
    """Names of the jobs whose runs diverged, such as rope-s3."""
    second_val: bool | None = None
    """Whether rates are tuned on another validation text than the one that is reported."""
    calibration: Calibration | None = None
    text_sha256: str | None = None
    """The hash of the text, which every training must have. None: the plan is of an older
    version."""


def read_plan(path: Path) -> Plan:
    """Return the plan of the study at `path`. UserError if there is none, or if it is damaged."""
    file = path / "plan.json"
    if not file.is_file():
        raise UserError(f"{path} is not a study: it has no plan.json; make one with ablate.py")
    try:
        return msgspec.convert(read_sealed(file, ADVICE), Plan)
    except msgspec.ValidationError as error:
        raise UserError(f"{file} is not the plan of a study ({error}): {ADVICE}") from None


def write_plan(path: Path, plan: Plan) -> None:
    """Write the plan of the study at `path`. Fields of older versions stay in the file."""
    file = path / "plan.json"
    stored = read_sealed(file, ADVICE) if file.exists() else {}
    fields = msgspec.to_builtins(plan)
    # A field that has its default again, such as that of withdrawn seeds, is not in `fields`.
    kept = {name: value for name, value in stored.items()
            if name in fields or name not in Plan.__struct_fields__}
    write_sealed(file, kept | fields)


def add_seeds(plan: Plan, seeds: Sequence[int], command: str) -> Plan:
    """Return the plan with all of these seeds, which begin with those it has.

    `command` is the line that adds them. The plan keeps how many it had, because whoever adds seeds
    may have seen the results of the first ones.
    """
    grown_from = [*(plan.grown_from or []), len(plan.seeds)]
    return msgspec.structs.replace(
        plan, seeds=[*seeds], grown_from=grown_from, command=command)


def list_names(arms: Iterable[str], seeds: Iterable[int]) -> list[str]:
    """Return the names of the results of these arms, with each of these seeds."""
    return [f"{arm}-s{seed}" for arm, seed in itertools.product(arms, seeds)]


def withdraw_seeds(plan: Plan, n_seeds: int, command: str) -> Plan:
    """Return the plan with its first seeds only, as if the others had not been added.

    `command` is the line that withdraws them.
    """
    seeds = plan.seeds[:n_seeds]
    grown_from = [n for n in plan.grown_from or [] if n < n_seeds]
    diverged = plan.diverged
    if diverged is not None:
        # Diverged runs of the study beside were copied for the added seeds too (`list_diverged`).
        kept = list_names(plan.arms, seeds)
        diverged = [name for name in diverged if name in kept]
    return msgspec.structs.replace(
        plan, seeds=seeds, grown_from=grown_from or None, diverged=diverged, command=command)


# --- arms -----------------------------------------------------------------------------------------


def choose_arms(tier: Tier, names: str | None, added: Sequence[str],
                committed: Mapping[str, Overlay]) -> dict[str, Overlay]:
    """Return the overlays of a study's arms by name.

    They are those that another study has `committed`, those of `names`, "rope,sin,...", or the
    tier's, and those that are `added`, each as "NAME=key=value,key=value". Raises UserError for a
    name that does not exist or exists already, for fewer than two arms, and if all are committed.
    """
    known = {**ARMS, **committed}
    chosen = [*tier.arms] if names is None else [name.strip() for name in names.split(",")]
    twice = {name for name in chosen if chosen.count(name) > 1}
    if twice:
        raise UserError(f"--arms {names} has {', '.join(sorted(twice))} twice: leave one out")
    wanted = [*committed, *chosen]
    for text in added:
        name, overlay = parse_arm(text)
        if name in known:
            raise UserError(f"--arm {name}: there is an arm of this name already; choose another")
        known[name] = overlay
        wanted.append(name)
    for name in wanted:
        check_arm(name, known)
    overlays = {name: known[name] for name in wanted}
    if len(overlays) < 2:
        raise UserError(f"a study compares at least two arms, and --arms {names} is one")
    if overlays.keys() <= committed.keys():
        raise UserError("all of these arms have their records already: add a new one with --arm "
                        "NAME=OPTION=VALUE or --arms")
    return overlays


def parse_arm(text: str) -> tuple[str, Overlay]:
    """Return the name and the overlay, as text, of "NAME=key=value,key=value", or raise UserError.
    """
    name, _, options = text.partition("=")
    overlay = dict(re.findall(r"([^=,]+)=([^,]+)", options))
    names = {option.replace("-", "_") for option in overlay}  # either spelling is one option
    n_options = options.count(",") + 1
    if not re.fullmatch(r"\w+", name) or "config" in names or len(names) < n_options:
        raise UserError(f"--arm {text} must be NAME=OPTION=VALUE,OPTION=VALUE, each option once, "
                        "such as b500=model.theta=500,optim.lr=2e-3")
    return name, overlay


def choose_horizons(text: str) -> tuple[int, ...]:
    """Return (1048576, 4194304) for "1M,4M". UserError unless they are lengths in ascending
    order."""
    sizes = {"": 1, "k": 1024, "M": MILLION}
    tokens = []
    for part in text.split(","):
        number = re.fullmatch(r"(\d+)([kM]?)", part)
        if number is None:
            raise UserError(f"--tokens {text}: {part or 'nothing'} is no length: give a whole "
                            "number, alone or with k or M, such as 512k or 4M")
        tokens.append(int(number[1]) * sizes[number[2]])
    if 0 in tokens or tokens != sorted(set(tokens)):
        raise UserError(f"--tokens {text} must be lengths in ascending order, such as 1M,4M")
    check_range("--tokens", tokens[-1], Range(ge=1))  # also below 2^63, as all integers
    return tuple(tokens)


def check_arm(name: str, arms: Collection[str]) -> None:
    """Raise UserError, with the nearest name, for an arm that does not exist."""
    if name in arms:
        return
    if name in POSITIONS and name not in ARMS:
        with_it = [arm for arm, overlay in ARMS.items() if overlay.get("model.position") == name]
        advice = f"give it as an arm of your own, --arm {name}=model.position={name}"
        if with_it:
            advice = f"its arms are {', '.join(with_it)}"
        raise UserError(f"unknown arm {name!r}, which is an encoding: {advice}")
    raise UserError(f"unknown arm {name!r}{suggest_name(name, arms)}: there are {', '.join(arms)}")


def choose_baseline(name: str | None, arms: Collection[str]) -> str:
    """Return the arm that every difference is taken to: of this name, else sin, else the first."""
    if not name:
        names = list(arms)
        sinusoids = [arm for arm in names if arm in ("sin", "sin_vaswani")]
        name = sinusoids[0] if sinusoids else names[0]
    check_arm(name, arms)
    return name


def tier_beside(plan: Plan, seeds: int | None) -> Tier:
    """Return the tier of a study beside the one of `plan`, with so many of its seeds.

    It overrides the config by what all arms of that study share. UserError for more seeds than that
    study has.
    """
    n_seeds = len(plan.seeds)
    if seeds is not None and seeds > n_seeds:
        raise UserError(f"--seeds {seeds} is more than the {n_seeds} of the study beside, which "
                        "the new arms are compared with: give fewer, or leave it out")
    if seeds is not None:
        n_seeds = seeds
    return replace(
        TIERS[plan.tier], arms=(), seeds=n_seeds,
        horizons=tuple(count * plan.step_tokens for count in plan.steps.horizons),
        tuning_tokens=plan.steps.tuning * plan.step_tokens, grid=tuple(plan.grid),
        tuning_seeds=tuple(plan.tuning_seeds), overrides=shared_options(plan.config, plan.arms))


def shared_options(
    configs: Mapping[str, Mapping[str, Any]], arms: Mapping[str, Overlay]
) -> dict[str, dict[str, Any]]:
    """Return, by section, the options that a study gave to all of its arms.

    `configs` and `arms` are those of its plan. An option is shared if the arms that do not set it
    themselves agree on it. If every arm sets it, all have to agree. Such an option is not shared if
    it needs another one in which the arms differ, as theta does if only some arms rotate.

    Left out are options that are unset, and those that this version of gyre does not have. What
    `make_config` fills in from other options is left out too, because a new arm may have others of
    those.
    """
    known = asdict(make_config())
    shared: dict[str, dict[str, Any]] = {}
    set_by_each: dict[str, Any] = {}
    for section in ("model", "data", "optim", "train"):
        shared[section] = {}
        for name in known[section]:
            option = f"{section}.{name}"
            plain = [arm for arm in arms if not has_own(arms[arm], option)]
            deciding = plain if plain else list(arms)
            first, *others = [configs[arm][section].get(name) for arm in deciding]
            if first is None or any(value != first for value in others):
                continue
            if plain:
                shared[section][name] = first
            else:
                set_by_each[option] = first
    for option, value in set_by_each.items():
        section, _, name = option.partition(".")
        with suppress(UserError):  # refused where the option that it needs is not shared
            make_config(shared, {option: value})
            shared[section][name] = value
    leave_out_filled_in(shared)
    return shared


def leave_out_filled_in(layer: dict[str, dict[str, Any]]) -> None:
    """Remove the options, by section, that `make_config` would set to the same without them."""
    for section, values in layer.items():
        unset_by_default = [name for name in values if OPTIONS[f"{section}.{name}"].default is None]
        for name in unset_by_default:
            value = values.pop(name)
            if fill_in(layer, f"{section}.{name}") != value:
                values[name] = value


def fill_in(layer: Mapping[str, Any], option: str) -> Any:
    """Return the value that `make_config` gives to an option, or None if it refuses the layer."""
    try:
        return attrgetter(option)(make_config(layer))
    except UserError:
        return None


def has_own(overlay: Overlay, option: str) -> bool:
    """Return whether an arm sets an option, such as model.rope_scaling, or a part of it.

    In an arm of the command line, the name may have dashes in place of underscores.
    """
    return any(f"{name}.".replace("-", "_").startswith(f"{option}.") for name in overlay)


# --- learning rates -------------------------------------------------------------------------------

Losses = Mapping[float, Mapping[int, float]]
"""Of one arm: loss by learning rate and seed; inf where the run diverged."""
WIDEST = 8  # the grid is extended by this factor at most, in each direction


def next_rates(grid: Sequence[float], seeds: Sequence[int],
               losses: Losses) -> list[tuple[float, int]]:
    """The (learning rate, seed) that have to be run next; none when tuning is finished.

    First the grid, on all seeds; then, while the best mean is at an edge, half the lowest rate or
    twice the highest, so that the best has a worse neighbour on either side.
    """
    rates = sorted({*grid, *losses})
    missing = [(lr, seed) for lr, seed in itertools.product(rates, seeds)
               if seed not in losses.get(lr, {})]
    if missing or len(grid) < 2:
        return missing
    best = best_rate(losses)
    if best == rates[0]:
        beyond = best / 2
    elif best == rates[-1]:
        beyond = best * 2
    else:
        return []
    if not min(grid) / WIDEST <= beyond <= max(grid) * WIDEST:
        return []
    return [(beyond, seed) for seed in seeds]


def best_rate(losses: Losses) -> float:
    """The rate of the lowest mean loss, of those that were run on the most seeds."""
    most = max(map(len, losses.values()))
    means = {lr: statistics.fmean(by_seed.values()) for lr, by_seed in losses.items()
             if len(by_seed) == most}
    return min(means, key=lambda lr: (means[lr], lr))


def tuning_losses(plan: Plan) -> dict[str, Losses]:
    """Return what the tuning runs ended with, by arm."""
    return {arm: read_losses(rates) for arm, rates in plan.tuned.arms.items()}


def read_losses(rates: Mapping[str, Mapping[str, float | None]]) -> Losses:
    """Return the losses of an arm as numbers, from what JSON can hold.

    JSON has text for keys, and null for the loss of a run that diverged.
    """
    losses: dict[float, dict[int, float]] = {}
    for lr, by_seed in rates.items():
        losses[float(lr)] = {int(seed): math.inf if loss is None else loss
                             for seed, loss in by_seed.items()}
    return losses


# --- lengths --------------------------------------------------------------------------------------


def count_cooldown(config: OptimConfig, steps: int) -> int:
    """Return the steps in which the rate falls, of all `steps`, as `lr_factor` rounds them."""
    share = config.cooldown or 0.0
    return round(share * steps)


def kept_steps(branchings: Sequence[int], followed: int) -> list[int]:
    """Return the steps of the longest run whose checkpoints are kept.

    These are the `branchings`, in ascending order, at which the cooldowns begin. To follow the run,
    `followed` steps are added for each of ten halvings of the last branching.
    """
    on_the_way = [round(branchings[-1] * 2 ** (-k / followed)) for k in range(10 * followed)]
    first = min(16, branchings[0])  # before step 16 there is little to see
    return sorted({step for step in (*on_the_way, *branchings) if step >= first})


# --- where it runs --------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Return what the study runs on."""
    return {"system": platform.system(), "processor": processor_name(), "cores": os.cpu_count(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide numbers."""
    return {"python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "scipy", "sentencepiece")}}
