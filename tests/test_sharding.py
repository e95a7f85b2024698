"""Training by several real processes, each with all of the model or a part of it.

What one process does is the reference: losses agree to 1e-6 in float32, however many processes
there are, in whatever groups, and however often a run is stopped and resumed by another number.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import (
    CPU,
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

import train
from docs.simulate_scaling import table
from errors import UserError
from gyre import checkpoint, trainer
from gyre.checkpoint import Checkpoints
from gyre.parallel import World
from gyre.rundir import RunDir
from gyre.sharding import state_tensors

pytestmark = pytest.mark.slow
# 27 rows in micro-batches of 5 are more of them in some processes than in others.
RAGGED = ["--model.dropout", "0.25", "--train.micro_batch_size", "5"]
TORCHRUN = "import runpy; runpy.run_module('torch.distributed.run', run_name='__main__')"
# Starts so many processes, by fork, as imports take longer than the training; and stops it after a
# step. In the end no group of them would have waited longer than train.timeout.
WORLD = f"""
import os, socket, sys
sys.path.insert(0, {str(ROOT)!r})
import gyre.plot, gyre.sharding, torch._dynamo, torch.distributed as dist, train
size, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
step = train.Trainer.step
train.Trainer.step = lambda self, *args: step(self, *args) or self.progress.step == number
leave = train.World.leave
def leave_in_time(self):
    for group in dist.distributed_c10d._world.pg_map:
        waits = group._get_backend(self.device).options._timeout.total_seconds()
        assert waits == self.timeout, waits
    leave(self)
train.World.leave = leave_in_time
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ |= {{"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}}
children = []
for rank in range(size):
    children.append(os.fork())
    if children[-1] == 0:
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        train.main()
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def torchrun(processes: int, *argv: str | Path) -> list[str | Path]:
    """The arguments of TORCHRUN that start so many processes."""
    return ["--nproc-per-node", str(processes), "--standalone", *argv]


def rank_of(name: str, rank: int, timeout: float = 60) -> int:
    """The process that trains the run of this name as this rank, once there is one."""
    stop = time.monotonic() + timeout
    while time.monotonic() < stop:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if name.encode() in words and f"RANK={rank}".encode() in variables:
                return int(folder.name)
        time.sleep(0.05)
    raise AssertionError(f"no process of rank {rank}")


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


@pytest.mark.parametrize(("processes", "shard", "extra"), [
    (2, "none", []), (2, "full", MUON), (4, "2", ALIBI),
])
def test_several_processes_train_as_one_does(world, processes, shard, extra):
    """DDP, FSDP and HSDP. What they leave behind has the same files and the same weights."""
    name = f"{shard}-{processes}"
    one, several = trained(world, f"one-{name}", *RAGGED, *extra), world / "runs" / name
    argv = arguments(world, *RAGGED, *extra, "--train.shard", shard, "--name", name)
    output(WORLD, str(processes), "0", *argv)
    assert_same_losses(several, one)
    assert {p.name for p in one.iterdir()} == {p.name for p in several.iterdir()}
    for which in ("last", "best"):
        expected, found = (RunDir.open(p).load_weights(which) for p in (one, several))
        assert found.keys() == expected.keys()
        for weight_name, weight in expected.items():
            # Newton and Schulz make small differences larger.
            torch.testing.assert_close(found[weight_name].view(weight.shape), weight,
                                       rtol=0, atol=2e-4 if extra == MUON else 2e-5)


def test_a_run_goes_on_with_any_number_of_processes(world):
    """4, 1 and 3 processes, each a part of one run; the one has the whole model in one file."""
    muon = [*RAGGED, "--optim.optimizer", "muon", "--model.tie_embeddings", "false"]
    one, path = trained(world, "one", *muon), world / "runs" / "chain"
    argv = arguments(world, *muon, "--train.shard", "full", "--resume", "auto", "--name", "chain")
    for processes, last_step, parts in ((4, 4, 4), (1, 9, 0), (3, 12, 3)):
        _, errors = start(WORLD, str(processes), str(last_step), *argv).communicate(timeout=300)
        assert list(points(path))[-1] == last_step, errors
        assert (f"torchrun --nproc-per-node {processes} train.py --resume" in errors) == (
            processes > 1 and last_step < 12)
        assert len(list((path / "last").glob("shard-*"))) == parts
    assert_same_losses(path, one)

    # The last validation was the best one, so both are the weights of the last step.
    assert min(points(path, "val/loss").values()) == points(path, "val/loss")[12]
    best, last = (RunDir.open(path).load_weights(name) for name in ("best", "last"))
    assert all(torch.equal(best[name], last[name]) for name in best)
    assert run(train.main, *argv) == 0  # finished: nothing is left to do

    # A checkpoint that is replaced while it is read is read once more.
    read, swapped = checkpoint.as_whole, []

    def reading(folder):
        if not swapped:
            swapped.append(os.rename(path / "last", path / "x"))
            shutil.copytree(path / "x", path / "last")
        return read(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "as_whole", reading)
        again = Checkpoints(path).load_weights("last")
    assert swapped and all(torch.equal(again[name], last[name]) for name in last)

    # A part that is damaged, or not there: the checkpoint before it is whole.
    part = next((path / "last").glob("shard-00002-*"))
    data = part.read_bytes()
    for damage in (data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], data[:-1], None):
        part.unlink() if damage is None else part.write_bytes(damage)
        _, state = Checkpoints(path).load_training()
        assert state["count"]["step"] == 10
    part.write_bytes(data)
    foreign = part.with_name("shard-00009-model-00001-of-00001.safetensors")
    foreign.write_bytes(data)  # DCP would read it with the others
    assert Checkpoints(path).load_training()[1]["count"]["step"] == 10
    foreign.unlink()
    assert Checkpoints(path).load_training()[1]["count"]["step"] == 12


def test_what_is_no_longer_the_best_is_saved_too(world):
    """Of a learning rate that changes no weight, all losses but the first are no better."""
    path, argv = world / "runs" / "still", ["--train.sample_tokens", "0", "--optim.lr", "1e-12"]
    output(WORLD, "2", "0", *arguments(world, *argv, "--train.shard", "full", "--name", path.name))
    assert Checkpoints(path).load_training()[1]["count"]["step"] == 12
    assert len(set(points(path, "val/loss").values())) == 1


def test_saving_before_the_first_step_is_no_step():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    tensors = state_tensors(model, [optimizer])
    assert {t.item() for name, t in tensors.items() if name.endswith(".step")} == {0}
    assert len(tensors) == 2 * 4


def test_parts_of_which_the_first_process_sees_its_own_only_are_no_checkpoint(tmp_path):
    class Two(World):
        def collect(self, values: dict[str, str]) -> dict[str, str]:
            return values | {"shard-00002-model-00001-of-00001.safetensors": "0" * 64}

    world = Two(0, 1, CPU)
    checkpoints = Checkpoints(tmp_path)
    (checkpoints.begin_parts(world) / "shard-00001-model-00001-of-00001.safetensors").touch()
    with pytest.raises(UserError, match="filesystem that all machines see"):
        checkpoints.finish_parts("last", {}, world)
    assert not checkpoints.has_training


def test_300_processes_find_each_other_and_not_those_of_an_earlier_start():
    table = dist.TCPStore("127.0.0.1", 0, is_master=True)
    worlds = [World(rank, 300, CPU, timeout=50) for rank in range(300)]
    words = []
    for _ in range(2):
        with ThreadPoolExecutor(300) as pool:
            agreed = set(pool.map(lambda world: world._agree(table), worlds))
        assert len(agreed) == 1
        words += agreed
    assert words[0] != words[1]


def test_a_killed_process_costs_the_steps_since_the_last_checkpoint(world):
    """kill -9; torchrun starts all again, and --resume auto goes on. Checkpoints are written in the
    background."""
    one, path = trained(world, "longer", *RAGGED, "--train.steps", "60"), world / "runs" / "shot"
    argv = arguments(world, *RAGGED, "--train.steps", "60", "--train.shard", "full",
                     "--train.async_save", "true", "--resume", "auto", "--name", "shot")
    process = start(TORCHRUN, "--max-restarts", "3", *torchrun(2, ROOT / "train.py", *argv))
    wait_for(lambda: (path / "last").exists())
    os.kill(rank_of("shot", 1), signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert_same_losses(path, one)


def test_who_hangs_is_named_and_nobody_waits_for_ever(world):
    path = world / "runs" / "hangs"
    argv = arguments(world, "--train.shard", "full", "--train.timeout", "4", "--train.steps",
                     "100000", "--name", path.name)
    process = start(TORCHRUN, *torchrun(3, ROOT / "train.py", *argv))
    wait_for(lambda: (path / "last").exists())
    hanging = rank_of(path.name, 1)
    os.kill(hanging, signal.SIGSTOP)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"has lost the others: no answer from process 1 (pid {hanging} on " in errors
    assert not Path(f"/proc/{hanging}").exists()


def test_what_cannot_be_divided_is_refused(world, capfd, monkeypatch):
    for argv, words in {
        ("--train.shard", "0"): "train.shard must be at least 1, not 0",
        ("--train.shard", "half"): "train.shard must be",
        ("--train.async_save", "true"): "train.async_save has no effect with train.shard none",
        ("--train.async_save", "true", "--train.shard", "1"): "no effect with train.shard 1",
        ("--train.shard", "full", "--train.dtype", "float16"): "float16 cannot be divided",
        ("--train.timeout", "0"): "train.timeout must be",
    }.items():
        assert words in refusal(capfd, train.main, *arguments(world, *argv))[-1]
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match="train.shard 4 does not divide the 6 processes"):
        World.read("cpu", 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert World.read("cpu").launcher == ["torchrun", "--nnodes", "2", "--nproc-per-node", "3"]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert "say --resume auto" in refusal(capfd, train.main, *arguments(world))[-1]


def test_the_same_command_starts_a_run_and_goes_on_with_it(world, tmp_path, capfd, monkeypatch):
    """Without the weights that it started from; what has been decided stays decided."""
    path, file = world / "runs" / "again", tmp_path / "c.yaml"
    file.write_text("optim: {grad_clip: 2}", encoding="utf-8")
    origin = shutil.copytree(trained(world, "origin"), tmp_path / "origin")
    argv = ["--config", str(file), "--init-from", str(origin), *training(
        world, "--train.dtype", "auto", "--name", "again", "--resume", "auto")]
    slow_bfloat16 = [2e9, 1e9]
    monkeypatch.setattr(trainer, "product_rates", lambda *args, **options: slow_bfloat16)
    stop_at(4, *argv)
    slow_bfloat16.reverse()
    file.write_text("optim: {grad_clip: 3}", encoding="utf-8")
    capfd.readouterr()
    stop_at(7, *argv)
    said = capfd.readouterr().err
    assert "goes on with its own optim.grad_clip, not" in said and "float32, as configured" in said
    shutil.rmtree(origin)
    assert run(train.main, *argv) == 0
    assert list(points(path)) == list(range(1, 13))
    assert run(train.main, *argv) == 0
    shutil.rmtree(path)
    assert f"no run folder at {origin}" in refusal(capfd, train.main, *argv)[-1]


def test_the_table_of_the_simulated_world_is_that_of_its_record():
    """Divided over N, a process has 1/N of the weights, but for rows that cannot be halved."""
    cases = json.loads((ROOT / "docs" / "scaling.json").read_text(encoding="utf-8"))["cases"]
    assert table(cases) in (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    for case in cases:
        share = case["parameters"] / case["shards"]
        assert share <= case["own_parameters"] < 1.2 * share
