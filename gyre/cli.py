"""The command line: one parser for all commands."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import jsonargparse

from errors import UserError
from gyre.config import Config, find_config


class _Parser(jsonargparse.ArgumentParser):
    """Errors in one sentence, with the nearest name for a misspelling."""

    def error(self, message, ex=None):
        text = _first_reason(message)
        unknown = re.search(r"unrecognized arguments: --([\w.-]+)", text)
        inside = re.search(r"Group '(.*)' does not accept option '(.*)'", text)
        word = unknown.group(1) if unknown else ".".join(inside.groups()) if inside else None
        nearest = _nearest(word, self._option_names()) if word else None
        raise UserError(text + (f" (did you mean {nearest}?)" if nearest else ""))

    def _option_names(self) -> list[str]:
        return [s[2:] for a in self._actions for s in a.option_strings if s.startswith("--")]


def _nearest(word: str, names: list[str]) -> str | None:
    """The option most like `word`, compared in full first and then by what follows the last dot."""
    by_last = {name.rpartition(".")[2]: name for name in reversed(names)}
    for candidate, known in ((word, {n: n for n in names}), (word.rpartition(".")[2], by_last)):
        close = difflib.get_close_matches(candidate, known, n=1, cutoff=0.6)
        if close:
            return known[close[0]]
    return None


def config_parser(description: str) -> jsonargparse.ArgumentParser:
    """A command-line parser that knows --config and every field of Config."""
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = _Parser(description=description)
    parser.add_argument(
        "--config", action="config", help="YAML file with any of the options below, by dotted name."
    )
    parser.add_class_arguments(Config)
    return parser


def parse(parser: jsonargparse.ArgumentParser, argv: list[str]) -> tuple[Config, dict]:
    """The configuration that `argv` describes, and the options that are not part of it.

    Raises UserError for whatever does not parse, does not fit its type or cannot be built.
    """
    argv = [part for word in argv for part in _split_config(word)]
    for i, word in enumerate(argv[:-1]):
        if word == "--config":
            argv[i + 1] = str(find_config(argv[i + 1]))
            try:
                parser.parse_path(argv[i + 1])
            except UserError as error:  # once by itself, to say in which file the mistake is
                raise UserError(f"{argv[i + 1]}: {error}") from None
    parsed = parser.parse_args(argv)
    try:
        values = parser.instantiate(parsed).as_dict()
        fields = {f.name: values.pop(f.name) for f in dataclasses.fields(Config)}
        return Config(**fields), values
    except ValueError as error:  # model/ knows no exceptions of ours
        raise UserError(_first_reason(error)) from None


def _first_reason(message: object) -> str:
    """jsonargparse's message in one line and in a user's words: options instead of parser keys, no
    Python classes, and no "not None either" about what may be unset."""
    text = " ".join(str(message).split())
    text = re.sub(r"Does not validate against any of the Union subtypes .*? Errors: - ", "", text)
    text = re.sub(r" - Expected a <class 'NoneType'>.*", "", text)
    text = re.sub(r" - Expected a (?=typing)", " or ", text)
    text = re.sub(r"<class '(\w+)'>", r"\1", text)
    text = re.sub(r"typing\.Literal\[(.*?)\]", r"value of \1", text)
    return re.sub(r'Parser key "(.*?)"', r"--\1", text)


def _split_config(word: str) -> list[str]:
    return word.split("=", 1) if word.startswith("--config=") else [word]


def load_file(path: Path) -> Config:
    """The configuration in a YAML file alone, strictly typed."""
    return parse(config_parser(""), ["--config", str(path)])[0]


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see --help)")


def add_weights_and_device(add: Callable[..., object]) -> None:
    """The options that every program about a finished run has."""
    add(
        "--checkpoint",
        choices=["best", "last"],
        default="best",
        help="Weights with the lowest validation loss, or the last ones. Default: best.",
    )
    add(
        "--device",
        default="auto",
        help="auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps. Default: auto.",
    )
