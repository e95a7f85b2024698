"""The command line of ablate.py: what it may say, and the study that it describes."""

import json
import re
import shlex
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from ablation import plan as planning
from ablation.plan import TIERS, Overlay, Plan, Tier
from data.sources import TEXT_OPTIONS, DataConfig
from errors import Range, UserError, say
from gyre.compute import resolve_device
from gyre.options import Config, flatten, make_config
from gyre.parser import Parser
from gyre.rundir import check_name, check_runs_folder, clean_name
from gyre.yaml_files import read_yaml, require_position

# Options that the study sets for each run. Setting them for all is refused.
CHOSEN = ("seed", "train.steps", "train.minutes", "train.keep", "train.eval_interval", "log.group",
          "log.job_type", "train.onednn", "data.second_val")
TUNED = ("optim.lr", "optim.muon_lr")
# Options of ablate.py that the study of --beside has settled. It has also settled --config.
SETTLED = ("tier", "tokens", "no_tuning")
# Options of train.py that can be given all the same.
OPEN = re.compile(r"data\.(?!seq_len)|log\b|name\b|optim\.lr\b|train\.device\b")
# What all arms share: they branch off at the same steps and are compared at the same tokens.
SHARED = (*CHOSEN, "name", "log.runs", "train.batch_size", "train.device", "train.dtype",
          "optim.schedule", "optim.cooldown",
          *(f"data.{option.name}" for option in fields(DataConfig)))


@dataclass
class StudyOptions:
    """What a study compares."""

    tier: Literal["quick", "full", "smoke"] | None = None
    """Size of the study. Default: quick, or that of the study of --beside."""
    arms: str | None = None
    """Compare these instead of the tier's, such as rope,sin,nope."""
    arm: list[str] = field(default_factory=list)
    """Compare an arm of your own too, as NAME=OPTION=VALUE,..., such as
    b500=model.theta=500,optim.lr=2e-3. May be given several times."""
    baseline: str | None = None
    """The arm that every difference is taken to. Default: that of the study of --beside, or else
    the first of sin and sin_vaswani, or the first arm."""
    seeds: Annotated[int | None, Range(ge=1)] = None
    """Seeds of each arm. Default: the tier's; quick: 6. If there is a study in the folder already:
    those it has. A larger number adds seeds to it, and the report says so."""
    tokens: str | None = None
    """Training tokens of the runs, such as 1M,4M (M: 2^20). Default: the tier's; quick:
    512k,1M."""
    no_tuning: bool = False
    """Do not choose the best rate of each arm: train all at optim.lr, or at their own."""
    beside: str | None = None
    """Train only the new arms, beside the records of the study in this folder, such as
    studies/five: with its text, seeds, lengths and rule for rates. Without --name, the new study is
    then called beside-five."""
    jobs: Annotated[int | None, Range(ge=1)] = None
    """Runs at a time on this machine. Default: one for each core, with one thread each; on a GPU,
    1."""
    scheduler: str | None = None
    """Address of a Dask scheduler, such as tcp://HOST:8786, whose workers see the same files; they
    then do the work."""
    dry_run: bool = False
    """Print the plan, and stop. Nothing is written but the prepared text."""


@dataclass(frozen=True)
class Command:
    """A command line of ablate.py, resolved and checked."""

    line: str
    """The command as text. Running it again goes on with a study that was stopped."""
    options: Namespace
    tier: Tier
    arms: dict[str, Overlay]
    """By name, as they stand in the plan: values of the command line are text."""
    overlays: dict[str, dict[str, Any]]
    """The same with every value in its type."""
    baseline: str
    config: Config
    """What all runs share."""
    arm_configs: dict[str, Config]
    shared: dict[str, Any]
    """The options that give `config`, by dotted name."""
    path: Path
    """The folder of the study."""
    beside: Plan | None
    """The plan of the study that has the records of the other arms, if there is one."""

    @property
    def new_arms(self) -> list[str]:
        """The arms that this study trains itself."""
        committed = self.beside.arms if self.beside else {}
        return [arm for arm in self.arms if arm not in committed]


def resolve(argv: list[str], description: str | None = None) -> Command:
    """Return the study of a command line. UserError, before any work, where it is wrong."""
    options = Parser(description, StudyOptions, config=True).parse_args(argv)
    beside = planning.read_plan(Path(options.beside)) if options.beside else None
    if beside is not None:
        check_encodings(options.beside, beside)
    tier = choose_tier(options, beside)
    committed = beside.arms if beside else {}
    arms = planning.choose_arms(tier, options.arms, options.arm or [], committed)
    files = choose_files(options)
    file_layers = [read_yaml(file) for file in files]
    layers = [tier.defaults, *file_layers, tier.overrides, options.given]
    note_tier_over_file(options, file_layers, tier)
    check_chosen(options, files, file_layers, tuned=bool(tier.grid))
    config = make_config(*layers)
    check_runs_folder(config.log.runs)
    path = choose_path(options, config, files)
    compiled = find_planned_compile(path) if files else None
    takes_over = (compiled not in (None, config.train.compile)
                  and "train.compile" not in options.given)
    if takes_over:
        say(f"note: {path / 'plan.json'} has train.compile {compiled}, and so has what is trained "
            f"now, whatever the tier and {' and '.join(files)} say")
        layers.append({"train": {"compile": compiled}})
        config = make_config(*layers)
    else:
        note_file_over_tier(options, files, file_layers, tier)
    overlays = {arm: read_overlay(overlay) for arm, overlay in arms.items()}
    arm_configs = {arm: make_config(*layers, overlay) for arm, overlay in overlays.items()}
    check_overridden(options.given, overlays)
    check_study(config, arm_configs, overlays)
    check_device(options, config.train.device)
    baseline = options.baseline
    if not baseline and beside:
        baseline = beside.baseline
    return Command(
        line=shlex.join(["python", "ablate.py", *argv]), options=options, tier=tier, arms=arms,
        overlays=overlays, baseline=planning.choose_baseline(baseline, arms), config=config,
        arm_configs=arm_configs, shared=share_options(config, layers),
        path=path, beside=beside,
    )


def note_tier_over_file(
    options: Namespace, file_layers: Sequence[Mapping[str, Any]], tier: Tier
) -> None:
    """Print a note if the tier overrides options of other values in the user's own files."""
    if not options.config:
        return
    in_files: dict[str, Any] = {}
    for layer in file_layers:
        in_files |= flatten(layer)
    overridden = []
    for name, value in flatten(tier.overrides):
        if in_files.get(name, value) != value and name not in options.given:
            overridden.append(f"{name} {value}")
    if overridden:
        say(f"note: --tier {options.tier} has {', '.join(overridden)}, whatever "
            f"{' and '.join(options.config)} says: the command line overrides it")


def find_planned_compile(path: Path) -> bool | None:
    """Return the train.compile of the study at `path`; None if there is none, or if its arms differ
    in it.

    A study goes on as it began, although ablation.yaml said false once, and copies of it still do.
    """
    if not (path / "plan.json").is_file():
        return None
    configs = planning.read_plan(path).config.values()
    values = {config.get("train", {}).get("compile") for config in configs}
    if len(values) != 1:
        return None
    return values.pop()


def note_file_over_tier(
    options: Namespace, files: Sequence[str], file_layers: Sequence[Mapping[str, Any]], tier: Tier
) -> None:
    """Print a note if a file has another value than the default of the tier, which it overrides."""
    for name, default in flatten(tier.defaults):
        for file, layer in zip(files, file_layers, strict=True):
            value = dict(flatten(layer)).get(name, default)
            if value != default and name not in options.given:
                say(f"note: {file} has {name} {value}, where --tier {options.tier} has {default}: "
                    "take it out of the file, unless you want it so")


def share_options(config: Config, layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options that all runs of a study share, from its layers."""
    # Given explicitly, because a training fits these to its text if they are not given.
    numbers = {name: attrgetter(name)(config)
               for name in ("data.vocab_size", "data.seq_len", "optim.warmup_steps")}
    shared: dict[str, Any] = {}
    for layer in (*layers, numbers):
        shared |= flatten(layer)
    # A later layer may have replaced the text of an earlier one.
    for name in shared.keys() & TEXT_OPTIONS:
        shared[name] = attrgetter(name)(config)
    return shared


def choose_files(options: Namespace) -> list[str]:
    """Return the names of the YAML files with what all runs share."""
    if options.beside:
        return []  # the other study has its configuration
    return options.config or ["ablation.yaml"]


def choose_path(options: Namespace, config: Config, files: list[str]) -> Path:
    """Return the folder of the study. UserError for a bad name."""
    name = config.name
    if not name:
        name = Path(files[-1]).stem if files else f"beside-{Path(options.beside).resolve().name}"
        if options.tier != "quick":
            name = f"{name}-{options.tier}"
        name = clean_name(name)
    check_name(name)
    return Path(config.log.runs) / name


def read_overlay(overlay: Overlay) -> dict[str, Any]:
    """Return the options of an arm by dotted name, with every value in its type."""
    return Parser(config=True).parse_args(to_words(overlay)).given


def choose_tier(options: Namespace, beside: Plan | None) -> Tier:
    """Return the tier, changed as the options say, or that of the study `beside`. UserError for an
    option that it has settled. Sets `options.tier` if it is not given."""
    if beside is not None:
        check_settled(options)
    if options.tier is None:
        options.tier = "quick"
    if beside is not None:
        return planning.tier_beside(beside, options.seeds)
    tier = TIERS[options.tier]
    if options.tokens is not None:
        tier = replace(tier, horizons=planning.choose_horizons(options.tokens))
    if options.no_tuning:
        tier = replace(tier, grid=(), tuning_tokens=0)
    if options.seeds is not None:
        tier = replace(tier, seeds=options.seeds)
    return tier


def check_encodings(path: str, beside: Plan) -> None:
    """Raise UserError if an arm of the study at `path` has an encoding that is gone."""
    for arm, config in beside.config.items():
        require_position(f"the arm {arm} of {path} was trained", config["model"]["position"])


def check_settled(options: Namespace) -> None:
    """Raise UserError for an option that the study of --beside has settled."""
    reason = f"has no place beside {options.beside}, which settles it: leave it out"
    settled = ["config"] if options.config else []
    settled += [name for name in SETTLED if getattr(options, name) != getattr(StudyOptions, name)]
    if settled:
        raise UserError(f"--{settled[0].replace('_', '-')} {reason}")
    for name, value in options.given.items():
        if OPEN.match(name):
            continue
        (word,) = to_words({name: value})
        advice = ""
        if name not in SHARED:
            advice = ", or say it for a new arm, --arm NAME=OPTION=VALUE"
        raise UserError(f"{word} {reason}{advice}")


def check_chosen(
    options: Namespace, files: list[str], file_layers: list[dict[str, Any]], tuned: bool
) -> None:
    """Raise UserError for an option that the study sets for each run, also for its default value.

    file_layers: the options in the `files`
    tuned: whether the study chooses learning rates
    """
    in_files = set().union(*file_layers)
    chosen = (*CHOSEN, *TUNED) if tuned else CHOSEN
    for key in chosen:
        if key in options.given:
            name = f"--{key}"
            advice = "Leave it out"
        elif key in in_files:
            name = f"{key} in {' or '.join(files)}"
            advice = "Take it out of a copy of that file"
        else:
            continue
        if key in TUNED and options.beside:  # that study has settled how rates are chosen
            advice += f", or say it for a new arm, --arm NAME={key}=VALUE"
        elif key in TUNED:
            advice += ", or add --no-tuning"
        raise UserError(f"{name} has no effect: the study sets it for each run. {advice}")


def check_overridden(given: Mapping[str, Any], overlays: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise UserError for an option of the command line that every arm sets to its own value."""
    for key in given:
        if all(key in overlay for overlay in overlays.values()):
            raise UserError(f"--{key} has no effect: each arm sets it. Leave it out, or choose the "
                            "arms with --arms and --arm")


def check_study(
    base: Config, arms: Mapping[str, Config], overlays: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raise UserError where the arms would not compare.

    All arms share text, steps, batches, schedule and dtype. What the study sets for each run is
    refused in an arm whatever its value is.
    """
    if base.optim.schedule != "wsd":
        raise UserError(f"optim.schedule must be wsd, not {base.optim.schedule}: a study's runs of "
                        "different lengths are one run until they cool down")
    check_rereadable(base.data.files or ())
    if base.train.dtype == "auto":
        raise UserError("train.dtype auto could be another for each run: say float32 or bfloat16")
    for arm, config in arms.items():
        for key in SHARED:
            is_ignored = key in CHOSEN and key in overlays[arm]
            if is_ignored or attrgetter(key)(config) != attrgetter(key)(base):
                advice = f"set --{key} for all"
                if key in CHOSEN:
                    advice = "leave it out, the study sets it for each run"
                raise UserError(f"--arm {arm}: {key} must be the same in all arms of a study: "
                                f"{advice}")


def check_rereadable(files: Iterable[str]) -> None:
    """Raise UserError for a pipe or a device: a study reads its text several times."""
    for file in files:
        path = Path(file)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"data.files {file} can be read once, and a study reads its text "
                            "several times: write it to a file")


def check_device(options: Namespace, device: str) -> None:
    """Raise UserError for a device that the workers of this machine do not have, and for --jobs
    beside --scheduler."""
    if options.scheduler is None:  # else it is a device of other machines
        resolve_device(device)
    elif options.jobs is not None:
        raise UserError("--jobs has no effect with --scheduler, whose workers do the work: leave "
                        "it out")


def to_words(values: Mapping[str, Any]) -> list[str]:
    """Return options, nested or dotted, as --name=value words of a command line."""
    words = []
    for name, value in flatten(values):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        words.append(f"--{name}={text}")
    return words
