"""The configuration of a run, and the command line and YAML that it is read from.

A configuration is made of layers, each over the one before: the defaults of the dataclasses, YAML
files, the run that training starts from, the command line. A layer is a dict of sections, such as
{"model": {"dim": 64}, "seed": 2}. One function, `convert`, gives every value its type.
"""

import argparse
import dataclasses
import difflib
import functools
import re
import reprlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

import docstring_parser
import yaml

from data.dataset import DataConfig
from errors import UserError, check_ranges
from gyre.device import Dtype
from gyre.optim import OptimConfig
from gyre.parallel import REPLICATED, Shard
from gyre.wandb_log import LogConfig
from model.config import ModelConfig, RopeScaling
from model.position import POSITIONS, check_position

CONFIGS = Path(__file__).parent.parent / "configs"
OURS = ", ".join(sorted(path.name for path in CONFIGS.glob("*.yaml")))


@dataclass
class TrainConfig:
    """How long a run trains, in which batches, and how often it is evaluated."""

    steps: int = 1000
    """Optimizer steps."""
    batch_size: int = 16
    """Rows of data.seq_len tokens per optimizer step, over all processes together."""
    micro_batch_size: int | None = None
    """Rows per forward pass of one process; fewer need less memory and change nothing else. Unset:
    the whole share of the process at once."""
    eval_interval: int = 250
    """Steps between validations, checkpoints and samples; the last step always has all three."""
    keep: list[int] = field(default_factory=list)
    """Steps whose checkpoints are kept, for --branch-from, beside the last and the best."""
    sample_prompt: str = ""
    """What the samples during training continue. Empty: the start of a document."""
    sample_tokens: int = 64
    """Length of these samples in tokens; 0: none."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""
    dtype: Dtype = "auto"
    """Dtype of matrix products. auto: bfloat16 where it is measured to be 1.2 times as fast as
    float32."""
    compile: bool | Literal["auto"] = "auto"
    """torch.compile the training step. auto: where the run is long enough to repay it."""
    onednn: bool | Literal["auto"] = "auto"
    """Compute float32 products on a CPU by oneDNN. auto: where it is measured to be 1.5 times as
    fast as what torch takes."""
    shard: Shard = REPLICATED
    """Over how many processes every weight, gradient and moment is sharded: none (each process has
    all of them), full (over all processes), or a number of processes, such as those of one
    machine."""
    checkpoint_activations: bool = False
    """Keep the input of every block only and compute the rest again for the gradient: less memory,
    and a third more work."""
    timeout: float = 600.0
    """Seconds that a process waits for the others before it gives up."""


@dataclass(kw_only=True)
class Config:
    """A whole run. `make_config` fills in and checks what one part takes from another."""

    model: ModelConfig
    data: DataConfig
    optim: OptimConfig
    train: TrainConfig
    log: LogConfig
    name: str | None = None
    """Name of the run, and of its folder. Unset: the config file's name, the encoding and the
    seed."""
    init_from: str | None = None
    """Run whose weights this one starts from; set by --init-from RUN, which takes its model and its
    tokenizer too."""
    seed: int = 1
    """Seed of the initial weights, the order of batches, dropout and samples."""

    def to_yaml(self) -> str:
        """Return YAML that `read_config` turns back into an equal configuration."""
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False)


def make_config(*layers: Mapping[str, Any]) -> Config:
    """Return the configuration of these layers over the defaults, complete and checked.

    Raises UserError for values without a meaning and for parts that do not fit together.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merge(merged, layer)
    try:
        config = build_config(merged)
        check_position(config.model)
    except ValueError as error:
        raise UserError(str(error)) from None
    model, data, optim, train = config.model, config.data, config.optim, config.train
    data.check()
    optim.check()
    check_ranges("train", train, steps="[1, inf)", batch_size="[1, inf)", timeout="(0, 1e6]",
                 micro_batch_size="[1, inf)", eval_interval="[1, inf)", sample_tokens="[0, inf)")
    if isinstance(train.shard, int):
        check_ranges("train", train, shard="[1, inf)")
    if model.vocab_size is None:  # one embedding for each piece of the tokenizer
        model.vocab_size = data.vocab_size
    extrapolates, scaling = POSITIONS[model.position].extrapolates, model.rope_scaling
    if scaling is not None and scaling.original_positions is None:
        scaling.original_positions = data.seq_len
    if model.max_positions is None:
        reach = scaling.reach if scaling is not None else 0
        model.max_positions = max(data.seq_len * (4 if extrapolates else 1), reach)
    for wrong, message in (
        (model.vocab_size < data.vocab_size,
         f"model.vocab_size {model.vocab_size} is less than data.vocab_size {data.vocab_size}: "
         "leave model.vocab_size unset"),
        (train.shard != REPLICATED and train.dtype == "float16",
         "train.dtype float16 cannot be sharded (train.shard): use bfloat16"),
        (any(not 1 <= step <= train.steps for step in train.keep),
         f"train.keep {train.keep} names steps that train.steps {train.steps} does not have"),
        (optim.warmup_steps > train.steps,
         f"optim.warmup_steps {optim.warmup_steps} is longer than train.steps {train.steps}"),
        (not 0 <= config.seed < 2**63, f"seed must be in [0, 2^63), not {config.seed}"),
        (model.max_positions < data.seq_len,
         f"data.seq_len {data.seq_len} is longer than model.max_positions {model.max_positions}"),
        (model.max_positions > data.seq_len and not extrapolates,
         f"model.max_positions {model.max_positions} is longer than data.seq_len {data.seq_len}: "
         f"with model.position {model.position} positions past that would never be trained"),
        (train.sample_tokens >= model.max_positions,
         f"train.sample_tokens {train.sample_tokens} leaves no room for a prompt in "
         f"model.max_positions {model.max_positions}"),
    ):
        if wrong:
            raise UserError(message)
    return config


def build_config(layer: Mapping[str, Any]) -> Config:
    """Return the configuration of one layer over the defaults. Only the model is checked.

    Raises ValueError for a model that cannot be built.
    """
    sections = {name: {**layer.get(name, {})} for name in SECTIONS}
    scaling = sections["model"].get("rope_scaling")
    if scaling is not None:
        if not {"type", "factor"} <= scaling.keys():
            raise ValueError("model.rope_scaling needs a type and a factor")
        sections["model"]["rope_scaling"] = RopeScaling(**scaling)
    parts = {name: cls(**sections[name]) for name, cls in SECTIONS.items()}
    return Config(**{**layer, **parts})


def merge(target: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Put the values of a layer over those of `target`, section by section."""
    for name, value in layer.items():
        if isinstance(value, Mapping):
            target[name] = target.get(name) or {}
            merge(target[name], value)
        else:
            target[name] = value


# --- options and their types ----------------------------------------------------------------------


def show_type(hint: Any) -> str:
    """Return a type as the help shows it, such as int or true|false|auto. None is left out."""
    if get_origin(hint) is list:
        return f"[{show_type(get_args(hint)[0])}, ...]"
    if get_args(hint):
        return "|".join(show_type(part) for part in get_args(hint) if part is not NoneType)
    if dataclasses.is_dataclass(hint):
        return "null"  # its fields are options of their own
    return {bool: "true|false", str: "text"}.get(hint) or getattr(hint, "__name__", str(hint))


def convert(hint: Any, value: Any, option: str) -> Any:
    """Return a text, or a list of texts, as a value of this type. null becomes None if that fits.

    Raises UserError, which names the option and its type.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if value in (None, "null") and NoneType in parts:
        return None
    if origin in (Union, UnionType):
        for part in parts:
            with suppress(UserError):
                return convert(part, value, option)
    elif origin is list and value is not None:
        with suppress(ValueError):
            if isinstance(value, str):
                is_list = value.startswith("[")
                value = [e.value for e in compose_yaml(value).value] if is_list else [value]
            return [convert(parts[0], entry, option) for entry in value]
    elif isinstance(value, str):
        choices = {str(part): part for part in parts}  # of a Literal
        with suppress(ValueError):
            if value in choices:
                return choices[value]
            if hint is bool and value.lower() in ("true", "false"):
                return value.lower() == "true"
            if hint is str and "\0" not in value:
                value.encode()  # an argument that is not UTF-8 cannot be stored
                return value
            # YAML would read 010 as 8. Numbers past 64 bits overflow elsewhere.
            if hint is float or hint is int and re.fullmatch(r"0|-?[1-9]\d{0,18}", value):
                return hint(value)
    is_list = isinstance(value, str) and value.startswith("[")
    quote = ": quote its globs, as in ['*.md', b.txt]" if is_list else ""
    raise UserError(f"{option} must be {show_type(hint)}, not {reprlib.repr(value)}{quote}")


class Option(NamedTuple):
    """A field of a dataclass."""

    type: Any
    settings: dict[str, Any]
    """What argparse's add_argument takes for it: help, default, and type, which converts a text."""


def list_options(cls: type, prefix: str = "") -> dict[str, Option]:
    """Return the fields of a dataclass, and those of dataclasses in it, by dotted name."""
    types, options = get_type_hints(cls), {}
    docs = {p.arg_name: p.description for p in docstring_parser.parse_from_object(cls).params}
    for item in dataclasses.fields(cls):
        name, hint, default = prefix + item.name, types[item.name], item.default
        table = next(filter(dataclasses.is_dataclass, (hint, *get_args(hint))), None)
        if table is not hint:
            text = " ".join((docs.get(item.name) or "").split()).replace("%", "%%")
            if isinstance(default, str | int | float) and default is not False and default != "":
                text += f" (default: {default})"
            options[name] = Option(hint, {
                "help": text, "default": default,
                "type": functools.partial(convert, hint, option=name),
            })
        if table is not None:
            options |= list_options(table, f"{name}.")
    return options


SECTIONS = {name: cls for name, cls in get_type_hints(Config).items()
            if dataclasses.is_dataclass(cls)}
OPTIONS = list_options(Config)
TABLES = {name.rpartition(".")[0] for name in OPTIONS}


def nearest(word: str, names: Iterable[str]) -> str:
    """Return a did-you-mean for a misspelt option, by the part after its section."""
    last = {name.lstrip("-").rpartition(".")[2]: name for name in reversed([*names])}
    close = difflib.get_close_matches(word.lstrip("-").rpartition(".")[2], last, n=1)
    return f" (did you mean {last[close[0]]}?)" if close else ""


# --- YAML -----------------------------------------------------------------------------------------


def read_yaml(name: str | Path) -> dict[str, Any]:
    """Return the layer in a YAML file: a path, or the name of one of ours.

    Raises UserError, which names the file, for unknown options and values of another type.
    """
    candidates = (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml")
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        raise UserError(f"no config {name}, neither as a path nor among ours: {OURS}")
    try:
        document = compose_yaml(path.read_text(encoding="utf-8"))
        if not isinstance(document, yaml.MappingNode):
            raise ValueError("it holds no table of options")
        layer = convert_table(document)
        if layer.get("init_from"):
            raise ValueError("init_from is no option of a file: say --init-from RUN instead")
        return layer
    except (UserError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None


def compose_yaml(text: str) -> Any:
    """Return the node of a YAML text, in which every scalar is a text.

    Raises ValueError for what is no YAML; also for aliases, which can expand without limit, and for
    deep brackets, which take minutes.
    """
    try:
        depth = 0
        for event in yaml.parse(text):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > 9 or isinstance(event, yaml.AliasEvent):
                raise ValueError("aliases such as *name and deep brackets are not read")
        return yaml.compose(text, yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def convert_table(table: yaml.MappingNode, prefix: str = "") -> dict[str, Any]:
    """Return a mapping of YAML as a layer of typed values, or a part of one."""
    layer: dict[str, Any] = {}
    for key, node in table.value:
        name, option, value = str(key.value), f"{prefix}{key.value}", node.value
        if name in layer:
            raise UserError(f"{option} is there twice")
        if option in TABLES and isinstance(node, yaml.MappingNode):
            layer[name] = convert_table(node, f"{option}.")
        elif option in OPTIONS and "." not in name:
            if isinstance(node, yaml.SequenceNode):
                value = [entry.value for entry in value]
            elif value in ("", "~", "null") and node.style is None:  # quoted, it is a text
                value = None
            layer[name] = OPTIONS[option].settings["type"](value)
        elif option not in SECTIONS or value:  # a section may be empty
            raise UserError(f"there is no option {option}{nearest(option, OPTIONS)}")
    return layer


def read_config(path: Path) -> Config:
    """Return the saved configuration of a run. It was checked when it was saved."""
    try:
        return build_config(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (AttributeError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} is no configuration of this version of gyre: {error}") from None


# --- the command line -----------------------------------------------------------------------------


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Shows the type of an option where it takes a value."""

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        if isinstance(action.type, functools.partial):  # of `convert`
            return show_type(action.type.args[0])
        return super()._get_default_metavar_for_optional(action)


class Parser(argparse.ArgumentParser):
    """A parser of the fields of dataclasses. Whatever it refuses is a UserError of one sentence.

    Each of `tables` is a group of options, `top_k` as --top-k. A field of type bool is a flag
    without a value, and list[str] an option that can be given several times. With `config` there
    are --config too, and an option for each field of Config, such as --model.dim.
    """

    def __init__(self, doc: str | None = None, *tables: type, config: bool = False):
        super().__init__(description=doc, allow_abbrev=False,
                         formatter_class=HelpFormatter)
        for table in tables:
            group = self.add_argument_group(f"{table.__doc__}".partition(".")[0])
            for name, option in list_options(table).items():
                settings: dict[str, Any] = option.settings
                if option.type is bool:
                    settings = {"help": settings["help"], "action": "store_true"}
                elif option.type == list[str]:
                    settings |= {"action": "append", "default": [],
                                 "type": functools.partial(convert, str, option=name)}
                group.add_argument(f"--{name.replace('_', '-')}", **settings)
        if config:
            self.usage = "%(prog)s [--config FILE] [--OPTION VALUE ...]"
            self.add_argument(
                "--config", action="append", default=[], metavar="FILE",
                help=f"YAML file with any of the options below, or one of ours: {OURS}.",
            )
            groups = {name: self.add_argument_group(f"{cls.__doc__}".partition(".")[0])
                      for name, cls in SECTIONS.items()}
            for name, option in OPTIONS.items():
                if name != "init_from":  # --init-from sets it, and takes the model of that run
                    group = groups.get(name.partition(".")[0], self)
                    group.add_argument(f"--{name}", **option.settings | {
                        "dest": f"given.{name}", "default": argparse.SUPPRESS})

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """Return the options. `given` is the layer of the fields of Config that were named."""
        options, unknown = self.parse_known_args(*args, **kwargs)
        if unknown:
            word = unknown[0].partition("=")[0]
            self.error(f"there is no option {word}{nearest(word, self._option_string_actions)}")
        options.given = {}
        for dest, value in [*vars(options).items()]:
            if dest.startswith("given."):
                delattr(options, dest)
                for name in dest.split(".")[:0:-1]:
                    value = {name: value}
                merge(options.given, value)
        return options

    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument "))


# --- options that several commands share ----------------------------------------------------------


@dataclass
class RunOptions:
    """Which weights of a run, and where they run."""

    checkpoint: Literal["best", "last"] = "best"
    """Weights with the lowest validation loss, or the last ones."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""
