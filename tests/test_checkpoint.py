"""There is still a whole checkpoint after a crash, a full disk or a damaged file."""

import errno
import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import weakref
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from builders import exit_code, stop_at, tiny_argv
from disk_faults import FailingDisk, TouchWhenRead, cut, failing_disks, flip_a_bit
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import train
from errors import UserError
from gyre import checkpoint
from gyre.checkpoint import MANIFEST, STATES, TRAINING, WEIGHTS, Checkpoints
from gyre.parallel import World

# (owner, name) of the functions that FailingDisk replaces besides those of os. `save` below calls
# the save_file of this module.
WRITERS = [(torch, "save"), (sys.modules[__name__], "save_file")]


def saved(folder, *steps):
    """Checkpoints of a folder of its own, in which `last` has been saved for each step."""
    checkpoints = Checkpoints(Path(tempfile.mkdtemp(dir=folder)))
    for step in steps:
        save(checkpoints, "last", step)
    return checkpoints


def save(checkpoints, name, step):
    """Save weights, and optimizer states and training state, that all say which step they are."""
    def write(folder):
        for file in (WEIGHTS, STATES):
            save_file({"a": torch.full((3, 5), float(step))}, folder / file)

    checkpoints.save(name, write, {"step": step})


def step_on_disk(checkpoints, name="last"):
    """The step of `last`, or of another checkpoint, which all of its files on the disk say."""
    with checkpoints.open(name) as folder:
        steps = {load_file(folder / file)["a"][0, 0].item() for file in (WEIGHTS, STATES)}
        steps.add(checkpoints.load_training(folder)["step"])
    assert len(steps) == 1, f"files of different steps: {steps}"
    return steps.pop()


# --- what is saved --------------------------------------------------------------------------------


def step_of_weights(checkpoints, name="best"):
    """The step of the weights that are loaded of `best`, or of another checkpoint."""
    return checkpoints.load_weights(name)["a"][0, 0].item()


def test_without_a_checkpoint_there_are_no_weights(tmp_path):
    checkpoints = saved(tmp_path)
    assert not checkpoints.can_resume
    with pytest.raises(UserError, match="no checkpoint 'best'"):
        checkpoints.load_weights()


def test_the_last_weights_stand_in_for_the_best(tmp_path):
    checkpoints = saved(tmp_path, 1)
    assert checkpoints.can_resume
    assert step_of_weights(checkpoints, "best") == 1


@pytest.mark.parametrize("name, step", [("best", 11), ("last", 12), (2, 2), (10, 10)])
def test_each_checkpoint_is_found_by_its_name(tmp_path, name, step):
    checkpoints = saved(tmp_path, 12)
    save(checkpoints, "best", 11)
    save(checkpoints, 2, 2)
    save(checkpoints, 10, 10)
    assert step_of_weights(checkpoints, name) == step


def test_a_step_that_was_not_kept_names_those_that_were(tmp_path):
    checkpoints = saved(tmp_path, 12)
    save(checkpoints, 10, 10)
    save(checkpoints, 2, 2)
    with pytest.raises(UserError, match="kept no checkpoint of step 1; it has: 2, 10"):
        checkpoints.load_weights(1)


def test_a_run_without_checkpoints_is_to_be_trained_on(tmp_path):
    path = tmp_path / "my run"
    path.mkdir()
    with pytest.raises(UserError, match=f"train on with --resume '{path}', or choose another run"):
        Checkpoints(path).load_weights()


def test_where_only_the_best_was_saved_it_is_advised(tmp_path):
    """As in an imported run, which cannot be resumed."""
    checkpoints = saved(tmp_path)
    save(checkpoints, "best", 1)
    with pytest.raises(UserError) as caught:
        checkpoints.load_weights("last")
    assert str(caught.value) == (f"{checkpoints.path} has no checkpoint 'last': choose the "
                                 "checkpoint 'best', or another run")


@pytest.mark.parametrize("names", [["last"], ["last", "best"]])  # before its first best, and later
def test_for_an_unknown_checkpoint_both_names_are_advised(tmp_path, names):
    checkpoints = saved(tmp_path)
    for name in names:
        save(checkpoints, name, 1)
    with pytest.raises(UserError, match="no checkpoint 'first': choose the checkpoint 'best' or "
                       "'last', or another run$"):
        checkpoints.load_weights("first")


def test_a_step_that_cannot_be_saved_is_named_by_its_folder(tmp_path):
    checkpoints = saved(tmp_path)
    (checkpoints.path / "kept").touch()
    with pytest.raises(UserError, match=f"cannot write {checkpoints.path}/kept/5: "):
        save(checkpoints, 5, 5)


def test_damage_that_rank_0_has_found_stops_other_ranks(tmp_path, monkeypatch):
    damaged = tmp_path / "last" / WEIGHTS
    monkeypatch.setattr(World, "all_gather", lambda self, value: [[damaged], value])
    second = World(1, 2, torch.device("cpu"), is_main=False)
    with (pytest.raises(UserError, match=f"{damaged} is missing or not what was saved"),
          saved(tmp_path, 1).open("last", second)):
        pass


def test_damaged_best_weights_are_not_quietly_the_last(tmp_path):
    checkpoints = saved(tmp_path, 1)
    save(checkpoints, "best", 1)
    flip_a_bit(checkpoints.path / "best" / WEIGHTS)
    with pytest.raises(UserError, match="model.safetensors is missing or not what"):
        checkpoints.load_weights()


@pytest.mark.parametrize("manifest", ["[" * 100_000, None], ids=["nested", "folder"])
def test_what_is_no_manifest_makes_a_checkpoint_damaged(tmp_path, manifest):
    """Then the checkpoint before it is read. None: a folder stands in the place of the file."""
    checkpoints = saved(tmp_path, 1, 2)
    file = checkpoints.path / "last" / MANIFEST
    file.unlink()
    if manifest is None:
        file.mkdir()
    else:
        file.write_text(manifest, encoding="utf-8")
    assert step_of_weights(checkpoints, "last") == 1


def test_the_step_of_a_damaged_last_checkpoint_is_that_of_the_one_before(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    cut(checkpoints.path / "last" / WEIGHTS)
    with checkpoints.open("last"):
        assert checkpoints.saved_step("last") == 1


def test_an_error_of_a_conversion_is_not_taken_for_a_replaced_checkpoint(tmp_path):
    """Which would be read again."""
    def convert(name, weight):
        raise FileNotFoundError("table.bin")

    with pytest.raises(FileNotFoundError, match="table.bin"):
        saved(tmp_path, 1).load_weights("last", convert)


def test_the_step_of_weights_is_that_of_the_checkpoint_they_are_from(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    cut(checkpoints.path / "last" / WEIGHTS)
    weights, step, _ = checkpoints.load_saved_weights()
    assert (weights["a"][0, 0].item(), step) == (1, 1)


def test_the_hash_of_weights_is_that_of_their_file(tmp_path):
    checkpoints = saved(tmp_path, 1)
    digest = hashlib.sha256((checkpoints.path / "last" / WEIGHTS).read_bytes()).hexdigest()
    assert checkpoints.load_saved_weights("last").sha256 == digest


def test_ctrl_c_while_weights_are_read_is_not_lost(tmp_path):
    """Not even if a training has replaced the folder meanwhile, which is then read again."""
    checkpoints = saved(tmp_path, 1)
    interrupted = []

    def convert(name, weight):
        if not interrupted:
            interrupted.append(name)
            save(checkpoints, "last", 2)
            raise KeyboardInterrupt
        return {name: weight}

    with pytest.raises(KeyboardInterrupt):
        checkpoints.load_weights("last", convert)


def test_a_run_that_resumes_at_its_best_keeps_it(tmp_path):
    checkpoints = saved(tmp_path, 12)
    save(checkpoints, "best", 11)
    save(checkpoints, 10, 10)
    checkpoints.forget_after(11)
    assert step_of_weights(checkpoints, "best") == 11
    assert checkpoints.kept_steps() == [10]


def test_what_a_killed_save_has_left_is_found(tmp_path):
    """Killed between the two renames, of `best` and of `last`."""
    checkpoints = saved(tmp_path, 11, 12)
    save(checkpoints, "best", 9)
    (checkpoints.path / "best").rename(checkpoints.path / ".best")
    shutil.rmtree(checkpoints.path / "last")
    assert (step_of_weights(checkpoints, "best"), step_of_weights(checkpoints, "last")) == (9, 11)
    assert (checkpoints.saved_step("best"), checkpoints.saved_step("last")) == (9, 11)
    assert checkpoints.has_best


def test_without_a_best_its_step_is_0(tmp_path):
    checkpoints = saved(tmp_path, 12)
    assert checkpoints.saved_step("best") == 0
    assert not checkpoints.has_best


@pytest.mark.parametrize("leave", [shutil.copytree, shutil.move])
def test_a_run_that_goes_back_forgets_its_best_step(tmp_path, leave):
    """Also the .best that a killed save has left."""
    checkpoints = saved(tmp_path, 12)
    save(checkpoints, "best", 11)
    leave(checkpoints.path / "best", checkpoints.path / ".best")
    checkpoints.forget_after(10)
    assert step_of_weights(checkpoints, "best") == 12  # the last


def test_a_run_that_goes_back_forgets_later_steps(tmp_path):
    checkpoints = saved(tmp_path, 12)
    save(checkpoints, 2, 2)
    save(checkpoints, 10, 10)
    checkpoints.forget_after(9)
    assert checkpoints.kept_steps() == [2]


# --- damage ---------------------------------------------------------------------------------------


def test_a_manifest_without_the_weights_is_damaged(tmp_path):
    checkpoints = saved(tmp_path)
    save(checkpoints, "best", 1)
    (checkpoints.path / "best" / MANIFEST).write_text("{}", encoding="utf-8")
    (checkpoints.path / "best" / WEIGHTS).unlink()
    with pytest.raises(UserError, match="best/model.safetensors is missing or not what was saved"):
        checkpoints.load_weights()


def take_from_previous(file):
    shutil.copy(file.parents[1] / "previous" / file.name, file)


@pytest.mark.parametrize("name, damage", [
    (WEIGHTS, cut), (STATES, Path.unlink), (TRAINING, take_from_previous), (MANIFEST, flip_a_bit)])
def test_a_damaged_checkpoint_falls_back_on_the_one_before(tmp_path, name, damage, capsys):
    checkpoints = saved(tmp_path, 1, 2)
    damage(checkpoints.path / "last" / name)
    assert step_on_disk(checkpoints) == 1
    assert f"last/{name} is missing or not what was saved" in capsys.readouterr().err


def test_after_a_fall_back_the_one_before_is_kept_again(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    cut(checkpoints.path / "last" / WEIGHTS)
    assert step_on_disk(checkpoints) == 1
    save(checkpoints, "last", 3)
    save(checkpoints, "last", 4)
    shutil.rmtree(checkpoints.path / "last")
    assert checkpoints.can_resume
    assert step_on_disk(checkpoints) == 3


def test_flipped_bits_and_cuts_throughout_each_file_are_found(tmp_path):
    """A flipped bit, and a cut, at each of up to 16 places of a file."""
    checkpoints = saved(tmp_path, 1)
    for path in (checkpoints.path / "last").iterdir():
        content = path.read_bytes()
        for at in range(0, len(content), 1 + len(content) // 16):
            flipped = bytes([content[at] ^ 1 << at % 8])
            for damaged in (content[:at] + flipped + content[at + 1 :], content[:at]):
                path.write_bytes(damaged)
                with pytest.raises(UserError):
                    step_on_disk(checkpoints)
        path.write_bytes(content)
    assert step_on_disk(checkpoints) == 1


@pytest.mark.parametrize("function", ["sha256", "read_safetensors"])
def test_a_reader_beside_a_training_gets_a_whole_save(tmp_path, monkeypatch, capsys, function):
    """The folder is replaced while its files are hashed, or while they are read."""
    checkpoints = saved(tmp_path, 1, 2)
    original = getattr(checkpoint, function)

    def slow(file):
        monkeypatch.undo()
        save(checkpoints, "last", 3)
        return original(file)

    monkeypatch.setattr(checkpoint, function, slow)
    reader = Checkpoints(checkpoints.path)
    assert step_of_weights(reader, "last") == 3
    assert reader.last_is_good
    assert capsys.readouterr().err == ""


def test_a_reader_of_several_files_learns_of_a_save(tmp_path):
    """Such as a branch, which reads files that have to be of one save."""
    checkpoints = saved(tmp_path, 1)
    with pytest.raises(UserError, match="last was replaced"), checkpoints.open("last"):
        save(checkpoints, "last", 2)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="lists open folders")
def test_a_folder_that_is_read_keeps_its_inode(tmp_path):
    """It is held open. Else a folder of a later save might get its inode, and look like it."""
    checkpoints = saved(tmp_path, 1)
    with checkpoints.open("last") as folder:
        held = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_dir()]
    assert str(folder) in held


def test_a_reader_of_best_finds_a_save_that_just_ended(tmp_path, monkeypatch):
    """The save finishes after the reader has asked for .best."""
    checkpoints = saved(tmp_path, 1)
    save(checkpoints, "best", 2)
    path = checkpoints.path
    (path / "best").rename(path / "moving")
    exists = Path.exists

    def finishing(folder):
        answer = exists(folder)
        if folder.name == ".best" and exists(path / "moving"):
            (path / "moving").rename(path / "best")
        return answer

    monkeypatch.setattr(Path, "exists", finishing)
    assert step_of_weights(checkpoints, "best") == 2


def test_a_reader_of_the_old_best_gets_the_new(tmp_path, monkeypatch):
    """In this order:

    1. The reader finds .best, of step 2, and begins to hash a file of it.
    2. A save of step 3 puts its folder in place as best.
    3. The save removes .best: its files are gone, its folder is still there.
    4. The reader misses files of .best, and looks again.
    """
    checkpoints = saved(tmp_path, 1)
    save(checkpoints, "best", 2)
    (checkpoints.path / "best").rename(checkpoints.path / ".best")
    check = checkpoint.sha256

    def remove_files(folder):
        for file in folder.glob("*.*"):
            file.unlink()

    def slow(file):
        monkeypatch.undo()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoint, "remove", remove_files)
            save(checkpoints, "best", 3)
        return check(file)

    monkeypatch.setattr(checkpoint, "sha256", slow)
    assert step_of_weights(checkpoints, "best") == 3


def test_a_pickle_cannot_run_code(tmp_path):
    checkpoints = saved(tmp_path, 1)
    file = checkpoints.path / "last" / TRAINING
    file.write_bytes(pickle.dumps(TouchWhenRead(tmp_path / "executed"), protocol=2))
    # Not within `open`, which compares hashes: here only the reader can refuse it. torch would
    # advise to execute it.
    with pytest.raises(UserError, match="training.pt holds no training state: restore it$"):
        checkpoints.load_training(file.parent)
    assert not (tmp_path / "executed").exists()
    pickle.loads(file.read_bytes())
    assert (tmp_path / "executed").exists()  # the payload would have worked


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, good_step", [
    ("best", 2), ("last", 1), pytest.param("last", 2, marks=pytest.mark.slow)])
def test_a_failure_anywhere_in_a_save_costs_nothing(tmp_path, name, good_step):
    """The k-th operation fails, for all k; also where only the checkpoint of step 1 is good."""
    for disk in failing_disks(WRITERS, at_least=7):
        checkpoints = saved(tmp_path, 1, 2)
        save(checkpoints, "best", 2)
        if good_step == 1:
            cut(checkpoints.path / "last" / TRAINING)
        assert step_on_disk(checkpoints, name) == good_step
        with disk:
            save(checkpoints, name, 3)
        if disk.error:
            assert isinstance(disk.error, UserError)
            assert f"{checkpoints.path / name}: [Errno 28] No space" in str(disk.error)
        left = step_on_disk(Checkpoints(checkpoints.path), name)
        if disk.error:
            assert left in (good_step, 3)  # 3: it failed after the last rename
        else:
            assert left == 3
        again = Checkpoints(checkpoints.path)
        save(again, name, 9)
        assert step_on_disk(again, name) == 9
        assert {p.name for p in again.path.iterdir()} <= {"last", "previous", "best"}


def test_a_folder_that_cannot_be_removed_stops_no_save(tmp_path, monkeypatch):
    """As on NFS, which keeps the files of a folder while a reader has them open."""
    checkpoints = saved(tmp_path, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", Mock(side_effect=OSError(errno.ENOTEMPTY, "not empty")))
        save(checkpoints, "last", 3)
        save(checkpoints, "last", 4)
    assert len([*checkpoints.path.glob(".removing-*")]) == 2
    save(checkpoints, "last", 5)
    assert sorted(path.name for path in checkpoints.path.iterdir()) == ["last", "previous"]
    assert step_on_disk(checkpoints) == 5


@pytest.mark.parametrize("name, end", [("last", ""), ("best", "rename")])
def test_a_checkpoint_is_on_the_disk_before_its_name(tmp_path, name, end):
    """First the files and their folder, then the names, then the folders of the names, which here
    are one. At last .best goes: it is renamed, and removed under that name."""
    checkpoints = saved(tmp_path, 1)
    save(checkpoints, "best", 1)
    with FailingDisk(-1, WRITERS) as watched:
        save(checkpoints, name, 2)
    expected = f"fsync fsync fsync fsync fsync rename rename fsync fsync {end}".split()
    assert [call for call in watched.calls if call in ("fsync", "rename")] == expected


# --- in a training --------------------------------------------------------------------------------


def test_a_resumed_training_does_not_displace_the_only_good_checkpoint(workdir):
    path = workdir / "runs" / "damaged"
    stop_at(7, *tiny_argv(workdir, "--name", "damaged"))  # saved after steps 5 and 7
    flip_a_bit(path / "last" / STATES)
    stop_at(8, "--resume", path)
    shutil.rmtree(path / "last")  # as after a crash between the renames of a save
    checkpoints = Checkpoints(path)
    with checkpoints.open("last") as folder:
        assert checkpoints.load_training(folder)["progress"]["step"] == 5
    assert exit_code(train.main, "--resume", path) == 0


# --- safetensors ----------------------------------------------------------------------------------

TENSORS = {f"t{n}": torch.full((3, 5), n, dtype=torch.bfloat16) for n in range(4)}


def test_written_tensors_are_read_by_safetensors(tmp_path):
    checkpoint.write_safetensors(tmp_path / "a", TENSORS, TENSORS.values())
    torch.testing.assert_close(load_file(tmp_path / "a"), TENSORS, rtol=0, atol=0)


def test_tensors_pass_through_memory_one_by_one(tmp_path):
    alive = []

    def tensors():
        for value in TENSORS.values():
            assert sum(reference() is not None for reference in alive) <= 1
            tensor = value.clone()
            alive.append(weakref.ref(tensor))
            yield tensor
            del tensor

    checkpoint.write_safetensors(tmp_path / "a", TENSORS, tensors())
    assert len(alive) == 4


def test_the_data_starts_at_a_multiple_of_8_bytes(tmp_path):
    checkpoint.write_safetensors(tmp_path / "a", TENSORS, TENSORS.values())
    header = int.from_bytes((tmp_path / "a").read_bytes()[:8], "little")
    assert header % 8 == 0


def test_the_largest_tensor_is_read_first(tmp_path):
    save_file({"a": torch.zeros(2), "b": torch.zeros(3, 5), "c": torch.zeros(7)}, tmp_path / "a")
    names = [name for name, _ in checkpoint.read_safetensors(tmp_path / "a")]
    assert names == ["b", "c", "a"]


def test_the_format_is_said_as_transformers_asks(tmp_path):
    checkpoint.write_safetensors(tmp_path / "a", TENSORS, TENSORS.values())
    with safe_open(tmp_path / "a", "pt") as stored:
        assert stored.metadata() == {"format": "pt"}
