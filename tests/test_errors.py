"""What a user is told: ranges in words, one line on stderr, and no traceback for bad input."""

import math
import os
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from conftest import ROOT
from tqdm import tqdm

from errors import UserError, check_ranges, report_errors, say


@pytest.mark.parametrize("interval, inside, outside", [
    ("[1, inf)", [1, 10**30, None], [0, -math.inf, math.inf, math.nan]),
    ("[0, 1)", [0, 0.0, math.nextafter(1, 0)], [1, 1.0, -5e-324, math.nan]),
    ("[0, 1]", [0, 1], [math.nextafter(1, 2), -1]), ("(0, inf)", [5e-324], [0, -1])])
def test_a_range_ends_where_it_says(interval, inside, outside):
    for value in inside:
        check_ranges("part", SimpleNamespace(knob=value), knob=interval)
    for value in outside:
        with pytest.raises(UserError, match=rf"^part\.knob must be .*, not {value}$"):
            check_ranges("part", SimpleNamespace(knob=value), knob=interval)


def test_bad_input_is_one_line_and_exit_2(capsys):
    for error in (UserError, OSError, ModuleNotFoundError):
        with pytest.raises(SystemExit, check=lambda stop: stop.code == 2), report_errors():
            raise error("too few")
        assert capsys.readouterr() == ("", "error: too few\n")


@pytest.mark.parametrize("end, output, code, words", [
    ("raise KeyboardInterrupt", "/dev/null", 130, "\n"), ("print('x')", "a pipe", 141, ""),
    ("print('x')", "/dev/full", 2, "error: [Errno 28] No space left on device\n")])
def test_who_stops_reading_or_waiting_is_told_by_the_exit_code(end, output, code, words):
    """Also where stdout takes nothing: its reader has ended, or the disk is full."""
    program = f"import errors\nwith errors.report_errors(): {end}"
    reader, pipe = os.pipe()
    os.close(reader)
    with open(pipe if output == "a pipe" else output, "wb") as stdout:
        process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=stdout,
                                 stderr=subprocess.PIPE, text=True)
    assert (process.returncode, process.stderr) == (code, words)


def test_a_stderr_that_takes_nothing_stops_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stderr := Mock(**{"write.side_effect": OSError}))
    with report_errors():
        say("a line")  # as on a terminal that is closed
    stderr.write.assert_called()


def test_too_little_memory_is_a_sentence(capsys):
    fail = Mock(side_effect=MemoryError("of 4503599627370496 bytes"))
    for allocate in (lambda: torch.empty(1 << 50), fail):
        with pytest.raises(SystemExit, check=lambda stop: stop.code == 2), report_errors():
            allocate()
        err = capsys.readouterr().err
        assert "this does not fit into the memory: lower" in err and "4503599627370496" in err


@pytest.mark.parametrize("error", [ZeroDivisionError, RuntimeError])
def test_a_bug_keeps_its_traceback(error):
    with pytest.raises(error, match="a bug"), report_errors():
        raise error("a bug")


def test_what_is_said_stands_above_the_progress_bar(capsys):
    with tqdm(total=2, file=sys.stderr, desc="bar"):
        say("a line")
    assert "\ra line\n" in capsys.readouterr().err.replace("  ", "")
