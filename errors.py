"""Errors of the user: one sentence on stderr, and no traceback."""

import interrupts

import difflib
import math
import os
import re
import reprlib
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, get_type_hints

LOADING = "loading PyTorch ..."

# The modules that every command imports at its start. All others are imported where they are used.
MODULES = ("docstring_parser", "filelock", "msgspec", "numpy", "safetensors", "sentencepiece",
           "torch", "tqdm", "yaml")
# How alike two names are, from 0 to 1, before one is suggested for the other. difflib's own limit,
# 0.6, lets `stopme` pass for `nope`.
ALIKE = 0.65
# The packages of modules that have another name.
PACKAGES = {"dask": "dask[distributed]", "distributed": "dask[distributed]",
            "docstring_parser": "docstring-parser", "google": "protobuf",
            "huggingface_hub": "huggingface-hub", "yaml": "pyyaml"}


# From so many running processes per core on, a machine is busy.
BUSY = 1.5
# How often a thread of libgomp looks whether the others have ended their part, before it sleeps. As
# libgomp would have it, it looks for milliseconds, and takes the core from the one it waits for.
# Fewer are no faster on a busy machine, and on a quiet one a step takes up to a tenth longer.
SPINS = "1000"


class UserError(Exception):
    """Bad input. The message names the value, the limit and the option; it is all the user sees."""


def say(text: str) -> None:
    """Print to stderr, because stdout is for results. A progress bar moves down and stays whole.

    A terminal that is closed, or a full disk under a log, is no reason to stop a training.
    """
    from tqdm import tqdm  # here, so that commands reach `importing` before anything slow

    with suppress(OSError):
        tqdm.write(text, file=sys.stderr)


# What follows \n in LaTeX's own commands. \ni is left out, because "\ni am" is English.
LATEX = ("abla|atural|e|earrow|eg|eq|ewcommand|ewenvironment|ewline|ewpage|exists|geq|leq|mid|"
         "obreak|ocite|oindent|olimits|onumber|opagebreak|ormalfont|ormalsize|ot|otag|otin|parallel|u")


def note_backslash_n(option: str, texts: Iterable[str]) -> None:
    """Print a note if a text of the command line has a backslash and an n for a line break.

    LaTeX has commands that begin so, such as \\nabla and \\newline.
    """
    if any(re.search(rf"\\n(?!({LATEX})(?![a-zA-Z]))", text) for text in texts):
        say(f"note: \\n in {option} is a backslash and an n, and no line break: in bash, write "
            f"{option} $'...\\n'")


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is a terminal. It is None if it was closed at the start."""
    return stream is not None and stream.isatty()


def bar_interval() -> float:
    """Return the least seconds between two states of a progress bar: in a log, each is a line."""
    return 0.1 if is_terminal(sys.stderr) else 10


def flush(stream: TextIO | None) -> None:
    """Flush a standard stream. It is None if it was closed at the start."""
    if stream is not None:
        stream.flush()


def hide_controls(text: str) -> str:
    """Replace control characters by U+FFFD, for a terminal. Line breaks and tabs stay."""
    shown: list[str] = []
    for character in text.replace("\r\n", "\n"):
        is_control = unicodedata.category(character) == "Cc" and character not in "\n\t"
        shown.append("\ufffd" if is_control else character)
    return "".join(shown)


def find_script(name: str) -> str:
    """Return the path of one of the commands, or of another file beside them, as a shell finds it
    from the working directory."""
    here = Path(__file__).parent
    return name if here == Path.cwd() else shlex.quote(str(here / name))


def place_scripts(message: str) -> str:
    """Return a message whose commands of ours can be given in the working directory."""
    return re.sub(r"\bpython ((train|generate|evaluate|export|ablate|tools/as_lines)\.py)\b",
                  lambda command: f"python {find_script(command[1])}", message)


def closest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that begins with `word`, or else the one that is most like it, or None."""
    candidates = sorted(names)
    matches = difflib.get_close_matches(word, candidates, n=1, cutoff=ALIKE)
    if word:
        matches = [name for name in candidates if name.startswith(word)] + matches
    return matches[0] if matches else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return " (did you mean NAME?)" for the closest name, or "" if none is close."""
    name = closest(word, names)
    return f" (did you mean {name}?)" if name else ""


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Import the packages of a command: within, Ctrl-C exits with 130 and without a traceback.

    If a package is missing, the command says so and exits with 2. A terminal shows a line
    meanwhile, because importing PyTorch takes seconds. `module` is the command's `__name__`: where
    another module imports the command, nothing is different.
    """
    if module != "__main__":
        yield
        return
    spare_busy_cores()
    terminal = is_terminal(sys.stderr)
    try:
        require_modules(*MODULES)  # before PyTorch is imported, which takes seconds
        if terminal:  # at once: while a library is loaded, no thread could print
            print(f"\r{LOADING}", end="", file=sys.stderr, flush=True)
        interrupts.exit_on_interrupt()
        try:
            yield
        finally:
            interrupts.raise_on_interrupt()
            if terminal:
                print(f"\r{' ' * len(LOADING)}\r", end="", file=sys.stderr, flush=True)
    except (UserError, ModuleNotFoundError) as error:
        # Not `say`, which needs a package itself.
        print(f"error: {describe_error(error)}", file=sys.stderr)
        sys.exit(2)


def spare_busy_cores() -> None:
    """Let threads that wait for each other sleep, if other processes keep this machine busy.

    Call it before importing PyTorch, which loads libgomp, the OpenMP of its packages for Linux.
    Results do not change. What the user has set in the environment stays. How much it gains is in
    docs/speed.md#a-busy-machine.
    """
    if sys.platform == "linux" and busy_load() and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def busy_load(per_core: float = BUSY) -> float:
    """Return how many processes run or wait for a core, a mean over a minute; 0 if there are fewer
    than `per_core` for each core."""
    if not hasattr(os, "getloadavg"):  # Windows
        return 0.0
    load = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    return load if load >= per_core * cores else 0.0


def require_modules(*modules: str, advice: str = "") -> None:
    """Raise UserError if the packages of some of these modules are not installed.

    `advice` says how to do without them, such as "leave --plot out".
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        instead = f", or {advice}" if advice else ""
        raise UserError(f"{describe_missing(missing)}{instead}")


def describe_missing(modules: Iterable[str]) -> str:
    """Return a sentence that says which packages are missing, and how to get them."""
    packages = sorted({PACKAGES.get(module, module) for module in modules})
    if len(packages) == 1:
        what = f"the package {packages[0]} is missing"
    else:
        what = f"the packages {', '.join(packages[:-1])} and {packages[-1]} are missing"
    return f"{what}: run pip install -r {find_script('requirements.txt')}"


def describe_error(error: Exception) -> str:
    """Return what the user is told of an error.

    A module of our own that is missing is a bug: then the error is raised again.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return str(error)
    module = error.name.partition(".")[0]
    here = Path(__file__).parent
    if (here / module / "__init__.py").exists() or (here / f"{module}.py").exists():
        raise error
    return describe_missing([module])


class Messages:
    """A stream for messages, such as stderr, that ignores errors of writing.

    Progress bars write to it too.
    """

    def __init__(self, stream: Any):
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()


@contextmanager
def report_errors() -> Iterator[None]:
    """Print bad input, what the system refuses, and a lack of memory or of a package; exit 2.

    Ctrl-C exits with 130, and a closed pipe with 141. Anything else is a bug and keeps its
    traceback. What stderr does not take is lost, see `say`.
    """
    if sys.stderr is None:  # it was closed at the start
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        if isinstance(sys.stdout, TextIOWrapper):
            # Print `?` for characters that the terminal cannot show.
            sys.stdout.reconfigure(errors="replace")
        messages: Any = Messages(sys.stderr)
        with redirect_stderr(messages):
            yield
        flush(sys.stdout)
    except KeyboardInterrupt:
        say("")
        sys.exit(130)
    except BrokenPipeError:  # the reader has what it wanted (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains at its end
        sys.exit(141)
    except (UserError, OSError, ModuleNotFoundError) as error:
        say(f"error: {place_scripts(describe_error(error))}")
        try:
            flush(sys.stdout)
        except OSError:  # the disk under stdout is full, which Python would try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "ried to allocate" not in str(error):
            raise
        say("error: this does not fit into the memory: lower train.micro_batch_size, or "
            "--num-samples, or the sizes of the model, or set train.checkpoint_blocks, or on a GPU "
            f"train.cuda_graphs to false ({error})")
        sys.exit(2)
    finally:
        try:
            sys.stderr.flush()
        except OSError:  # Python would try again at its end, and exit with 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


NO_INTEGER = 2**63
"""The first integer that no tensor holds. No option takes it, whatever its range is."""


@dataclass(frozen=True)
class Range:
    """The range of a number, beside the field that has it: `steps: Annotated[int, Range(ge=1)]`.

    The bounds are named like Python's comparisons: gt (>), ge (>=), lt (<), le (<=). No range
    contains infinity or NaN. `str` gives the usual notation, such as [0, 1).
    """

    gt: float = -math.inf
    lt: float = math.inf
    ge: float | None = None
    le: float | None = None
    advice: str = ""
    """What to do instead, at the end of the error, where that is not clear."""

    def __str__(self) -> str:
        low = f"({show_bound(self.gt)}" if self.ge is None else f"[{show_bound(self.ge)}"
        high = f"{show_bound(self.lt)})" if self.le is None else f"{show_bound(self.le)}]"
        return f"{low}, {high}"


def show_bound(bound: float) -> str:
    """Return a bound as people write it, such as 1, 0.01, 32.0, 1e6 or 2^63."""
    if isinstance(bound, int):
        power = bound.bit_length() - 1
        return f"2^{power}" if bound == 2**power and power > 53 else str(bound)
    if 1e6 <= bound < math.inf:
        return f"{bound:g}".replace("e+0", "e").replace("e+", "e")
    return str(bound)


def check_range(option: str, value: Any, allowed: Range) -> None:
    """Raise UserError if the value of an option is outside its range.

    >>> check_range("train.steps", 0, Range(ge=1))
    UserError: train.steps must be at least 1, not 0
    """
    fits_low = allowed.ge is None or value >= allowed.ge
    fits_high = allowed.le is None or value <= allowed.le
    if fits_low and fits_high and allowed.gt < value < allowed.lt:
        if isinstance(value, int) and value >= NO_INTEGER:
            raise UserError(f"{option} must be less than {show_bound(NO_INTEGER)}, not "
                            f"{reprlib.repr(value)}")
        return
    has_upper_bound = allowed.le is not None or allowed.lt != math.inf
    if allowed.ge is None or has_upper_bound or value == math.inf:
        words = f"in {allowed}"
    else:
        words = f"at least {show_bound(allowed.ge)}"
    advice = f": {allowed.advice}" if allowed.advice else ""
    raise UserError(f"{option} must be {words}, not {reprlib.repr(value)}{advice}")


def check_ranges(values: object, prefix: str = "", cls: type | None = None) -> None:
    """Raise UserError for the first field of a dataclass that is outside its range.

    `prefix` comes before the name in the message, such as "train.". With `cls`, `values` is not an
    instance of the dataclass but has its fields. None (unset) and words, such as "auto", pass.
    """
    if cls is None:
        cls = type(values)
    for name, hint in get_type_hints(cls, include_extras=True).items():
        for note in getattr(hint, "__metadata__", ()):
            value = getattr(values, name)
            is_number = value is not None and not isinstance(value, str)
            if isinstance(note, Range) and is_number:
                check_range(f"{prefix}{name}", value, note)
