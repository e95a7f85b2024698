"""The configuration of a run, and the command line and YAML that it is read from.

A configuration is made of layers, each over the one before: the defaults of the dataclasses, YAML
files, the run that training starts from, the command line. A layer is a dict of sections, such as
{"model": {"dim": 64}, "seed": 2}. One function, `convert`, gives values their types.
"""

import argparse
import dataclasses
import difflib
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
    """How long a run trains, in which batches, and how often it looks at itself."""

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
    shard: Shard = REPLICATED
    """Over how many processes every weight, gradient and moment is sharded: none (each process has
    all of them), full (over all processes), or a number, such as those of one machine."""
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
    """Decides everything random: weights by name, batches and dropout by step, samples."""

    def to_yaml(self) -> str:
        """Return all fields as YAML, of which `read_config` makes an equal configuration."""
        fields = dataclasses.asdict(self)
        text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
        if set(text) & set("\x85\u2028\u2029"):  # PyYAML reads these line ends back as spaces
            text = yaml.safe_dump(fields, sort_keys=False)
        return text


SECTIONS: dict[str, type] = {
    "model": ModelConfig, "data": DataConfig, "optim": OptimConfig, "train": TrainConfig,
    "log": LogConfig,
}


def make_config(*layers: Mapping[str, Any]) -> Config:
    """Return the configuration of these layers over the defaults, complete and checked.

    Raises UserError for values without a meaning and for parts that do not fit together.
    """
    config = build_config(*layers)
    model, data, optim, train = config.model, config.data, config.optim, config.train
    data.check()
    optim.check()
    check_ranges(
        "train", train, steps="[1, inf)", batch_size="[1, inf)", micro_batch_size="[1, inf)",
        eval_interval="[1, inf)", sample_tokens="[0, inf)", timeout="(0, 1e6]",
        **({} if isinstance(train.shard, str) else {"shard": "[1, inf)"}),
    )
    if model.vocab_size is None:  # one embedding for each piece of the tokenizer
        model.vocab_size = data.vocab_size
    padded = data.tokenizer is not None and model.vocab_size > data.vocab_size
    if model.vocab_size != data.vocab_size and not padded:  # imported models are often padded
        raise UserError(f"model.vocab_size {model.vocab_size} and data.vocab_size "
                        f"{data.vocab_size} differ: leave model.vocab_size unset")
    try:
        check_position(model)
    except ValueError as error:
        raise UserError(str(error)) from None
    extrapolates, scaling = POSITIONS[model.position].extrapolates, model.rope_scaling
    if scaling is not None and scaling.original_positions is None:
        scaling.original_positions = data.seq_len
    if model.max_positions is None:
        reach = scaling.reach if scaling is not None else 0
        model.max_positions = max(data.seq_len * (4 if extrapolates else 1), reach)
    for wrong, message in (
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
         f"with model.position {model.position} those rows would never be trained"),
        (train.sample_tokens >= model.max_positions,
         f"train.sample_tokens {train.sample_tokens} leaves no room for a prompt in "
         f"model.max_positions {model.max_positions}"),
    ):
        if wrong:
            raise UserError(message)
    return config


def build_config(*layers: Mapping[str, Any]) -> Config:
    """Return the configuration of these layers over the defaults, unchecked but for the model."""
    merged: dict[str, Any] = {section: {} for section in SECTIONS}
    for layer in layers:
        merge(merged, layer)
    model = merged["model"]
    try:
        if model.get("rope_scaling") is not None:
            model["rope_scaling"] = RopeScaling(**model["rope_scaling"])
        sections = {section: cls(**merged.pop(section)) for section, cls in SECTIONS.items()}
        return Config(**sections, **merged)
    except TypeError:
        raise UserError("model.rope_scaling needs a type and a factor") from None
    except ValueError as error:
        raise UserError(str(error)) from None


def merge(target: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Put the values of a layer over those of `target`, section by section."""
    for name, value in layer.items():
        if isinstance(value, Mapping):
            target[name] = target.get(name) or {}
            merge(target[name], value)
        else:
            target[name] = value


# --- options and their types ----------------------------------------------------------------------


class Option(NamedTuple):
    """A field of a dataclass."""

    type: Any
    default: Any
    help: str


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
            options[name] = Option(hint, default, text)
        if table is not None:
            options |= list_options(table, f"{name}.")
    return options


def show_type(hint: Any) -> str:
    """Return a type as the help shows it, such as int or true|false|auto; no null."""
    if get_origin(hint) is list:
        return f"[{show_type(get_args(hint)[0])}, ...]"
    if get_args(hint):
        return "|".join(show_type(part) for part in get_args(hint) if part is not NoneType)
    if dataclasses.is_dataclass(hint):
        return "null"  # its fields are options of their own
    names: dict[Any, str] = {bool: "true|false", str: "text"}
    return names.get(hint) or getattr(hint, "__name__", str(hint))


def convert(hint: Any, value: Any, option: str) -> Any:
    """Return a text, or a list of texts, as a value of this type; None is YAML's null.

    Raises ValueError, which names the option and its type.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        for part in parts:
            with suppress(ValueError):
                return convert(part, value, option)
    elif origin is list and value is not None:
        values = value if isinstance(value, list) else [value]
        return [convert(parts[0], entry, option) for entry in values]
    elif hint is NoneType and value is None:
        return None
    elif isinstance(value, str):
        choices = {str(part): part for part in parts}  # of a Literal
        if hint is bool:
            choices = {"true": True, "True": True, "false": False, "False": False}
        if value in choices:
            return choices[value]
        if hint is str:
            value.encode()  # an argument that is not UTF-8 cannot be stored
            return value
        with suppress(ValueError):
            if hint is float or hint is int and str(int(value)) == value:  # 010 is 8 to YAML
                return hint(value)
    raise ValueError(f"{option} must be {show_type(hint)}, not {reprlib.repr(value)}")


def nearest(word: str, names: Iterable[str]) -> str:
    """Return a did-you-mean for a misspelt option, by the part after its section."""
    last = {name.lstrip("-").rpartition(".")[2]: name for name in reversed([*names])}
    close = difflib.get_close_matches(word.lstrip("-").rpartition(".")[2], last, n=1)
    return f" (did you mean {last[close[0]]}?)" if close else ""


# --- YAML -----------------------------------------------------------------------------------------


def read_yaml(name: str | Path, saved: bool = False) -> dict[str, Any]:
    """Return the layer in a YAML file: a path, or the name of one of ours.

    Only the file of a `saved` run may hold `init_from`. Raises UserError, which names the file, for
    unknown options and values of another type.
    """
    candidates = (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml")
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        raise UserError(f"no config {name}, neither as a path nor among ours: {OURS}")
    try:
        document = yaml.compose(path.read_text(encoding="utf-8"), yaml.BaseLoader)
        if not isinstance(document, yaml.MappingNode):
            raise ValueError("it holds no table of options")
        layer = convert_table(document)
        if layer.get("init_from") and not saved:
            raise ValueError("init_from is no option of a file: say --init-from RUN instead")
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    return layer


def read_config(path: Path) -> Config:
    """Return the configuration of a saved run, which was complete and checked when it was made."""
    try:
        return build_config(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (TypeError, UserError, yaml.YAMLError) as error:  # of a run made by another gyre
        raise UserError(f"{path} is not a configuration of this gyre: {error}") from None


def convert_table(table: yaml.MappingNode, prefix: str = "") -> dict[str, Any]:
    """Return a table of YAML with typed values. Raises ValueError, which names the option."""
    layer: dict[str, Any] = {}
    for key, node in table.value:
        name, option = str(key.value), f"{prefix}{key.value}"
        entries = node.value if isinstance(node, yaml.SequenceNode) else [node]
        # A quoted null is text. Scalars are texts here, and get their types from `convert`.
        values = [None if entry.value in ("", "~", "null") and entry.style is None else entry.value
                  for entry in entries]
        value = values if entries is node.value else values[0]
        if name in layer:
            raise ValueError(f"{option} is there twice")
        if option in TABLES and isinstance(node, yaml.MappingNode):
            layer[name] = convert_table(node, f"{option}.")
        elif option in SECTIONS and value is None:
            continue  # a section without options
        elif option not in OPTIONS or "." in name:
            raise ValueError(f"there is no option {option}{nearest(option, OPTIONS)}")
        else:
            layer[name] = convert(OPTIONS[option].type, value, option)
    return layer


# --- the command line -----------------------------------------------------------------------------


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Shows the type of an option as what stands for its value."""

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return show_type(getattr(action, "hint", str))


class Parser(argparse.ArgumentParser):
    """A parser of whole option names. Whatever it refuses is a UserError of one sentence."""

    def __init__(self, description: str | None = None):
        super().__init__(description=description, allow_abbrev=False,
                         formatter_class=HelpFormatter)

    def add_fields(self, *classes: type, heading: str | None = None) -> None:
        """Add one option for each field of dataclasses, `top_k` as --top-k.

        A field of type bool is a flag without a value, and list[str] an option that can be given
        several times. `heading` is that of a group of their own in the help.
        """
        group = self.add_argument_group(heading) if heading else self
        for cls in classes:
            for name, option in list_options(cls).items():
                settings: dict[str, Any] = {"default": option.default}
                if option.type is bool:
                    settings = {"action": "store_true"}
                elif option.type == list[str]:
                    settings = {"action": "append", "default": [], "metavar": "text"}
                action = group.add_argument(
                    f"--{name.replace('_', '-')}", help=option.help, **settings)
                action.hint = option.type  # pyrefly: ignore

    def add_config(self) -> None:
        """Add --config, and an option for each field of Config, such as --model.dim."""
        self.usage = "%(prog)s [--config FILE] [--OPTION VALUE ...]"
        self.add_argument(
            "--config", action="append", default=[], metavar="FILE",
            help=f"YAML file with any of the options below, or one of ours: {OURS}.",
        )
        groups = {name: self.add_argument_group(name) for name in ("run", *SECTIONS)}
        for name, option in OPTIONS.items():
            if name != "init_from":  # --init-from sets it, and takes the model of that run
                group = groups[name.partition(".")[0] if "." in name else "run"]
                action = group.add_argument(f"--{name}", dest=f"given.{name}", help=option.help,
                                            default=argparse.SUPPRESS)
                action.hint = option.type  # pyrefly: ignore

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """Return the options, typed. `given` is the layer of Config's fields that were said."""
        options, unknown = self.parse_known_args(*args, **kwargs)
        if unknown:
            word = unknown[0].partition("=")[0]
            if not word.startswith("-"):
                self.error(f"unexpected argument {word!r}")
            self.error(f"there is no option {word}{nearest(word, self._option_string_actions)}")
        options.given = {}
        actions = {action.dest: action for action in self._actions}
        for dest, word in [*vars(options).items()]:
            hint = getattr(actions.get(dest), "hint", None)
            if hint is None or not isinstance(word, str):
                continue
            option = actions[dest].option_strings[0]
            value: Any = None if word == "null" and NoneType in get_args(hint) else word
            try:
                if word.startswith("[") and list in map(get_origin, (hint, *get_args(hint))):
                    value = yaml.load(word, yaml.BaseLoader)
                value = convert(hint, value, option)
            except (RecursionError, yaml.YAMLError):
                self.error(f"{option} {word} is no list: quote its globs, as in "
                           "\"['*.md', book.txt]\"")
            except ValueError as error:
                self.error(str(error))
            if not dest.startswith("given."):
                setattr(options, dest, value)
                continue
            _, *sections, name = dest.split(".")
            layer = options.given
            for section in sections:
                layer[section] = layer.get(section) or {}
                layer = layer[section]
            layer[name] = value
            delattr(options, dest)
        return options

    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument "))


OPTIONS = list_options(Config)
TABLES = {name.rpartition(".")[0] for name in OPTIONS}


# --- options that several commands share ----------------------------------------------------------


@dataclass
class RunOptions:
    """What every command about a finished run asks."""

    checkpoint: Literal["best", "last"] = "best"
    """Weights with the lowest validation loss, or the last ones."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""
