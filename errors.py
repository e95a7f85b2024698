"""What a user is told: on stderr, and in one sentence what they did wrong."""

import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from io import StringIO, TextIOWrapper
from typing import Any, TextIO, cast

from tqdm import tqdm


def _excepthook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """No traceback for Ctrl-C, not even during imports."""
    if issubclass(kind, KeyboardInterrupt):
        say("")
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _excepthook


class UserError(Exception):
    """Bad input. The message names the value, the limit and the knob; it is all the user sees."""


def say(text: str) -> None:
    """Print to stderr: stdout is for results. A progress bar moves down, and stays whole."""
    tqdm.write(text, file=sys.stderr)


class _Stderr:
    """A stream that is written to as far as it can be: a terminal that is gone, or a full disk
    under a log, is no reason to stop a training."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def exit_in_words(results: bool = False) -> Iterator[None]:
    """Turn bad input, what the operating system refuses, and a lack of memory into one line on
    stderr and exit 2. Ctrl-C exits with 130, and 141 where nobody reads on.

    Anything else is a bug of ours and keeps its traceback. `results` says that a command without a
    stdout makes no sense.
    """
    # Else the next file that is opened gets the number of a closed stderr, and what C writes to it.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
    with redirect_stderr(cast(TextIO, _Stderr(sys.stderr or StringIO()))):
        try:
            try:
                os.getcwd()
            except FileNotFoundError:  # MKL would abort the process
                raise UserError("the current folder is gone: change to another one") from None
            if results and sys.stdout is None:
                raise UserError("there is no stdout to write to: redirect it to a file")
            if isinstance(sys.stdout, TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")  # a ? for what a terminal has no sign for
            yield
            if sys.stdout is not None:
                sys.stdout.flush()
        except KeyboardInterrupt:
            say("")
            sys.exit(130)
        except BrokenPipeError:  # the reader has what it wanted (`| head`)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains at its end
            sys.exit(141)
        except (UserError, OSError) as error:
            say(f"error: {error}")
            sys.exit(2)
        except (MemoryError, RuntimeError) as error:
            asked = re.search(r"ried to allocate ([\d.]+ \w+)", str(error))  # torch's words
            if asked is None and not isinstance(error, MemoryError):
                raise
            size = f", which has no {asked[1]} more" if asked else ""
            say(f"error: this does not fit into the memory{size}: lower train.micro_batch_size, or "
                "--num-samples, or the sizes of the model")
            sys.exit(2)


def check_ranges(part: str, values: object, **ranges: str) -> None:
    """Raise UserError for the first attribute of `values` that is outside of its interval.

    Intervals are in the usual notation, such as "[0, 1)"; `part` is what stands before the dot in
    the name of the option. None is an option that is unset, and passes; NaN is in no interval.

    >>> check_ranges("train", config, steps="[1, inf)", beta1="[0, 1)")
    UserError: train.steps must be at least 1, not 0
    """
    for name, interval in ranges.items():
        value = getattr(values, name)
        if value is None:
            continue
        low, high = interval[1:-1].split(", ")
        above = value >= float(low) if interval[0] == "[" else value > float(low)
        below = value <= float(high) if interval[-1] == "]" else value < float(high)
        if not (above and below):
            words = f"in {interval}"
            if high == "inf" and math.isfinite(value):
                words = f"{'at least' if interval[0] == '[' else 'above'} {low}"
            raise UserError(f"{part}.{name} must be {words}, not {value}")
