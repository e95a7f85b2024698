"""What a user is told: on stderr, and in one sentence what they did wrong."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm


class UserError(Exception):
    """Bad input. The message names the value, the limit and the knob; it is all the user sees."""


def say(text: str) -> None:
    """Print to stderr: stdout is for results. A progress bar moves down, and stays whole."""
    tqdm.write(text, file=sys.stderr)


@contextmanager
def exit_in_words() -> Iterator[None]:
    """Turn bad input, and what the operating system refuses, into one line on stderr and exit 2.

    Anything else is a bug of ours and keeps its traceback.
    """
    try:
        yield
    except (UserError, OSError) as error:
        say(f"error: {error}")
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
        low, high = (float(end) for end in interval[1:-1].split(","))
        above = value >= low if interval[0] == "[" else value > low
        below = value <= high if interval[-1] == "]" else value < high
        if not (above and below):
            words = f"in {interval}"
            if high == math.inf and math.isfinite(value):
                words = f"{'at least' if interval[0] == '[' else 'above'} {low:g}"
            raise UserError(f"{part}.{name} must be {words}, not {value}")
