"""What a user is told: ranges in words, one line on stderr, and no traceback for bad input."""

import math
import sys
from types import SimpleNamespace

import pytest
from tqdm import tqdm

from errors import UserError, check_ranges, exit_in_words, say


@pytest.mark.parametrize("interval, inside, outside", [
    ("[1, inf)", [1, 10**30, None], [0, -math.inf, math.inf, math.nan]),
    ("(0, inf)", [5e-324], [0, -1]),
    ("[0, 1)", [0, 0.0, math.nextafter(1, 0)], [1, 1.0, -5e-324, math.nan]),
    ("[0, 1]", [0, 1], [math.nextafter(1, 2), -1]),
    ("[0, inf)", [0, 0.0], [-5e-324, math.inf, math.nan]),
    ("(0, 1)", [0.5], [0, 1, math.nan]),
    (f"[0, {2**63})", [2**63 - 1], [2**63]),
])
def test_a_range_ends_where_it_says(interval, inside, outside):
    for value in inside:
        check_ranges("part", SimpleNamespace(knob=value), knob=interval)
    for value in outside:
        with pytest.raises(UserError, match=rf"^part\.knob must be .*, not {value}$"):
            check_ranges("part", SimpleNamespace(knob=value), knob=interval)


def test_the_message_names_the_first_knob_its_limit_and_its_value():
    values = SimpleNamespace(fine=1, steps=0, rate=2.0)
    with pytest.raises(UserError, match=r"^train\.steps must be at least 1, not 0$"):
        check_ranges("train", values, fine="[1, inf)", steps="[1, inf)", rate="[0, 1)")
    with pytest.raises(UserError, match=r"^train\.rate must be in \[0, 1\), not 2\.0$"):
        check_ranges("train", values, rate="[0, 1)", steps="[1, inf)")


@pytest.mark.parametrize("error", [UserError("too few"), OSError("too few")])
def test_bad_input_is_one_line_and_exit_2(error, capsys):
    with pytest.raises(SystemExit) as stop, exit_in_words():
        raise error
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", "error: too few\n")


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), exit_in_words():
        _ = 1 / 0


def test_what_is_said_stands_above_the_progress_bar(capsys):
    with tqdm(total=2, file=sys.stderr, desc="bar"):
        say("a line")
    assert "\ra line\n" in capsys.readouterr().err.replace("  ", "")
