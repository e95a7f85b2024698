"""Signals that ask a training to stop: finish the step and save, instead of dying in it."""

import os
import signal
import threading
from contextlib import suppress
from types import FrameType

# Windows has no SIGHUP, the signal of a terminal that is closed.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP")
           if hasattr(signal, name)]


class StopSignal:
    """Within `with`, remember SIGINT (Ctrl-C), SIGTERM or SIGHUP in `number` and do nothing else.

    A second Ctrl-C acts at once. A second SIGTERM does nothing, because a scheduler and torchrun
    each send one. A signal that is ignored, such as SIGHUP under nohup, stays ignored.
    """

    current: "StopSignal | None" = None
    """The one that listens now, for other threads that ask this process to stop."""
    number = 0

    def __enter__(self) -> "StopSignal":
        StopSignal.current = self
        on_main = threading.current_thread() is threading.main_thread()
        # Another thread, such as that of a study's worker, gets no signals: `number` is set for it.
        self._before = {n: signal.getsignal(n) for n in SIGNALS} if on_main else {}
        for number, handler in self._before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, self._remember)
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, self._before[signal.SIGINT])
        if self.number == 0:
            self.number = number
            with suppress(OSError):  # the terminal may be gone
                # Not print: the signal may have interrupted one, which cannot be entered twice.
                os.write(2, b"\nstopping after this step; Ctrl-C once more to stop at once\n")

    def __exit__(self, *error: object) -> None:
        StopSignal.current = None
        for number, handler in self._before.items():
            signal.signal(number, handler)
