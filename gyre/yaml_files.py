"""Configurations in YAML files: ours, yours, and those of runs."""

import glob
import os
import shlex
from pathlib import Path
from typing import Any

import msgspec
import yaml

from data.kinds import PLAIN, TABLES, file_kind
from data.sources import check_sources
from errors import UserError, did_you_mean
from gyre.options import OPTIONS, SECTIONS, Config, Texts, flatten
from gyre.suggest import find_option, suggest_name
from model.encodings import POSITIONS

# libyaml's is five to seven times as fast. PyYAML may be built without it.
SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CONFIGS = Path(__file__).parent.parent / "configs"
YAML = (".yaml", ".yml")
# Options of train.py that name a run or a file. They stand on the command line only.
ARGUMENTS = ("at", "branch_from", "config", "init_from", "resume")
OUR_CONFIGS = sorted(path.name for path in CONFIGS.glob("*.yaml"))


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
            option = find_option(name, [*ARGUMENTS, *OPTIONS])
            if option in ARGUMENTS and (name, value) != ("init_from", "null"):
                raise ValueError(f"{name} is no option of a file: it is one of train.py's command "
                                 f"line, --{option.replace('_', '-')}")
            if name in OPTIONS:
                is_null = value == "" and OPTIONS[name].can_be_null  # in YAML, nothing is null
                layer[name] = None if is_null else OPTIONS[name].convert(value)
            elif name not in SECTIONS or value not in ("", "null", {}):  # a section may be empty
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
    require_position(f"{run} was trained", config.model.position)


def require_position(what: str, position: str) -> None:
    """Raise UserError if POSITIONS lacks an encoding. `what` needs it, as in "x was trained"."""
    if position not in POSITIONS:
        raise UserError(f"{what} with model.position {position}, which POSITIONS does not have any "
                        "more: put its class and its line back into model/encodings.py")
