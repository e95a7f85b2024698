"""The configuration of a run, and the command line and YAML that it is read from.

A configuration is made of layers, each over the one before: the defaults of the dataclasses, YAML
files, the run that training starts from, the command line. A layer is a dict of sections, such as
{"model": {"dim": 64}, "seed": 2}, or of dotted names, such as {"model.dim": 64, "seed": 2}. One
function, `convert`, gives every value its type.
"""

import argparse
import dataclasses
import functools
import reprlib
import shlex
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import docstring_parser
import msgspec
import yaml

from data.dataset import DataConfig
from data.sources import AUTO, Fitted
from errors import Range, UserError, check_range, check_ranges, closest, did_you_mean
from gyre.device import Dtype
from gyre.optim import OptimConfig
from gyre.parallel import Shard
from gyre.wandb_log import LogConfig
from model.config import ModelConfig
from model.position import POSITIONS, check_position

CONFIGS = Path(__file__).parent.parent / "configs"
OURS = ", ".join(sorted(path.name for path in CONFIGS.glob("*.yaml")))


@dataclass
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
    """Rows per forward pass of one process; fewer need less memory and change nothing else. Unset:
    the whole share of the process at once."""
    eval_interval: Annotated[Fitted, Range(ge=1)] = 250
    """Steps between validations, checkpoints and samples; the last step always has all three. auto:
    a third of the steps, at most the number that the configuration has."""
    keep: list[int] = field(default_factory=list)
    """Steps whose checkpoints are kept, for --branch-from, beside the last and the best."""
    sample_prompt: str = ""
    """What the samples during training continue. Empty: the first words of the text."""
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
    shard: Annotated[Shard, Range(ge=1)] = "none"
    """Over how many processes every weight, gradient and moment is sharded: none (each process has
    all of them), full (over all processes), or a number of processes, such as those of one
    machine. One process is never sharded."""
    timeout: Annotated[float, Range(gt=0, le=1e6)] = 600.0
    """Seconds that a process waits for the others before it gives up."""


@dataclass(kw_only=True)
class Config:
    """A whole run. `make_config` fills in and checks what one part takes from another."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    log: LogConfig = field(default_factory=LogConfig)
    name: str | None = None
    """Name of the run, and of its folder. Unset: the config file's name, the encoding and the
    seed."""
    init_from: str | None = None
    """Run whose weights this one starts from; set by --init-from RUN, which takes its model and its
    tokenizer too."""
    seed: Annotated[int, Range(ge=0, lt=2**63)] = 1
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
    for name, value in flatten(merged):
        if value == AUTO and OPTIONS[name]["type"].args == (Fitted,):
            raise UserError(f"{name} auto is for a new run of train.py: give a number")
    try:
        config = msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        raise UserError(str(error)) from None
    model, data, optim, train = config.model, config.data, config.optim, config.train
    check_position(model)
    data.check()
    optim.check()
    if model.vocab_size is None:  # one embedding for each piece of the tokenizer
        model.vocab_size = data.vocab_size
    extrapolates, scaling = POSITIONS[model.position].extrapolates, model.rope_scaling
    if scaling is not None and scaling.original_positions is None:
        scaling.original_positions = data.seq_len
    if model.max_positions is None:
        reach = scaling.reach if scaling is not None else 0
        model.max_positions = max(data.seq_len * (4 if extrapolates else 1), reach)
    check_range("model.vocab_size", model.vocab_size, Range(ge=data.vocab_size))
    check_ranges(train, "train.")
    check_range("train.sample_tokens", train.sample_tokens, Range(ge=0, lt=model.max_positions))
    check_range("optim.warmup_steps", optim.warmup_steps, Range(ge=0, le=train.steps))
    check_ranges(config)
    for wrong, message in (
        (any(not 1 <= step <= train.steps for step in train.keep),
         f"train.keep {train.keep} names steps that train.steps {train.steps} does not have"),
        (model.max_positions < data.seq_len,
         f"model.max_positions {model.max_positions} is shorter than data.seq_len {data.seq_len}: "
         "lower data.seq_len"),
        (model.max_positions > data.seq_len and not extrapolates,
         f"model.max_positions {model.max_positions} is longer than data.seq_len {data.seq_len}: "
         f"with model.position {model.position} positions past that would never be trained"),
    ):
        if wrong:
            raise UserError(message)
    return config


def merge(target: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Put the values of a layer over those of `target`, section by section."""
    for name, value in layer.items():
        name, dot, rest = name.partition(".")
        if dot:
            value = {rest: value}
        if isinstance(value, Mapping):
            target[name] = target.get(name) or {}
            merge(target[name], value)
        else:
            target[name] = value


# --- options and their types ----------------------------------------------------------------------


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
    return {bool: "true|false", str: "text"}.get(hint) or getattr(hint, "__name__", str(hint))


def convert(hint: Any, value: Any, option: str) -> Any:
    """Return a text, or a list of texts, as a value of this type. null becomes None if that fits.

    Raises UserError, which names the option and its type.
    """
    if hint == Fitted and value == AUTO:
        return AUTO
    try:
        if isinstance(value, str):
            value.encode()  # an argument that is not UTF-8 cannot be stored
            if "\0" in value:
                raise ValueError("no path may hold a NUL")
        if value == "null" and NoneType in get_args(hint):
            return None
        takes_list = any(get_origin(part) is list for part in (hint, *get_args(hint)))
        if takes_list and isinstance(value, str):
            value = yaml.load(value, Texts) if value.startswith("[") else [value]
        if float in (hint, *get_args(hint)) and isinstance(value, str):
            value = float(value)  # msgspec takes JSON's numbers only, and not .5
        return msgspec.convert(value, hint, strict=False)
    except (ValueError, RecursionError, yaml.YAMLError):
        shown = reprlib.repr(value)
        quote = ": quote its globs, as in ['*.md', b.txt]" if "[*" in shown else ""
        raise UserError(f"{option} must be {show_type(hint)}, not {shown}{quote}") from None


def drop_range(hint: Any) -> Any:
    """Return the type of an option without its range: Annotated[Fitted, Range(ge=1)] -> Fitted."""
    if get_origin(hint) is not Annotated:
        return hint
    plain, *notes = get_args(hint)
    return Fitted if AUTO in notes else plain


def list_options(cls: type, prefix: str = "") -> dict[str, dict[str, Any]]:
    """Return the fields of a dataclass, and those of dataclasses in it, by dotted name.

    Of each, what argparse's add_argument takes: help, default, and type, which converts a text.
    """
    types, options = get_type_hints(cls, include_extras=True), {}
    docs = {p.arg_name: p.description for p in docstring_parser.parse_from_object(cls).params}
    for item in dataclasses.fields(cls):
        name, hint, default = prefix + item.name, drop_range(types[item.name]), item.default
        table = next(filter(dataclasses.is_dataclass, (hint, *get_args(hint))), None)
        if table is not hint:
            text = " ".join((docs.get(item.name) or "").split()).replace("%", "%%")
            if isinstance(default, str | int | float) and default is not False and default != "":
                text += f" (default: {default})"
            options[name] = {"help": text, "default": default,
                             "type": functools.partial(convert, hint, option=name)}
        if table is not None:
            options |= list_options(table, f"{name}.")
    return options


SECTIONS = {name: cls for name, cls in get_type_hints(Config).items()
            if dataclasses.is_dataclass(cls)}
OPTIONS = list_options(Config)


# Words of other repositories for our options.
HABITS = {
    "data.files": "data data_dir data_path dataset input text train_file",
    "data.seq_len": "block_size context_length ctx_len max_seq_len seq_length sequence_length",
    "data.vocab_size": "n_vocab vocab vocab_size",
    "init_from": "model_name_or_path pretrained",
    "log.runs": "out_dir output_dir save_dir",
    "model.dim": "d_model emb_dim hidden_size n_embd",
    "model.hidden_dim": "ffn_dim intermediate_size",
    "model.n_heads": "n_head num_attention_heads num_heads",
    "model.n_kv_heads": "n_kv_head num_key_value_heads",
    "model.n_layers": "depth n_layer num_hidden_layers num_layers",
    "model.theta": "rope_theta",
    "name": "exp_name run_name wandb_run_name",
    "optim.final_lr": "min_lr",
    "optim.grad_clip": "clip max_grad_norm",
    "optim.lr": "learning_rate max_lr",
    "optim.schedule": "decay_lr lr_decay lr_scheduler_type",
    "optim.warmup_steps": "warmup warmup_iters",
    "resume": "resume_from resume_from_checkpoint",
    "train.eval_interval": "eval_every eval_steps save_steps",
    "train.micro_batch_size": "device_batch_size gradient_accumulation_steps "
                              "per_device_train_batch_size",
    "train.sample_prompt": "prompt start",
    "train.sample_tokens": "max_new_tokens",
    "train.steps": "epochs iters max_epochs max_iters max_steps num_epochs num_iterations "
                   "num_train_epochs",
    "max_new_tokens": "length max_length max_tokens n_predict num_tokens",
    "num_samples": "n_samples num_return_sequences",
    "prompt": "input start text",
    "run": "checkpoint_path ckpt ckpt_path model model_name_or_path model_path",
    "temperature": "temp",
}


def nearest(word: str, names: Iterable[str]) -> str:
    """Return a did-you-mean for a misspelt option, or for the word of another repository.

    Options are compared by the part after their section, with dashes as underscores.
    """
    plain = {name.lstrip("-").replace("-", "_"): name for name in names}
    by_last_part = {option.rpartition(".")[2]: option for option in plain}
    wanted = word.lstrip("-").replace("-", "_").rpartition(".")[2]
    habits = [ours for ours, words in HABITS.items() if wanted in words.split()]
    option = next((ours for ours in habits if ours in plain), None)
    if option is None:
        last_part = closest(wanted, by_last_part)
        option = by_last_part[last_part] if last_part else None
    return f" (did you mean {plain[option]}?)" if option else ""


def advise(name: str, hint: Any, values: list[str]) -> str:
    """Return what to do about several words after an option of this type."""
    parts = (hint, *get_args(hint))
    if any(get_origin(part) is list for part in parts):
        shown = ", ".join(values) if len(values) <= 2 else f"{values[0]}, {values[1]}, ..."
        as_list = f"give a list, as in {name} '[{shown}]'"
        first = Path(values[0])
        if not first.exists():
            return as_list
        glob = first.with_name(f"*{first.suffix}")  # that the shell may have expanded
        return f"quote a glob, as in {name} '{glob}', or {as_list}"
    if str in parts:
        return f"quote it, as in {name} {shlex.quote(' '.join(values))}"
    return "leave it out"


# --- YAML -----------------------------------------------------------------------------------------


def read_yaml(name: str | Path) -> dict[str, Any]:
    """Return the layer in a YAML file: a path, or the name of one of ours.

    Raises UserError, which names the file, for unknown options and values of another type.
    """
    candidates = (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml")
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        beside = [str(file) for file in Path(name).parent.glob("*.y*ml")]
        hint = did_you_mean(str(name), [*OURS.split(", "), *beside])
        raise UserError(f"no config {name}{hint}, neither as a path nor among ours: {OURS}")
    layer: dict[str, Any] = {}
    try:
        table = yaml.load(path.read_text(encoding="utf-8"), Texts)
        if not isinstance(table, dict):
            raise ValueError("it holds no table of options")
        for written, value in flatten(table):
            option = written.replace("-", "_")  # either spelling, as on the command line
            if option in layer:
                raise ValueError(f"{option} is there twice")
            if option == "init_from" and value != "null":
                raise ValueError("init_from is no option of a file: say --init-from RUN instead")
            if option in OPTIONS:
                layer[option] = OPTIONS[option]["type"](value)
            elif option not in SECTIONS or value:  # a section may be empty
                raise ValueError(f"there is no option {option}{nearest(option, OPTIONS)}")
    except (UserError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    return layer


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in a table, and in tables in it, by dotted name."""
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


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
    table = yaml.safe_load(path.read_text(encoding="utf-8"))
    if table["data"].get("tokenizer") is not None:
        table["data"]["tokenizer"] = str(path.parent)  # the run's own copy
    for section in SECTIONS:
        for name in table[section]:
            if f"{section}.{name}" not in OPTIONS:
                raise UserError(f"{path}: this version of gyre has no option {section}.{name}")
    return msgspec.convert(table, Config)


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


class Parser(argparse.ArgumentParser):
    """A parser of the fields of dataclasses. Whatever it refuses is a UserError of one sentence.

    Each of `tables` is a group of options, `top_k` as --top-k. A field of type bool is a flag
    without a value, and list[str] an option that can be given several times. With `config` there
    are --config too, and an option for each field of Config, such as --model.dim. Dashes and
    underscores are the same in the name of an option.
    """

    def __init__(self, doc: str | None = None, *tables: type, config: bool = False):
        self.tables = tables
        super().__init__(description=doc, allow_abbrev=False,
                         epilog="In the name of an option, - and _ are the same.",
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        for table in tables:
            group = self.add_argument_group(f"{table.__doc__}".partition(".")[0])
            for name, settings in list_options(table).items():
                (hint,) = settings["type"].args
                if hint is bool:
                    settings = dict[str, Any](help=settings["help"], action="store_true")
                elif hint == list[str]:
                    settings |= {"action": "append", "default": [],
                                 "type": functools.partial(convert, str, option=name)}
                group.add_argument(f"--{name.replace('_', '-')}", **settings)
        if config:
            self.usage = "%(prog)s [--config FILE] [--OPTION VALUE ...]"
            self.add_argument("--config", action="append", default=[], metavar="FILE", help=(
                f"YAML file with any of the options below, or one of ours: {OURS}."))
            groups = {name: self.add_argument_group(f"{cls.__doc__}".partition(".")[0])
                      for name, cls in SECTIONS.items()}
            for name, settings in OPTIONS.items():
                if name != "init_from":  # --init-from sets it, and takes the model of that run
                    (hint,) = settings["type"].args
                    is_list = list[str] in (hint, *get_args(hint))
                    group = groups.get(name.partition(".")[0], self)
                    group.add_argument(f"--{name}", **settings | {
                        "action": AddLists if is_list else "store",
                        "dest": f"given.{name}", "default": argparse.SUPPRESS})

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
        options.given = {name.removeprefix("given."): values.pop(name)
                         for name in [*values] if name.startswith("given.")}
        return options

    def join_values(self, argv: Sequence[str]) -> list[str]:
        """Return the words with every option spelt as it was declared, and joined to its value.

        So a value may begin with a dash, which argparse itself takes for an option. Raises
        UserError for an option without its value, and for a flag with one.
        """
        spellings: dict[str, argparse.Action] = {}
        for name, action in self._option_string_actions.items():
            stem = name[2:]
            for spelling in (stem, stem.replace("_", "-"), stem.replace("-", "_")):
                spellings[name[:2] + spelling] = action
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
            is_flag = spellings[name].nargs == 0
            name = spellings[name].option_strings[-1]
            if is_flag and equals:
                self.error(f"{name} takes no value, and was given {value!r}: say it alone, or "
                           "leave it out")
            if is_flag:
                words.append(name)
                continue
            if not equals and not rest:
                self.error(f"{name} needs a value")
            if not equals and rest[0].partition("=")[0] in spellings:
                self.error(f"{name} needs a value (if {rest[0]} is meant to be it: "
                           f"{name}={rest[0]})")
            words.append(f"{name}={value if equals else rest.popleft()}")
        return words

    def explain(self, words: list[str], unknown: list[str]) -> str:
        """Return what is wrong with the words of a command line that no option takes."""
        names = self._option_string_actions
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        if options:
            return f"there is no option {', '.join(o + nearest(o, names) for o in options)}"
        stray = unknown[0]
        before = words[words.index(stray) - 1] if stray != words[0] else ""
        name, _, value = before.partition("=")
        action = names.get(name)
        if action is None:
            takers = [f"{taker} {shlex.quote(stray)}"
                      for taker in ("--config", "--run", "--prompt") if taker in names]
            advice = f"did you mean {' or '.join(takers)}?" if takers else "leave it out"
            return f"{stray} is no option: {advice}"
        if action.nargs == 0:
            return f"{name} takes no value, and {stray} follows it: leave it out"
        converter: Any = action.type
        hint = converter.args[0] if isinstance(converter, functools.partial) else None
        advice = advise(name, hint, [value, *unknown])
        return f"{name} takes one value, and {stray} follows it: {advice}"

    def format_help(self) -> str:
        """Return the help, with the type of each option that takes a value."""
        for action in self._actions:
            if isinstance(action.type, functools.partial):  # of `convert`
                action.metavar = show_type(action.type.args[0])
        return super().format_help()

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
