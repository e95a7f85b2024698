"""Training by several real processes, each with all of the model or a part of it.

What one process does is the reference: losses agree to 1e-6 in float32, however many processes
there are, in whatever groups, and however often a run is stopped and resumed by another number.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import (
    ROOT,
    arguments,
    output,
    points,
    refusal,
    run,
    start,
    stop_at,
    trained,
    training,
)
from failing import flip_a_bit

import train
from errors import UserError
from gyre import build
from gyre.checkpoint import STATES
from gyre.parallel import World
from gyre.rundir import RunDir

slow = pytest.mark.slow
# 27 rows in micro-batches of 5 are more of them in some processes than in others.
RAGGED = ["--model.dropout", "0.25", "--train.micro_batch_size", "5"]
TORCHRUN = "import runpy; runpy.run_module('torch.distributed.run', run_name='__main__')"
# Starts so many processes, by fork, because imports take longer than the training.
FORK = f"""
import os, signal, socket, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
import gyre.plot, gyre.sharding, torch, torch._dynamo, torch.distributed as dist, train
size = int(sys.argv.pop(1))
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ |= {{"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}}
children = []
for rank in range(size):
    children.append(os.fork())
    if children[-1] == 0:
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        break
else:
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
# A training that is told to stop after a step, of which rank 1 alone is told. In the end no group
# of processes would have waited longer than train.timeout.
TRAIN = FORK + """
number, step, leave = int(sys.argv.pop(1)), train.train_step, train.World.leave
def stopping(setup, at):
    if setup.world.rank == 1 and at == number - 1:
        train.StopSignal.number = signal.SIGTERM
    return step(setup, at)
def leave_in_time(self):
    for group in dist.distributed_c10d._world.pg_map:
        waits = group._get_backend(self.device).options._timeout.total_seconds()
        assert waits == self.timeout, waits
    leave(self)
train.train_step, train.World.leave = stopping, leave_in_time
train.main()
"""
# Two processes without a training.
TWO = FORK + """
from pathlib import Path
from conftest import model_config, random_model, random_tokens
from gyre.checkpoint import read_whole
from gyre.optim import OptimConfig, Optimizers
from gyre.parallel import World
from gyre.sharding import Sharded
world = World.read("cpu", 30)
world.join()
sums = world.sum(2.0**24 + rank, 0.5)  # float32 has no such number
assert sums == [2.0**25 + 1, 1.0], sums
assert world.collect(rank) == [0, 1]
parallelism = Sharded(world, 2)
model, module = parallelism.wrap(model_config(), lambda m: m.drawn(1), False, False)
optimizers = Optimizers(model, OptimConfig())
expected = random_model(1)
with torch.no_grad():  # leaves the weights outside of blocks gathered
    torch.testing.assert_close(module(random_tokens(2, 9)), expected(random_tokens(2, 9)))
parallelism.save(Path(sys.argv[1]), model, optimizers)
world.sum(0.0)
for name, weight in read_whole(Path(sys.argv[1]), "model.").items():
    assert torch.equal(weight, expected.state_dict()[name]), name
states = read_whole(Path(sys.argv[1]), "state.")
assert {state.item() for name, state in states.items() if name.endswith(".step")} == {0}
world.leave()
"""


def torchrun(processes: int, *argv: str | Path) -> list[str | Path]:
    """The arguments of TORCHRUN that start so many processes."""
    return ["--nproc-per-node", str(processes), "--standalone", *argv]


def children(process: int) -> list[int]:
    """The processes that this one has started, in their order."""
    file = Path(f"/proc/{process}/task/{process}/children")
    return [int(number) for number in file.read_text(encoding="utf-8").split()]


def wait_for(condition: Callable[[], bool], timeout: float = 100) -> None:
    stop = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < stop, "waited in vain"
        time.sleep(0.05)


def assert_same_losses(path: Path, expected: Path) -> None:
    for key in ("train/loss", "val/loss", "train/grad_norm"):
        assert points(path, key) == pytest.approx(points(expected, key), abs=1e-6)


# The larger share of two has 14 rows; the matched sinusoid a scalar, which cannot be divided.
MUON = ["--optim.optimizer", "muon", "--model.tie_embeddings", "false",
        "--train.micro_batch_size", "14", "--model.position", "sinusoidal"]
ALIBI = ["--model.position", "alibi", "--train.checkpoint_activations", "true"]


@slow
@pytest.mark.parametrize(("processes", "shard", "extra"), [
    (2, "none", []), (2, "full", MUON), (4, "2", ALIBI),
])
def test_several_processes_train_as_one_does(world, processes, shard, extra):
    """DDP, FSDP and HSDP. What they leave behind has the same files and the same weights."""
    name = f"{shard}-{processes}"
    one, several = trained(world, f"one-{name}", *RAGGED, *extra), world / "runs" / name
    argv = arguments(world, *RAGGED, *extra, "--train.shard", shard, "--name", name)
    output(TRAIN, str(processes), "0", *argv)
    assert_same_losses(several, one)
    assert {p.name for p in one.iterdir()} == {p.name for p in several.iterdir()}
    for which in ("last", "best"):
        expected, weights = (RunDir.open(p).checkpoints.load_weights(which) for p in (one, several))
        assert weights.keys() == expected.keys()
        for weight_name, weight in expected.items():
            # Newton and Schulz make small differences larger.
            torch.testing.assert_close(weights[weight_name].view(weight.shape), weight,
                                       rtol=0, atol=2e-4 if extra == MUON else 2e-5)


@slow
def test_a_run_goes_on_with_any_number_of_processes(world, capfd):
    """4, 1 and 3 processes, each a part of one run; the one has the whole model in one file.

    One rank that is told to stop stops all. The three find `last` damaged, each a part of it.
    """
    muon = [*RAGGED, "--optim.optimizer", "muon", "--model.tie_embeddings", "false"]
    one, path = trained(world, "one", *muon), world / "runs" / "chain"
    argv = arguments(world, *muon, "--train.shard", "full", "--resume", "auto", "--name", "chain")
    _, errors = start(TRAIN, "4", "4", *argv).communicate(timeout=300)
    assert "torchrun ... train.py --resume" in errors
    assert len(list((path / "last").glob("shard-*"))) == 4
    stop_at(9, *argv)
    assert (path / "last" / STATES).exists()
    flip_a_bit(path / "last" / STATES)
    _, errors = start(TRAIN, "3", "0", *argv).communicate(timeout=300)
    assert errors.count("taking the checkpoint before it") == 1
    assert_same_losses(path, one)

    # The last validation was the best, so both are the weights of the last step.
    assert min(points(path, "val/loss").values()) == points(path, "val/loss")[12]
    checkpoints = RunDir.open(path).checkpoints
    best, last = (checkpoints.load_weights(name) for name in ("best", "last"))
    assert all(torch.equal(best[name], last[name]) for name in best)
    assert run(train.main, *argv) == 0 and "nothing to do" in capfd.readouterr().err

    # Any part that is damaged, or not there: the checkpoint before it is whole.
    for part in [*(path / "last").iterdir()]:
        data = part.read_bytes()
        for damage in (data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], None):
            part.unlink() if damage is None else part.write_bytes(damage)
            with checkpoints.open("last") as folder:
                assert checkpoints.load_training(folder)["progress"]["step"] == 10, part
        part.write_bytes(data)
    foreign = path / "last" / "shard-00009-model-00001-of-00001.safetensors"
    foreign.write_bytes(b"")  # DCP would read it with the others
    with checkpoints.open("last") as folder:
        assert folder.name == "previous"


@slow
def test_two_processes_sum_exactly_and_save_what_they_were_given(tmp_path):
    output(TWO, "2", tmp_path)


@slow
def test_a_killed_process_costs_the_steps_since_the_last_checkpoint(world):
    """kill -9; torchrun starts all again, and --resume auto goes on."""
    one, path = trained(world, "longer", *RAGGED, "--train.steps", "60"), world / "runs" / "shot"
    argv = arguments(world, *RAGGED, "--train.steps", "60", "--train.shard", "full",
                     "--resume", "auto", "--name", "shot")
    process = start(TORCHRUN, "--max-restarts", "3", *torchrun(2, ROOT / "train.py", *argv))
    wait_for(lambda: (path / "last").exists())
    os.kill(children(process.pid)[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert_same_losses(path, one)


@slow
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_nobody_waits_for_ever_for_a_process_that_hangs_or_is_gone(world, number):
    path = world / "runs" / number.name
    argv = arguments(world, "--train.shard", "full", "--train.timeout", "3", "--train.steps",
                     "100000", "--name", path.name)
    process = start(TRAIN, "2", "0", *argv)
    wait_for(lambda: (path / "last").exists())
    rank_1 = children(process.pid)[1]
    os.kill(rank_1, number)
    wait_for(lambda: children(process.pid) in ([], [rank_1]), timeout=30)
    if number == signal.SIGSTOP:
        os.kill(rank_1, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert "error: process 0 of 2 has lost the others: one of them ended, or gave no " in errors
    assert "Traceback" not in errors and process.returncode == 2


def test_what_cannot_be_divided_is_refused(world, capfd, monkeypatch):
    for argv, words in {
        ("--train.shard", "0"): "train.shard must be at least 1, not 0",
        ("--train.shard", "half"): "train.shard must be",
        ("--train.shard", "full", "--train.dtype", "float16"): "float16 cannot be sharded",
        ("--train.timeout", "0"): "train.timeout must be",
    }.items():
        assert words in refusal(capfd, train.main, *arguments(world, *argv))[-1]
    monkeypatch.setenv("WORLD_SIZE", "6")
    with pytest.raises(UserError, match="WORLD_SIZE is 6 and RANK is None"):
        World.read("cpu")
    monkeypatch.setenv("RANK", "0")
    assert "train.shard 4 does not divide the 6 processes" in refusal(
        capfd, train.main, *arguments(world, "--train.shard", "4"))[-1]
    with pytest.raises(UserError, match="cuda:1 is one card, and there are 6 processes"):
        World.read("cuda:1")
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert "say --resume auto" in refusal(capfd, train.main, *arguments(world))[-1]


def test_the_same_command_starts_a_run_and_goes_on_with_it(world, tmp_path, capfd, monkeypatch):
    """Without the weights that it started from; what has been decided stays decided."""
    path = world / "runs" / "again"
    origin = shutil.copytree(trained(world, "origin"), tmp_path / "origin")
    argv = ["--init-from", str(origin), *training(
        world, "--train.dtype", "auto", "--name", "again", "--resume", "auto")]
    slow_bfloat16 = [2e9, 1e9]
    monkeypatch.setattr(build, "product_rates", lambda *args, **options: slow_bfloat16)
    stop_at(4, *argv)
    slow_bfloat16.reverse()
    capfd.readouterr()
    stop_at(7, *argv)
    assert "float32, as configured" in capfd.readouterr().err
    shutil.rmtree(origin)
    assert run(train.main, *argv) == 0
    assert list(points(path)) == list(range(1, 13))
    assert run(train.main, *argv) == 0
    shutil.rmtree(path)
    assert f"no run folder at {origin}" in refusal(capfd, train.main, *argv)[-1]


def test_a_config_file_that_changed_is_listed(world, tmp_path, capfd):
    file = tmp_path / "c.yaml"
    argv = ["--config", str(file), *arguments(world, "--name", "listed", "--resume", "auto")]
    for clip in (2, 3):
        file.write_text(f"optim: {{grad_clip: {clip}}}", encoding="utf-8")
        capfd.readouterr()
        stop_at(2 * clip, *argv)
    assert "goes on with its own optim.grad_clip, not" in capfd.readouterr().err
