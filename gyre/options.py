"""The configuration of a run, and the command line and YAML that it is read from.

A configuration is made of layers, each over the one before: the defaults of the dataclasses, YAML
files, the command line. gyre/start.py puts what a run hands on between them. A layer is a dict of
sections, such as {"model": {"dim": 64}, "seed": 2}, or of dotted names, such as {"model.dim": 64,
"seed": 2}. One function, `Option.convert`, gives every value its type.
"""

import argparse
import dataclasses
import glob
import math
import os
import re
import reprlib
import shlex
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import docstring_parser
import msgspec
import yaml

from data.kinds import PLAIN, TABLES, file_kind
from data.sources import AUTO, SOURCES, DataConfig, Fitted, check_sources
from errors import Range, UserError, check_range, check_ranges, closest, did_you_mean
from gyre.compute import Dtype
from gyre.optim import OptimConfig
from gyre.parallel import Shard
from gyre.wandb_log import LogConfig
from model.config import ModelConfig
from model.encodings import POSITIONS, check_position

# libyaml's is ten times as fast. PyYAML may be built without it.
SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CONFIGS = Path(__file__).parent.parent / "configs"
YAML = (".yaml", ".yml")
OUR_CONFIGS = sorted(path.name for path in CONFIGS.glob("*.yaml"))


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
        if model.max_positions < seq_len:
            raise UserError(f"model.max_positions {model.max_positions} is shorter than "
                            f"data.seq_len {seq_len}: lower data.seq_len")
        if model.max_positions > seq_len and not POSITIONS[model.position].extrapolates:
            raise UserError(
                f"model.max_positions {model.max_positions} is longer than data.seq_len {seq_len}: "
                f"with model.position {model.position} positions past that would never be trained"
            )


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
        raise UserError(str(error)) from None
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


def forget_text(merged: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Remove the options of another source from `merged`, if the next `layer` names a source.

    A layer with files needs no such removal: files replace any text, see `DataConfig`.
    """
    values = dict(flatten(layer))
    source = values.get("data.source")
    for name in ("url", "hub"):
        if values.get(f"data.{name}"):
            source = name
    if values.get("data.files") or source not in SOURCES:
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


# --- options and their types ----------------------------------------------------------------------

TWO_DASHES = "-\u2060-"
"""Stands for the value `--` while argparse parses. There is an invisible character in it."""


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

    def convert(self, value: Any) -> Any:
        """Return a text, or a list of texts, as a value of this type.

        Raises UserError, which names the option and its type.
        """
        if self.hint == Fitted and value == AUTO:
            return AUTO
        parts = (self.hint, *get_args(self.hint))
        if value == "null" and NoneType in parts:
            return None
        try:
            if isinstance(value, str):
                value = read_text(value, parts)
            return msgspec.convert(value, self.hint, strict=False)
        except UnicodeEncodeError:
            raise UserError(f"{self.name} must be text in UTF-8, not {reprlib.repr(value)}: rename "
                            "a file that is called so") from None
        except (ValueError, RecursionError, yaml.YAMLError):
            shown = reprlib.repr(value)
            advice = ""
            if "[*" in shown:
                advice = ": quote its globs, as in ['*.md', b.txt]"
            elif float in parts and re.fullmatch(r"-?(0,\d+|\d+,\d{1,2})", str(value)):
                advice = f": write {str(value).replace(',', '.')}"
            raise UserError(f"{self.name} must be {spell_type(self.hint)}, not {shown}{advice}"
                            ) from None


def read_text(text: str, parts: Iterable[Any]) -> Any:
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
    if hint not in numbers and len(parts) == 1:  # it may also be unset
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


# Words of other repositories for our options.
HABITS = {
    "arms": "encodings positions",
    "config": "c config_file",
    "data.files": "data data_dir data_path dataset input text train_file",
    "data.seq_len": "block_size context context_length ctx_len max_seq_len seq_length "
                    "sequence_length",
    "data.vocab_size": "n_vocab vocab vocab_size",
    "init_from": "model_name_or_path pretrained",
    "log.runs": "save_dir",
    "model.dim": "d_model emb_dim hidden_size n_embd",
    "model.hidden_dim": "ffn_dim intermediate_size",
    "model.n_heads": "n_head num_attention_heads num_heads",
    "model.n_kv_heads": "n_kv_head num_key_value_heads",
    "model.n_layers": "depth n_layer num_hidden_layers num_layers",
    "model.theta": "rope_theta",
    "name": "exp_name out out_dir output_dir run_name wandb_run_name",
    "optim.final_lr": "min_lr",
    "optim.grad_clip": "clip max_grad_norm",
    "optim.lr": "learning_rate max_lr",
    "optim.schedule": "decay_lr lr_decay lr_scheduler_type",
    "optim.warmup_steps": "warmup warmup_iters",
    "resume": "resume_from resume_from_checkpoint",
    "train.dtype": "amp bf16 fp16 fp32 mixed_precision precision torch_dtype",
    "train.eval_interval": "eval_every eval_steps save_steps",
    "train.micro_batch_size": "device_batch_size per_device_train_batch_size",
    "train.sample_prompt": "prompt start",
    "train.sample_tokens": "max_new_tokens",
    "train.steps": "iters max_iters max_steps num_iterations",
    "dtype": "bf16 fp16 fp32 precision torch_dtype",
    "max_new_tokens": "length max_length max_tokens n_predict num_tokens",
    "num_samples": "n_samples num_return_sequences",
    "prompt": "input start text",
    "run": "checkpoint_path ckpt ckpt_path model model_name_or_path model_path out_dir",
    "temperature": "do_sample temp",
}


# Words of other repositories that no option means quite.
EXPLAINED = {
    "epochs max_epochs num_epochs num_train_epochs":
        "gyre counts steps: leave it out, and they are chosen for the text, or say --train.steps",
    "gradient_accumulation_steps grad_accum":
        "did you mean --train.micro_batch_size? It is the rows of a part, and not the number of "
        "parts",
    "size model_size":
        "did you mean --model.dim and --model.n_layers? The number of parameters follows from them",
    "disable_wandb no_wandb report_to use_wandb wandb_log":
        "did you mean --log.wandb disabled?",
}

# Options of each command beside those of the configuration. No command imports another for a hint.
COMMAND_OPTIONS = {
    "train.py": "at branch_from config init_from resume",
    "generate.py": "chat checkpoint compile device dtype interactive max_new_tokens min_p "
                   "num_samples prompt prompt_file repetition_penalty rope_factor rope_scaling run "
                   "stop temperature top_k top_p",
    "evaluate.py": "checkpoint context device json lengths plot stride",
    "ablate.py": "arm arms baseline beside config dry_run jobs no_tuning scheduler seeds tier "
                 "tokens",
    "bench.py": "config json new_tokens peer repeats",
    "export.py": "dtype to",
}


def suggest_name(word: str, names: Iterable[str], elsewhere: bool = False) -> str:
    """Return a did-you-mean for a misspelt option, or for the word of another repository; or "".

    Options are compared by the part after their section, with dashes as underscores. With
    `elsewhere`, an option of another command is told before options that are only similar.
    """
    plain = {name.lstrip("-").replace("-", "_"): name for name in names}
    by_last_part = {option.rpartition(".")[2]: option for option in plain}
    wanted = word.lstrip("-").replace("-", "_").rpartition(".")[2]
    option = find_option(wanted, plain)
    if option is None and "train.steps" in plain:  # what is explained are options of a training
        for words, explanation in EXPLAINED.items():
            if wanted in words.split():
                return f" ({explanation})"
    if option is None and elsewhere:
        hint = suggest_command(wanted)
        if hint:
            return hint
    if option is None:
        last_part = closest(wanted, by_last_part)
        option = by_last_part[last_part] if last_part else None
    return f" (did you mean {plain[option]}?)" if option else ""


def find_option(word: str, names: Iterable[str]) -> str | None:
    """Return the option that a word of another repository stands for, or that ends with the word.
    """
    options = list(names)
    for ours, words in HABITS.items():
        if word in words.split() and ours in options:
            return ours
    for option in options:
        if option.rpartition(".")[2] == word:
            return option
    return None


def suggest_command(word: str) -> str:
    """Return a hint at the command that has the option a word stands for, or "" if none has."""
    for command, words in COMMAND_OPTIONS.items():
        if word in words.split():
            return f" (--{word.replace('_', '-')} is an option of {command})"
    option = find_option(word, OPTIONS)
    return f" (--{option} is an option of train.py)" if option else ""


def advise(name: str, hint: Any, values: list[str]) -> str:
    """Return what to do about several words after an option of this type."""
    parts = (hint, *get_args(hint))
    if any(get_origin(part) is list for part in parts):
        return advise_list(name, values)
    if name in ("--arms", "--tokens"):
        joined = ",".join(value.strip(",") for value in values)
        return f"put commas between them, as in {name} {joined}"
    if name == "--data.column":
        columns = ",".join(value.strip(",") for value in values)
        return (f"put commas between columns, as in {name} {columns}, or quote a name with spaces, "
                f"as in {name} {shlex.quote(' '.join(values))}")
    if str in parts:
        return f"quote it, as in {name} {shlex.quote(' '.join(values))}"
    return "leave it out"


def advise_list(name: str, values: list[str]) -> str:
    """Return what to do about several words after an option that takes a list."""
    spaced = " ".join(values)
    if os.path.exists(spaced) or glob.glob(spaced):
        return f"quote a name with spaces, as in {name} {shlex.quote(spaced)}"
    shown = ", ".join(values) if len(values) <= 2 else f"{values[0]}, {values[1]}, ..."
    as_list = f"give a list, as in {name} '[{shown}]'"
    first = Path(values[0])
    if not first.name or not first.exists():  # "." has no name to make a glob of
        return as_list
    if {Path(value).suffix for value in values} != {first.suffix}:
        return as_list
    pattern = first.with_name(f"*{first.suffix}")  # that the shell may have expanded
    return f"quote a glob, as in {name} '{pattern}', or {as_list}"


# What the options that name a file, a folder or a run are called in a message.
NAMES = {"run": "--run", "runs": "RUN", "source": "FROM", "target": "OUT", "config": "--config",
         "given.data.files": "--data.files"}


def check_names(values: Mapping[str, Any]) -> None:
    """Raise UserError for an empty name, which a path would take for the working directory."""
    for option, shown in NAMES.items():
        value = values.get(option)
        if value == "" or (isinstance(value, list) and "" in value):
            raise UserError(f"{shown} '' names nothing: give a name (perhaps a variable of the "
                            "shell is not set)")


# --- YAML -----------------------------------------------------------------------------------------


def names_text(word: str) -> bool:
    """Return whether a word names a text rather than a configuration: a file, folder or glob that
    is there, or a file that its suffix shows to be a text. YAML is a configuration."""
    kind = file_kind(word)
    if kind in YAML:
        return False
    is_there = os.path.exists(word) or bool(glob.glob(word))
    return is_there or kind in TABLES or kind in PLAIN - {""}


def find_config(name: str | Path) -> Path:
    """Return the path of a YAML file: `name` itself, or the one of ours that has this name."""
    for path in (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml"):
        if path.is_file():
            return path
    beside = [str(file) for file in Path(name).parent.glob("*.y*ml")]
    hint = did_you_mean(str(name), [*OUR_CONFIGS, *beside])
    if file_kind(str(name)) == ".py":  # as nanoGPT has it
        hint = " (a configuration is a YAML file)"
    elif names_text(str(name)):
        hint = f" (did you mean --data.files {shlex.quote(str(name))}?)"
    raise UserError(f"no config {name}{hint}, neither as a path nor among ours: "
                    f"{', '.join(OUR_CONFIGS)}")


def read_yaml(file: str | Path) -> dict[str, Any]:
    """Return the options in a YAML file, by dotted name, each with a value of its type.

    `file` is a path, or the name of one of ours. Raises UserError, which names the file, for
    options that are unknown or there twice, and for values of another type.
    """
    path = find_config(file)
    try:
        table = yaml.load(path.read_text(encoding="utf-8"), Texts)
        if table is None:
            raise ValueError("it sets no option")
        if not isinstance(table, dict):
            raise ValueError("it holds no table of options, such as `train: {steps: 500}`")
        layer: dict[str, Any] = {}
        for written, value in flatten(table):
            name = written.replace("-", "_")  # either spelling, as on the command line
            if name in layer:
                raise ValueError(f"{name} is there twice")
            if name == "init_from" and value != "null":
                raise ValueError("init_from is no option of a file: say --init-from RUN instead")
            if name in OPTIONS:
                layer[name] = OPTIONS[name].convert(value)
            elif name not in SECTIONS or value:  # a section may be empty
                raise ValueError(f"there is no option {name}{suggest_name(name, OPTIONS)}")
        check_sources(layer)
        return layer
    except (UserError, ValueError, RecursionError, yaml.YAMLError) as error:
        words = " ".join(describe_bad_yaml(error).split())
        if names_text(str(path)):
            words += f"; to train on this text, say --data.files {shlex.quote(str(path))}"
        raise UserError(f"{path}: {words}") from None


def describe_bad_yaml(error: Exception) -> str:
    """Return what is wrong with a YAML file, with the line if the parser knows it."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    mark = error.problem_mark
    problem = error.problem or error.context
    if mark.buffer and mark.buffer[mark.pointer] == "\t":
        problem = "YAML takes spaces here, and no tab"
    begin = error.context_mark
    if begin is not None and begin.line != mark.line:
        problem = f"{problem}, {error.context} that begins in line {begin.line + 1}"
    return f"line {mark.line + 1}: {problem}"


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


def read_config(path: Path) -> Config:
    """Return the saved configuration of a run. It was checked when it was saved."""
    table = yaml.load(path.read_text(encoding="utf-8"), SafeLoader)
    if table["data"].get("tokenizer") is not None:
        table["data"]["tokenizer"] = str(path.parent)  # the run's own copy
    for section in SECTIONS:
        for name in table[section]:
            if f"{section}.{name}" not in OPTIONS:
                raise UserError(f"{path}: this version of gyre has no option {section}.{name}")
    return msgspec.convert(table, Config)


def require_encoding(run: Path, config: Config) -> None:
    """Raise UserError if POSITIONS no longer has the encoding that a run was trained with.

    Lists of runs do not need it, so `read_config` does not ask.
    """
    position = config.model.position
    if position not in POSITIONS:
        raise UserError(
            f"{run} was trained with model.position {position}, which POSITIONS does not have any "
            "more: put its class and its line back into model/encodings.py"
        )


# --- the command line -----------------------------------------------------------------------------


class AddLists(argparse.Action):
    """Store a list. If the option is given several times, the lists add up; null begins anew."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        if before is not None and values is not None:
            values = before + values
        setattr(namespace, self.dest, values)


class JoinColumns(argparse.Action):
    """Store a column, or the names of several with commas between them."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        if before not in (None, values):
            values = f"{before},{values}"
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser of the fields of dataclasses. Whatever it refuses is a UserError of one sentence.

    Each of `tables` is a group of options, `top_k` as --top-k. A field of type bool is a flag
    without a value, and list[str] an option that can be given several times. With `config` there
    are --config too, and an option for each field of Config, such as --model.dim. Dashes and
    underscores are the same in the name of an option.
    """

    def __init__(self, doc: str | None = None, *tables: type, config: bool = False):
        super().__init__(description=doc, allow_abbrev=False,
                         epilog="In the name of an option, - and _ are the same.",
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        self.tables = tables
        self.options: dict[str, Option] = {}  # by their spelling
        for table in tables:
            self.add_table(table)
        if config:
            self.add_config()

    def add_group(self, cls: type) -> Any:
        """Add a group of options with the first sentence of a dataclass as its title."""
        first_sentence = f"{cls.__doc__}".partition(".")[0]
        return self.add_argument_group(first_sentence)

    def add_table(self, table: type) -> None:
        """Add an option for each field of a dataclass."""
        group = self.add_group(table)
        for option in list_options(table).values():
            spelling = f"--{option.name.replace('_', '-')}"
            if option.hint is bool:
                self.options[spelling] = option
                group.add_argument(spelling, action="store_true")
            elif option.hint == list[str]:
                word = dataclasses.replace(option, hint=str)
                self.add_option(group, spelling, word, action="append", default=[])
            else:
                self.add_option(group, spelling, option, default=option.default)

    def add_config(self) -> None:
        """Add --config, and an option for each field of Config."""
        self.usage = "%(prog)s [--config FILE] [--OPTION VALUE ...]"
        self.add_argument("--config", action="append", default=[], metavar="FILE", help=(
            f"YAML file with any of the options below, or one of ours: {', '.join(OUR_CONFIGS)}."))
        groups = {section: self.add_group(cls) for section, cls in SECTIONS.items()}
        for name, option in OPTIONS.items():
            if name == "init_from":  # --init-from sets it, and takes the model of that run
                continue
            is_list = list[str] in (option.hint, *get_args(option.hint))
            action: Any = AddLists if is_list else "store"
            if name == "data.column":
                action = JoinColumns
            group = groups.get(name.partition(".")[0], self)
            self.add_option(group, f"--{name}", option, action=action,
                            dest=f"given.{name}", default=argparse.SUPPRESS)

    def add_option(self, group: Any, spelling: str, option: Option, **settings: Any) -> None:
        """Add an option that takes a value; `settings` go to argparse's add_argument."""
        self.options[spelling] = option
        group.add_argument(spelling, type=lambda text: option.convert(
            text.replace(TWO_DASHES, "--")), **settings)

    def format_help(self) -> str:
        """Return the help, with that of the options, which nothing else needs."""
        for spelling, option in self.options.items():
            action = self._option_string_actions[spelling]
            action.help = option.help
            action.metavar = show_type(option.hint)
        return super().format_help()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options. `given` is the layer of the fields of Config that were named."""
        words = self.join_values(sys.argv[1:] if args is None else args)
        ordered = words
        if "--" not in words:  # argparse wants all words without an option side by side
            ordered = sorted(words, key=lambda word: word.startswith("-"))
        options, unknown = self.parse_known_args(ordered, namespace)
        if unknown:
            self.error(self.explain(words, unknown))
        for table in self.tables:
            check_ranges(options, cls=table)
        values = vars(options)
        check_names(values)
        options.given = {}
        for name in list(values):
            if name.startswith("given."):
                options.given[name.removeprefix("given.")] = values.pop(name)
        check_sources(options.given)
        return options

    def join_values(self, argv: Sequence[str]) -> list[str]:
        """Return the words with every option spelt as it was declared, and joined to its value.

        So a value may begin with a dash, which argparse itself takes for an option. Raises
        UserError for an option without its value, and for a flag with one.
        """
        spellings: dict[str, argparse.Action] = {}
        for name, action in self._option_string_actions.items():
            dashes = name[:2]
            stem = name[2:]
            spellings[dashes + stem.replace("_", "-")] = action
            spellings[dashes + stem.replace("-", "_")] = action
        words: list[str] = []
        rest = deque(argv)
        while rest:
            word = rest.popleft()
            if word == "--":  # no options behind it
                return [*words, word, *rest]
            name, equals, value = word.partition("=")
            if name not in spellings:
                words.append(word)
                continue
            action = spellings[name]
            name = action.option_strings[-1]
            is_flag = action.nargs == 0
            if is_flag and equals:
                self.error(f"{name} takes no value, and was given {value!r}: say it alone, or "
                           "leave it out")
            if is_flag:
                words.append(name)
                continue
            if not equals:
                if not rest:
                    self.error(f"{name} needs a value")
                value = rest.popleft()
                if value.partition("=")[0] in spellings:
                    self.error(f"{name} needs a value (if {value} is meant to be it: "
                               f"{name}={value})")
            if value == "--":  # argparse would drop it
                value = TWO_DASHES
            words.append(f"{name}={value}")
        return words

    def explain(self, words: list[str], unknown: list[str]) -> str:
        """Return what is wrong with the words of a command line that no option takes."""
        names = self._option_string_actions
        misspelt = [word.partition("=")[0] for word in unknown if re.match(r"-(?![\d.])", word)]
        if misspelt == ["--run"] and self._get_positional_actions():
            return "there is no option --run: name the run without one"
        if misspelt:
            with_hints = []
            for name in misspelt:
                hint = suggest_name(name, names, elsewhere=True)
                with_hints.append(f"{name}{self.suggest_choice(name) or hint}")
            return f"there is no option {', '.join(with_hints)}"
        return self.explain_strays(words, unknown)

    def suggest_choice(self, word: str) -> str:
        """Return a did-you-mean for an option that is a value of another: --smoke, --tier smoke."""
        value = word.lstrip("-")
        takers = self.find_choices(value, set())
        return f" (did you mean {takers[0]} {value}?)" if len(takers) == 1 else ""

    def explain_strays(self, words: list[str], strays: list[str]) -> str:
        """Return what is wrong with those of `words` that follow no option, or one with its value.
        """
        names = self._option_string_actions
        stray = strays[0]
        before = words[words.index(stray) - 1] if stray != words[0] else ""
        name, _, value = before.partition("=")
        hint = self.options[name].hint if name in self.options else None
        given = {word.partition("=")[0] for word in words}
        takes_text = str in (hint, *get_args(hint))
        lacks_prompt = takes_text and "--prompt" in names and "--prompt" not in given
        lacks_arms = not takes_text and "--arms" in names and "--arms" not in given
        is_arm = lacks_arms and stray[0].isalpha()
        if name not in names or lacks_prompt or is_arm or self.is_stray_file(stray, hint):
            return f"{stray} is no option: {self.advise_option(strays, given)}"
        if names[name].nargs == 0:
            return f"{name} takes no value, and {stray} follows it: leave it out"
        advice = advise(name, hint, [value, *strays])
        return f"{name} takes one value, and {stray} follows it: {advice}"

    def is_stray_file(self, word: str, hint: Any) -> bool:
        """Return whether a word after an option of this type is a text or a configuration, and not
        more of the option's value."""
        parts = (hint, *get_args(hint))
        takes_list = any(get_origin(part) is list for part in parts)
        if takes_list or "--config" not in self._option_string_actions:
            return False
        kind = file_kind(word)
        if str in parts and kind == "":  # a folder may have the name of any word
            return False
        return kind in YAML or names_text(word)

    def advise_option(self, strays: list[str], given: set[str]) -> str:
        """Return which options words without one may belong to, besides those that are given."""
        names = self._option_string_actions
        first = shlex.quote(strays[0])
        takers = self.find_choices(strays[0], given)
        if len(takers) == 1 and not os.path.exists(strays[0]):
            return f"did you mean {takers[0]} {first}?"
        if "--config" in names:
            return self.advise_files(strays)
        if "--prompt-file" in names and os.path.isfile(strays[0]):
            return f"did you mean --prompt-file {first}?"
        takers = [f"{name} {first}" for name in ("--run", "--prompt")
                  if name in names and name not in given]
        if not takers:
            return "leave it out"
        return f"did you mean {' or '.join(takers)}?"

    def find_choices(self, word: str, given: set[str]) -> list[str]:
        """Return the options that are not given and of whose few values this word is one."""
        takers = []
        for name, option in self.options.items():
            parts = (option.hint, *get_args(option.hint))
            choices = [choice for part in parts if get_origin(part) is Literal
                       for choice in get_args(part)]
            if word in choices and name not in given:
                takers.append(name)
        own = [name for name in takers if "." not in name]  # those of the command, not of Config
        return own or takers

    def advise_files(self, strays: list[str]) -> str:
        """Return which of --config and --data.files words without an option may belong to."""
        if file_kind(strays[0]) == ".py" and not os.path.exists(strays[0]):  # as nanoGPT has it
            return "a configuration is a YAML file, such as --config shakespeare.yaml"
        is_named = os.path.exists(strays[0]) or file_kind(strays[0]) != ""
        if "--arms" in self._option_string_actions and not is_named:
            return f"did you mean --arms {','.join(strays)}?"
        texts = [word for word in strays if names_text(word)]
        if len(texts) > 2:
            return advise("--data.files", self.options["--data.files"].hint, texts)
        corrected = []
        for word in strays:
            name = "--data.files" if word in texts else "--config"
            corrected.append(f"{name} {shlex.quote(word)}")
        return f"did you mean {' '.join(corrected)}?"

    def error(self, message: str) -> NoReturn:
        missing = message.removeprefix("the following arguments are required: ")
        action = self._option_string_actions.get(missing)
        if missing != message and action is not None and action.choices:
            message = f"{missing} is missing: {', '.join(action.choices)}"
        raise UserError(message.removeprefix("argument "))


# --- options that several commands share ----------------------------------------------------------


@dataclass
class RunOptions:
    """Which weights of a run, and where they run."""

    checkpoint: Literal["best", "last"] = "best"
    """Weights with the lowest validation loss, or the last ones."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""
