"""The configuration of a run, and the command line and YAML that it is read from.

A configuration is made of layers, each over the one before: the defaults of the dataclasses, YAML
files, a run that is started from, the command line. A layer is a dict of sections, such as
{"model": {"dim": 64}, "seed": 2}. YAML values and the command line are converted by one function.
"""

import argparse
import dataclasses
import difflib
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import docstring_parser
import yaml

from data.dataset import DataConfig
from errors import UserError, check_ranges
from gyre.device import Dtype
from gyre.optim import OptimConfig
from gyre.parallel import REPLICATED, Shard
from gyre.wandb_log import LogConfig
from model.config import ModelConfig
from model.position import POSITIONS, check_position

CONFIGS = Path(__file__).parent.parent / "configs"


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
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False, allow_unicode=True)


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
    scaling = merged["model"].get("rope_scaling")
    try:
        if scaling is not None:
            merged["model"]["rope_scaling"] = SECTIONS["model.rope_scaling"](**scaling)
        return Config(**{name: SECTIONS[name](**value) if name in SECTIONS else value
                         for name, value in merged.items() if name != "model.rope_scaling"})
    except TypeError:
        raise UserError("model.rope_scaling needs a type and a factor") from None
    except ValueError as error:
        raise UserError(str(error)) from None


def merge(target: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Put the values of a layer over those of `target`, section by section."""
    for name, value in layer.items():
        if isinstance(value, Mapping) and isinstance(target.get(name), dict):
            merge(target[name], value)
        else:
            target[name] = {**value} if isinstance(value, Mapping) else value


# --- YAML -----------------------------------------------------------------------------------------


class TextLoader(yaml.BaseLoader):
    """Reads every scalar as text, and refuses aliases and keys that are repeated."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"{self.peek_event().start_mark}: YAML's * refers to an anchor: "
                                 "quote your globs")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        repeated = sorted({str(key) for key in keys if keys.count(key) > 1})
        if repeated:
            raise yaml.YAMLError(f"{repeated[0]} is there twice")
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """Return the lists, tables and texts of a YAML document. ValueError where there is none."""
    try:
        return yaml.load(text, TextLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def read_yaml(name: str | Path) -> dict[str, Any]:
    """Return the layer in a YAML file: a path, or the name of one of ours.

    Raises UserError, which names the file, for unknown options and values of another type.
    """
    candidates = (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml")
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        ours = ", ".join(sorted(path.name for path in CONFIGS.glob("*.yaml")))
        raise UserError(f"no config {str(name)!r}, neither as a path nor among ours: {ours}")
    layer: dict[str, Any] = {}
    try:
        document = parse_yaml(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise ValueError("it holds no table of options")
        for option, value in walk(document):
            assign(layer, option, value)
    except (OSError, ValueError, UserError) as error:
        raise UserError(f"{path}: {error}") from None
    return layer


def read_config(path: Path) -> Config:
    """Return the configuration of a saved run, which was complete and checked when it was made."""
    return build_config(read_yaml(path))


def walk(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every option in nested tables."""
    for key, value in document.items():
        option = f"{prefix}{key}"
        if isinstance(value, dict) and (option in SECTIONS or option not in config_fields()):
            yield from walk(value, f"{option}.")
        elif option in SECTIONS and value == "" and option != "model.rope_scaling":
            continue  # a section without an option
        else:
            yield option, value


def assign(layer: dict[str, Any], option: str, value: Any) -> None:
    """Convert the value of a dotted option and put it into a layer.

    Raises UserError for an unknown option, a wrong type, and an option that is given twice.
    """
    fields = config_fields()
    if option not in fields:
        raise UserError(f"there is no option {option}{nearest(option, fields)}")
    *sections, name = option.split(".")
    for section in sections:
        layer = layer.setdefault(section, {})
        if not isinstance(layer, dict):
            raise UserError(f"{section} and {option} contradict each other")
    if name in layer:
        raise UserError(f"{option} is there twice")
    layer[name] = convert(fields[option][0], value, option)


# --- types ----------------------------------------------------------------------------------------

SECTIONS: dict[str, type] = {
    "model": ModelConfig, "data": DataConfig, "optim": OptimConfig, "train": TrainConfig,
    "log": LogConfig,
}
for part in get_args(get_type_hints(ModelConfig)["rope_scaling"]):
    if part is not NoneType:
        SECTIONS["model.rope_scaling"] = part


@cache
def config_fields() -> dict[str, tuple[Any, Any, str]]:
    """Return the type, default and help of every option of Config, by dotted name."""
    fields = dict(fields_of(Config))
    for section, cls in SECTIONS.items():
        fields |= {f"{section}.{name}": value for name, value in fields_of(cls)}
    return {name: value for name, value in fields.items() if name not in SECTIONS or "." in name}


def fields_of(cls: type) -> Iterator[tuple[str, tuple[Any, Any, str]]]:
    """Yield the name of each field of a dataclass with its type, default and docstring."""
    types = get_type_hints(cls)
    docs = {p.arg_name: p.description for p in docstring_parser.parse_from_object(cls).params}
    for item in dataclasses.fields(cls):
        default = item.default
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        help_text = " ".join((docs.get(item.name) or "").split())
        yield item.name, (types[item.name], default, help_text)


NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def convert(hint: Any, value: Any, option: str) -> Any:
    """Return a text, or a list or a table of texts, as a value of a field's type.

    Raises UserError that says what the option may be.
    """
    union = get_origin(hint) in (Union, UnionType)
    kinds = sorted(get_args(hint), key=lambda kind: kind is str) if union else [hint]
    expected = []
    for kind in kinds:
        try:
            return convert_kind(kind, value, option)
        except ValueError as error:
            expected.append(str(error))
    shown = textwrap.shorten(str(value), 80)
    expected = [words for words in dict.fromkeys(expected) if words != "null"]
    raise UserError(f"{option} must be {' or '.join(expected)}, not {shown}")


def convert_kind(kind: Any, value: Any, option: str) -> Any:
    """Return a value as one kind of a type. The ValueError says what that kind is."""
    if kind is NoneType and value in ("null", "~"):
        return None
    if get_origin(kind) is Literal:
        for choice in get_args(kind):
            if value == str(choice):
                return choice
        raise ValueError(" or ".join(map(str, get_args(kind))))
    if get_origin(kind) is list:
        values = parse_yaml(value) if isinstance(value, str) and value[:1] == "[" else value
        values = values if isinstance(values, list) else [values]
        return [convert(get_args(kind)[0], entry, option) for entry in values]
    if dataclasses.is_dataclass(kind):
        table = parse_yaml(value) if isinstance(value, str) and value[:1] == "{" else value
        if not isinstance(table, dict):
            raise ValueError("a table of its fields")
        layer: dict[str, Any] = {}
        for name, entry in table.items():
            assign(layer, f"{option}.{name}", entry)
        for section in option.split("."):
            layer = layer[section]
        return layer
    if kind in NAMES and isinstance(value, str):
        try:
            if kind is bool:
                return {"true": True, "false": False}[value.lower()]
            if kind is int and value.lstrip("+-") != "0" and value.lstrip("+-")[:1] == "0":
                raise ValueError  # 010 is 8 to YAML 1.1 and 10 to Python
            return kind(value)
        except (KeyError, ValueError):
            pass
    raise ValueError(NAMES.get(kind, "null"))


def nearest(word: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    """Return a did-you-mean for a misspelt option: by its whole name, or by its last part."""
    last = {name.rpartition(".")[2]: name for name in reversed([*names])}
    close = difflib.get_close_matches(word, names, n=1) or [
        last[name] for name in difflib.get_close_matches(word.rpartition(".")[2], last, n=1)
    ]
    return f" (did you mean {close[0]}?)" if close else ""


# --- the command line -----------------------------------------------------------------------------


class HelpFormatter(argparse.HelpFormatter):
    """Keeps the examples of a description as lines, and fills its paragraphs."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(part if part.startswith(" ") else textwrap.fill(part, width)
                           for part in text.strip().split("\n\n"))


class Parser(argparse.ArgumentParser):
    """A parser of whole option names. Whatever it refuses is a UserError of one sentence."""

    def __init__(self, description: str | None = None, **settings: Any):
        super().__init__(description=description, allow_abbrev=False,
                         formatter_class=HelpFormatter, **settings)
        self.types: dict[str, Any] = {}

    def add_fields(self, *classes: type, heading: str | None = None) -> None:
        """Add one option for each field of dataclasses, `top_k` as --top-k.

        A field of type bool is a flag without a value, and list[str] an option that can be given
        several times. `heading` is that of a group of their own in the help.
        """
        group = self.add_argument_group(heading) if heading else self
        for cls in classes:
            for name, (hint, default, text) in fields_of(cls):
                settings: dict[str, Any] = {"default": default, "metavar": metavar(hint)}
                if hint is bool:
                    settings = {"action": "store_true"}
                elif hint == list[str]:
                    settings = {"action": "append", "default": [], "metavar": "TEXT"}
                else:
                    self.types[name] = hint
                group.add_argument(f"--{name.replace('_', '-')}", dest=name,
                                   help=described(text, default), **settings)

    def add_config(self) -> None:
        """Add --config, and an option for each field of Config, such as --model.dim."""
        ours = ", ".join(sorted(path.name for path in CONFIGS.glob("*.yaml")))
        self.add_argument(
            "--config", action="append", default=[], metavar="FILE",
            help=f"YAML file with any of the options below, or one of ours: {ours}.",
        )
        groups: dict[str, Any] = {}
        for name, (hint, default, text) in config_fields().items():
            if name == "init_from":  # --init-from sets it, with the model of that run
                continue
            section = name.partition(".")[0] if "." in name else "run"
            if section not in groups:
                groups[section] = self.add_argument_group(section)
            groups[section].add_argument(
                f"--{name}", default=argparse.SUPPRESS, metavar=metavar(hint),
                help=described(text, default),
            )

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """Return the options, typed. `given` is the layer of Config's fields that were said."""
        options, unknown = self.parse_known_args(*args, **kwargs)
        names = [name for action in self._actions for name in action.option_strings]
        if unknown:
            word = unknown[0].partition("=")[0]
            if word[:1] == "-":
                self.error(f"there is no option {word}{nearest(word, names)}")
            self.error(f"unexpected argument {word!r}")
        values, options.given = vars(options), {}
        for name in [*values]:
            value = values[name]
            if name in self.types:
                if isinstance(value, str):
                    values[name] = convert(self.types[name], value, f"--{name.replace('_', '-')}")
            elif f"--{name}" in self._option_string_actions and name in config_fields():
                if value.encode(errors="ignore").decode() != value:
                    self.error(f"{value!a} is not UTF-8, and so no part of a configuration")
                try:
                    assign(options.given, name, values.pop(name))
                except UserError as error:
                    raise UserError(f"--{error}") from None
        return options

    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument "))


def metavar(hint: Any) -> str:
    """Return what stands for a value in --help."""
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType]
    words = [str(kind) if not isinstance(kind, type) else kind.__name__.upper() for kind in kinds
             if get_origin(kind) is None]
    words += ["LIST" if get_origin(kind) is list else "|".join(map(str, get_args(kind)))
              for kind in kinds if get_origin(kind) is not None]
    return "|".join(words).replace("%", "%%") if get_origin(hint) is not list else "LIST"


def described(text: str, default: Any) -> str:
    """Return the help of an option: its docstring, and its default where it has one."""
    text = text.replace("%", "%%")
    if default in (None, [], dataclasses.MISSING) or default is False:
        return text
    return f"{text} (default: {json.dumps(default) if default == '' else default})"


# --- options that several commands share ----------------------------------------------------------


@dataclass
class RunOptions:
    """What every command about a finished run asks."""

    checkpoint: Literal["best", "last"] = "best"
    """Weights with the lowest validation loss, or the last ones."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""
