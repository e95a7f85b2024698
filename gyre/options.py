"""The configuration of a run: its options, their types, and the layers it is made of.

Layers lie each over the one before: the defaults of the dataclasses, YAML files, the command line.
gyre/start.py puts what a run hands on between them. A layer is a dict of sections, such as
{"model": {"dim": 64}, "seed": 2}, or of dotted names, such as {"model.dim": 64, "seed": 2}. One
function, `Option.convert`, gives every value its type.
"""

import dataclasses
import math
import os
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import docstring_parser
import msgspec
import yaml

from data.sources import AUTO, SOURCES, DataConfig, Fitted
from errors import Range, UserError, check_range, check_ranges
from gyre.compute import Dtype
from gyre.optim import OptimConfig
from gyre.parallel import Shard
from gyre.wandb_log import LogConfig
from model.config import ModelConfig
from model.encodings import POSITIONS, check_position


@dataclass(frozen=True)
class TrainConfig:
    """How long a run trains, in which batches, and how often it is evaluated."""

    steps: Annotated[Fitted, Range(ge=1, le=1e12)] = 1000
    """Optimizer steps. auto: so many epochs as suit the size of the text, at most the number that
    the configuration has."""
    minutes: Annotated[float | None, Range(gt=0, le=1e6)] = None
    """Choose the steps so that they take about so many minutes on this machine, by the rate of the
    first ones. The number is written into the run."""
    batch_size: Annotated[int, Range(ge=1)] = 16
    """Rows of data.seq_len tokens per optimizer step, over all processes together."""
    micro_batch_size: Annotated[int | None, Range(ge=1)] = None
    """Rows per forward pass of one process. Fewer need less memory, and change numbers by rounding
    only. Unset: the whole share of the process at once."""
    checkpoint_blocks: bool = False
    """Keep the input of each block only, and compute the block again in the backward pass: less
    memory, a third more work, and the same gradients."""
    eval_interval: Annotated[Fitted, Range(ge=1)] = 250
    """Steps between validations, checkpoints and samples; the last step always has all three. auto:
    a third of the steps, at most the number that the configuration has."""
    keep: list[int] = field(default_factory=list)
    """Steps whose checkpoints are kept, for --branch-from, beside the last and the best."""
    sample_prompt: str = ""
    """What the samples during training continue. Empty: the first plain words of the text."""
    sample_tokens: int = 64
    """Length of these samples in tokens; 0: none."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""
    dtype: Dtype = "auto"
    """Dtype of matrix products. auto: on a CPU, bfloat16 where it is measured to be 1.2 times as
    fast as float32; on CUDA, bfloat16 from capability 8.0 on, and float16 below."""
    tf32: bool = False
    """Compute float32 products on CUDA in TF32, which is faster and rounds to 10 bits."""
    compile: bool | Literal["auto"] = "auto"
    """torch.compile the training step. auto: where the run is long enough to repay it."""
    cuda_graphs: bool = True
    """Launch all kernels of a gradient at once on CUDA, by a graph, where launching takes longer
    than computing: small models, one process. Python code in the model then runs in the first
    steps only: two, or three with several micro-batches."""
    onednn: bool | Literal["auto"] = "auto"
    """Compute float32 products on a CPU by oneDNN. auto: where it is measured to be 1.5 times as
    fast as what torch takes."""
    shard: Annotated[Shard, Range(ge=1)] = "none"
    """Over how many processes every weight, gradient and moment is sharded: none (each process has
    all of them), full (over all processes), or a number of processes, such as those of one
    machine. One process is never sharded."""
    timeout: Annotated[float, Range(gt=0, le=1e6)] = 600.0
    """Seconds that a process waits for the others before it gives up."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run. `make_config` fills in and checks what one part takes from another."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    log: LogConfig = field(default_factory=LogConfig)
    name: str | None = None
    """Name of the run or study, and of its folder. Unset: the config file's name, followed by the
    text, if the command line names one, the encoding and the seed of a run, or by the tier of a
    study (quick is left out)."""
    init_from: str | None = None
    """Run whose weights this one starts from; set by --init-from RUN, which takes its model and its
    tokenizer too."""
    seed: Annotated[int, Range(ge=0, lt=2**63)] = 1
    """Seed of the initial weights, the order of batches, dropout and samples."""

    @property
    def step_tokens(self) -> int:
        """Tokens that an optimizer step trains on, over all processes together."""
        return self.train.batch_size * self.data.seq_len

    def to_yaml(self) -> str:
        """Return YAML that `read_config` turns back into an equal configuration."""
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False)

    def check(self) -> None:
        """Raise UserError for numbers out of their ranges, and parts that do not fit together."""
        self.data.check()
        self.optim.check()
        model = self.model
        train = self.train
        seq_len = self.data.seq_len
        check_range("model.vocab_size", model.vocab_size, Range(ge=self.data.vocab_size))
        check_ranges(train, "train.")
        if model.max_positions < seq_len:
            raise UserError(f"model.max_positions {model.max_positions} is shorter than "
                            f"data.seq_len {seq_len}: lower data.seq_len")
        if model.max_positions > seq_len and not POSITIONS[model.position].extrapolates:
            raise UserError(
                f"model.max_positions {model.max_positions} is longer than data.seq_len {seq_len}: "
                f"with model.position {model.position} positions past that would never be trained"
            )
        check_range("train.sample_tokens", train.sample_tokens, Range(ge=0, lt=model.max_positions))
        # With minutes, the steps are chosen later, and this is checked again then.
        last_step = train.steps if train.minutes is None else math.inf
        check_range("optim.warmup_steps", self.optim.warmup_steps, Range(ge=0, le=last_step))
        check_ranges(self)
        if any(step < 1 for step in train.keep):
            raise UserError(f"train.keep {train.keep} names step {min(train.keep)}, and steps "
                            "begin with 1: leave it out")
        if any(step > last_step for step in train.keep):
            raise UserError(f"train.keep {train.keep} names steps that train.steps {train.steps} "
                            "does not have")


def make_config(*layers: Mapping[str, Any]) -> Config:
    """Return the configuration of these layers over the defaults, complete and checked.

    The model gets a row for each piece, and positions for the rows of the data. Raises UserError
    for values without a meaning and for parts that do not fit together.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        forget_text(merged, layer)
        merge(merged, layer)
    for name, value in flatten(merged):
        if value == AUTO and OPTIONS[name].hint == Fitted:
            raise UserError(f"{name} auto is for a new run of train.py: give a number")
    try:
        config = msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        missing = re.fullmatch(r"Object missing required field `(\w+)` - at `\$\.([\w.]+)`",
                               str(error))
        if missing is None:
            raise UserError(str(error)) from None
        field_name, section = missing.groups()
        raise UserError(f"{section} needs a {field_name}: give {section}.{field_name}") from None
    config = dataclasses.replace(config, data=find_tokenizer(config.data, config.log.runs))
    # Before `complete_model` computes with them.
    check_range("data.seq_len", config.data.seq_len, Range(ge=1))
    check_position(config.model)
    config = dataclasses.replace(config, model=complete_model(config.model, config.data))
    config.check()
    return config


def complete_model(model: ModelConfig, data: DataConfig) -> ModelConfig:
    """Return the model with what it takes from the data where it is unset."""
    seq_len = data.seq_len
    scaling = model.rope_scaling
    if model.vocab_size is None:
        model = dataclasses.replace(model, vocab_size=data.vocab_size)
    if scaling is not None and scaling.original_positions is None:
        scaling = dataclasses.replace(scaling, original_positions=seq_len)
        model = dataclasses.replace(model, rope_scaling=scaling)
    if model.max_positions is None:
        extrapolates = POSITIONS[model.position].extrapolates
        trained_for = 4 * seq_len if extrapolates else seq_len
        scaled_to = scaling.reach if scaling is not None else 0
        model = dataclasses.replace(model, max_positions=max(trained_for, scaled_to))
    return model


def named_source(values: Mapping[str, Any]) -> str | None:
    """Return the source of the text that the options of one layer name, by dotted name, or None."""
    for name in ("files", "url", "hub"):
        if values.get(f"data.{name}"):
            return name
    return values.get("data.source")


def forget_text(merged: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Remove the options of another source from `merged`, if the next `layer` names a source.

    A layer with files needs no such removal: files replace any text, see `DataConfig`.
    """
    source = named_source(dict(flatten(layer)))
    if source == "files" or source not in SOURCES:
        return
    data = merged.get("data", {})
    data.pop("source", None)
    for other in SOURCES.values():
        for option in {*other.options} - {*SOURCES[source].options}:
            data.pop(option, None)


def find_tokenizer(data: DataConfig, runs: str) -> DataConfig:
    """Return the settings with the folder of the run in `runs` that data.tokenizer may name."""
    if data.tokenizer is None or os.path.exists(data.tokenizer):
        return data
    folder = os.path.join(runs, data.tokenizer)
    if not os.path.isdir(folder):
        return data
    return dataclasses.replace(data, tokenizer=folder)


def merge(target: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Put the values of a layer over those of `target`, section by section."""
    for dotted, value in layer.items():
        name, dot, rest = dotted.partition(".")
        content = {rest: value} if dot else value
        if not isinstance(content, Mapping):
            target[name] = content
            continue
        if target.get(name) is None:  # absent, or null, as model.rope_scaling can be
            target[name] = {}
        merge(target[name], content)


@dataclass(frozen=True)
class Option:
    """A field of a dataclass, as an option of the command line and of YAML files."""

    name: str
    """Dotted, such as model.dim."""
    hint: Any
    """Its type, without its range."""
    default: Any
    owner: type
    """The dataclass that has the field."""

    @property
    def help(self) -> str:
        """The docstring of the field and its default, on one line, for argparse to format."""
        field_name = self.name.rpartition(".")[2]
        words = read_docs(self.owner).get(field_name, "").replace("%", "%%").split()
        is_unset = self.default is False or self.default == ""
        if isinstance(self.default, str | int | float) and not is_unset:
            shown = "true" if self.default is True else self.default
            words.append(f"(default: {shown})")
        return " ".join(words)

    @property
    def can_be_null(self) -> bool:
        """Whether null is one of its values."""
        return NoneType in get_args(self.hint)

    def convert(self, value: Any) -> Any:
        """Return a text, or a list of texts, as a value of this type.

        Raises UserError, which names the option and its type.
        """
        if self.hint == Fitted and value == AUTO:
            return AUTO
        parts = (self.hint, *get_args(self.hint))
        if value == "null" and self.can_be_null:
            return None
        try:
            if isinstance(value, str):
                value = parse_text(value, parts)
            return msgspec.convert(value, self.hint, strict=False)
        except UnicodeEncodeError:
            raise UserError(f"{self.name} must be text in UTF-8, not {reprlib.repr(value)}: if a "
                            "file is called so, rename it") from None
        except (ValueError, RecursionError, yaml.YAMLError):
            shown = reprlib.repr(value)
            advice = ""
            if "[*" in shown:
                advice = ": quote its globs, as in ['*.md', b.txt]"
            elif any(map(dataclasses.is_dataclass, parts)):
                advice = f": its fields are options, such as {self.name}.type"
            elif float in parts and re.fullmatch(r"-?(0,\d+|\d+,\d{1,2})", str(value)):
                advice = f": write {str(value).replace(',', '.')}"
            raise UserError(f"{self.name} must be {spell_type(self.hint)}, not {shown}{advice}"
                            ) from None


def parse_text(text: str, parts: Iterable[Any]) -> Any:
    """Return a text of the command line as a value that msgspec converts to one of these types.

    Raises ValueError or yaml.YAMLError if it cannot be such a value.
    """
    text.encode()  # an argument that is not UTF-8 cannot be stored
    if "\0" in text:
        raise ValueError("no path may hold a NUL")
    if any(get_origin(part) is list for part in parts):
        # A file may have such a name too, as "[draft] notes.txt".
        is_list = text.startswith("[") and not os.path.exists(text)
        return yaml.load(text, Texts) if is_list else [text]
    if float in parts:
        return float(text)  # msgspec takes JSON's numbers only, and not .5
    return text


def show_type(hint: Any) -> str:
    """Return a type as the help shows it, such as int or true|false|auto. None is left out."""
    if hint == Fitted:
        return "int|auto"
    if get_origin(hint) is list:
        return f"[{show_type(get_args(hint)[0])}, ...]"
    if get_args(hint):
        return "|".join(show_type(part) for part in get_args(hint) if part is not NoneType)
    if dataclasses.is_dataclass(hint):
        return "null"  # its fields are options of their own
    if hint is bool:
        return "true|false"
    if hint is str:
        return "text"
    return getattr(hint, "__name__", str(hint))


def spell_type(hint: Any) -> str:
    """Return a type as a message says it: numbers in words, others as the help shows them."""
    numbers = {int: "a whole number", float: "a number", Fitted: "a whole number or auto"}
    parts = [part for part in get_args(hint) if part is not NoneType]
    may_be_unset = NoneType in get_args(hint)
    if may_be_unset and len(parts) == 1:
        hint = parts[0]
    if hint in numbers:
        return numbers[hint]
    return show_type(hint)


@cache
def read_docs(cls: type) -> Mapping[str, str]:
    """Return the docstrings of the fields of a dataclass.

    They are parsed from its source, which takes 10 ms, so only --help does it.
    """
    parsed = docstring_parser.parse_from_object(cls)
    return {param.arg_name: param.description for param in parsed.params if param.description}


def list_options(cls: type, prefix: str = "") -> dict[str, Option]:
    """Return the fields of a dataclass, and those of dataclasses in it, by dotted name."""
    hints = get_type_hints(cls, include_extras=True)
    options: dict[str, Option] = {}
    for item in dataclasses.fields(cls):
        name = f"{prefix}{item.name}"
        hint = hints[item.name]
        if get_origin(hint) is Annotated:  # leave the range out
            plain, *notes = get_args(hint)
            # Python merges Annotated[Fitted, Range] into one, Annotated[int, AUTO, Range].
            hint = Fitted if AUTO in notes else plain
        section = next(filter(dataclasses.is_dataclass, (hint, *get_args(hint))), None)
        if section is None:
            options[name] = Option(name, hint, item.default, cls)
            continue
        if section is not hint:  # a section or None, such as model.rope_scaling: null is its value
            options[name] = Option(name, hint, item.default, cls)
        options |= list_options(section, f"{name}.")
    return options


SECTIONS = {name: cls for name, cls in get_type_hints(Config).items()
            if dataclasses.is_dataclass(cls)}
OPTIONS = MappingProxyType(list_options(Config))


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in a table, and in tables in it, by dotted name. An empty table is a value.
    """
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def changed_options(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of the options that differ between two tables, sorted.

    An option that one of them lacks counts as None there.
    """
    old = dict(flatten(before))
    new = dict(flatten(after))
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


class Texts(yaml.BaseLoader):
    """Every value is a text: YAML 1.1 itself would read 010 as 8, and 1e-3 as a text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        names = [self.construct_object(name) for name, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is there twice")
        return super().construct_mapping(node, deep=True)
