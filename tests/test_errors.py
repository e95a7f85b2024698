"""What a user is told: ranges in words, one line on stderr, and no traceback for bad input."""

import interrupts

import math
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated
from unittest.mock import Mock

import pytest
import torch
from builders import ROOT, quick_for, start_python
from tqdm import tqdm

import errors
from errors import (
    Range,
    UserError,
    busy_load,
    check_range,
    check_ranges,
    did_you_mean,
    find_script,
    hide_controls,
    importing,
    note_backslash_n,
    report_errors,
    say,
    spare_busy_cores,
)

COMMANDS = ["ablate.py", "bench.py", "evaluate.py", "export.py", "generate.py", "train.py"]


@pytest.mark.parametrize("allowed, value", [
    (Range(ge=1), 1), (Range(ge=1), 2**63 - 1), (Range(ge=0, lt=1), 0.0),
    (Range(ge=0, lt=1), math.nextafter(1, 0)), (Range(ge=0, le=1), 1), (Range(gt=0), 5e-324)])
def test_a_range_contains_what_is_between_its_bounds(allowed, value):
    check_range("knob", value, allowed)


@pytest.mark.parametrize("allowed, value", [
    (Range(ge=1), 0), (Range(ge=1), -math.inf), (Range(ge=0, lt=1), 1), (Range(ge=0, lt=1), 1.0),
    (Range(ge=0, lt=1), -5e-324), (Range(ge=0, le=1), math.nextafter(1, 2)), (Range(gt=0), 0)])
def test_a_range_contains_nothing_outside_its_bounds(allowed, value):
    with pytest.raises(UserError, match="^knob must be "):
        check_range("knob", value, allowed)


@pytest.mark.parametrize("allowed", [Range(), Range(ge=0), Range(gt=0, le=1), Range(lt=1)])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_no_range_contains_infinity_or_nan(allowed, value):
    with pytest.raises(UserError, match="^knob must be "):
        check_range("knob", value, allowed)


@pytest.mark.parametrize("allowed, shown", [
    (Range(ge=0, lt=1), "[0, 1)"), (Range(gt=0, le=1), "(0, 1]"), (Range(gt=0), "(0, inf)"),
    (Range(ge=0.01, le=100), "[0.01, 100]"), (Range(gt=0, lt=32.0), "(0, 32.0)"),
    (Range(ge=1, le=1e12), "[1, 1e12]"), (Range(gt=0, le=1e6), "(0, 1e6]"),
    (Range(ge=1, lt=2**31), "[1, 2147483648)"), (Range(ge=0, lt=2**63), "[0, 2^63)")])
def test_a_range_is_shown_as_an_interval(allowed, shown):
    assert str(allowed) == shown


@pytest.mark.parametrize("allowed, value, message", [
    (Range(ge=1), 0, "train.knob must be at least 1, not 0"),
    (Range(ge=1), math.nan, "train.knob must be at least 1, not nan"),
    (Range(ge=1), math.inf, "train.knob must be in [1, inf), not inf"),
    (Range(ge=0, lt=1), 1.0, "train.knob must be in [0, 1), not 1.0"),
    (Range(ge=0, le=20), 40, "train.knob must be in [0, 20], not 40"),
    (Range(gt=0), 0, "train.knob must be in (0, inf), not 0"),
    (Range(ge=1), 2**63, "train.knob must be less than 2^63, not 9223372036854775808")])
def test_a_number_out_of_range_is_told_with_its_range(allowed, value, message):
    with pytest.raises(UserError) as caught:
        check_range("train.knob", value, allowed)
    assert str(caught.value) == message


def test_a_number_of_400_digits_is_told_in_short():
    with pytest.raises(UserError, match=r"knob must be less than 2\^63, not 10+\.\.\.0+$"):
        check_range("train.knob", 10**400, Range(ge=1))


@dataclass
class Knobs:
    """Options with a range, and one without."""

    steps: Annotated[int | None, Range(ge=1)] = None
    rate: Annotated[float, Range(ge=0, lt=1)] = 0.5
    label: str = ""


def test_the_first_field_out_of_range_is_named():
    with pytest.raises(UserError, match="^part.rate must be in .*, not 2.0$"):
        check_ranges(Knobs(steps=3, rate=2.0), "part.")


@pytest.mark.parametrize("value", [None, "auto"])
def test_unset_options_and_words_have_no_range(value):
    check_ranges(SimpleNamespace(steps=value, rate=0), cls=Knobs)


@pytest.mark.parametrize("error", [UserError, OSError, ModuleNotFoundError])
def test_bad_input_is_one_line_and_exit_2(capsys, error):
    with pytest.raises(SystemExit) as stop, report_errors():
        raise error("too few")
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", "error: too few\n")


def test_a_card_that_is_full_is_told_with_what_to_lower(capsys):
    with pytest.raises(SystemExit) as stop, report_errors():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert stop.value.code == 2
    assert capsys.readouterr().err == (
        "error: this does not fit into the memory: lower train.micro_batch_size, or --num-samples, "
        "or the sizes of the model, or set train.checkpoint_blocks, or on a GPU train.cuda_graphs "
        "to false (CUDA out of memory. Tried to allocate 2.00 GiB.)\n")


@pytest.mark.parametrize("end, output, code, words", [
    ("raise KeyboardInterrupt", "/dev/null", 130, "\n"), ("print('x')", "a pipe", 141, ""),
    ("print('x')", "/dev/full", 2, "error: [Errno 28] No space left on device\n")])
def test_the_exit_code_says_how_a_command_ended(end, output, code, words):
    """Also where stdout takes nothing: its reader has ended, or the disk is full."""
    program = f"import errors\nwith errors.report_errors(): {end}"
    reader, pipe = os.pipe()
    os.close(reader)
    with open(pipe if output == "a pipe" else output, "wb") as stdout:
        process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=stdout,
                                 stderr=subprocess.PIPE, text=True)
    assert (process.returncode, process.stderr) == (code, words)


@pytest.mark.parametrize("stream, shown", [("stdout", "message\n"), ("stderr", "text\n")])
def test_a_stream_that_was_closed_at_the_start_stops_nothing(stream, shown, monkeypatch, capsys):
    monkeypatch.setattr(sys, stream, None)
    with report_errors():
        print("text")
        say("message")
    assert "".join(capsys.readouterr()) == shown


def test_a_stderr_that_takes_nothing_stops_nothing(monkeypatch):
    stderr = Mock(**{"write.side_effect": OSError})
    monkeypatch.setattr(sys, "stderr", stderr)
    with report_errors():
        say("a line")  # as on a terminal that is closed
    stderr.write.assert_called()


def test_a_progress_bar_on_a_full_disk_stops_nothing():
    program = ("import errors, tqdm\nwith errors.report_errors():\n"
               "    print(sum(tqdm.trange(3, mininterval=0)))")
    with open("/dev/full", "wb") as stderr:
        process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stderr=stderr,
                                 stdout=subprocess.PIPE, text=True)
    assert (process.returncode, process.stdout) == (0, "3\n")


@pytest.mark.parametrize("allocate", [
    lambda: torch.empty(1 << 50), Mock(side_effect=MemoryError("of 4503599627370496 bytes"))])
def test_too_little_memory_is_a_sentence(capsys, allocate):
    with pytest.raises(SystemExit) as stop, report_errors():
        allocate()
    assert stop.value.code == 2
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


@pytest.fixture
def fake_torch(tmp_path):
    """Return a function that makes PyTorch, for a process with this PYTHONPATH, a few lines. Or
    another module."""
    def fake_torch(code, module="torch"):
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        return {"PYTHONPATH": str(tmp_path)}

    return fake_torch


# That every command catches what happens during its imports is seen in test_packages.py too.
@pytest.mark.parametrize("command", quick_for(["train.py"], COMMANDS))
@pytest.mark.parametrize("module", ["torch", "difflib"])  # the last, and one of Python's own
def test_ctrl_c_during_imports_has_no_traceback(command, module, fake_torch):
    """Even where a package turns the interrupt into an error of its own."""
    environment = fake_torch("""import time
print("importing", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    raise ImportError("half imported")
""", module)
    process = start_python(ROOT / command, "--help", **environment)
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "\n")
    assert process.returncode == 130


def test_an_ignored_ctrl_c_stays_ignored_during_imports(fake_torch):
    environment = fake_torch("import os, signal, sys\nos.kill(os.getpid(), signal.SIGINT)\n"
                             "sys.exit(3)")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a child inherits it, as from nohup
    try:
        process = start_python(ROOT / "train.py", **environment)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 3


def test_ctrl_c_is_an_exception_again_after_the_imports():
    before = signal.getsignal(signal.SIGINT)
    with importing("__main__"):
        pass
    assert signal.getsignal(signal.SIGINT) is before is signal.default_int_handler


def test_importing_a_command_as_a_module_changes_no_handler(capsys):
    with importing("train"):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert capsys.readouterr() == ("", "")


def test_a_command_that_another_one_imports_leaves_its_handler():
    """ablate.py imports train.py in the middle of its own imports."""
    with importing("__main__"), importing("train"):
        assert signal.getsignal(signal.SIGINT) is interrupts.exit_at_once
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("file, expected", [
    (ROOT / "train.py", True), (ROOT / "mine.py", False),
    (ROOT / ".venv" / "bin" / "pytest", False), (None, False)])
def test_ctrl_c_belongs_to_the_commands_only(file, expected, monkeypatch):
    """Not to a notebook, which has no file, and not to programs that import what they need."""
    main = SimpleNamespace() if file is None else SimpleNamespace(__file__=str(file))
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert interrupts.is_command() == expected


@pytest.mark.parametrize("load, expected", [(2.9, 0.0), (3.0, 3.0), (8.2, 8.2)])
def test_a_machine_is_busy_from_three_processes_on_two_cores_on(load, expected, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert busy_load() == expected


def test_another_limit_of_a_busy_machine_is_for_each_core(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert busy_load(per_core=1) == 2.0
    assert busy_load(per_core=1.1) == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="libgomp is the OpenMP of Linux")
@pytest.mark.parametrize("given, load, expected", [
    ({}, 8.0, {"GOMP_SPINCOUNT": "1000"}),
    ({}, 0.0, {}),
    ({"GOMP_SPINCOUNT": "7"}, 8.0, {"GOMP_SPINCOUNT": "7"}),
    ({"OMP_WAIT_POLICY": "active"}, 8.0, {"OMP_WAIT_POLICY": "active"}),
])
def test_threads_sleep_sooner_on_a_busy_machine_only(given, load, expected, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(given))
    monkeypatch.setattr(errors, "busy_load", lambda: load)
    spare_busy_cores()
    assert os.environ == expected


def test_a_command_spares_busy_cores_before_its_imports(monkeypatch):
    spare = Mock()
    monkeypatch.setattr(errors, "spare_busy_cores", spare)
    with importing("__main__"):
        spare.assert_called_once_with()


def read_stderr_of_terminal(environment):
    """All that generate.py writes to a stderr that is a terminal."""
    terminal, stderr = os.openpty()
    process = subprocess.Popen([sys.executable, ROOT / "generate.py"], stderr=stderr,
                               env=os.environ | environment)
    process.wait(timeout=60)
    os.close(stderr)
    shown = os.read(terminal, 1000)
    os.close(terminal)
    return shown


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_shows_a_line_while_pytorch_is_imported(fake_torch):
    shown = read_stderr_of_terminal(fake_torch("raise SystemExit(3)"))
    assert shown == b"\rloading PyTorch ...\r                   \r"


def test_a_log_gets_no_line_while_pytorch_is_imported(fake_torch):
    process = start_python(ROOT / "generate.py", **fake_torch("raise SystemExit(3)"))
    assert process.communicate(timeout=60) == ("", "")


def test_the_nearest_name_is_suggested():
    assert did_you_mean("smal-rope", ["small-rope", "tiny-rope"]) == " (did you mean small-rope?)"


def test_a_name_that_begins_so_is_suggested():
    names = ["small-alibi-s1", "tiny-rope-s1"]
    assert did_you_mean("small", names) == " (did you mean small-alibi-s1?)"


def test_a_name_that_begins_so_comes_before_one_that_is_alike():
    names = ["keep", "kept_for_a_branch"]
    assert did_you_mean("kept", names) == " (did you mean kept_for_a_branch?)"


def test_nothing_is_suggested_for_what_is_like_no_name():
    assert did_you_mean("xyz", ["small-rope", "tiny-rope"]) == ""


@pytest.mark.parametrize("word, name", [
    ("nope", "stopme"), ("plot", "prompt"), ("prompt", "dropout"), ("port", "prompt")])
def test_an_unlike_name_is_not_suggested(word, name):
    assert did_you_mean(word, [name]) == ""


@pytest.mark.parametrize("word, name", [
    ("stpes", "steps"), ("sede", "seed"), ("rum", "run"), ("topk", "top_k"), ("nmae", "name")])
def test_a_misspelt_name_is_suggested(word, name):
    assert did_you_mean(word, [name]) == f" (did you mean {name}?)"


def test_a_terminal_shows_no_control_characters():
    assert hide_controls("a\tb\n\x00\x1b[2J") == "a\tb\n\ufffd\ufffd[2J"


def test_line_ends_of_windows_are_shown_as_line_breaks():
    assert hide_controls("a\r\nb\rc") == "a\nb\ufffdc"


@pytest.mark.parametrize("text, n_notes", [
    ("ROMEO:\\n", 1), ("A: hi\\nB:", 1), ("user: hi\\nassistant:", 1), ("hi\\nonce upon", 1),
    ("ROMEO:\n", 0), (r"\newline, \nabla \neq \nu_1, \normalsize", 0)])
def test_a_backslash_and_an_n_are_noted(capsys, text, n_notes):
    note_backslash_n("--stop", ["def ", text])
    assert capsys.readouterr().err == n_notes * (
        "note: \\n in --stop is a backslash and an n, and no line break: in bash, write --stop "
        "$'...\\n'\n")


# --- commands in messages -------------------------------------------------------------------------


def test_a_command_has_its_name_in_its_own_folder(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert find_script("train.py") == "train.py"


def test_a_command_has_its_path_in_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_script("train.py") == shlex.quote(str(ROOT / "train.py"))


def test_a_command_in_an_error_has_its_path_in_another_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit), report_errors():
        raise UserError("no run: python evaluate.py lists the runs, python -c print() does not, "
                        "nor python tools/as_lines.py")
    script = shlex.quote(str(ROOT / "evaluate.py"))
    assert capsys.readouterr().err == (
        f"error: no run: python {script} lists the runs, python -c print() does not, nor python "
        f"{shlex.quote(str(ROOT / 'tools/as_lines.py'))}\n")
