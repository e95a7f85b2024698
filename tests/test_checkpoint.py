"""A whole checkpoint is left by crashes, full disks, damaged files, and SIGKILL at any moment."""

import itertools
import math
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_files import Failing, failures

from errors import UserError
from gyre import checkpoint
from gyre.checkpoint import Checkpoints

ROOT = Path(__file__).parents[1]
SLOW = pytest.mark.slow
WRITERS = [(torch, "save"), (checkpoint, "save_file")]


@pytest.fixture
def saved(tmp_path):
    """Checkpoints of a folder of its own, in which `last` has been saved for each step given."""
    numbers = itertools.count()

    def saved(*steps):
        run = tmp_path / f"run-{next(numbers)}"
        run.mkdir()
        checkpoints = Checkpoints(run)
        for step in steps:
            checkpoints.save("last", *of_step(step))
        return checkpoints

    return saved


def of_step(step):
    """Weights and training state that both say which step they belong to."""
    weights = {"a": torch.full((3, 5), float(step)),
               "b": torch.full((7,), step, dtype=torch.bfloat16)}
    return weights, {"step": step, "optimizer": {"state": [torch.full((3, 5), float(step))]}}


def arguments(name, step):
    weights, training = of_step(step)
    return (weights, training) if name == "last" else (weights,)


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
    moments = {"exp_avg": torch.randn(3, 5), "step": torch.tensor(2.0)}
    optimizer = {"state": {0: moments}, "param_groups": [{"betas": (0.9, 0.95), "params": [0]}]}
    training = {"optimizer": optimizer, "rng": torch.get_rng_state(),
                "count": {"step": 9, "best": math.inf}}
    checkpoints.save("last", weights, training)
    loaded, state = Checkpoints(checkpoints.path).load_training()
    assert loaded.keys() == weights.keys()
    for key in weights:
        assert loaded[key].dtype == weights[key].dtype and torch.equal(loaded[key], weights[key])
    assert state["count"] == training["count"] and torch.equal(state["rng"], training["rng"])
    assert state["optimizer"]["param_groups"] == optimizer["param_groups"]
    assert torch.equal(state["optimizer"]["state"][0]["exp_avg"], moments["exp_avg"])


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
    checkpoints.save("last", *of_step(1))
    assert checkpoints.load_weights()["a"][0, 0] == 1
    checkpoints.save("best", of_step(1)[0])
    checkpoints.save("last", *of_step(2))
    assert checkpoints.load_weights()["a"][0, 0] == 1
    assert checkpoints.load_weights("last")["a"][0, 0] == 2
    (file,) = checkpoints.best.iterdir()
    DAMAGE["truncated"](file)
    with pytest.raises(UserError, match=re.escape(f"{file} is damaged")):  # not quietly the last
        checkpoints.load_weights()


# --- damage ---------------------------------------------------------------------------------------


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


DAMAGE = {
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "empty": lambda file: os.truncate(file, 0),
    "missing": Path.unlink,
    "of another step": lambda file: shutil.copy(file.parents[1] / "previous" / file.name, file),
}


@pytest.mark.parametrize(("name", "damage"), [
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

    checkpoints.save("last", *of_step(2))  # the damaged one must not displace the good one
    assert loaded(before.path) == 2
    shutil.rmtree(before.last)
    assert loaded(before.path) == 1


def test_without_any_whole_checkpoint_the_error_names_the_file(saved):
    checkpoints = saved(1)
    file = checkpoints.last / "training.pt"
    DAMAGE["truncated"](file)
    with pytest.raises(UserError, match=re.escape(f"{file} is damaged")):
        checkpoints.load_training()


def test_a_pickle_cannot_run_code(saved, tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    checkpoints = saved(1)
    file = checkpoints.last / "training.pt"
    torch.save({"training": Payload(), "weights_sha256": ""}, file)
    with pytest.raises(UserError, match=re.escape(f"{file} is damaged")):
        checkpoints.load_training()
    file.write_bytes(pickle.dumps(Payload(), protocol=2))
    with pytest.raises(UserError, match=re.escape(f"{file} is damaged")):
        checkpoints.load_training()
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
            checkpoints.save(name, *arguments(name, step))
        with failing:
            checkpoints.save(name, *arguments(name, before + 1))
        if failing.error:
            assert str(checkpoints.path / name) in str(failing.error)
            assert "No space left" in str(failing.error)
        if before or not failing.error:
            assert loaded(checkpoints.path, name) in (before, before + 1)
        if name == "best" and before:
            assert (checkpoints.best / "model.safetensors").exists()
        Checkpoints(checkpoints.path).save(name, *arguments(name, 9))
        assert loaded(checkpoints.path, name) == 9
        assert {path.name for path in checkpoints.path.iterdir()} <= {"last", "previous", "best"}


def test_a_failure_after_a_fallback_keeps_the_only_good_one(saved):
    for failing in failures(WRITERS, at_least=7):
        run = saved(1, 2).path
        DAMAGE["truncated"](run / "last" / "training.pt")
        checkpoints = Checkpoints(run)
        checkpoints.load_training()
        with failing:
            checkpoints.save("last", *of_step(3))
        assert loaded(run) in ((1, 3) if failing.error else (3,))


@pytest.mark.parametrize(("name", "n_files", "rename"), [("last", 2, "rename"),
                                                         ("best", 1, "replace")])
def test_a_checkpoint_is_on_the_disk_before_it_gets_its_name(saved, name, n_files, rename):
    checkpoints = saved(1)
    checkpoints.save("best", of_step(1)[0])
    with Failing(-1, WRITERS) as watched:
        checkpoints.save(name, *arguments(name, 2))
    calls = [call for call in watched.calls if call in ("save", "save_file", "fsync", rename)]
    writes = ["save_file", "save"][:n_files]
    fsyncs = ["fsync"] * (n_files + 1)  # the files, and the folder that their names are in
    renames = {"last": ["rename", "rename", "fsync"], "best": ["replace", "fsync", "fsync"]}
    assert calls == writes + fsyncs + renames[name]


def test_what_cannot_be_pickled_costs_nothing(saved):
    checkpoints = saved(1)
    with pytest.raises(Exception, match="pickle"):
        checkpoints.save("last", of_step(2)[0], {"step": lambda: None})
    assert loaded(checkpoints.path) == 1


@pytest.mark.parametrize("limit", [0, 100, 1200, 100_000])  # at the start, within each file
def test_a_full_disk_is_said_in_words(saved, limit):
    """A file-size limit refuses writes where a full disk would, from inside the real writers."""
    checkpoints = saved(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        words = f"cannot write {checkpoints.last}: .*File too large.*--resume"
        with pytest.raises(UserError, match=words):
            checkpoints.save("last", {"a": torch.ones(200)}, {"b": torch.ones(70_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert loaded(checkpoints.path) == 1


SAVER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_checkpoint import Checkpoints, of_step, step_of
checkpoints = Checkpoints(Path(sys.argv[1]))
step = int(step_of(*checkpoints.load_training()))
while True:
    step += 1
    checkpoints.save("last", *of_step(step))
    checkpoints.save("best", of_step(step)[0])
    print(step, flush=True)
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_a_whole_checkpoint(saved):
    """A process that does nothing but save is killed again and again, and goes on where it was."""
    checkpoints = saved(0)
    checkpoints.save("best", of_step(0)[0])
    command = [sys.executable, "-c", SAVER, str(checkpoints.path), str(ROOT), str(ROOT / "tests")]
    steps = [0]
    for kill in range(4):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        finished = [int(process.stdout.readline()) for _ in range(2)]
        time.sleep(0.0017 * kill)  # another moment of the save each time
        process.send_signal(signal.SIGKILL)
        finished += [int(line) for line in process.communicate()[0].split()]
        steps.append(loaded(checkpoints.path))
        assert steps[-1] >= finished[-1] > steps[-2]
        assert loaded(checkpoints.path, "best") in (steps[-1] - 1, steps[-1])
