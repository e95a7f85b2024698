"""What a user is told: on stderr, and what they did wrong in one sentence."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class UserError(Exception):
    """Bad input. The message names the value, the limit and the knob; it is all the user sees."""


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
