"""Ctrl-C while a command begins ends it at once, without a traceback.

Importing this module does so, and it is what a command imports first. At the end of the others,
`errors.importing` makes Ctrl-C an exception again. Python itself needs some 20 ms before this.
"""

# The part of `signal` that is written in C. The rest of it takes milliseconds to import.
import _signal as signal  # pyrefly: ignore[missing-import]
import os
import sys


def exit_at_once(number: int, frame: object) -> None:
    """End the process on Ctrl-C.

    A KeyboardInterrupt would do only in Python: half-imported packages turn it into errors of
    their own, or swallow it.
    """
    os.write(2, b"\n")
    os._exit(130)


COMMANDS = ("ablate.py", "bench.py", "evaluate.py", "export.py", "generate.py", "train.py")


def is_command() -> bool:
    """Return whether Python runs one of the commands, and not another program that imports them."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is None:  # a notebook, or an interactive Python
        return False
    folder, name = os.path.split(os.path.realpath(main))
    return name in COMMANDS and folder == os.path.dirname(os.path.realpath(__file__))


def exit_on_interrupt() -> None:
    """Let Ctrl-C end this process, unless it is ignored, as under nohup."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_at_once)


def raise_on_interrupt() -> None:
    """Let Ctrl-C be a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is exit_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_on_interrupt() -> None:
    """Let Ctrl-C end this process without a word, also one that was blocked until now."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


if is_command():
    exit_on_interrupt()
