"""Files are whole or not there, whatever fails; locks hold between real processes."""

import json
import math
import os
import signal
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from conftest import start
from disk_faults import FailingDisk, failing_disks, file_size_limit
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


@pytest.mark.parametrize("write, name, old", [
    (lambda staging: staging.write_bytes(b"new"), "target", b"old"),
    (write_folder, "target/deep/a", b"")], ids=["file", "folder"])
def test_a_failure_anywhere_leaves_the_old_or_the_new(tmp_path, write, name, old):
    target, file = tmp_path / "target", tmp_path / name
    for disk in failing_disks():
        files.remove(target)
        if old:
            target.write_bytes(old)
        with disk, files.atomic_path(target) as staging:
            write(staging)
        content = file.read_bytes() if target.exists() else b""
        assert content == b"new" or disk.error and content == old
        assert names(tmp_path) == ["target"] * bool(content)


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path):
    with FailingDisk(-1) as watched, files.atomic_path(tmp_path / "target") as staging:
        write_folder(staging)
    # Both folders and the file; the name; the folder that the name is in.
    calls = [call for call in watched.calls if call in ("fsync", "replace", "rename")]
    assert calls == ["fsync", "fsync", "fsync", "replace", "fsync"]


def test_another_process_that_writes_the_same_file_is_in_no_way(tmp_path, monkeypatch):
    """Of one that was killed nothing is taken over, and what it left is removed a day later."""
    target, left = tmp_path / "target", tmp_path / ".target.elsewhere-7.tmp"
    write_folder(left)
    os.utime(left, (time.time() - 85_000,) * 2)
    with files.atomic_path(target) as staging:
        staging.write_bytes(b"theirs")
        monkeypatch.setattr(os, "getpid", lambda: 0)
        files.write_file(target, b"ours")
        assert target.read_bytes() == b"ours"
    assert target.read_bytes() == b"theirs" and names(tmp_path) == [left.name, "target"]
    os.utime(left, (time.time() - 87_000,) * 2)
    with pytest.raises(KeyboardInterrupt), files.atomic_path(target) as staging:
        write_folder(staging)
        raise KeyboardInterrupt
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
    """torch.save to a disk that gets full on the way."""
    with tempfile.TemporaryFile() as stream, file_size_limit(1000):
        torch.save([*range(5000)], stream)


@pytest.mark.parametrize("write, path, advice", [
    (lambda path: path.write_bytes(b"a"), "/dev/full", "choose another"),
    (save_torch, "/any", "choose another"),
    (lambda path: save_file({"a": torch.ones(3)}, path), "/none/a", "choose another"),
    (Path.touch, "/none/b", "the folder was removed or renamed")])
def test_what_the_disk_refuses_is_said_in_words(write, path, advice):
    words = rf"^cannot write {path}: .+; {advice}$"
    with pytest.raises(UserError, match=words), files.writing(Path(path), "choose another"):
        write(Path(path))


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(RuntimeError, match="a bug"), files.writing(tmp_path):
        raise RuntimeError("a bug")


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
    for changed in (written | {"b": 2}, {"b": 1}):
        files.write_json(path, changed)
        with pytest.raises(UserError, match="hash differs.*: make it again$"):
            files.read_sealed(path, "make it again")


# --- the lock -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_process_at_a_time_and_death_frees_the_lock(tmp_path, monkeypatch):
    path = tmp_path / "new" / "target"
    other = start(f"""
from pathlib import Path
from files import locked
with locked(Path({str(path)!r}), "busy"):
    print("inside", flush=True)
    input()
""")
    assert other.stdout.readline() == "inside\n"
    with pytest.raises(UserError, match="^busy$"), files.locked(path, "busy", wait=False):
        pass
    say = Mock(side_effect=lambda line: other.kill())
    monkeypatch.setattr(files, "say", say)
    with files.locked(path, "busy"):  # it says so, and waits
        say.assert_called_once_with("busy")
    with files.locked(path, "busy", wait=False):
        assert other.wait() == -signal.SIGKILL
    assert names(path.parent) == []


def add_60_bytes(path):
    for _ in range(60):
        with files.locked(path, "busy"):
            path.write_bytes(path.read_bytes() + b"a")


@pytest.mark.slow
def test_a_lock_that_many_want_has_one_owner_at_a_time(tmp_path, launch):
    """Its file goes with its owner, so who waits must not take a file that is gone for the lock."""
    path = tmp_path / "target"
    path.write_bytes(b"")
    launch(3, add_60_bytes, path).join()
    assert len(path.read_bytes()) == 180
