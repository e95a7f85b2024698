"""What run.py tries; it is started from there, with preload.c before libc."""

import ctypes
import errno
import itertools
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from builders import exit_code, random_text, tiny_argv
from conversions import conversions
from imports import imports
from resumption import last_checkpoint
from torch import Tensor

import train
from data.dataset import find_or_prepare
from errors import UserError
from gyre.rundir import RunDir
from gyre.yaml_files import read_config
from model import kernels

RUN = ["--model.dropout", "0.2", "--train.micro_batch_size", "10", "--optim.optimizer", "muon"]
Finding = str | None  # what went wrong in one trial


class Ended(NamedTuple):
    """How a process ended: its exit code, or a signal's number below 0; how many calls it made
    that change the disk; by how many bytes its memory grew; what it said on stderr."""

    code: int
    calls: int
    grown: int
    said: str


def without_times(point: dict[str, Any]) -> dict[str, Any]:
    """Return a point of metrics.jsonl without the values that differ between equal runs."""
    return {name: value for name, value in point.items() if "second" not in name}


def as_lists(tensors: dict[str, Tensor]) -> dict[str, list]:
    """Return tensors as lists of numbers, which compare as a whole."""
    return {name: tensor.tolist() for name, tensor in tensors.items()}


def peak() -> int:
    """The largest memory of this process so far, in bytes. That of a fork begins with it."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Testbed:
    """A text, its prepared data, and the run that nothing ever happened to."""

    def __init__(self, folder: Path, preload: ctypes.CDLL):
        self.folder = folder
        self.preload = preload
        (folder / "text.txt").write_text(random_text(), encoding="utf-8")
        kernels.onednn_gain()  # measured once, so that every process multiplies in the same form
        for name in ("straight", "counted"):  # the second finds its data prepared
            ended = self.call(train.main, *tiny_argv(folder, *RUN, "--name", name))
            assert ended.code == 0, ended.said
        self.calls = ended.calls
        self.expected = self.content("straight")

    def call(self, main: Callable[[list[str]], None], *argv: str | Path, at: int = -1,
             error: int = 0, once: bool = False, seconds: int = 0) -> Ended:
        """A command in a process of its own, ended by SIGALRM after so many seconds."""
        report = self.folder / "report"
        process = os.fork()
        if process == 0:
            code = 1
            said = StringIO()
            signal.alarm(seconds)
            before = peak()
            try:
                with redirect_stderr(said), redirect_stdout(StringIO()):
                    self.preload.fault_at(at, error, once)
                    code = exit_code(main, *argv)
            except BaseException:
                said.write(traceback.format_exc())
            finally:
                calls = self.preload.fault_count()
                self.preload.fault_at(-1, 0, 0)
                words = f"{calls} {peak() - before}\n{said.getvalue()}"
                report.write_text(words, encoding="utf-8", errors="replace")
                os._exit(code)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            return Ended(-os.WTERMSIG(status), 0, 0, "")
        numbers, _, said = report.read_text(encoding="utf-8").partition("\n")
        calls, grown = map(int, numbers.split())
        return Ended(os.WEXITSTATUS(status), calls, grown, said)

    def content(self, name: str) -> list[Any]:
        """All numbers of a run but the times."""
        run = RunDir.open(self.folder / "runs" / name)
        points = [without_times(point) for point in run.metrics()]
        tensors, training = last_checkpoint(run.path)
        training["progress"]["seconds"] = 0
        best = run.checkpoints.load_weights("best")
        return [as_lists(tensors), as_lists(best), training, points]

    def read(self, name: str) -> Any:
        """What a resumed training takes from the disk; None if a warning is said about it."""
        said = StringIO()
        path = self.folder / "runs" / name
        with redirect_stderr(said):
            values = self.content(name)
            run = RunDir.open(path)
            config = read_config(path / "config.yaml").data
            data = find_or_prepare(config, run.manifest["settings"])
        files = [path / "config.yaml", path / "tokenizer.model", *sorted(data.folder.glob("*.bin"))]
        if "warning" in said.getvalue():
            return None
        # Not the settings: what a fitted text is prepared with again are the numbers of its run.
        prepared = data.manifest["files"]
        return (values, run.record["created"], prepared, [file.read_bytes() for file in files])

    def interrupted(self, at: int, error: int = 0, once: bool = False) -> Finding:
        """A training with this fault, then what a user does: resume it, or start it if nothing is
        there."""
        path = self.folder / "runs" / "a"
        shutil.rmtree(path, ignore_errors=True)
        new = tiny_argv(self.folder, *RUN, "--name", "a")
        ended = self.call(train.main, *new, at=at, error=error, once=once)
        if ended.code not in (0, 2, -9) or "Traceback" in ended.said:
            return f"exit {ended.code}: {ended.said[-2000:]}"
        if ended.code != 0:
            ended = self.call(train.main, *(["--resume", str(path)] if path.exists() else new))
        if ended.code != 0 and "has taken 12 steps" not in ended.said:
            return f"not resumed: {ended.said[-2000:]}"
        try:
            same = self.content("a") == self.expected
        except UserError as refused:
            return f"a run that cannot be read: {refused}"
        return None if same else "another run than the one that was never stopped"


def kills(testbed: Testbed) -> Iterator[tuple[str, Finding]]:
    """A kill at every call, in no order, again and again."""
    for at in itertools.cycle(random.sample(range(testbed.calls), testbed.calls)):
        yield f"killed at call {at}", testbed.interrupted(at)


def errors(testbed: Testbed) -> Iterator[tuple[str, Finding]]:
    """Every error at every call and at every call and all after it, in no order."""
    faults = list(itertools.product(
        range(testbed.calls), (errno.ENOSPC, errno.EIO, errno.EROFS), (True, False)))
    for at, error, once in random.sample(faults, len(faults)):
        name = f"{errno.errorcode[error]} at call {at}{'' if once else ' and all after it'}"
        yield name, testbed.interrupted(at, error, once)


def damage(testbed: Testbed) -> Iterator[tuple[str, Finding]]:
    """A flipped bit in every file, and a cut, again and again."""
    source = testbed.folder / "runs" / "straight"
    shutil.rmtree(source / "previous")
    (prepared,) = (testbed.folder / "prepared").iterdir()
    expected = testbed.read(source.name)
    paths = sorted(source.rglob("*")) + sorted(prepared.rglob("*"))
    files = [path for path in paths if path.is_file() and path.name != "metrics.jsonl"]  # no hash
    for file in itertools.cycle(files):
        content = file.read_bytes()
        at = random.randrange(len(content))
        flipped = bytes([content[at] ^ 1 << random.randrange(8)])
        for kind, rest in (("flipped", flipped + content[at + 1 :]), ("cut", b"")):
            file.write_bytes(content[:at] + rest)
            try:
                noticed = testbed.read(source.name) in (expected, None)
                finding = None if noticed else "taken without a word"
            except Exception as error:
                finding = None if isinstance(error, UserError) else traceback.format_exc()
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
            yield f"{file.relative_to(testbed.folder)} {kind} at {at}", finding


TRIALS = {trial.__name__: trial for trial in (kills, errors, damage, imports, conversions)}


def main(minutes: float, *names: str) -> int:
    """Make these trials, or else all. Exit code: 1 if something was found."""
    names = names or tuple(TRIALS)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        testbed = Testbed(Path(folder), ctypes.CDLL(os.environ["LD_PRELOAD"]))
        for name in names:
            end = time.monotonic() + 60 * minutes / len(names)
            tried = 0
            findings = 0
            with suppress(KeyboardInterrupt):  # on to the next, after a summary
                for what, finding in TRIALS[name](testbed):
                    tried += 1
                    if finding is not None:
                        findings += 1
                        print(f"{name}: {what}: {finding}", flush=True)
                    if time.monotonic() > end:
                        break
            known = f" of {testbed.calls} calls" if name in ("kills", "errors") else ""
            print(f"{name}: {tried} faults tried{known}, {findings} found", flush=True)
            if findings > 0:
                failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *sys.argv[2:]))
