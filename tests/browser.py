"""A headless Chromium that a test drives, and a server of files: pages as somebody sees them.

Chromium is told what to do by its DevTools protocol, as JSON through two pipes.
"""

import fcntl
import json
import os
import re
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from builders import require_program, wait_for

OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
           "--no-first-run", "--remote-debugging-pipe"]
# Chromium reads commands from file descriptor 3 and answers on 4.
MOVE_PIPES = ("import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
              "os.execv(sys.argv[3], sys.argv[3:])")


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Yield the address of `python -m http.server` in this folder."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with Popen(command, cwd=folder, text=True, stdout=PIPE, stderr=DEVNULL) as server:
        assert server.stdout is not None
        (port,) = re.findall(r"port (\d+)", server.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


class QuietHandler(SimpleHTTPRequestHandler):
    """What `python -m http.server` answers with, without a line for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve_here(folder: Path) -> Iterator[str]:
    """The same by a thread of this process: each process of Python takes a quarter of a second."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class Browser:
    """A page in Chromium."""

    def __init__(self, commands: int, answers: int):
        self.commands = os.fdopen(commands, "wb", buffering=0)
        self.answers = os.fdopen(answers, "rb", buffering=0)
        self.received = b""
        self.calls = 0
        self.session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = {"sessionId": attached["sessionId"]}

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the protocol."""
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters, **self.session}
        self.commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.calls:  # and not an event
                assert "error" not in answer, answer
                return answer["result"]

    def receive(self) -> dict[str, Any]:
        """The next message, which ends with a zero byte."""
        while b"\0" not in self.received:
            readable, _, _ = select.select([self.answers], [], [], 100)
            assert readable, "Chromium does not answer"
            part = self.answers.read(1 << 16)
            assert part, "Chromium has ended"
            self.received += part
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def open(self, address: str, width: int = 900) -> None:
        """Show this address in a window of so many pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=address)
        wait_for(lambda: self.run("document.readyState") == "complete")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page; of a promise, what it resolves to."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Yield a browser whose profile is in this folder."""
    program = require_program("chromium", "chromium-browser")
    commands_end, commands = pipe()
    answers, answers_end = pipe()
    ends = [commands_end, answers_end]
    command = [sys.executable, "-c", MOVE_PIPES, *map(str, ends), program, *OPTIONS,
               f"--user-data-dir={folder / 'profile'}"]
    with Popen(command, pass_fds=ends, stderr=DEVNULL) as process:
        for end in ends:
            os.close(end)
        try:
            yield Browser(commands, answers)
        finally:
            process.kill()


def pipe() -> tuple[int, int]:
    """The ends of a pipe to read and to write, neither of which has a number of MOVE_PIPES."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
