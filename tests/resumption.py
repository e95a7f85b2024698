"""Kill a training at a chosen place, and compare what two runs have left behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import error_lines, read_metric
from safetensors.torch import load_file
from torch import Tensor

import gyre.step
import train
from gyre.rundir import RunDir

# What makes a run hard to continue exactly: random numbers, micro-batches and states of two kinds.
# It has seven steps, and validates after the third, the sixth and the last.
EXACT = ["--model.n_layers=2", "--model.dropout=0.2", "--train.batch_size=9",
         "--train.micro_batch_size=5", "--train.steps=7", "--train.eval_interval=3",
         "--optim.optimizer=muon", "--train.sample_prompt=ab"]
LOGGED = ("train/loss", "train/grad_norm", "train/lr", "val/loss", "val/bpb", "sample")


class Killed(BaseException):
    """As by kill -9: nobody cleans up."""


def kill_before(name: str, when: Callable[..., bool], *argv: str | Path) -> None:
    """train.py, killed before it calls its function `name` with arguments of which `when` holds.

    `start_step`, which it calls by a queue, is in gyre/step.py.
    """
    module: Any = gyre.step if name == "start_step" else train
    function = getattr(module, name)

    def deadly(*args: Any) -> Any:
        if when(*args):
            raise Killed
        return function(*args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, name, deadly)
        train.main([str(word) for word in argv])


def always(*args: Any) -> bool:
    """At the first call."""
    return True


def resume_refusal(capture: Any, path: Path, *options: str) -> str:
    """The error of `train.py --resume` of a run that does not go on."""
    return error_lines(capture, train.main, "--resume", path, *options)[-1]


def last_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and optimizer states in `last`, and its training.pt."""
    checkpoints = RunDir.open(path).checkpoints
    with checkpoints.open("last") as folder:
        weights = load_file(folder / "model.safetensors")
        states = load_file(folder / "optimizer.safetensors")
        return weights | states, checkpoints.load_training(folder)


def assert_equal_runs(a: Path, b: Path) -> None:
    """Bitwise: every loss, the weights and the optimizers' state. Only the times may differ."""
    for key in LOGGED:
        assert read_metric(a, key) == read_metric(b, key)
    tensors, training = last_checkpoint(a)
    same_tensors, same_training = last_checkpoint(b)
    torch.testing.assert_close(tensors, same_tensors, rtol=0, atol=0)
    training["progress"]["seconds"] = same_training["progress"]["seconds"]
    assert training == same_training
