"""What a user is told: ranges in words, one line on stderr, and no traceback for bad input."""

import math
import shlex
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from conftest import ROOT, start
from tqdm import tqdm

from errors import UserError, check_ranges, exit_in_words, say


@pytest.mark.parametrize("interval, inside, outside", [
    ("[1, inf)", [1, 10**30, None], [0, -math.inf, math.inf, math.nan]),
    ("[0, 1)", [0, 0.0, math.nextafter(1, 0)], [1, 1.0, -5e-324, math.nan]),
    ("[0, 1]", [0, 1], [math.nextafter(1, 2), -1]),
    ("(0, inf)", [5e-324], [0, -1]),
])
def test_a_range_ends_where_it_says(interval, inside, outside):
    for value in inside:
        check_ranges("part", SimpleNamespace(knob=value), knob=interval)
    for value in outside:
        with pytest.raises(UserError, match=rf"^part\.knob must be .*, not {value}$"):
            check_ranges("part", SimpleNamespace(knob=value), knob=interval)


@pytest.mark.parametrize("error", [kind("too few") for kind in (
    UserError, OSError, ModuleNotFoundError)])
def test_bad_input_is_one_line_and_exit_2(error, capsys):
    with pytest.raises(SystemExit) as stop, exit_in_words():
        raise error
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", "error: too few\n")


@pytest.mark.parametrize("error, code", [(KeyboardInterrupt, 130), (BrokenPipeError, 141)])
def test_who_stops_reading_or_waiting_is_told_by_the_exit_code(error, code):
    program = f"import errors\nwith errors.exit_in_words(): raise {error.__name__}"
    process = start(program)
    assert process.communicate()[1].strip() == "" and process.returncode == code


def test_results_that_cannot_be_written_are_an_error():
    program = "import errors\nwith errors.exit_in_words(): print('x' * 9999)"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} >/dev/full"
    process = subprocess.run(["sh", "-c", command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 2 and process.stderr.startswith("error: [Errno 28] No space left")


def test_a_stderr_that_takes_nothing_stops_nothing(monkeypatch):
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full, monkeypatch.context() as m:
        m.setattr(sys, "stderr", full)
        with exit_in_words():
            say("a line")  # as on a terminal that is closed
        m.undo()
        with pytest.raises(OSError):
            full.write("a line\n")
        with suppress(OSError):
            full.close()


def test_too_little_memory_is_a_sentence(capsys):
    with pytest.raises(SystemExit) as stop, exit_in_words():
        torch.empty(1 << 50)
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert "error: this does not fit into the memory: lower" in err and "4503599627370496" in err
    with pytest.raises(SystemExit), exit_in_words():
        raise MemoryError
    assert capsys.readouterr().err.startswith("error: this does not fit into the memory: lower")


@pytest.mark.parametrize("error", [ZeroDivisionError, RuntimeError])
def test_a_bug_keeps_its_traceback(error):
    with pytest.raises(error, match="a bug"), exit_in_words():
        raise error("a bug")


def test_what_is_said_stands_above_the_progress_bar(capsys):
    with tqdm(total=2, file=sys.stderr, desc="bar"):
        say("a line")
    assert "\ra line\n" in capsys.readouterr().err.replace("  ", "")
