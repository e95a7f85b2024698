"""Files are whole or not there, whatever fails; locks hold between real processes."""

import json
import math
import os
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from conftest import start
from failing import Failing, failures
from safetensors.torch import save_file

import files
from errors import UserError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_removing_a_link_leaves_the_folder_that_it_leads_to(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for name in ("link", "nothing"):
        files.remove(tmp_path / name)
    assert names(tmp_path) == ["folder"]


# --- atomic_path ----------------------------------------------------------------------------------


def write_folder(staging):
    (staging / "deep").mkdir(parents=True)
    (staging / "deep" / "a").write_bytes(b"new")


def write_one(staging):
    staging.write_bytes(b"new")


@pytest.mark.parametrize("write", [write_one, write_folder])
def test_a_failure_anywhere_leaves_the_old_or_the_new(tmp_path, write):
    target = tmp_path / "target"
    for failing in failures():
        files.remove(target)
        if write is write_one:
            target.write_bytes(b"old")
        with failing, files.atomic_path(target) as staging:
            write(staging)
        assert names(tmp_path) in ([], ["target"])
        if write is write_one:
            assert target.read_bytes() in (b"old" if failing.error else b"new", b"new")
        elif target.exists() or not failing.error:
            assert (target / "deep" / "a").read_bytes() == b"new"


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path):
    with Failing(-1) as watched, files.atomic_path(tmp_path / "target") as staging:
        write_folder(staging)
    # Both folders and the file; the name; the folder that the name is in.
    assert [call for call in watched.calls if call in ("fsync", "replace", "rename")] == [
        "fsync", "fsync", "fsync", "replace", "fsync"
    ]


def test_what_was_begun_is_no_part_of_what_follows(tmp_path):
    """Of an error in the middle nothing is left; of a killed process nothing is taken over."""
    with (pytest.raises(KeyboardInterrupt),
          files.atomic_path(tmp_path / "target") as staging):
        write_folder(staging)
        raise KeyboardInterrupt
    assert names(tmp_path) == []
    left = tmp_path / ".target.elsewhere-7.tmp"
    write_folder(left)
    files.write_file(tmp_path / "target", b"a")  # it may be of a process that still writes
    assert names(tmp_path) == [left.name, "target"]
    os.utime(left, (0, 0))
    files.write_file(tmp_path / "target", b"a")
    assert names(tmp_path) == ["target"]


def inside(context, body="pass"):
    """A process that is in this context until a line comes in or it is killed."""
    process = start(f"""
from pathlib import Path
from files import atomic_path, locked
with {context} as staging:
    {body}
    print("inside", flush=True)
    input()
""")
    assert process.stdout.readline() == "inside\n"
    return process


def test_two_processes_that_write_one_file_are_in_no_way_of_each_other(tmp_path):
    other = inside(f"atomic_path(Path({str(tmp_path / 'target')!r}))",
                   "staging.write_bytes(b'theirs')")
    files.write_file(tmp_path / "target", b"ours")
    assert (tmp_path / "target").read_bytes() == b"ours"
    other.communicate("\n")
    assert other.returncode == 0 and (tmp_path / "target").read_bytes() == b"theirs"
    assert names(tmp_path) == ["target"]


def test_windows_flushes_no_folder_and_keeps_a_file_that_is_open(tmp_path, monkeypatch):
    with monkeypatch.context() as windows, files.atomic_path(tmp_path / "target") as staging:
        write_folder(staging)
        windows.delattr(os, "O_DIRECTORY")
        windows.setattr(os, "open", watched := Mock(wraps=os.open))
    watched.assert_called_once_with(staging / "deep" / "a", os.O_RDWR)
    assert (tmp_path / "target" / "deep" / "a").exists()
    monkeypatch.setattr(Path, "unlink", Mock(side_effect=PermissionError))
    for _ in range(2):
        with files.locked(tmp_path / "b", "busy", wait=False):
            pass


# --- words ----------------------------------------------------------------------------------------


def save_torch(path):
    with path.open("wb", buffering=0) as stream:
        torch.save({"a": torch.ones(3)}, stream)


@pytest.mark.parametrize("write, path, advice", [
    (lambda path: path.write_bytes(b"a"), "/dev/full", "choose another"),
    (save_torch, "/dev/full", "choose another"),
    (lambda path: save_file({"a": torch.ones(3)}, path), "/none/a", "choose another"),
    (Path.touch, "/none/b", "the folder was removed or renamed"),
], ids=["plain", "torch", "safetensors", "removed"])
def test_what_the_disk_refuses_is_said_in_words(write, path, advice):
    words = rf"^cannot write {path}: .+; {advice}$"
    with pytest.raises(UserError, match=words), files.writing(Path(path), "choose another"):
        write(Path(path))


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(RuntimeError, match="a bug"), files.writing(tmp_path):
        raise RuntimeError("a bug")


def test_too_little_room_is_refused(tmp_path):
    files.require_space(tmp_path / "a", 1)
    with pytest.raises(UserError, match="make room"):
        files.require_space(tmp_path / "not" / "yet" / "there", 10**18)


# --- contents -------------------------------------------------------------------------------------


def test_json_is_written_as_asked_and_read_back(tmp_path):
    path, value = tmp_path / "new" / "a.json", {"é": [1, 0.1], "none": None}
    files.write_json(path, value)
    assert path.read_bytes() == (json.dumps(value, indent=1) + "\n").encode()
    assert files.read_json(path) == value
    files.stage_json(path, value)
    assert path.read_bytes() == (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(path, {"loss": math.nan})
    assert files.read_json(path) == value


def test_damaged_json_is_named_with_what_to_do(tmp_path):
    path = tmp_path / "a.json"
    for content in (b'{"a": 1', b"[1]", b'{"a": "\xff"}'):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"a.json is damaged \(.+\): make it again$"):
            files.read_json(path, "make it again")


def test_a_sealed_file_is_what_was_written_in_any_order(tmp_path):
    path = tmp_path / "a.json"
    files.write_sealed(path, {"b": 1, "a": {"d": 2, "c": 3}})
    written = files.read_json(path)
    files.write_json(path, dict(sorted(written.items())))
    assert files.read_sealed(path, "") == {"b": 1, "a": {"d": 2, "c": 3}}
    files.write_json(path, written | {"b": 2})
    with pytest.raises(UserError, match="hash differs.*: make it again$"):
        files.read_sealed(path, "make it again")


# --- the lock -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_process_at_a_time_and_death_frees_the_lock(tmp_path, monkeypatch):
    path, lines = tmp_path / "new" / "target", []
    other = inside(f"locked(Path({str(path)!r}), 'busy')")
    with pytest.raises(UserError, match="^busy$"), files.locked(path, "busy", wait=False):
        pass

    def kill(line):
        lines.append(line)
        other.send_signal(signal.SIGKILL)

    monkeypatch.setattr("files.say", kill)
    with files.locked(path, "busy"):  # it says so, and waits
        assert lines == ["busy"]
    with files.locked(path, "busy", wait=False):
        assert other.wait() == -signal.SIGKILL
    assert lines == ["busy"] and names(path.parent) == []


@pytest.mark.slow
def test_a_lock_that_many_want_has_one_owner_at_a_time(tmp_path):
    """Its file goes with its owner, so who waits must not take a file that is gone for the lock."""
    path = tmp_path / "target"
    path.write_bytes(b"")
    code = f"""
from pathlib import Path
from files import locked
path = Path({str(path)!r})
for _ in range(60):
    with locked(path, "busy"):
        count = len(path.read_bytes())
        path.write_bytes(bytes(count + 1))
"""
    processes = [start(code) for _ in range(3)]
    assert [process.communicate()[1].count("Traceback") for process in processes] == [0, 0, 0]
    assert len(path.read_bytes()) == 180
