"""Errors of the user: one sentence on stderr, and no traceback."""

import difflib
import os
import reprlib
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from types import FrameType

LOADING = "loading PyTorch ..."


class UserError(Exception):
    """Bad input. The message names the value, the limit and the option; it is all the user sees."""


def say(text: str) -> None:
    """Print to stderr, because stdout is for results. A progress bar moves down and stays whole.

    A terminal that is closed, or a full disk under a log, is no reason to stop a training.
    """
    from tqdm import tqdm  # here, so that commands reach `starting` before anything slow

    with suppress(OSError):
        tqdm.write(text, file=sys.stderr)


def closest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that begins with `word`, or else the one that is most like it, or None."""
    candidates = sorted(names)
    longer = [name for name in candidates if word and name.startswith(word)]
    like = longer or difflib.get_close_matches(word, candidates, n=1)
    return like[0] if like else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return " (did you mean NAME?)" for the closest name, or "" if none is close."""
    name = closest(word, names)
    return f" (did you mean {name}?)" if name else ""


@contextmanager
def starting(module: str) -> Iterator[None]:
    """Import the packages of a command: within, Ctrl-C exits with 130 and without a traceback.

    A terminal shows a line meanwhile, because importing PyTorch takes seconds. `module` is the
    command's `__name__`: where another module imports the command, nothing is different.
    """
    if module != "__main__":
        yield
        return
    terminal = sys.stderr.isatty()
    if terminal:  # at once: while a library is loaded, no other thread could print
        print(f"\r{LOADING}", end="", file=sys.stderr, flush=True)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # it may be ignored, as under nohup
        signal.signal(signal.SIGINT, exit_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if terminal:
            print(f"\r{' ' * len(LOADING)}\r", end="", file=sys.stderr, flush=True)


def exit_at_once(number: int, frame: FrameType | None) -> None:
    """End the process on Ctrl-C.

    A KeyboardInterrupt would do only in Python: half-imported packages turn it into errors of
    their own, or swallow it.
    """
    os.write(2, b"\n")
    os._exit(130)


@contextmanager
def report_errors() -> Iterator[None]:
    """Print bad input, what the system refuses, and a lack of memory or of a package; exit 2.

    Ctrl-C exits with 130, and a closed pipe with 141. Anything else is a bug and keeps its
    traceback.
    """
    try:
        if isinstance(sys.stdout, TextIOWrapper):
            # Print `?` for characters that the terminal cannot show.
            sys.stdout.reconfigure(errors="replace")
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        say("")
        sys.exit(130)
    except BrokenPipeError:  # the reader has what it wanted (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains at its end
        sys.exit(141)
    except (UserError, OSError, ModuleNotFoundError) as error:
        say(f"error: {error}")
        try:
            sys.stdout.flush()
        except OSError:  # the disk under stdout is full, which Python would try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "ried to allocate" not in str(error):
            raise
        say("error: this does not fit into the memory: lower train.micro_batch_size, or "
            f"--num-samples, or the sizes of the model ({error})")
        sys.exit(2)


def check_ranges(part: str, values: object, **ranges: str) -> None:
    """Raise UserError for the first attribute of `values` that is outside its interval.

    Intervals are in the usual notation, such as "[0, 1)"; `part` is what stands before the dot in
    the name of the option, if it has one. None is an option that is unset, and passes; NaN is in no
    interval.

    >>> check_ranges("train", config, steps="[1, inf)", beta1="[0, 1)")
    UserError: train.steps must be at least 1, not 0
    """
    for name, interval in ranges.items():
        value, ends = getattr(values, name), interval[0] + interval[-1]
        low, high = interval[1:-1].split(", ")
        inside = value is None or float(low) < value < float(high)
        at_end = value == float(low) and ends[0] == "[" or value == float(high) and ends[1] == "]"
        if not (inside or at_end):
            finite_only = ends == "[)" and high == "inf" and value != float(high)
            words = f"at least {low}" if finite_only else f"in {interval}"
            raise UserError(f"{part}.{name} must be {words}, not {reprlib.repr(value)}".lstrip("."))
