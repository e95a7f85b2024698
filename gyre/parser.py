"""The command line, made of the fields of dataclasses."""

import argparse
import dataclasses
import os
import re
import shlex
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, get_args, get_origin

from data.kinds import file_kind
from data.sources import check_sources
from errors import UserError, check_ranges
from gyre.options import OPTIONS, SECTIONS, Option, list_options, show_type
from gyre.suggest import advise, suggest_name
from gyre.yaml_files import OUR_CONFIGS, YAML, names_text

TWO_DASHES = "-\u2060-"
"""Stands for the value `--` while argparse parses: `join_values` puts it there, and `add_option`
takes it for `--` again. There is an invisible character in it."""

# What the options that name a file, a folder or a run are called in a message.
NAMES = {"run": "--run", "runs": "RUN", "source": "FROM", "target": "OUT", "config": "--config",
         "given.name": "--name", "given.log.runs": "--log.runs",
         "given.data.files": "--data.files", "given.data.prepared": "--data.prepared",
         "given.data.tokenizer": "--data.tokenizer", "given.data.url": "--data.url",
         "given.data.hub": "--data.hub", "plot": "--plot", "json": "--json",
         "beside": "--beside", "baseline": "--baseline", "scheduler": "--scheduler"}


def with_underscores(option: str) -> str:
    """Return an option with _ for each - behind the two at its start: both may be written."""
    return option[:2] + option[2:].replace("-", "_")


def refuse_empty_names(values: Mapping[str, Any]) -> None:
    """Raise UserError for an empty name, which a path would take for the working directory."""
    for option, shown in NAMES.items():
        value = values.get(option)
        if value == "" or (isinstance(value, list) and "" in value):
            raise UserError(f"{shown} '' names nothing: give a name (perhaps a variable of the "
                            "shell is not set)")


class AddLists(argparse.Action):
    """Store a list. If the option is given several times, the lists add up. null, of an option that
    can be unset, begins anew."""

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
        is_again = values == before  # perhaps a name with a comma in it
        if before is not None and not is_again:
            # A name may be given twice: `split_column` then takes it once.
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
            is_list = any(get_origin(part) is list
                          for part in (option.hint, *get_args(option.hint)))
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
            "--" if text == TWO_DASHES else text), **settings)

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
        if "--" not in words:
            # argparse wants all words without an option side by side. They are moved to the front.
            ordered = sorted(words, key=lambda word: word.startswith("-"))
        options, unknown = self.parse_known_args(ordered, namespace)
        unknown = [word for word in unknown if word != "--"]
        if unknown:
            self.error(self.explain(words, unknown))
        for table in self.tables:
            check_ranges(options, cls=table)
        values = vars(options)
        refuse_empty_names(values)
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
            spellings[with_underscores(name)] = action
        words: list[str] = []
        rest = deque(argv)
        while rest:
            word = rest.popleft()
            if word == "--":  # no options behind it
                return [*words, word, *rest]
            name, equals, value = word.partition("=")
            if with_underscores(name) not in spellings:
                words.append(word)
                continue
            action = spellings[with_underscores(name)]
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
        named = {word.partition("=")[0] for word in words}
        if name not in names or self.belongs_elsewhere(stray, hint, named):
            return f"{stray} is no option: {self.advise_option(strays, named)}"
        if names[name].nargs == 0:
            return f"{name} takes no value, and {stray} follows it: leave it out"
        advice = advise(name, hint, [value, *strays])
        return f"{name} takes one value, and {stray} follows it: {advice}"

    def belongs_elsewhere(self, word: str, hint: Any, named: set[str]) -> bool:
        """Return whether a word behind the value of an option of this type is meant for an option
        that is not `named`, and not for this one."""
        names = self._option_string_actions
        takes_text = str in (hint, *get_args(hint))
        if takes_text and "--prompt" in names and "--prompt" not in named:
            return True
        may_be_arm = not takes_text and word[:1].isalpha()
        if may_be_arm and "--arms" in names and "--arms" not in named:
            return True
        return self.is_stray_file(word, hint)

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

    def advise_option(self, strays: list[str], named: set[str]) -> str:
        """Return which options words without one may belong to, besides those that are named."""
        names = self._option_string_actions
        first = shlex.quote(strays[0])
        takers = self.find_choices(strays[0], named)
        if len(takers) == 1 and not os.path.exists(strays[0]):
            return f"did you mean {takers[0]} {first}?"
        if "--config" in names:
            return self.advise_files(strays)
        if "--prompt-file" in names and os.path.isfile(strays[0]):
            return f"did you mean --prompt-file {first}?"
        takers = [f"{name} {first}" for name in ("--run", "--prompt")
                  if name in names and name not in named]
        if not takers:
            return "leave it out"
        return f"did you mean {' or '.join(takers)}?"

    def find_choices(self, word: str, named: set[str]) -> list[str]:
        """Return the options that are not named and of whose few values this word is one."""
        takers = []
        for name, option in self.options.items():
            parts = (option.hint, *get_args(option.hint))
            choices: list[Any] = []
            for part in parts:
                if get_origin(part) is Literal:
                    choices += get_args(part)
            if word in choices and name not in named:
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
