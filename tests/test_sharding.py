"""Training by several real processes, each with all of the model or a part of it.

What one process does is the reference: losses agree to 1e-6 in float32, however many processes
there are, in whatever groups, and however often a run is stopped and resumed by another number.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from builders import (
    CPU,
    build_setup,
    error_lines,
    model_config,
    read_metric,
    stop_at,
    tiny_argv,
    train_tiny,
    wait_for,
)
from disk_faults import flip_a_bit

import gyre.step
import train
from errors import UserError
from gyre.checkpoint import STATES, write_tensors
from gyre.optim import Optimizers
from gyre.parallel import Replicated, World, copy_weights
from gyre.rundir import RunDir
from gyre.sharding import Sharded, set_timeout
from gyre.signals import StopSignal
from gyre.step import Setup, token_losses, train_step
from model.generation import generate
from model.sampling import Sampling

# 27 rows in micro-batches of 6: of four processes, one has fewer of them.
RAGGED = ["--model.n_layers", "2", "--model.dropout", "0.25", "--train.batch_size", "27",
          "--train.micro_batch_size", "6"]


def train_rank(number: int, *argv: str) -> None:
    """A training of which rank 1 alone is told to stop, in step `number`; 0: in no step.

    It asserts at its end that every group of processes has train.timeout.
    """
    start_step = gyre.step.start_step
    leave = World.disconnect
    stop = StopSignal()

    def stopping(setup, step):
        if setup.world.rank == 1 and step == number - 1:
            stop.number = signal.SIGTERM
        return start_step(setup, step)

    def leave_in_time(self):
        for group in dist.distributed_c10d._world.pg_map:
            waits = group._get_backend(self.device).options._timeout.total_seconds()
            assert waits == self.timeout, waits
        leave(self)

    gyre.step.start_step = stopping
    World.disconnect = leave_in_time
    train.StopSignal = lambda: stop  # pyrefly: ignore[bad-assignment]
    train.main([*argv])


def meet(port: int) -> None:
    """A rank that meets the others in torchrun's store, which listens at this port."""
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(port)}
    world = World.from_env("cpu", 10)
    world.connect()
    assert world.sum(1.0) == [2.0]
    os._exit(0)  # as one that is killed


def restarting(*argv: str) -> None:
    """What torchrun --nproc-per-node 2 --max-restarts 3 does, with processes that are forked."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(1, 1, 2, run_id="a", rdzv_backend="c10d", rdzv_endpoint="localhost:0",
                          max_restarts=3, start_method="fork", monitor_interval=0.1)
    elastic_launch(config, train.main)([*argv])


def assert_same_losses(path: Path, expected: Path) -> None:
    for key in ("train/loss", "val/loss", "val/bpb", "val/eos_share", "train/grad_norm"):
        assert read_metric(path, key) == pytest.approx(read_metric(expected, key), abs=1e-6)


# Of two ranks, one has 13 of 27 rows and takes one pass, and one has 14 and takes two.
UNEVEN = ["--train.micro_batch_size", "13"]
# The larger share of two has 14 rows; the matched sinusoid a scalar, which cannot be divided.
MUON = ["--optim.optimizer", "muon", "--model.tie_embeddings", "false",
        "--train.micro_batch_size", "14", "--model.position", "sinusoidal"]
# In the backward pass each block is computed again, and sharded weights are gathered for it.
AGAIN = ["--train.checkpoint_blocks", "true"]
# In micro-batches of 6, the rank that has 6 of 27 rows takes one pass less than those that have 7.
ALIBI = ["--model.position", "alibi", "--train.micro_batch_size", "6"]


@pytest.mark.slow
@pytest.mark.parametrize("processes, shard, extra", [
    (2, "none", [*UNEVEN, *AGAIN]), (2, "full", MUON), (4, "2", [*ALIBI, *AGAIN])])
def test_several_processes_train_as_one_does(workdir, launch_ranks, processes, shard, extra):
    """DDP, FSDP and HSDP. What they leave behind has the same files and the same weights."""
    name = f"{shard}-{processes}"
    one = train_tiny(workdir, f"one-{name}", *RAGGED, *extra)
    several = workdir / "runs" / name
    argv = tiny_argv(workdir, *RAGGED, *extra, "--train.shard", shard, "--name", name)
    launch_ranks(processes, train_rank, 0, *argv).join()
    assert_same_losses(several, one)
    assert {p.name for p in one.iterdir()} == {p.name for p in several.iterdir()}
    for which in ("last", "best"):
        expected = RunDir.open(one).checkpoints.load_weights(which)
        weights = RunDir.open(several).checkpoints.load_weights(which)
        # Newton and Schulz make small differences larger.
        torch.testing.assert_close(weights, expected, rtol=0, atol=2e-4 if extra == MUON else 2e-5)


def share_other_weights() -> None:
    """A rank whose weights are not those of rank 0, until it shares them."""
    world = World.from_env("cpu")
    world.connect()
    parallelism = Replicated(world)
    model, _ = parallelism.build_model(model_config(), compiled=False)
    copy_weights(model, model.draw_matrices(seed=world.rank))
    parallelism.share_weights(model)
    sums = world.all_gather([parameter.sum().item() for parameter in model.parameters()])
    assert sums[0] == sums[1]
    world.disconnect()


@pytest.mark.slow
def test_all_ranks_start_with_the_weights_of_the_first(launch_ranks):
    """On other processors the same seed draws other numbers, and a file may be replaced."""
    launch_ranks(2, share_other_weights).join()


@pytest.mark.slow
def test_a_run_goes_on_with_any_number_of_processes(workdir, launch_ranks):
    """4, 1 and 3 processes in turn. One rank that is told to stop stops all. The three find `last`
    damaged, each a part of it."""
    muon = [*RAGGED, "--optim.optimizer", "muon", "--model.tie_embeddings", "false"]
    one = train_tiny(workdir, "one", *muon)
    path = workdir / "runs" / "chain"
    argv = tiny_argv(workdir, *muon, "--train.shard", "full", "--resume", "auto", "--name", "chain")
    launch_ranks(4, train_rank, 4, *argv).join(128 + signal.SIGTERM)
    stop_at(9, *argv)
    flip_a_bit(path / "last" / STATES)
    errors = launch_ranks(3, train_rank, 0, *argv).join()
    assert errors.count("taking the checkpoint before it") == 1, errors
    assert_same_losses(path, one)


@pytest.mark.slow
def test_three_processes_go_on_bit_for_bit(workdir, launch_ranks):
    options = ["--model.dim", "144", "--train.keep", "[6]"]  # DDP has several buckets for it
    launch_ranks(3, train_rank, 0, *tiny_argv(workdir, *options, "--name=whole")).join()
    branch = ["--branch-from", workdir / "runs" / "whole", "--at=6", "--name=branch"]
    launch_ranks(3, train_rank, 0, *map(str, branch)).join()
    whole, branched = (read_metric(workdir / "runs" / name, "train/loss") for name in ("whole",
                                                                                       "branch"))
    assert branched == whole


@pytest.mark.slow
def test_processes_meet_again_in_a_store_that_was_used_before(launch_ranks):
    """torchrun keeps its store, and counts no restart, when a machine comes or goes."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for _ in range(2):
        launch_ranks(2, meet, store.port).join()


@pytest.mark.slow
def test_a_killed_process_costs_the_steps_since_the_last_checkpoint(workdir, launch_ranks):
    """kill -9; torchrun starts all again, and --resume auto goes on."""
    one = train_tiny(workdir, "longer", *RAGGED, "--train.steps", "30")
    path = workdir / "runs" / "shot"
    options = [*RAGGED, "--train.steps=30", "--train.shard=full", "--resume=auto", "--name=shot"]
    agent = launch_ranks(1, restarting, *tiny_argv(workdir, *options))
    wait_for(lambda: (path / "last").exists())
    psutil.Process(agent.processes[0].pid).children()[1].kill()
    agent.join()
    assert_same_losses(path, one)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_nobody_waits_for_ever_for_a_lost_process(workdir, launch_ranks, number):
    options = ["--train.shard=full", "--train.timeout=3", "--train.steps=100000"]
    ranks = launch_ranks(2, train_rank, 0, *tiny_argv(workdir, *options, f"--name={number.name}"))
    wait_for((workdir / "runs" / number.name / "last").exists)
    os.kill(ranks.processes[1].pid, number)
    ranks.processes[0].join(30)
    assert ranks.processes[0].exitcode == 2
    ranks.processes[1].kill()
    errors = ranks.join(2)
    assert "error: process 0 of 2 has lost the others" in errors and "Traceback" not in errors


@pytest.mark.parametrize("option, environment, words", [
    ("--seed=1", {}, "environment variable RANK expected, but not set"),
    ("--train.batch_size=6 --train.shard=4", {"RANK": "0"}, "4 does not divide the 6 processes"),
    ("--train.shard=2 --model.n_layers=1000000000", {"RANK": "1"}, "takes 147,456.0 GB"),
    ("--train.batch_size=5", {"RANK": "5"}, "cannot be shared by 6"),
    ("--train.device=cuda:1", {"RANK": "0", "WORLD_SIZE": "2"}, "one card for 2 processes")])
def test_a_launch_that_cannot_work_is_refused(
        workdir, capfd, monkeypatch, option, environment, words):
    for name, value in {"WORLD_SIZE": "6", **environment}.items():
        monkeypatch.setenv(name, value)
    assert words in error_lines(capfd, train.main, *tiny_argv(workdir, *option.split()))[-1]


@contextmanager
def group_of_one() -> Iterator[None]:
    """A context in which this process is connected to no other."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        # This waits for gloo's threads. Those that have a tensor left to free wait for Python's
        # lock, which Python holds when it frees DDP and waits for them: for ever.
        World(0, 2, CPU).disconnect()


@contextmanager
def one_shard(whole: Setup) -> Iterator[Setup]:
    """The same training, with the model sharded by FSDP in one process."""
    with group_of_one():
        sharding = Sharded(whole.world, 1)
        model, wrapped = sharding.build_model(whole.config.model, compiled=False)
        copy_weights(model, model.draw_matrices(whole.config.seed))
        yield replace(whole, parallelism=sharding, model=model, wrapped=wrapped,
                      optimizers=Optimizers(model, whole.config.optim, torch.float32))


def assert_same_steps(sharded: Setup, whole: Setup) -> None:
    """Two steps have the same loss and norm: the first weights, and those after a step."""
    for step in range(2):
        expected = train_step(whole, step)
        result = train_step(sharded, step)
        assert result.loss == pytest.approx(expected.loss, rel=1e-6)
        assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-6)


def test_one_shard_is_trained_as_the_whole_model_is(workdir):
    """First weights, steps, the norm that is clipped, and the loss of val."""
    whole = build_setup(workdir, *RAGGED, "--train.batch_size", "8", "--optim.grad_clip", "0.5")
    with one_shard(whole) as sharded:
        assert_same_steps(sharded, whole)
        assert sharded.parallelism.is_finite(sharded.model)
        with sharded.parallelism.unsharded(sharded.model):
            losses = [[*token_losses(setup.model, setup.val_data, 5, setup.compute)]
                      for setup in (sharded, whole)]
        torch.testing.assert_close(*losses)


def test_a_shard_writes_the_text_of_the_whole_model(workdir):
    """Generation calls other methods than `forward`, for which FSDP gathers no weights."""
    whole = build_setup(workdir, *RAGGED, "--train.batch_size", "8")
    with one_shard(whole) as sharded:
        assert_same_steps(sharded, whole)
        with sharded.parallelism.unsharded(sharded.model):
            texts = [generate(setup.model, [[5, 7, 9]], Sampling(), max_new_tokens=8)
                     for setup in (sharded, whole)]
    assert texts[0] == texts[1]


def test_a_shard_computes_its_blocks_again(workdir):
    """The weights of a block are gathered for it, and steps are those of the whole model."""
    whole = build_setup(workdir, *RAGGED, "--train.batch_size", "8")
    with one_shard(whole) as sharded:
        sharded.model.checkpoint_blocks = True
        assert_same_steps(sharded, whole)


@pytest.mark.parametrize("last", [False, True])
def test_gradients_are_averaged_with_the_last_micro_batch_only(last):
    parallelism = Replicated(World(0, 2, CPU))
    with group_of_one():
        _, module = parallelism.build_model(model_config(), compiled=False)
        with parallelism.averaging(module, last):
            assert module.require_backward_grad_sync is last


def test_a_replicated_model_is_left_in_training_mode():
    """Else several processes would train without dropout."""
    with group_of_one():
        model, module = Replicated(World(0, 2, CPU)).build_model(model_config(), compiled=False)
    assert (model.training, module.training) == (True, True)


@pytest.mark.parametrize("device, backend, card", [
    ("cpu", "gloo", None), ("cuda:1", "nccl", torch.device("cuda", 1))])
def test_processes_connect_by_what_their_device_needs(monkeypatch, device, backend, card):
    """nccl is told which card is this process's."""
    asked = {}

    def init_process_group(backend, device_id, **_):
        asked.update(backend=backend, device_id=device_id)

    store = dist.HashStore()
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(dist, "rendezvous", lambda *_, **__: iter([(store, 1, 2)]))
    monkeypatch.setattr(dist, "init_process_group", init_process_group)
    World(1, 2, torch.device(device)).connect()
    assert asked == {"backend": backend, "device_id": card}


def test_sums_over_processes_are_exact(monkeypatch):
    """In float64: float32 has no 2**24 + 1."""
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.mul_(2))
    assert World(0, 2, CPU).sum(16_777_217, 0.5) == [33_554_434, 1.0]


def test_one_process_sums_without_the_others():
    assert World(0, 1, CPU).sum(16_777_217) == [16_777_217]


@pytest.mark.parametrize("message", [
    "[1] gloo: Connection closed by peer", "Timed out waiting", "Broken pipe"])
def test_an_error_of_the_network_means_lost_processes(message):
    words = "process 1 of 2 has lost the others"
    with pytest.raises(UserError, match=words), World(1, 2, CPU).explain_lost_ranks():
        raise RuntimeError(message)


def test_an_error_of_nccl_means_lost_processes():
    words = "process 1 of 2 has lost the others"
    with pytest.raises(UserError, match=words), World(1, 2, CPU).explain_lost_ranks():
        raise dist.DistBackendError("NCCL error: remote process exited")


@pytest.mark.parametrize("size, message", [(2, "shapes cannot be multiplied"), (1, "Broken pipe")])
def test_no_other_error_means_lost_processes(size, message):
    with pytest.raises(RuntimeError, match=message), World(0, size, CPU).explain_lost_ranks():
        raise RuntimeError(message)


def test_ranks_that_are_unset_or_empty_are_one_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "")
    world = World.from_env("cpu")
    assert (world.rank, world.size, world.is_main) == (0, 1, True)


def test_rank_0_writes_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        write_tensors(tmp_path, {str(rank): {"a": torch.ones(3)}}, World.from_env("cpu"))
    assert [file.name for file in tmp_path.iterdir()] == ["0"]


@pytest.mark.parametrize("is_public", [True, False])
def test_a_timeout_is_set_by_the_public_name_if_there_is_one(monkeypatch, is_public):
    calls = []
    monkeypatch.setattr(dist.distributed_c10d, "_set_pg_timeout",
                        lambda *values: calls.append(("private", *values)))
    if is_public:
        monkeypatch.setattr(dist, "set_timeout",
                            lambda *values: calls.append(("public", *values)), raising=False)
    else:
        monkeypatch.delattr(dist, "set_timeout", raising=False)
    set_timeout("the group", 90)
    name = "public" if is_public else "private"
    assert calls == [(name, timedelta(seconds=90), "the group")]
