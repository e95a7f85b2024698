"""Files are whole or not there, whatever fails; locks hold between real processes."""

import errno
import math
import os
import shutil
import signal
import stat
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from builders import start_python
from disk_faults import FailingDisk, failing_disks, file_size_limit
from safetensors.torch import save_file

import files
from errors import UserError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error, line", [
    (ValueError("one\ntwo"), "one"), (AssertionError(), "AssertionError"),
    (KeyError(None), "KeyError")])
def test_an_exception_without_a_text_is_called_by_its_type(error, line):
    assert files.first_line(error) == line


def test_removing_a_link_leaves_the_folder_that_it_leads_to(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for name in ("link", "nothing"):
        files.remove(tmp_path / name)
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("content", [b"text", b'{"text": 1}'])
def test_a_file_that_an_option_has_not_written_is_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    words = f"--json {tmp_path}/x would replace a file that --json has not written: choose another"
    with pytest.raises(UserError, match=words):
        files.refuse_other_file("--json", f"{tmp_path}/x", rb'{\s*"runs"')


@pytest.mark.parametrize("content", [b"", b'{"runs": []}', b'{\n "runs": [\n'])
def test_a_file_that_an_option_may_have_written_is_replaced(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    files.refuse_other_file("--json", f"{tmp_path}/x", rb'{\s*"runs"')


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"--json .*/pipe is a device or a pipe"):
        files.refuse_other_file("--json", f"{tmp_path}/pipe", rb"{")


def test_a_file_is_written_through_a_link_into_a_new_folder(tmp_path):
    (tmp_path / "link").symlink_to("new/file")
    files.write_file(tmp_path / "link", b"text")
    assert (tmp_path / "new" / "file").read_bytes() == b"text"


def test_a_link_into_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file/deeper")
    with pytest.raises(UserError, match="/file is no folder: choose another place"):
        files.refuse_unwritable("--json", f"{tmp_path}/link")


def test_a_file_is_written_through_a_link(tmp_path):
    (tmp_path / "link").symlink_to("file")
    files.write_file(tmp_path / "link", b"text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"text"


# --- atomic_path ----------------------------------------------------------------------------------


def write_folder(staging):
    (staging / "deep").mkdir(parents=True)
    (staging / "deep" / "a").write_bytes(b"new")


@pytest.mark.parametrize("write, name, old", [
    (lambda staging: staging.write_bytes(b"new"), "target", b"old"),
    (write_folder, "target/deep/a", b"")], ids=["file", "folder"])
def test_a_failure_anywhere_leaves_the_old_or_the_new(tmp_path, write, name, old):
    target = tmp_path / "target"
    file = tmp_path / name
    for disk in failing_disks():
        files.remove(target)
        if old:
            target.write_bytes(old)
        with disk, files.atomic_path(target) as staging:
            write(staging)
        content = file.read_bytes() if target.exists() else b""
        assert content in ([old, b"new"] if disk.error else [b"new"])
        assert names(tmp_path) == (["target"] if content else [])


def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path):
    with FailingDisk(-1) as watched, files.atomic_path(tmp_path / "target") as staging:
        write_folder(staging)
    # Both folders and the file; the name; the folder that the name is in.
    calls = [call for call in watched.calls if call in ("fsync", "replace", "rename")]
    assert calls == ["fsync", "fsync", "fsync", "replace", "fsync"]


def test_two_processes_may_write_the_same_file(tmp_path, monkeypatch):
    """The last one wins."""
    target = tmp_path / "target"
    with files.atomic_path(target) as staging:
        staging.write_bytes(b"theirs")
        monkeypatch.setattr(os, "getpid", lambda: 0)  # another process
        files.write_file(target, b"ours")
        assert target.read_bytes() == b"ours"
    assert target.read_bytes() == b"theirs"


@pytest.mark.parametrize("age, left", [
    (85_000, [".target.elsewhere-7.tmp", "target"]), (87_000, ["target"])])
def test_what_a_killed_process_left_goes_after_a_day(tmp_path, age, left):
    folder = tmp_path / ".target.elsewhere-7.tmp"
    write_folder(folder)
    long_ago = time.time() - age
    os.utime(folder, (long_ago, long_ago))
    files.write_file(tmp_path / "target", b"new")
    assert names(tmp_path) == left


def test_what_a_killed_process_of_the_same_number_left_goes_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt), files.atomic_path(tmp_path / "target") as left:
        raise KeyboardInterrupt
    write_folder(left)
    with files.atomic_path(tmp_path / "target") as staging:
        write_folder(staging)
    assert names(tmp_path) == ["target"]


def test_an_interrupted_write_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), files.atomic_path(tmp_path / "target") as staging:
        write_folder(staging)
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_on_windows_only_files_are_flushed(tmp_path, monkeypatch):
    """And they are opened to be written."""
    watched = Mock(wraps=os.open)
    with monkeypatch.context() as windows, files.atomic_path(tmp_path / "target") as staging:
        write_folder(staging)
        windows.delattr(os, "O_DIRECTORY")
        windows.setattr(os, "open", watched)
    watched.assert_called_once_with(staging / "deep" / "a", os.O_RDWR)
    assert (tmp_path / "target" / "deep" / "a").exists()


def refuse_to_flush(kind, number):
    """An os.fsync that raises this error for a kind of file, such as stat.S_ISDIR."""
    def flush(descriptor):
        if kind(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    return flush


def test_a_filesystem_may_be_unable_to_flush_folders(tmp_path, monkeypatch):
    """As CIFS and some of FUSE."""
    monkeypatch.setattr(os, "fsync", refuse_to_flush(stat.S_ISDIR, errno.EINVAL))
    files.write_file(tmp_path / "a", b"a")
    assert (tmp_path / "a").read_bytes() == b"a"


@pytest.mark.parametrize("kind, number", [
    (stat.S_ISREG, errno.EINVAL), (stat.S_ISDIR, errno.EIO)])
def test_a_flush_that_fails_for_another_reason_is_an_error(tmp_path, monkeypatch, kind, number):
    monkeypatch.setattr(os, "fsync", refuse_to_flush(kind, number))
    with pytest.raises(UserError, match=f"cannot write .*Errno {number}"):
        files.write_file(tmp_path / "a", b"a")


def test_a_lock_that_is_released_leaves_no_file(tmp_path):
    with files.locked(tmp_path / "target", "busy"):
        assert names(tmp_path) == [".target.lock"]
    assert names(tmp_path) == []


def test_a_lock_is_held_until_its_file_is_gone(tmp_path, monkeypatch):
    """Otherwise the file would be taken from its next owner, and a third process makes another."""
    present = []
    release = files.FileLock.release

    def look_and_release(lock, *args, **options):
        present.append(Path(lock.lock_file).exists())
        release(lock, *args, **options)

    monkeypatch.setattr(files.FileLock, "release", look_and_release)
    with files.locked(tmp_path / "target", "busy"):
        pass
    assert present[0] is False


def test_on_windows_a_lock_may_leave_its_file(tmp_path, monkeypatch):
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


VALUE = {"é": [1, 0.1], "none": None}


def test_written_json_is_ascii_and_read_back(tmp_path):
    path = tmp_path / "new" / "a.json"
    files.write_json(path, VALUE)
    assert path.read_bytes() == (
        b'{\n "\\u00e9": [\n  1,\n  0.1\n ],\n "none": null\n}\n')
    assert files.read_json(path) == VALUE


def test_staged_json_is_utf_8_and_read_back(tmp_path):
    path = tmp_path / "a.json"
    files.stage_json(path, VALUE)
    assert path.read_bytes().decode() == (
        '{\n  "é": [\n    1,\n    0.1\n  ],\n  "none": null\n}\n')
    assert files.read_json(path) == VALUE


@pytest.mark.parametrize("write", [files.write_json, files.stage_json])
def test_nan_is_no_json(tmp_path, write):
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path / "a.json", {"loss": math.nan})


@pytest.mark.parametrize("content", [b'{"a": 1', b"[1]", b'{"a": "\xff"}'])
def test_damaged_json_is_named_with_what_to_do(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a.json is damaged \(.+\): make it again$"):
        files.read_json(path, "make it again")


def test_a_sealed_file_may_be_in_any_order(tmp_path):
    path = tmp_path / "a.json"
    files.write_sealed(path, {"b": 1, "a": {"d": 2, "c": 3}})
    written = files.read_json(path)
    files.write_json(path, dict(sorted(written.items())))
    assert files.read_sealed(path, "") == {"b": 1, "a": {"d": 2, "c": 3}}


def test_a_changed_value_breaks_the_seal(tmp_path):
    path = tmp_path / "a.json"
    files.write_sealed(path, {"b": 1})
    files.write_json(path, files.read_json(path) | {"b": 2})
    with pytest.raises(UserError, match="hash differs.*: make it again$"):
        files.read_sealed(path, "make it again")


def test_a_file_without_a_seal_is_refused(tmp_path):
    path = tmp_path / "a.json"
    files.write_json(path, {"b": 1})
    with pytest.raises(UserError, match="hash differs.*: make it again$"):
        files.read_sealed(path, "make it again")


# --- the lock -------------------------------------------------------------------------------------


@pytest.fixture
def owner(tmp_path):
    """A process that holds the lock of tmp_path/new/target."""
    path = tmp_path / "new" / "target"
    process = start_python(f"""
from pathlib import Path
from files import locked
with locked(Path({str(path)!r}), "busy"):
    print("inside", flush=True)
    input()
""")
    assert process.stdout.readline() == "inside\n"
    yield process
    process.kill()


@pytest.mark.slow
def test_who_does_not_wait_for_a_lock_is_refused(owner, tmp_path):
    path = tmp_path / "new" / "target"
    with pytest.raises(UserError, match="^busy$"), files.locked(path, "busy", wait=False):
        pass


@pytest.mark.slow
def test_who_waits_for_a_lock_says_so(owner, tmp_path, monkeypatch):
    """And has it as soon as its owner dies."""
    say = Mock(side_effect=lambda line: owner.kill())
    monkeypatch.setattr(files, "say", say)
    with files.locked(tmp_path / "new" / "target", "busy"):
        say.assert_called_once_with("busy")
        assert owner.wait() == -signal.SIGKILL


def test_who_waits_for_a_lock_can_give_up(tmp_path):
    def wait():
        with files.locked(tmp_path / "target", "waiting", gives_up=lambda: True):
            pass

    with (ThreadPoolExecutor(1) as other, files.locked(tmp_path / "target", "busy"),
          pytest.raises(files.Busy, match="waiting, until it was stopped")):
        other.submit(wait).result(timeout=5)


@pytest.mark.slow
def test_the_lock_of_a_dead_process_is_free(owner, tmp_path):
    path = tmp_path / "new" / "target"
    owner.kill()
    assert owner.wait() == -signal.SIGKILL
    with files.locked(path, "busy", wait=False):
        pass
    assert names(path.parent) == []


def add_60_bytes(path):
    for _ in range(60):
        with files.locked(path, "busy"):
            path.write_bytes(path.read_bytes() + b"a")


@pytest.mark.slow
def test_a_lock_has_one_owner_at_a_time(tmp_path, launch_ranks):
    """Its file goes with its owner, so who waits must not take a file that is gone for the lock."""
    path = tmp_path / "target"
    path.write_bytes(b"")
    launch_ranks(3, add_60_bytes, path).join()
    assert len(path.read_bytes()) == 180


def test_a_lock_that_cannot_be_written_is_told_in_a_sentence(tmp_path, monkeypatch):
    refused = Mock(side_effect=OSError(30, "Read-only file system"))
    monkeypatch.setattr(files.FileLock, "acquire", refused)
    words = "^cannot write .*/.run.lock: .*Read-only file system; make room or check the permissio"
    with pytest.raises(UserError, match=words), files.locked(tmp_path / "run", "busy"):
        pass


def test_who_waits_for_a_lock_is_told_that_its_folder_was_removed(tmp_path):
    folder = tmp_path / "folder"

    def remove_folder():
        shutil.rmtree(folder, ignore_errors=True)
        return False

    def wait():
        with files.locked(folder / "target", "waiting", gives_up=remove_folder):
            pass

    with (ThreadPoolExecutor(1) as other, files.locked(folder / "target", "busy"),
          pytest.raises(UserError, match="^cannot write .*/.target.lock: ")):
        other.submit(wait).result(timeout=5)
