"""The command line of every command: one parser, the options that several share, configurations.

A configuration is merged from layers, each over the one before: the defaults of the dataclasses,
the YAML files of --config, a run that is started from or resumed, and the command line.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_type_hints

import docstring_parser
import jsonargparse
import yaml

from errors import UserError
from gyre.config import Config, ConfigDumper
from model.position import POSITIONS

CONFIGS = Path(__file__).parent.parent / "configs"

# jsonargparse names the Python types that it expected; a user reads these words.
EXPECTED = re.compile(r"Expected a (?:<class '(\w+)'>|typing\.Literal\[(.*?)\])")
TYPES = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text",
         "list": "a list"}

jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)


class _HelpFormatter(jsonargparse.DefaultHelpFormatter):
    """The description with its examples as lines and the rest filled; after the help of each option
    its type, and its default where it has one."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(part if part.startswith(" ") else textwrap.fill(part, width)
                           for part in text.split("\n\n"))

    def _get_help_string(self, action: argparse.Action) -> str:
        text = super()._get_help_string(action)
        if action.default in (None, []) or action.nargs == 0:
            text = re.sub(r" \(default: %\(default\)s\)|, default: %\(default\)s", "", text)
        return text


class Parser(jsonargparse.ArgumentParser):
    """A parser of options that takes whole names only. Whatever it refuses is a UserError of one
    sentence, with the nearest name for a misspelling."""

    def __init__(self, description: str = "", **settings: Any):
        settings.setdefault("formatter_class", _HelpFormatter)
        super().__init__(description=description, allow_abbrev=False, **settings)

    def add_fields(self, *classes: type, heading: str | None = None) -> None:
        """One option for each field of dataclasses, `top_k` as --top-k: its type and its default,
        and its attribute docstring as the help.

        A field of type bool is a flag without a value, and list[str] an option that can be given
        several times. `heading` is that of a group of their own in the help.
        """
        group = self if heading is None else self.add_argument_group(heading)
        for cls in classes:
            types, parsed = get_type_hints(cls), docstring_parser.parse_from_object(cls)
            helps = {param.arg_name: _one_line(param.description) for param in parsed.params}
            for field in dataclasses.fields(cls):
                settings: dict[str, Any] = {"type": types[field.name], "default": field.default}
                if settings["type"] is bool:
                    settings = {"action": "store_true"}
                elif settings["type"] == list[str]:
                    settings = {"action": "append", "default": []}
                option = "--" + field.name.replace("_", "-")
                group.add_argument(option, help=helps[field.name], **settings)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise UserError(self._sentence(message, ex))

    def _sentence(self, message: str, error: Exception | None) -> str:
        """jsonargparse's message, which may have many lines, in one sentence."""
        subject, _, reason = message.partition(":")
        if subject == "unrecognized arguments":
            word = reason.split()[0].partition("=")[0]
            return self._unknown(word) if word[0] == "-" else f"unexpected argument {word!r}"
        if isinstance(error, KeyError):  # Group 'model' does not accept option 'positon'
            return self._unknown(".".join(re.findall(r"'(.*?)'", message)))
        if subject.startswith("argument "):  # of argparse itself
            option, value = subject.removeprefix("argument "), reason.rpartition(": ")[2]
            if found := re.match(" invalid (int|float) value", reason):
                return f"{option} must be {TYPES[found[1]]}, not {value[1:-1]}"
            if reason == " expected one argument":
                reason += f" (one that begins with - is written {option}=-...)"
            return _one_line(f"{option}:{reason}")
        typed = {a.dest: (*a.option_strings, a.metavar or a.dest)[0] for a in self._actions}
        if subject.endswith("required"):
            missing = ", ".join(str(typed.get(dest, dest)) for dest in reason.strip().split(", "))
            return f"{subject}: {missing}"
        if not subject.startswith("Parser key"):
            return _one_line(message)
        dest = subject.split('"')[1]
        option = str(typed.get(dest, dest))
        inner = next((e for e in _causes(error) if isinstance(e, UserError)), None)
        if inner is not None:  # of the parser of a dataclass that is the value of this option
            words = str(inner)
            if words.startswith("--"):
                return f"{option}.{words[2:]}"
            if words.startswith("there is no option"):
                return re.sub("(option |mean )(--)?", rf"\1{option}.", words)
            return f"{option}: {words.replace(' --', ' ')}"
        value = _one_line(reason.rpartition("alue: ")[2])  # "Got value: 3" or "Given value: 3"
        expected = [TYPES.get(name, name) or " or ".join(values.rsplit(", ", 1))
                    for name, values in EXPECTED.findall(reason) if name != "NoneType"]
        if "Does not validate against any" in reason and not expected:
            expected = ["a table of its fields"]
        if not expected:
            return f"{option}: {reason.strip().splitlines()[0]}"
        return f"{option} must be {' or '.join(expected)}, not {value}"

    def check_file(self, file: Path) -> None:
        """UserError for what a file of --config says without effect, or cannot mean: an option of
        the command such as --resume, an unknown section, a null where there is no such value."""
        try:
            values = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
            raise UserError(f"it cannot be read as YAML: {_one_line(error)}") from None
        if not isinstance(values, dict):
            raise UserError("it holds no table of options")
        for name in values:
            section = str(name).partition(".")[0]
            if f"--{name}" in self._option_string_actions and section not in get_type_hints(Config):
                raise UserError(f"{name} is no option of a file: say --{name} on the command line")
        self._check_table(values, Config, "")

    def _check_table(self, values: dict[Any, Any], cls: type, prefix: str) -> None:
        hints = get_type_hints(cls)
        for key, value in values.items():
            name, (first, _, rest) = f"{prefix}{key}", str(key).partition(".")
            hint = hints.get(first)
            if hint is None:
                while isinstance(value, dict) and value:
                    key, value = next(iter(value.items()))
                    name += f".{key}"
                raise UserError(self._unknown(name))
            if dataclasses.is_dataclass(hint):
                table = {rest: value} if rest else value
                if not isinstance(table, dict):
                    raise UserError(f"{name} must be a table of its fields, not {value}")
                assert isinstance(hint, type)
                self._check_table(table, hint, f"{prefix}{first}.")
            elif value is None and NoneType not in get_args(hint):
                raise UserError(f"{name} must not be null: leave it out for its default")

    def _unknown(self, word: str) -> str:
        """That there is no such option, and which one is most like it: compared in full first, and
        then by what follows the last dot."""
        options = [s[2:] for a in self._actions for s in a.option_strings
                   if s.startswith("--") and s != "--init_from"]  # which only a run's file says
        dashes, name = "--" if word.startswith("-") else "", word.lstrip("-")
        last = {option.rpartition(".")[2]: option for option in reversed(options)}
        close = difflib.get_close_matches(name, options, n=1) or [
            last[end] for end in difflib.get_close_matches(name.rpartition(".")[2], last, n=1)
        ]
        nearest = f" (did you mean {dashes}{close[0]}?)" if close else ""
        return f"there is no option {word}{nearest}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and everything that led to it, the latest first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


# --- options that several commands share ---------------------------------------------------------


@dataclass
class RunOptions:
    """What every command about a finished run asks."""

    checkpoint: Literal["best", "last"] = "best"
    """Weights with the lowest validation loss, or the last ones."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""


# --- configurations -------------------------------------------------------------------------------


class ConfigParser(argparse.ArgumentParser):
    """The options that a command has beside --config and the fields of Config."""

    def error(self, message: str) -> NoReturn:
        Parser().error(message)

    def split(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """What `argv` gives for these options, with `config`, the list of files; and the words that
        are about Config. For a command that has to know its options before `load_config`."""
        first = ConfigParser(parents=[self], add_help=False, allow_abbrev=False)
        first.add_argument("--config", action="append", default=[])
        return first.parse_known_args(argv)

    def full(self) -> Parser:
        """A parser of these options, --config, and every field of Config, such as --model.dim."""
        parser = Parser(self.description or "", parents=[self], usage=(
            "python %(prog)s [--config FILE] [--OPTION VALUE ...]\n"
            "       OPTION is any of those below, such as model.dim or seed"
        ))
        parser.add_argument(
            "--config", action="config", metavar="FILE",
            help="YAML file with any of the options below, by dotted name, or one of ours: "
            + ", ".join(_our_configs()),
        )
        parser.add_class_arguments(Config)
        for action in parser._actions:  # what --init-from says, and a whole section as one value
            hint = get_type_hints(Config).get(action.dest)
            if action.dest == "init_from" or dataclasses.is_dataclass(hint):
                action.help = argparse.SUPPRESS
        return parser


def config_parser(description: str = "") -> ConfigParser:
    """A parser for `load_config`; a command adds its own options with `add_argument`."""
    return ConfigParser(description=description, add_help=False, allow_abbrev=False)


def load_config(
    parser: ConfigParser, argv: Sequence[str], base: Mapping[str, Any] | None = None
) -> tuple[Config, argparse.Namespace]:
    """The configuration that `argv` describes, and the command's own options.

    `base` holds values that stand over the files of --config and under the rest of `argv`, such as
    {"model": {"dim": 64}, "seed": 2}. Raises UserError for whatever does not parse, does not fit
    its type or cannot be built; a mistake in a file is told with the name of the file.
    """
    options, words = parser.split(argv)
    for word in words:
        if word.encode(errors="ignore").decode() != word:
            raise UserError(f"{word!a} is not UTF-8, and so no part of a configuration: rename it")
    full = parser.full()
    layers = [str(find_config(name)) for name in options.config]
    for file in layers:
        try:
            full.check_file(Path(file))
            position = full.parse_path(file)["model.position"]
            if position not in POSITIONS:
                raise UserError(f"model.position must be one of {', '.join(POSITIONS)}")
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
    if base:
        layers.append(yaml.dump(base, Dumper=ConfigDumper, allow_unicode=True))
    argv = [*(f"--config={layer}" for layer in layers), *words]
    if asked := {"-h", "--help"}.intersection(words):  # for help, which shows the values
        values = full.parse_args([word for word in argv if word not in asked], defaults=False)
        shown = {a.dest for a in full._actions if a.help != argparse.SUPPRESS} - {"config"}
        full.set_defaults({name: values[name] for name in shown if name in values})
    parsed = full.parse_args(argv)
    try:
        values = full.instantiate(parsed)
        return Config(**{f.name: values[f.name] for f in dataclasses.fields(Config)}), options
    except ValueError as error:  # model/ knows no exceptions of ours
        *_, first = _causes(error)
        raise UserError(_one_line(first)) from None


def load_file(path: Path) -> Config:
    """The configuration in a YAML file alone, strictly typed. Raises UserError that names it."""
    return load_config(config_parser(), ["--config", str(path)])[0]


def find_config(name: str | Path) -> Path:
    """A path as it is, or the name of one of our own configs, from any directory.

    Raises UserError that lists what there is.
    """
    for candidate in (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    ours = ", ".join(_our_configs())
    raise UserError(f"no config {str(name)!r}, neither as a path nor among ours: {ours}")


def _our_configs() -> list[str]:
    return sorted(path.name for path in CONFIGS.glob("*.yaml"))
