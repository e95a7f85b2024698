"""Signals that ask a training to stop: finish the step and save, instead of dying in it."""

import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType, MappingProxyType
from typing import Any

# Windows has no SIGHUP, the signal of a terminal that is closed.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP")
           if hasattr(signal, name)]


class StopSignal:
    """What asks a training to stop. `number` is that of the signal; 0: nobody has asked.

    Within `with`, SIGINT (Ctrl-C), SIGTERM or SIGHUP are remembered here and do nothing else. A
    second Ctrl-C acts at once. A second SIGTERM does nothing, because a scheduler and torchrun each
    send one. A signal that is ignored, such as SIGHUP under nohup, stays ignored. Other threads
    than the main one get no signals: for a training in one of them, somebody sets `number`.
    """

    number = 0
    all_saved = False
    """Whether no step is left to save."""
    _before: Mapping[int, Any] = MappingProxyType({})
    """The handlers outside of `with`, by signal."""

    def is_asked(self) -> bool:
        """Return whether somebody has asked the training to stop."""
        return self.number != 0

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is not threading.main_thread():
            return self
        self.all_saved = False
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, handler in self._before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, self._remember)
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, self._before[signal.SIGINT])
        if self.number != 0:
            return
        self.number = number
        message = "stopping when this step is saved; Ctrl-C once more to stop now"
        if self.all_saved:
            message = "only wandb is waited for; Ctrl-C ends that"
        with suppress(OSError):  # the terminal may be gone
            # Not print: the signal may have interrupted one, which cannot be entered twice.
            os.write(2, f"\n{message}\n".encode())

    def end_steps(self) -> None:
        """Note that the last step is saved. Then Ctrl-C acts at once: there is nothing to save."""
        self.all_saved = True
        if self._before:
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
