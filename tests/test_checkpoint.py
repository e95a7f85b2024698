"""A whole checkpoint is left by crashes, full disks, damaged files, and SIGKILL at any moment."""

import math
import os
import pickle
import re
import shutil
import signal
import tempfile
import time
import weakref
from pathlib import Path

import pytest
import torch
from conftest import start
from failing import Failing, Touch, failures, file_size_limit, flip_a_bit
from foreign import assert_equal
from safetensors.torch import load_file, save_file

import files
from errors import UserError
from gyre import checkpoint
from gyre.checkpoint import Checkpoints, write_safetensors

SLOW = pytest.mark.slow
WRITERS = [(torch, "save"), (checkpoint, "save_file")]


@pytest.fixture
def saved(tmp_path):
    """Checkpoints of a folder of its own, in which `last` has been saved for each step given."""
    def saved(*steps):
        checkpoints = Checkpoints(Path(tempfile.mkdtemp(dir=tmp_path)))
        for step in steps:
            save(checkpoints, "last", step)
        return checkpoints

    return saved


def save(checkpoints, name, step):
    """Save weights, and with `last` training state, that all say which step they belong to."""
    a, b = torch.full((3, 5), float(step)), torch.full((7,), step, dtype=torch.bfloat16)
    training = {"step": step, "optimizer": {"state": [a]}}
    checkpoints.save(name, {"a": a, "b": b}, training if name == "last" else None)


def loaded(run, name="last"):
    """The step that the checkpoint on the disk belongs to, all of it."""
    checkpoints = Checkpoints(run)
    if name == "best":
        return checkpoints.load_weights()["a"][0, 0].item()
    return step_of(*checkpoints.load_training())


def step_of(weights, training):
    steps = {weights["a"][0, 0].item(), weights["b"][0].item(), training["step"],
             training["optimizer"]["state"][0][0, 0].item()}
    assert len(steps) == 1, f"weights and training state of different steps: {steps}"
    return steps.pop()


# --- what is saved --------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_bit_for_bit(saved):
    checkpoints = saved()
    weights = {
        "tok_embeddings.weight": torch.randn(7, 5),
        "layers.0.attention.wq.weight": torch.randn(5, 6).T,  # not contiguous
        "norm.weight": torch.randn(5).to(torch.bfloat16).requires_grad_(),
    }
    optimizer = {"state": {0: {"exp_avg": torch.randn(3, 5), "step": torch.tensor(2.0)}},
                 "param_groups": [{"betas": (0.9, 0.95), "params": [0]}]}
    training = {"optimizer": optimizer, "rng": torch.get_rng_state(),
                "count": {"step": 9, "best": math.inf}}
    checkpoints.save("last", weights, training)
    loaded = Checkpoints(checkpoints.path).load_training()
    torch.testing.assert_close(loaded, (weights, training), rtol=0, atol=0)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_wrapped_names_never_reach_the_disk(saved, prefix):
    checkpoints = saved()
    with pytest.raises(AssertionError, match="bare module"):
        checkpoints.save("best", {f"{prefix}norm.weight": torch.ones(3)})
    assert not any(checkpoints.path.iterdir())


def test_weights_are_the_best_ones_or_else_the_last(saved):
    checkpoints = saved()
    with pytest.raises(UserError, match="no checkpoint yet"):
        checkpoints.load_weights()
    save(checkpoints, "last", 1)
    assert checkpoints.load_weights()["a"][0, 0] == 1
    save(checkpoints, "best", 1)
    save(checkpoints, "last", 2)
    assert checkpoints.load_weights()["a"][0, 0] == 1
    assert checkpoints.load_weights("last")["a"][0, 0] == 2
    (file,) = checkpoints.best.iterdir()
    DAMAGE["truncated"](file)
    with pytest.raises(UserError, match=re.escape(f"{file} is damaged")):  # not quietly the last
        checkpoints.load_weights()


# --- damage ---------------------------------------------------------------------------------------


DAMAGE = {
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "empty": lambda file: os.truncate(file, 0),
    "missing": Path.unlink,
    "of another step": lambda file: shutil.copy(file.parents[1] / "previous" / file.name, file),
}


@pytest.mark.parametrize("name, damage", [
    *((name, damage) for name in ("model.safetensors", "training.pt") for damage in DAMAGE),
    ("model.safetensors", flip_a_bit),  # of a weight: only the hash in training.pt tells
])
def test_a_damaged_checkpoint_falls_back_on_the_one_before(saved, name, damage, capsys):
    before = saved(1, 2)
    file = before.last / name
    DAMAGE.get(damage, damage)(file)
    checkpoints = Checkpoints(before.path)
    assert step_of(*checkpoints.load_training()) == 1
    warning = capsys.readouterr().err
    assert str(file) in warning and str(before.previous) in warning

    save(checkpoints, "last", 2)  # the damaged one must not displace the good one
    assert loaded(before.path) == 2
    shutil.rmtree(before.last)
    assert loaded(before.path) == 1


@pytest.mark.parametrize("name, file", [
    ("last", "model.safetensors"), ("last", "training.pt"), ("best", "model.safetensors"),
])
def test_every_flipped_byte_and_every_cut_is_found(saved, name, file):
    checkpoints = saved(1)
    save(checkpoints, "best", 1)
    path = checkpoints.path / name / file
    content = path.read_bytes()
    for at in range(0, len(content), 1 + len(content) // 400):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        for damaged in (bytes(flipped), content[:at]):
            path.write_bytes(damaged)
            try:
                assert loaded(checkpoints.path, name) == 1
            except UserError as error:
                assert str(path) in str(error)
            else:  # where only the name of the hash is another one, all that it is of is whole
                assert b'"sha256"' not in damaged or b'"training.pt"' not in damaged


def test_a_checkpoint_of_an_older_version_is_read_and_its_weights_are_checked(saved, capsys):
    checkpoints = saved()
    folder = checkpoints.path / "last"
    folder.mkdir()
    weights = {"a": torch.full((3, 5), 1.0), "b": torch.full((7,), 1, dtype=torch.bfloat16)}
    save_file(weights, folder / "model.safetensors")
    training = {"step": 1, "optimizer": {"state": [weights["a"]]}}
    digest = files.sha256(folder / "model.safetensors")
    torch.save({"training": training, "weights_sha256": digest}, folder / "training.pt")
    assert loaded(checkpoints.path) == 1
    flip_a_bit(folder / "model.safetensors")
    with pytest.raises(UserError, match="not the file .*training.pt was saved with"):
        loaded(checkpoints.path)


def test_a_reader_beside_a_training_gets_one_save_or_another(saved):
    """The folder is replaced between the reading of its two files, again and again."""
    checkpoints = saved(1, 2)
    steps = iter(range(3, 99))
    original = files.sha256

    def slow_sha256(path):
        if path.parent == checkpoints.last and (step := next(steps)) < 6:
            save(checkpoints, "last", step)
        return original(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "sha256", slow_sha256)
        reader = Checkpoints(checkpoints.path)
        assert step_of(*reader.load_training()) == 5 and reader._last_is_good


def test_a_checkpoint_has_the_modes_of_any_other_file(saved):
    checkpoints = saved(1)
    (checkpoints.path / "other").touch()
    modes = {file.stat().st_mode for file in checkpoints.last.iterdir()}
    assert modes == {(checkpoints.path / "other").stat().st_mode}


def test_a_file_that_cannot_be_read_is_not_called_damaged(saved):
    checkpoints = saved()
    save(checkpoints, "best", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "safe_open", raising(PermissionError(13, "Permission denied")))
        with pytest.raises(UserError, match=r"model.safetensors cannot be read .Permission denied"):
            checkpoints.load_weights()


def raising(error):
    def raise_it(*args, **kwargs):
        raise error

    return raise_it


def test_a_pickle_cannot_run_code(saved, tmp_path):
    checkpoints = saved(1)  # without a `previous`: the error names the file
    file = checkpoints.last / "training.pt"
    payload = Touch(tmp_path / "executed")
    for damage in (DAMAGE["truncated"],
                   lambda file: torch.save({"training": payload, "weights_sha256": ""}, file),
                   lambda file: file.write_bytes(pickle.dumps(payload, protocol=2))):
        damage(file)
        for older in (False, True):  # without any hash, so that only the reader refuses it
            with pytest.MonkeyPatch.context() as patch:
                if older:
                    patch.setattr(checkpoint, "_read_weights", lambda file: ({}, {}))
                with pytest.raises(UserError, match=re.escape(f"{file} is damaged")) as refused:
                    checkpoints.load_training()
            assert "weights_only" not in str(refused.value)
    assert not (tmp_path / "executed").exists()
    pickle.loads(file.read_bytes())
    assert (tmp_path / "executed").exists()  # the payload would have worked


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 1, pytest.param(2, marks=SLOW), pytest.param(3, marks=SLOW)])
@pytest.mark.parametrize("name", ["last", "best"])
def test_a_failure_anywhere_in_a_save_costs_nothing(saved, name, before):
    """The k-th operation fails, for all k, with 0 ... 3 checkpoints saved before."""
    for failing in failures(WRITERS, at_least=7):
        checkpoints = saved()
        for step in range(1, before + 1):
            save(checkpoints, name, step)
        with failing:
            save(checkpoints, name, before + 1)
        if failing.error:
            assert str(checkpoints.path / name) in str(failing.error)
            assert "No space left" in str(failing.error)
        if before or not failing.error:
            assert loaded(checkpoints.path, name) in (before, before + 1)
        if name == "best" and before:
            assert (checkpoints.best / "model.safetensors").exists()
        save(Checkpoints(checkpoints.path), name, 9)
        assert loaded(checkpoints.path, name) == 9
        assert {path.name for path in checkpoints.path.iterdir()} <= {"last", "previous", "best"}


@SLOW
def test_a_failure_after_a_fallback_keeps_the_only_good_one(saved):
    for failing in failures(WRITERS, at_least=7):
        run = saved(1, 2).path
        DAMAGE["truncated"](run / "last" / "training.pt")
        checkpoints = Checkpoints(run)
        checkpoints.load_training()
        with failing:
            save(checkpoints, "last", 3)
        assert loaded(run) in ((1, 3) if failing.error else (3,))


@pytest.mark.parametrize("name, expected", [
    # The files, then both of them and their folder, then the names.
    ("last", "save save_file  fsync fsync fsync  rename rename fsync"),
    ("best", "save_file  fsync fsync  replace fsync fsync"),
])
def test_a_checkpoint_is_on_the_disk_before_it_gets_its_name(saved, name, expected):
    checkpoints = saved(1)
    save(checkpoints, "best", 1)
    with Failing(-1, WRITERS) as watched:
        save(checkpoints, name, 2)
    assert [call for call in watched.calls if call in expected.split()] == expected.split()


def test_what_cannot_be_pickled_costs_nothing(saved):
    checkpoints = saved(1)
    with pytest.raises(Exception, match="pickle"):
        checkpoints.save("last", {"a": torch.ones(3)}, {"step": lambda: None})
    assert loaded(checkpoints.path) == 1


@pytest.mark.parametrize("limit", [0, 100, 1200, 100_000])  # at the start, within each file
def test_a_full_disk_is_said_in_words(saved, limit):
    """A file-size limit refuses writes where a full disk would, from inside the real writers."""
    checkpoints = saved(1)
    words = f"cannot write {checkpoints.last}: .*File too large.*--resume"
    with file_size_limit(limit), pytest.raises(UserError, match=words):
        checkpoints.save("last", {"a": torch.ones(200)}, {"b": torch.ones(70_000)})
    assert loaded(checkpoints.path) == 1


SAVER = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from test_checkpoint import Checkpoints, save, step_of
checkpoints = Checkpoints(Path(sys.argv[1]))
step = int(step_of(*checkpoints.load_training()))
while True:
    step += 1
    save(checkpoints, "last", step)
    save(checkpoints, "best", step)
    print(step, flush=True)
"""


@SLOW
def test_kill_9_at_any_moment_leaves_a_whole_checkpoint(saved):
    """A process that does nothing but save is killed again and again, and goes on where it was."""
    checkpoints = saved(0)
    save(checkpoints, "best", 0)
    steps = [0]
    for kill in range(4):
        process = start(SAVER, checkpoints.path)
        finished = [int(process.stdout.readline()) for _ in range(2)]
        time.sleep(0.0017 * kill)  # another moment of the save each time
        process.send_signal(signal.SIGKILL)
        finished += [int(line) for line in process.communicate()[0].split()]
        steps.append(loaded(checkpoints.path))
        assert steps[-1] >= finished[-1] > steps[-2]
        assert loaded(checkpoints.path, "best") in (steps[-1] - 1, steps[-1])


def test_tensors_pass_through_memory_one_by_one(tmp_path):
    alive = []

    def tensors():
        for _ in range(4):
            assert sum(reference() is not None for reference in alive) <= 1
            tensor = torch.ones(3, 5)
            alive.append(weakref.ref(tensor))
            yield tensor
            del tensor

    like = {f"t{n}": torch.empty(3, 5) for n in range(4)}
    write_safetensors(tmp_path / "a.safetensors", like, tensors())
    assert_equal(load_file(tmp_path / "a.safetensors"), {name: torch.ones(3, 5) for name in like})
